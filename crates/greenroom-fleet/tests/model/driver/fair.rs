//! Fairness after whatever has happened in a case.

use super::*;
use crate::cli::{Kind, Turn};

/// Names of other tenants that fill all slots, the prompts of each, and the time of a turn.
const BUSY: [(&str, usize); 2] = [("core", 4), ("bolt", 2)];
const PROMPTS: usize = 8;
const TURN: Duration = Duration::from_secs(2);
/// The time that a CLI takes to end and another one to start.
const STARTS: Duration = Duration::from_secs(1);

impl Life<'_> {
    /// Two tenants have prompts for many turns in all slots. The first prompt of a third one waits for one turn.
    pub(super) async fn fair(&mut self) {
        let Some(fleet) = self.fleet.clone() else { return };
        let text = |id: String, time: Duration| {
            Turn { id, millis: u64::try_from(time.as_millis()).unwrap(), kind: Kind::Plain }.text()
        };
        for (tenant, names) in BUSY {
            for number in 0..names * PROMPTS {
                let name = format!("{tenant}-{}", number % names);
                let prompt = text(format!("b-{tenant}-{number}"), TURN);
                // Refused: sessions in quarantine have many prompts that wait.
                drop(fleet.tenant(tenant).unwrap().session(name).unwrap().prompt(prompt).await);
            }
        }
        sleep(TURN * 2).await;
        let began = Instant::now();
        let small = fleet.tenant("acme").unwrap().session("small").unwrap();
        let Ok(mut turn) = small.prompt(text("small".to_owned(), Duration::ZERO)).await else { return };
        let limit = TURN + STARTS;
        if timeout(limit, turn.outcome()).await.is_err() {
            drop(turn.outcome().await);
            let took = began.elapsed();
            self.violate(format!(
                "fair: the first prompt of a tenant ends after {took:?}, not after {limit:?}"
            ));
        }
    }
}
