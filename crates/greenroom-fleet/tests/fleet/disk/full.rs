//! A disk that is full, read-only or broken, while a fleet starts, runs and ends.

use std::io::ErrorKind;
use std::sync::Arc;

use greenroom::{NoArgs, PermissionDecision, Session, ToolServer};
use greenroom_fleet::{FleetPrompt, InterruptedBy, NameState, PromptError, PromptOutcome};
use greenroom_testkit::{ModelTurn, Script, ScriptedCli};
use serde_json::json;
use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;

use super::*;
use crate::scenes::{asks, drain, in_time, named, outcome, secs, send, start};

/// The faults of a disk, and what the error says to do about each.
const FAULTS: [(ErrorKind, &str); 3] = [
    (ErrorKind::StorageFull, "make room on its disk"),
    (ErrorKind::ReadOnlyFilesystem, "its disk is read-only: make it writable"),
    (ErrorKind::Other, "make room on its disk or mend it"),
];

#[tokio::test]
async fn a_full_disk_harms_no_turn_that_runs_and_its_outcome_is_written_later() {
    for (fault, _) in FAULTS {
        let (disk, folder) = (SimulatedDisk::new(), tempfile::tempdir().unwrap());
        let refund = ModelTurn::new().call("mcp__shop__refund", json!({}));
        let cli = ScriptedCli::play(Script::new().turn(refund).otherwise(ModelTurn::new().text("Done.")));
        let (called, go) = (Arc::new(Notify::new()), Arc::new(Semaphore::new(0)));
        let (transport, told, held) = (cli.transport(), called.clone(), go.clone());
        let profile = move |_: &greenroom_fleet::ActivationContext| {
            let (told, held) = (told.clone(), held.clone());
            let refund = move |_: NoArgs| {
                let (told, held) = (told.clone(), held.clone());
                async move {
                    told.notify_one();
                    held.acquire().await.unwrap().forget();
                    "refunded"
                }
            };
            let shop = ToolServer::new("shop", "1.0.0").tool("refund", "Refund", refund);
            let allow = async |_, _| PermissionDecision::allow();
            Session::builder().mcp_server(shop).can_use_tool(allow).transport(transport.clone())
        };
        // The lease passes while the disk is full: nobody else can open the file, so the node goes on.
        let lease = secs(1);
        let builder = on(on_disk(&disk).await, &Clis::default(), folder.path())
            .configure(|limits| limits.lease = lease)
            .profile("shop", profile);
        let fleet = start(builder).await;
        let log = Log::of(&fleet);
        let customer = named(&fleet, "a").profile("shop");
        let mut turn = in_time("the accept", customer.prompt("I want my money back.")).await.unwrap();
        in_time("the call", called.notified()).await;

        disk.fail(fault);
        let begun = Instant::now();
        go.add_permits(1);
        let mut failures = 1;
        while log.wait_for("a failed request", failures, unavailable).await - begun < lease * 3 / 2 {
            failures += 1;
        }
        assert_eq!(cli.tool_results(), ["refunded"], "the model has the answer while the disk fails");
        let outcome = turn.outcome();
        let mut outcome = std::pin::pin!(outcome);
        assert!(futures_util::poll!(outcome.as_mut()).is_pending(), "nothing is told that is not kept");

        disk.mend();
        assert_eq!(in_time("the outcome", outcome).await.unwrap().text(), Some("Done."), "{fault:?}");
        assert_unharmed(&log);
        assert_eq!(cli.launches().len(), 1, "{fault:?}");
        drain(&fleet, secs(5)).await;
    }
}

#[tokio::test]
async fn a_prompt_that_a_full_disk_does_not_take_is_unknown_and_says_what_to_do() {
    for (fault, remedy) in FAULTS {
        let (disk, folder, clis) = (SimulatedDisk::new(), tempfile::tempdir().unwrap(), Clis::default());
        let fleet = start(on(on_disk(&disk).await, &clis, folder.path())).await;
        let log = Log::of(&fleet);
        assert_eq!(asks(&fleet, "a", "one").await, "re: one");
        let keyed = || FleetPrompt::new("two").key("k");
        disk.fail(fault);
        let unknown = in_time("the accept", named(&fleet, "a").prompt(keyed())).await.unwrap_err();
        let PromptError::Unknown { key, cause, .. } = &unknown else { panic!("{unknown:?}") };
        assert_eq!(key.as_deref(), Some("k"));
        assert_says(cause, BackendErrorKind::Unavailable, &[remedy]);
        let error = of_backend(in_time("the record", named(&fleet, "a").record()).await);
        assert_says(&error, BackendErrorKind::Unavailable, &[remedy]);
        disk.mend();
        assert_eq!(outcome(send(&fleet, "a", keyed()).await).await.text(), Some("re: two"));
        assert_eq!(clis.prompts_of("a"), ["one", "two"], "{fault:?}");
        assert_eq!(clis.starts_of("a"), 1, "{fault:?}");
        assert_unharmed(&log);
        drain(&fleet, secs(5)).await;
    }
}

#[tokio::test]
async fn a_start_on_a_full_disk_says_what_to_do_and_loses_nothing() {
    for (fault, remedy) in FAULTS {
        let (disk, folder, clis) = (SimulatedDisk::new(), tempfile::tempdir().unwrap(), Clis::default());
        let backend = on_disk(&disk).await;
        let fleet = start(on(backend.clone(), &clis, folder.path())).await;
        let waits = FleetPrompt::new("two").not_before(std::time::SystemTime::now() + secs(3600));
        let waits = send(&fleet, "a", waits).await.prompt_id();
        assert_eq!(asks(&fleet, "a", "one").await, "re: one");
        drain(&fleet, secs(5)).await;

        // The file is open, and the next fleet cannot join.
        disk.fail(fault);
        let error = of_backend(in_time("the start", on(backend.clone(), &clis, folder.path()).start()).await);
        assert_says(&error, BackendErrorKind::Unavailable, &[remedy]);
        // The file cannot be opened.
        backend.close().await;
        let before = disk.bytes();
        let error = LocalBackend::on_disk(&disk).await.unwrap_err();
        assert_says(&error, BackendErrorKind::Unavailable, &[remedy, "cannot be opened"]);
        assert_eq!(disk.bytes(), before);

        disk.mend();
        let fleet = start(on(on_disk(&disk).await, &clis, folder.path())).await;
        let record = named(&fleet, "a").record().await.unwrap();
        assert_eq!((record.queued, record.state), (1, NameState::Free));
        assert!(fleet.operator().withdraw(waits).await.unwrap());
        assert_eq!(asks(&fleet, "a", "three").await, "re: three");
        drain(&fleet, secs(5)).await;
    }
}

#[tokio::test]
async fn a_drain_on_a_full_disk_keeps_its_deadline_and_loses_nothing() {
    let (disk, folder, clis) = (SimulatedDisk::new(), tempfile::tempdir().unwrap(), Clis::default());
    let backend = on_disk(&disk).await;
    let fleet = start(on(backend.clone(), &clis, folder.path())).await;
    let runs = send(&fleet, "a", "hold").await.prompt_id();
    let goes_on = send(&fleet, "b", FleetPrompt::new("hold").continue_with("go on", 1)).await.prompt_id();
    clis.read(2).await;
    let waits = send(&fleet, "a", "two").await.prompt_id();
    disk.fail(ErrorKind::StorageFull);
    let took = drain(&fleet, secs(1)).await;
    // The time that tasks need to end comes on top.
    assert!(took < secs(5), "{took:?}");
    clis.gone().await;
    drop(fleet);
    backend.close().await;

    disk.mend();
    let fleet = start(on(on_disk(&disk).await, &clis, folder.path())).await;
    let lost = outcome(fleet.operator().turn(runs)).await;
    assert!(
        matches!(lost, PromptOutcome::Interrupted { by: InterruptedBy::OwnerLost { .. }, .. }),
        "{lost:?}"
    );
    assert_eq!(outcome(fleet.operator().turn(goes_on)).await.text(), Some("re: go on"));
    assert_eq!(outcome(fleet.operator().turn(waits)).await.text(), Some("re: two"));
    assert_eq!(clis.prompts_of("a"), ["hold", "two"]);
    drain(&fleet, secs(5)).await;
}

#[tokio::test]
async fn a_fleet_whose_file_is_closed_under_it_ends_its_sessions() {
    let (disk, folder, clis) = (SimulatedDisk::new(), tempfile::tempdir().unwrap(), Clis::default());
    let backend = on_disk(&disk).await;
    let builder = on(backend.clone(), &clis, folder.path()).configure(|limits| limits.lease = secs(1));
    let fleet = start(builder).await;
    let log = Log::of(&fleet);
    let runs = send(&fleet, "a", "hold").await.prompt_id();
    clis.read(1).await;
    // From here on another process may have the file, and the names.
    backend.close().await;
    log.wait("the fence", |event| matches!(event, FleetEvent::LeaseLost { .. })).await;
    in_time("the end", fleet.wait()).await;
    clis.gone().await;
    let fleet = start(on(on_disk(&disk).await, &clis, folder.path())).await;
    assert!(matches!(outcome(fleet.operator().turn(runs)).await, PromptOutcome::Interrupted { .. }));
    drain(&fleet, secs(5)).await;
}

#[tokio::test]
async fn a_file_that_is_cut_under_a_turn_works_again_when_it_is_restored() {
    let (disk, folder, clis) = (SimulatedDisk::new(), tempfile::tempdir().unwrap(), Clis::default());
    let backend = on_disk(&disk).await;
    let fleet = start(on(backend.clone(), &clis, folder.path())).await;
    let log = Log::of(&fleet);
    let runs = send(&fleet, "a", "hold").await.prompt_id();
    clis.read(1).await;
    let whole = disk.bytes();
    disk.replace(&whole[..8192]);
    let error = loop {
        // The first request finds the file too short, and the next one finds that it cannot be opened.
        let error = of_backend(in_time("the record", named(&fleet, "a").record()).await);
        if error.kind() == BackendErrorKind::Damaged {
            break error;
        }
    };
    assert_says(&error, BackendErrorKind::Damaged, &["is damaged", "restore it from a backup"]);
    // The turn's end cannot be written: the session ends, because nobody would write down what it does next. It may have ended
    // already, if a message of the turn came after the cut. Then the backend is asked who owns the session. Or it ends at this moment.
    match in_time("the interrupt", named(&fleet, "a").interrupt()).await {
        Ok(_) | Err(FleetError::Session(_)) => {}
        interrupted => assert_eq!(of_backend(interrupted).kind(), BackendErrorKind::Damaged),
    }
    let failed = |event: &FleetEvent| matches!(event, FleetEvent::Passivated { .. });
    log.wait("the session's end", failed).await;
    clis.gone().await;

    disk.replace(whole);
    drain(&fleet, secs(5)).await;
    let fleet = start(on(backend, &clis, folder.path())).await;
    let lost = outcome(fleet.operator().turn(runs)).await;
    assert!(
        matches!(lost, PromptOutcome::Interrupted { by: InterruptedBy::OwnerLost { .. }, .. }),
        "{lost:?}"
    );
    assert_eq!(asks(&fleet, "a", "two").await, "re: two");
    assert_eq!(clis.prompts_of("a"), ["hold", "two"]);
    drain(&fleet, secs(5)).await;
}

#[tokio::test]
async fn a_disk_without_room_for_the_sessions_quarantines_nobody() {
    let (disk, folder) = (SimulatedDisk::new(), tempfile::tempdir().unwrap());
    let root = folder.path().join("sessions");
    let builder = on(on_disk(&disk).await, &Clis::default(), &root).configure(|limits| {
        (limits.backoff, limits.backoff_max, limits.failures) = (secs(1) / 100, secs(1) / 10, 3);
    });
    let fleet = start(builder).await;
    let log = Log::of(&fleet);
    // Nobody can create a folder in `/sys`, whoever runs this test: it stands for a disk that takes no more.
    std::fs::remove_dir(&root).unwrap();
    std::os::unix::fs::symlink("/sys", &root).unwrap();
    let a = named(&fleet, "a");
    let turn = in_time("the accept", a.prompt("one")).await.unwrap();
    let failed = |event: &FleetEvent| matches!(event, FleetEvent::ActivationFailed { why, .. } if why.contains("create the folder"));
    log.wait_for("failed activations", 8, failed).await;
    let record = a.record().await.unwrap();
    assert!(!matches!(record.state, NameState::Quarantined { .. }), "{record:?}");
    assert!(record.failures.is_empty(), "{record:?}");

    std::fs::remove_file(&root).unwrap();
    std::fs::create_dir(&root).unwrap();
    assert_eq!(outcome(turn).await.text(), Some("re: one"));
    drain(&fleet, secs(10)).await;
}
