//! Names: delete, quarantine, and names that look like something else.

use greenroom::transport::Exit;
use greenroom_fleet::backend::LocalBackend;
use greenroom_fleet::testkit::{Fault, FaultedBackend};
use greenroom_fleet::{BackendErrorKind, FleetError, FleetEvent, InterruptedBy, NameState};
use greenroom_testkit::ScriptedCli;
use tokio::time::{Instant, sleep};

use super::*;

fn folders(root: &std::path::Path) -> usize {
    std::fs::read_dir(root).unwrap().count()
}

#[tokio::test(start_paused = true)]
async fn delete_removes_the_files_the_conversation_the_prompts_and_the_keys() {
    let world = World::new();
    let root = tempfile::tempdir().unwrap();
    let fleet = start(world.builder().folder(root.path())).await;
    let a = named(&fleet, "a");
    let keyed = || FleetPrompt::new("one").key("k");
    let ended = send(&fleet, "a", keyed()).await.prompt_id();
    outcome(fleet.operator().turn(ended)).await;
    let before = a.record().await.unwrap();
    assert!(root.path().join(before.conversation.to_string()).is_dir());
    let runs = send(&fleet, "a", "hold").await;
    world.clis.read(2).await;
    let waits = send(&fleet, "a", "two").await;
    let (log, begun) = (Log::of(&fleet), Instant::now());
    assert_eq!(in_time("delete", a.delete()).await.unwrap().left, []);
    assert!(begun.elapsed() < secs(2), "{:?}", begun.elapsed());
    assert_eq!(log.end_of(runs.prompt_id()).await, "interrupted");
    assert_eq!(log.end_of(waits.prompt_id()).await, "unsent");
    assert!(matches!(a.record().await, Err(FleetError::NotFound { what: "session", .. })));
    assert_eq!((folders(root.path()), world.clis.live()), (0, 0));
    for prompt in [ended, runs.prompt_id(), waits.prompt_id()] {
        is_erased(&fleet, prompt).await;
    }

    // The name is free for another life: another profile, conversation and tenant, and the key is new.
    let b = named_of(&fleet, "other", "a");
    let turn = in_time("the accept", b.prompt(keyed())).await.unwrap();
    assert!(!turn.is_duplicate());
    outcome(turn).await;
    assert_ne!(b.record().await.unwrap().conversation, before.conversation);
    in_time("delete", b.delete()).await.unwrap();
    in_time("delete again", b.delete()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn delete_while_the_session_starts_waits_for_it_and_leaves_nothing() {
    let world = World::new();
    let root = tempfile::tempdir().unwrap();
    let fleet = start(world.builder().folder(root.path())).await;
    let log = Log::of(&fleet);
    let turn = send(&fleet, "a", "hold").await;
    log.wait("the start", |event| matches!(event, FleetEvent::Activating { .. })).await;
    in_time("delete", named(&fleet, "a").delete()).await.unwrap();
    assert_ne!(log.end_of(turn.prompt_id()).await, "completed");
    world.clis.gone().await;
    assert_eq!(folders(root.path()), 0);
}

#[tokio::test(start_paused = true)]
async fn delete_ends_a_session_whose_cli_hangs_at_its_start() {
    let (transport, mut listener) = ScriptedCli::by_hand();
    let profile = move |_: &_| Session::builder().transport(transport.clone());
    let fleet = start(Fleet::builder().profile("default", profile)).await;
    let (started, mut starts) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        // CLIs that answer nothing.
        while let Some(mut cli) = listener.try_accept().await {
            started.send(()).unwrap();
            while cli.recv().await.is_some() {}
            cli.exit(Exit::Code(0));
        }
    });
    let log = Log::of(&fleet);
    let turn = send(&fleet, "a", "one").await;
    in_time("the start", starts.recv()).await.unwrap();
    let begun = Instant::now();
    in_time("delete", named(&fleet, "a").delete()).await.unwrap();
    assert!(begun.elapsed() < secs(10), "{:?}", begun.elapsed());
    assert_eq!(log.end_of(turn.prompt_id()).await, "unsent");
}

#[tokio::test(start_paused = true)]
async fn a_quarantined_session_sleeps_and_keeps_its_prompts() {
    let world = World::new();
    let fleet = world.fleet(|_| {}).await;
    let a = named(&fleet, "a");
    assert!(matches!(in_time("quarantine", a.quarantine("?")).await, Err(FleetError::NotFound { .. })));
    let runs = send(&fleet, "a", "hold").await;
    world.clis.read(1).await;
    let waits = send(&fleet, "a", "two").await;
    in_time("quarantine", a.quarantine("looked at by Anna")).await.unwrap();
    assert!(matches!(outcome(runs).await, PromptOutcome::Interrupted { by: InterruptedBy::User, .. }));
    assert_eq!(world.clis.live(), 0);
    sleep(secs(60)).await;
    let record = a.record().await.unwrap();
    assert!(
        matches!(&record.state, NameState::Quarantined { why, .. } if why == "looked at by Anna"),
        "{record:?}"
    );
    assert_eq!(record.queued, 1);
    in_time("quarantine again", a.quarantine("?")).await.unwrap();
    in_time("unquarantine", a.unquarantine()).await.unwrap();
    assert_eq!(outcome(waits).await.text(), Some("re: two"));
}

#[tokio::test(start_paused = true)]
async fn no_prompt_begins_while_a_slow_backend_deletes_or_quarantines() {
    for method in ["quarantine", "delete"] {
        let world = World::new();
        let backend = FaultedBackend::new(world.backend.clone());
        let fleet = start(world.on(backend.clone())).await;
        let (log, a) = (Log::of(&fleet), named(&fleet, "a"));
        let runs = send(&fleet, "a", "hold").await;
        world.clis.read(1).await;
        let mut waits = Vec::new();
        for prompt in ["one", "two", "three"] {
            waits.push(send(&fleet, "a", prompt).await);
        }
        backend.fault_next(method, Fault::Delay(secs(3)));
        let begun = Instant::now();
        if method == "delete" {
            in_time("delete", a.delete()).await.unwrap();
        } else {
            in_time("quarantine", a.quarantine("looked at by Anna")).await.unwrap();
        }
        assert!(begun.elapsed() < secs(4), "{method}: {:?}", begun.elapsed());
        assert_eq!(log.end_of(runs.prompt_id()).await, "interrupted");
        assert_eq!((world.clis.starts_of("a"), world.clis.prompts_of("a").len()), (1, 1), "{method}");
        in_time("unquarantine", a.unquarantine()).await.unwrap();
        for wait in waits {
            let word = if method == "quarantine" { "completed" } else { "unsent" };
            assert_eq!(log.end_of(wait.prompt_id()).await, word);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_deletion_that_the_backend_does_not_answer_keeps_no_prompt_waiting() {
    let world = World::new();
    let backend = FaultedBackend::new(world.backend.clone());
    let fleet = start(world.on(backend.clone())).await;
    let runs = send(&fleet, "a", "hold").await;
    world.clis.read(1).await;
    let waits = send(&fleet, "a", "one").await;
    backend.fault_next("delete", Fault::Hang);
    let a = named(&fleet, "a");
    let deletion = tokio::spawn(async move { a.delete().await });
    assert_eq!(outcome(runs).await.word(), "interrupted");
    let begun = Instant::now();
    assert_eq!(outcome(waits).await.text(), Some("re: one"));
    assert!(begun.elapsed() < secs(6), "{:?}", begun.elapsed());
    backend.release();
    in_time("delete", deletion).await.unwrap().unwrap();
    assert_eq!(world.clis.live(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_quarantined_session_refuses_new_prompts_and_says_why() {
    let world = World::new();
    let fleet = world.fleet(|_| {}).await;
    let a = named(&fleet, "a");
    let keyed = || FleetPrompt::new("one").key("k");
    let known = send(&fleet, "a", keyed()).await.prompt_id();
    outcome(fleet.operator().turn(known)).await;
    in_time("quarantine", a.quarantine("looked at by Anna")).await.unwrap();
    let (why, retry_after) = refused(&a, "two").await;
    assert_eq!(retry_after, Some(secs(60)));
    assert_eq!(
        why.to_string(),
        "the session is quarantined: looked at by Anna; mend the cause and call `unquarantine`, then send the prompt again"
    );
    let reminder = FleetPrompt::new("remember").not_before(std::time::SystemTime::now() + secs(3600));
    assert_eq!(refused(&a, reminder).await.0, why, "a reminder too");
    let again = send(&fleet, "a", keyed()).await;
    assert!(again.is_duplicate() && again.prompt_id() == known);
    in_time("unquarantine", a.unquarantine()).await.unwrap();
    assert_eq!(asks(&fleet, "a", "two").await, "re: two");
    assert_eq!(world.clis.prompts_of("a"), ["one", "two"]);
}

#[tokio::test(start_paused = true)]
async fn warm_says_in_words_what_the_backend_refuses() {
    let world = World::new();
    let backend = FaultedBackend::new(world.backend.clone());
    let fleet = start(world.on(backend.clone())).await;
    asks(&fleet, "a", "one").await;
    in_time("sleep", named(&fleet, "a").passivate()).await.unwrap();
    let refuse = Fault::Refuse(BackendErrorKind::Damaged);
    backend.plan(move |request| if request.method == "name_record" { refuse } else { Fault::Pass });
    let error = in_time("warm", named(&fleet, "a").warm()).await.unwrap_err();
    assert_eq!(error.to_string(), "a fault of the test: the request `name_record` is refused as Damaged");
    backend.disable();
    in_time("warm", named(&fleet, "a").warm()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_quarantined_session_takes_no_slot_from_another_one() {
    let world = World::new();
    let fleet = world.fleet(|limits| limits.live = 1).await;
    let b = named(&fleet, "b");
    asks(&fleet, "b", "one").await;
    let soon = std::time::SystemTime::now() + secs(30);
    drop(send(&fleet, "b", FleetPrompt::new("two").not_before(soon)).await);
    in_time("quarantine", b.quarantine("looked at by Anna")).await.unwrap();
    asks(&fleet, "a", "one").await;
    sleep(secs(60)).await;
    assert_eq!((stage(&fleet, "a").await, world.clis.starts_of("b")), ("idle", 1));
}

#[tokio::test(start_paused = true)]
async fn names_that_look_like_paths_are_names() {
    let world = World::new();
    let root = tempfile::tempdir().unwrap();
    let files = root.path().join("files");
    std::fs::create_dir(&files).unwrap();
    let fleet = start(world.builder().folder(&files).configure(|limits| limits.live = 20)).await;
    let long = "x".repeat(256);
    let names = [
        "../up",
        "/etc/passwd",
        ".",
        "..",
        "a\0b",
        "a\nb",
        " ",
        "Anna",
        "anna",
        "\u{202e}anna",
        "ä",
        "a\u{308}",
        &long,
    ];
    for (n, name) in names.iter().enumerate() {
        assert_eq!(asks(&fleet, name, format!("{n}")).await, format!("re: {n}"));
    }
    for (n, name) in names.iter().enumerate() {
        assert_eq!(world.clis.prompts_of(name), [format!("{n}")], "{name:?}");
    }
    assert_eq!(folders(&files), names.len());
    assert_eq!(folders(root.path()), 1, "nothing lies beside the folder");
    for bad in ["", &"x".repeat(257)] {
        let error = fleet.tenant("default").unwrap().session(bad).err().unwrap();
        assert!(error.to_string().contains("1 to 256 bytes"), "{error}");
    }
    drain(&fleet, secs(20)).await;
}

#[tokio::test(start_paused = true)]
async fn limits_that_cannot_work_are_refused_at_the_start() {
    let world = World::new();
    let refused = async |builder: FleetBuilder| match builder.start().await {
        Err(FleetError::Invalid(text)) => text,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it starts"),
    };
    assert!(refused(world.builder().configure(|limits| limits.live = 0)).await.contains("`live`"));
    assert!(
        refused(world.builder().configure(|limits| limits.lease = Duration::ZERO)).await.contains("`lease`")
    );
    let at_once = world.builder().configure(|limits| limits.activations_at_once = 0);
    assert!(refused(at_once).await.contains("`activations_at_once`"));
    let long = world.builder().configure(|limits| limits.retention = secs(11 * 365 * 24 * 3600));
    assert!(refused(long).await.contains("ten years"));
    let quota = greenroom_fleet::Quota::default();
    let money = |amount, period, reserve| {
        let mut quota = quota.clone();
        quota.budget = Some(greenroom_fleet::Budget { amount, period, reserve });
        world.builder().tenant("t", quota)
    };
    assert!(refused(money(1, secs(1), 2)).await.contains("`reserve`"));
    assert!(refused(money(2, Duration::ZERO, 1)).await.contains("`period`"));
    assert!(refused(world.builder().tenant("t", quota.clone().weight(0))).await.contains("`weight`"));
    assert!(refused(world.builder().default_quota(quota.live(0))).await.contains("`live`"));
}

#[cfg(unix)]
#[tokio::test]
async fn a_folder_that_cannot_be_used_is_named() {
    let world = World::new();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let error = world.builder().folder(file.join("below")).start().await.err().unwrap();
    assert!(matches!(error, FleetError::Files(_)) && error.to_string().contains("file/below"), "{error}");
}

#[tokio::test]
async fn a_second_process_on_the_file_is_refused_until_the_first_has_drained() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("fleet.redb");
    let world = World::new();
    let backend = LocalBackend::open(&path).await.unwrap();
    let fleet = start(world.on(backend.clone())).await;
    let error = LocalBackend::open(&path).await.unwrap_err();
    assert_eq!(error.kind(), greenroom_fleet::BackendErrorKind::InUse);
    drain(&fleet, secs(5)).await;
    backend.close().await;
    let fleet = start(world.on(LocalBackend::open(&path).await.unwrap())).await;
    drain(&fleet, secs(5)).await;
}
