//! Promises that need a scene of their own.

use std::collections::BTreeMap;
use std::time::Duration;

use greenroom_fleet::backend::MemoryBackend;
use greenroom_fleet::testkit::{Fault, FaultedBackend};
use greenroom_fleet::{Fleet, FleetLimits};
use tokio::time::sleep;

use super::cli::{Caps, Journal, Kind, Turn};

const BULK: usize = 1000;

fn journal(live: usize) -> Journal {
    let answer = Duration::from_millis(100);
    Journal::new(Caps { live, starting: live, tenants: BTreeMap::new(), answer })
}

async fn fleet(journal: &Journal, backend: FaultedBackend, change: impl FnOnce(&mut FleetLimits)) -> Fleet {
    let journal = journal.clone();
    let builder = Fleet::builder().backend(backend).profile("default", move |cx| journal.activate(cx, 0));
    builder.configure(change).start().await.unwrap()
}

fn text(id: impl Into<String>, millis: u64, kind: Kind) -> String {
    Turn { id: id.into(), millis, kind }.text()
}

/// The grants that a tenant with one prompt waits for, while another one has 1,000 prompts.
async fn grants_before_the_other(name_of: impl Fn(usize) -> String) -> usize {
    let journal = journal(1);
    let fleet = fleet(&journal, FaultedBackend::new(MemoryBackend::new()), |limits| {
        limits.live = 1;
        limits.activations_at_once = 1;
        limits.idle_before_eviction = Duration::ZERO;
        limits.queue.name = 5000;
        limits.queue.tenant = 5000;
        limits.queue.fleet = 5000;
        limits.wait = Duration::from_secs(24 * 3600);
    })
    .await;
    for number in 0..BULK {
        let session = fleet.tenant("bulk").unwrap().session(name_of(number)).unwrap();
        drop(session.prompt(text(format!("p{number}"), 500, Kind::Plain)).await.unwrap());
    }
    sleep(Duration::from_secs(60)).await;
    let before = journal.state().order.len();
    assert!(before > 10, "{before}");
    let session = fleet.tenant("small").unwrap().session("small").unwrap();
    let mut turn = session.prompt(text("p-small", 0, Kind::Plain)).await.unwrap();
    let known = journal.state().order.len();
    assert!(turn.outcome().await.unwrap().is_completed());
    let at = journal.state().order.iter().position(|name| name == "small").unwrap();
    assert_eq!(journal.violations(), Vec::<String>::new());
    fleet.drain(Duration::from_secs(5)).await;
    at - known
}

#[tokio::test(start_paused = true)]
async fn a_thousand_prompts_of_one_tenant_delay_another_by_one_grant() {
    let of_many_names = grants_before_the_other(|number| format!("bulk-{number}")).await;
    assert!(of_many_names <= 1, "{of_many_names} grants");
    let of_one_name = grants_before_the_other(|_| "bulk".to_owned()).await;
    assert!(of_one_name <= 1, "{of_one_name} grants");
}

#[tokio::test(start_paused = true)]
async fn tool_calls_are_answered_while_the_backend_hangs() {
    let journal = journal(4);
    let backend = FaultedBackend::new(MemoryBackend::new());
    let fleet = fleet(&journal, backend.clone(), |limits| limits.live = 4).await;
    let mut turns = Vec::new();
    for number in 0..4 {
        let session = fleet.tenant("default").unwrap().session(format!("name-{number}")).unwrap();
        turns.push(session.prompt(text(format!("p{number}"), 5000, Kind::Call)).await.unwrap());
    }
    sleep(Duration::from_secs(3)).await;
    let before = journal.state().calls;
    backend.plan(|_| Fault::Hang);
    sleep(Duration::from_secs(10)).await;
    assert!(backend.hanging() > 0);
    assert_eq!((before, journal.state().calls), (4, 8));
    backend.plan(|_| Fault::Pass);
    backend.release();
    for turn in &mut turns {
        assert!(turn.outcome().await.unwrap().is_completed());
    }
    assert_eq!(journal.violations(), Vec::<String>::new());
    fleet.drain(Duration::from_secs(20)).await;
}
