//! Fleets on one database: two nodes of one host.

use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use futures_util::FutureExt;
use greenroom::Session;
use greenroom_fleet::{
    ActivationContext, Fleet, FleetError, FleetEvent, FleetPrompt, Placement, TranscriptsIn,
};
use greenroom_testkit::{ModelTurn, Script, ScriptedCli};

use crate::wait::{SOON, within};
use crate::{connect, schema, server};

/// A node whose sessions say who they are.
pub(crate) async fn node(address: &str, schema: &str, folder: &Path, says: &'static str) -> Fleet {
    // A CLI plays as long as it is kept.
    let clis = Mutex::new(Vec::new());
    let profile = move |_: &ActivationContext| {
        let cli = ScriptedCli::play(Script::new().otherwise(ModelTurn::new().text(says)));
        let transport = cli.transport();
        clis.lock().unwrap().push(cli);
        Session::builder().transport(transport)
    };
    // Its CLIs are scripted ones in this process.
    let builder = Fleet::builder()
        .without_watchdog()
        .backend(connect(address, schema).await)
        .host("here")
        .folder(folder)
        .profile("default", profile)
        .configure(|limits| limits.live = 4);
    within(SOON, builder.start()).await.unwrap()
}

pub(crate) async fn answer(fleet: &Fleet, name: &str, text: &str) -> String {
    let session = fleet.tenant("default").unwrap().session(name).unwrap();
    let mut turn = within(SOON, session.prompt(FleetPrompt::new(text))).await.unwrap();
    within(SOON, turn.outcome()).await.unwrap().text().unwrap_or_default().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_go_on_at_another_node_when_theirs_is_drained() {
    let Some(address) = server::address() else { return };
    let (schema, folder) = (schema(), tempfile::tempdir().unwrap());
    let first = node(&address, &schema, folder.path(), "first").await;
    for name in ["a", "b", "c"] {
        assert_eq!(answer(&first, name, "hello").await, "first");
    }
    let second = node(&address, &schema, folder.path(), "second").await;
    // The owner runs the prompts of its sessions, whoever has accepted them, and the other node reads the outcome.
    assert_eq!(answer(&second, "a", "who are you?").await, "first");

    let mut events = second.operator().events().unwrap();
    within(SOON, first.drain(Duration::from_secs(20))).await;
    for name in ["a", "b", "c"] {
        assert_eq!(answer(&second, name, "who are you now?").await, "second");
    }
    // The node has left, so nobody had to be declared dead.
    while let Some(Some(event)) = events.next().now_or_never() {
        assert!(matches!(event, Ok(ref event) if !matches!(event, FleetEvent::NodeLost { .. })), "{event:?}");
    }
    within(SOON, second.drain(Duration::from_secs(20))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_that_its_guardian_cannot_end_in_time_is_refused() {
    let Some(address) = server::address() else { return };
    let (schema, folder) = (schema(), tempfile::tempdir().unwrap());
    for (lease, reason) in [(30, "guardian::init()"), (4, "`lease` is at least 5s")] {
        let backend = connect(&address, &schema).await;
        let builder = Fleet::builder()
            .backend(backend)
            .host("here")
            .folder(folder.path())
            .configure(|limits| limits.lease = Duration::from_secs(lease));
        match within(SOON, builder.start()).await.err() {
            Some(FleetError::Invalid(why)) => assert!(why.contains(reason), "{why}"),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_on_a_shared_backend_names_its_host() {
    let Some(address) = server::address() else { return };
    let (schema, folder) = (schema(), tempfile::tempdir().unwrap());
    let builder = Fleet::builder().without_watchdog().backend(connect(&address, &schema).await);
    match within(SOON, builder.folder(folder.path()).start()).await.err() {
        Some(FleetError::Invalid(why)) => assert!(why.contains("`FleetBuilder::host`"), "{why}"),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_whose_sessions_would_leave_their_transcripts_behind_is_refused() {
    let Some(address) = server::address() else { return };
    let (schema, folder) = (schema(), tempfile::tempdir().unwrap());
    let start = async |place, placement| {
        let backend = connect(&address, &schema).await;
        let builder = Fleet::builder().backend(backend).host("one").folder(folder.path()).without_watchdog();
        builder.transcripts(place).placement(placement).start().await
    };
    let error = start(TranscriptsIn::Folder, Placement::Anywhere).await.err().unwrap();
    assert!(matches!(error, FleetError::Invalid(_)), "{error}");
    assert!(error.to_string().contains("TranscriptsIn::Backend"), "{error}");
    for (place, placement) in [
        (TranscriptsIn::Folder, Placement::OnHost),
        (TranscriptsIn::SharedFolder, Placement::Anywhere),
        (TranscriptsIn::Backend, Placement::Anywhere),
    ] {
        let fleet = start(place, placement).await.unwrap();
        fleet.drain(Duration::from_secs(5)).await;
    }
}
