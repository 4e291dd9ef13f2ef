//! Sessions of a fleet: prompts, sleep and wake.

use std::time::Duration;

use greenroom::Session;
use greenroom::testkit::{ModelTurn, Script, ScriptedCli};
use greenroom_fleet::backend::MemoryBackend;
use greenroom_fleet::{Clock, Fleet};

#[tokio::test(start_paused = true)]
async fn a_session_sleeps_when_idle_and_wakes_with_its_conversation() {
    let cli = ScriptedCli::play(Script::new().otherwise(ModelTurn::new().text("Hello.")));
    let transport = cli.transport();
    let fleet = Fleet::builder()
        .backend(MemoryBackend::with_clock(Clock::tokio()))
        .profile("default", move |_| Session::builder().transport(transport.clone()))
        .start()
        .await
        .unwrap();
    let session = fleet.session("customer-42").unwrap();
    let mut turn = session.prompt("one").await.unwrap();
    assert_eq!(turn.outcome().await.unwrap().text(), Some("Hello."));
    tokio::time::sleep(Duration::from_secs(400)).await;
    let mut turn = session.prompt("two").await.unwrap();
    assert_eq!(turn.outcome().await.unwrap().text(), Some("Hello."));
    fleet.drain(Duration::from_secs(20)).await;
}
