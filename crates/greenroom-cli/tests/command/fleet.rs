//! A running fleet on a file, which only its service can open.

use std::time::Duration;

use greenroom::{NoArgs, Session, ToolServer};
use greenroom_fleet::backend::LocalBackend;
use greenroom_fleet::{Fleet, FleetEnd, FleetEvent, FleetEvents, NameState};
use greenroom_testkit::{ModelTurn, Script, ScriptedCli};
use serde_json::json;

use crate::stage::run;
use crate::wait::in_time;

/// Waits for an event, and returns what `wanted` finds in it.
async fn until<T>(fleet: &mut FleetEvents, wanted: impl Fn(FleetEvent) -> Option<T>) -> T {
    loop {
        let event = in_time("an event", fleet.next()).await.unwrap().unwrap();
        if let Some(found) = wanted(event) {
            return found;
        }
    }
}

#[tokio::test]
async fn an_operator_looks_after_a_fleet_on_a_file_beside_its_service() {
    let folder = tempfile::tempdir().unwrap();
    let refund = ModelTurn::new().call("mcp__shop__refund", json!({}));
    let cli = ScriptedCli::play(Script::new().turn(refund).otherwise(ModelTurn::new().text("Done.")));
    let transport = cli.transport();
    let shop = || ToolServer::new("shop", "1.0.0").tool("refund", "Refund", async |_: NoArgs| "refunded");
    let fleet = Fleet::builder()
        .backend(LocalBackend::open(folder.path().join("fleet.redb")).await.unwrap())
        .profile("default", move |_| Session::builder().mcp_server(shop()).transport(transport.clone()))
        .start()
        .await
        .unwrap();
    let path = folder.path().join("fleet.sock");
    let server = fleet.operator().serve(&path).await.unwrap();
    let socket = path.to_str().unwrap();
    let greenroom = async |arguments: &[&str]| run(&[&["--socket", socket], arguments].concat()).await;

    // A question of a session is answered from outside.
    let mut events = fleet.operator().events().unwrap();
    let customer = fleet.tenant("acme").unwrap().session("customer-42").unwrap();
    let mut turn = customer.prompt("I want my money back.").await.unwrap();
    until(&mut events, |event| matches!(event, FleetEvent::Asked { .. }).then_some(())).await;
    let questions = greenroom(&["questions", "--json"]).await.objects();
    assert_eq!(questions[0]["body"]["request"]["tool_name"], "mcp__shop__refund");
    let question = questions[0]["id"].as_str().unwrap();
    greenroom(&["answer", question, "--allow", "--by", "anna"]).await.done();
    assert_eq!(in_time("the outcome", turn.outcome()).await.unwrap().text(), Some("Done."));

    // A session that is awake makes way for its quarantine.
    greenroom(&["quarantine", "acme/customer-42", "looked at"]).await.done();
    let record = customer.record().await.unwrap();
    assert!(matches!(&record.state, NameState::Quarantined { why, .. } if why == "looked at"), "{record:?}");
    let stuck = greenroom(&["stuck", "--json"]).await.objects();
    assert_eq!((&stuck[0]["name"], &stuck[0]["why"]), (&json!("acme/customer-42"), &json!("looked at")));
    // Its prompts run as soon as it is free: the fleet hears of the change.
    greenroom(&["unquarantine", "acme/customer-42"]).await.done();
    let prompt = customer.prompt("Thanks.").await.unwrap().prompt_id();
    until(&mut events, |event| match event {
        FleetEvent::Begun { prompt: begun, .. } if begun == prompt => Some(()),
        _ => None,
    })
    .await;
    let unknown = greenroom(&["quarantine", "acme/nobody", "why"]).await;
    assert_eq!(unknown.code, 1, "{unknown:?}");

    // The node drains with its next renewal.
    let node = greenroom(&["nodes", "--json"]).await.objects()[0]["id"].as_str().unwrap().to_owned();
    greenroom(&["drain", &node]).await.done();
    assert_eq!(in_time("the end of the fleet", fleet.wait()).await, FleetEnd::Drained);
    drop(server);
    assert!(!path.exists());
    fleet.drain(Duration::ZERO).await;
}
