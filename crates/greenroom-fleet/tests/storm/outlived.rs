//! CLIs that outlive their service.

use std::path::Path;
use std::time::{Duration, Instant};

use greenroom_fleet::{Name, PromptOutcome};
use rustix::process::Signal;

use crate::checks::wait_for_processes;
use crate::journal::{Journal, Process, guardian_of};
use crate::life::Life;
use crate::protocol::{LINGER, Line, Reply, Wish};
use crate::wait::in_time;

/// A service whose only session has run a turn: its CLI is idle, or runs the next turn, and lingers after SIGTERM.
struct Stage {
    folder: tempfile::TempDir,
    linger: Duration,
}

impl Stage {
    fn new(linger: Duration) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for part in ["slots", "names", "tmp"] {
            std::fs::create_dir(folder.path().join(part)).unwrap();
        }
        Self { folder, linger }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn begin(&self, number: u64) -> Life {
        Life::begin(self.path(), number, 1, &[(LINGER, self.linger.as_millis().to_string())])
    }

    fn journal(&self) -> Journal {
        let mut journal = Journal::new(self.path());
        journal.read();
        assert!(journal.faults.is_empty(), "{:?}", journal.faults);
        journal
    }
}

/// The opening kills what still runs after a minute. Here others end it before.
fn assert_no_kill(kind: &str) {
    assert_ne!(kind, "process_killed", "the opening has killed the old CLI");
}

/// Reads until the fleet is open. No name may be activated before.
async fn opened(life: &mut Life) {
    loop {
        match in_time("the opening of the fleet", life.next()).await {
            Some(Line::Ready) => return,
            Some(Line::Joined(_)) => {}
            Some(Line::Event(kind)) => {
                assert_no_kill(&kind);
                assert_ne!(kind, "activating", "a name is claimed");
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Reads until the reply.
async fn reply(life: &mut Life, wish: Wish) -> Reply {
    let wanted = life.ask(wish).await;
    loop {
        match in_time("a reply", life.next()).await {
            Some(Line::Reply { id, reply }) if id == wanted => return reply,
            // The event may be told after the opening.
            Some(Line::Event(kind)) => assert_no_kill(&kind),
            Some(_) => {}
            None => panic!("the service has ended"),
        }
    }
}

async fn completes(life: &mut Life, text: &str) {
    let name: Name = "acme/a".parse().unwrap();
    let (key, text) = (text.to_owned(), text.to_owned());
    let Reply::Accepted { prompt, .. } =
        reply(life, Wish::Prompt { name, key, text, continuations: 0 }).await
    else {
        panic!("not accepted")
    };
    let ended = reply(life, Wish::Outcome(prompt)).await;
    assert!(matches!(ended, Reply::Ended(PromptOutcome::Completed { .. })), "{ended:?}");
}

/// A service that was killed, after its guardian was stopped if it is to be: its CLI, the guardian, and a moment before.
async fn killed(stage: &Stage, stopped: bool) -> (Process, Process, Instant) {
    let mut life = stage.begin(1);
    opened(&mut life).await;
    completes(&mut life, "one").await;
    let [cli] = stage.journal().processes[..] else { panic!("one CLI") };
    let guardian = guardian_of(life.pid()).expect("there is a guardian");
    if stopped {
        assert!(guardian.signal(Signal::STOP));
    }
    let before = Instant::now();
    life.kill();
    life.end().await;
    (cli, guardian, before)
}

/// The next life has opened the fleet, and goes on with the session.
async fn goes_on(stage: &Stage, life: &mut Life, cli: Process) {
    assert!(!cli.lives(), "the old CLI lives, and names can be claimed");
    assert_eq!(stage.journal().starts, 1);
    completes(life, "two").await;
    let journal = stage.journal();
    assert_eq!((journal.starts, journal.texts.len()), (2, 2));
    assert_eq!(journal.texts.values().sum::<u32>(), 2, "each prompt was sent once");
    life.kill();
    wait_for_processes(stage.path(), &[]).await;
}

#[tokio::test]
async fn an_old_cli_that_outlives_its_service_by_ten_seconds_is_awaited() {
    let stage = Stage::new(Duration::from_secs(10));
    // The guardian would end the CLI after two seconds.
    let (cli, guardian, before) = killed(&stage, true).await;
    assert!(guardian.kill() && cli.lives());
    let mut life = stage.begin(2);
    opened(&mut life).await;
    let waited = before.elapsed();
    assert!(waited >= Duration::from_secs(9), "the CLI goes on for ten seconds, and not {waited:?}");
    goes_on(&stage, &mut life, cli).await;
}

#[tokio::test]
async fn a_guardian_ends_the_clis_of_a_killed_service_before_the_next_one_opens() {
    let stage = Stage::new(Duration::from_secs(600));
    let (cli, ..) = killed(&stage, false).await;
    let mut life = stage.begin(2);
    opened(&mut life).await;
    goes_on(&stage, &mut life, cli).await;
}
