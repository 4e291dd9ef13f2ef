//! Prompts that are served, and what their clients see.

use greenroom_testkit::{ModelTurn, Script};
use serde_json::json;

use crate::support::*;

#[tokio::test]
async fn a_prompt_streams_its_text_its_calls_and_its_outcome() {
    let (service, _) = Service::scripted(looks_and_says("Your lamp\narrives on Monday.")).await;
    let events = service.prompt("ada", "Where is my lamp?").await.all().await;

    let said = |kind: &str| -> Vec<&str> {
        let of_kind = events.iter().filter(|(name, _)| name == kind);
        of_kind.map(|(_, data)| data["text"].as_str().unwrap()).collect()
    };
    let deltas = said("delta");
    assert_eq!(deltas.concat(), "Let me look. Your lamp\narrives on Monday.");
    assert!(deltas.len() > 2, "in pieces: {deltas:?}");
    assert_eq!(said("text"), ["Let me look. ", "Your lamp\narrives on Monday."]);
    assert_eq!(said("tool_result"), ["ada's lamp from acme arrives on Monday"]);
    let (name, end) = events.last().unwrap();
    assert_eq!(name, "outcome");
    assert_eq!(
        (&end["outcome"], &end["text"]),
        (&json!("completed"), &json!("Your lamp\narrives on Monday."))
    );
    service.stop().await;
}

#[tokio::test(start_paused = true)]
async fn text_arrives_while_the_turn_runs() {
    let (service, mut listener) = Service::by_hand(1).await;
    let (mut events, mut end) = tokio::join!(service.prompt("ada", "Hello."), accept(&mut listener));
    let prompt = end.expect("user").await;
    end.begin_turn();
    say(&mut end, "Hm.");
    assert_eq!(events.next_of("text").await["text"], "Hm.");
    end.finish_turn(&prompt, "Hm.");
    assert_eq!(events.outcome().await["text"], "Hm.");
    tokio::join!(service.stop(), end.run_out());
}

#[tokio::test]
async fn customers_have_sessions_of_their_own_and_tools_know_the_customer() {
    let (service, clis) = Service::scripted(looks_and_says("On Monday.")).await;
    let (ada, bob) =
        tokio::join!(service.outcome("ada", "Where is it?"), service.outcome("bob", "Where is it?"));
    assert_eq!((ada["text"].as_str(), bob["text"].as_str()), (Some("On Monday."), Some("On Monday.")));
    for user in ["ada", "bob"] {
        let expected = format!("{user}'s lamp from acme arrives on Monday");
        assert_eq!(clis.cli(user).tool_results(), [expected]);
    }
    let mut started = service.started();
    started.sort();
    assert_eq!(started, ["ada", "bob"]);
    service.stop().await;
}

#[tokio::test(start_paused = true)]
async fn customers_have_conversations_and_folders_of_their_own() {
    let (service, mut listener) = Service::by_hand(2).await;
    let mut ends = Vec::new();
    for user in ["ada", "bob"] {
        let (events, mut end) = tokio::join!(service.prompt(user, "Hello."), accept(&mut listener));
        answer(&mut end, "Hello.").await;
        assert_eq!(events.outcome().await["outcome"], "completed");
        ends.push(end);
    }
    assert_ne!(conversation(&ends[0]), conversation(&ends[1]));
    assert_ne!(ends[0].launch().command.cwd, ends[1].launch().command.cwd);
    let (ada, bob) = (ends.remove(0), ends.remove(0));
    tokio::join!(service.stop(), ada.run_out(), bob.run_out());
}

#[tokio::test(start_paused = true)]
async fn two_first_prompts_at_once_start_one_session() {
    let (service, mut listener) = Service::by_hand(2).await;
    let (first, second, mut end) =
        tokio::join!(service.prompt("ada", "One."), service.prompt("ada", "Two."), accept(&mut listener));
    answer(&mut end, "Both.").await;
    answer(&mut end, "Both.").await;
    assert_eq!(
        (first.outcome().await["text"].as_str(), second.outcome().await["text"].as_str()),
        (Some("Both."), Some("Both."))
    );
    assert_eq!(service.started(), ["ada"]);
    tokio::join!(service.stop(), end.run_out());
}

#[tokio::test]
async fn the_next_prompt_goes_to_the_same_session() {
    let script = Script::new().turn(ModelTurn::new().text("One.")).turn(ModelTurn::new().text("Two."));
    let (service, _) = Service::scripted(script).await;
    assert_eq!(service.outcome("ada", "Count.").await["text"], "One.");
    assert_eq!(service.outcome("ada", "Count on.").await["text"], "Two.");
    assert_eq!(service.started(), ["ada"]);
    service.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_turns_of_a_customer_are_listed_with_their_states() {
    let (service, mut listener) = Service::by_hand(2).await;
    assert_eq!(service.json("/customers/ada/turns").await, json!({ "turns": [] }));
    let (one, mut end) = tokio::join!(service.prompt("ada", "One."), accept(&mut listener));
    answer(&mut end, "First.").await;
    one.outcome().await;
    let mut two = service.prompt("ada", "Two.").await;
    let prompt = end.expect("user").await;
    end.begin_turn();
    say(&mut end, "Hm.");
    two.next_of("text").await;
    let three = service.prompt("ada", "Three.").await;

    let listed = service.json("/customers/ada/turns").await;
    let shown =
        |turn: &serde_json::Value| (turn["text"].clone(), turn["state"].clone(), turn["answer"].clone());
    let turns: Vec<_> = listed["turns"].as_array().unwrap().iter().map(shown).collect();
    let expected = [
        (json!("Three."), json!("queued"), json!(null)),
        (json!("Two."), json!("begun"), json!(null)),
        (json!("One."), json!("completed"), json!("First.")),
    ];
    assert_eq!(turns, expected);
    assert_eq!(two.turn, format!("/turns/{}/events", listed["turns"][1]["id"].as_str().unwrap()));
    end.finish_turn(&prompt, "Hm.");
    answer(&mut end, "Third.").await;
    assert_eq!(three.outcome().await["text"], "Third.");
    tokio::join!(service.stop(), end.run_out());
}

#[tokio::test(start_paused = true)]
async fn a_turn_is_stopped_on_demand() {
    let (service, mut listener) = Service::by_hand(1).await;
    let (mut events, mut end) = tokio::join!(service.prompt("ada", "Hello."), accept(&mut listener));
    let prompt = end.expect("user").await;
    end.begin_turn();
    say(&mut end, "Hm.");
    events.next_of("text").await;
    let path = events.turn.replace("/turns/", "/customers/ada/turns/").replace("/events", "/interrupt");
    let interrupting = async {
        let request = end.expect_request("interrupt").await;
        end.answer(&request, json!({}));
        end.fail_turn(&prompt, "aborted_streaming", "");
    };
    let ((status, said), ()) = tokio::join!(service.post_json(ANNA, &path, json!({})), interrupting);
    assert_eq!((status, said.as_str()), (200, "{\"interrupted\":true}"));
    let outcome = events.outcome().await;
    assert_eq!((&outcome["outcome"], &outcome["why"]), (&json!("interrupted"), &json!("user")));
    tokio::join!(service.stop(), end.run_out());
}

#[tokio::test(start_paused = true)]
async fn the_turn_of_a_client_that_goes_away_goes_on_and_is_read_on() {
    let (service, mut listener) = Service::by_hand(1).await;
    let (mut events, mut end) = tokio::join!(service.prompt("ada", "Hello."), accept(&mut listener));
    let prompt = end.expect("user").await;
    end.begin_turn();
    say(&mut end, "One.");
    assert_eq!(events.next_of("text").await["text"], "One.");
    let (turn, seen) = (events.turn.clone(), events.last_id.take().unwrap());
    drop(events);
    say(&mut end, "Two.");
    let mut events = service.events(&turn, Some(&seen)).await;
    assert_eq!(events.next_of("text").await["text"], "Two.");
    end.finish_turn(&prompt, "Two.");
    assert_eq!(events.outcome().await["text"], "Two.");

    // After its end, too, from the first event on.
    let all = service.events(&turn, None).await.all().await;
    let names: Vec<_> = all.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["text", "text", "usage", "outcome"]);
    // A browser that connects again after the outcome is told to stop.
    let request = axum::http::Request::get(&turn).header("last-event-id", "end");
    assert_eq!(
        answered(service.send(ANNA, request, axum::body::Body::empty()).await).await,
        (204, String::new())
    );
    tokio::join!(service.stop(), end.run_out());
}

#[tokio::test]
async fn a_prompt_with_a_key_is_asked_once() {
    let script = Script::new().turn(ModelTurn::new().text("One.")).turn(ModelTurn::new().text("Two."));
    let (service, _) = Service::scripted(script).await;
    let first = service.prompt_with_key("ada", "k-1", "Count.").await;
    let again = service.prompt_with_key("ada", "k-1", "Count.").await;
    assert_eq!(first.turn, again.turn);
    assert_eq!(
        (&first.outcome().await["text"], &again.outcome().await["text"]),
        (&json!("One."), &json!("One."))
    );
    let (status, why) = answered(service.post_with_key("ada", "k-1", "Another.").await).await;
    assert_eq!(status, 409, "{why}");
    assert!(why.contains("key_reused"), "{why}");
    let next = service.prompt_with_key("ada", "k-2", "Count.").await;
    assert_eq!(next.outcome().await["text"], "Two.");
    assert_eq!(service.json("/customers/ada/turns").await["turns"].as_array().unwrap().len(), 2);
    service.stop().await;
}

#[tokio::test]
async fn a_person_decides_about_a_call_without_a_rule() {
    let script = Script::new()
        .turn(ModelTurn::new().text("I ask. ").call("mcp__orders__cancel", json!({})))
        .turn(ModelTurn::new().text("Cancelled."));
    let (service, clis) = Service::scripted(script).await;
    assert_eq!(service.json("/questions").await, json!([]));
    let mut turn = service.prompt("ada", "I want no lamp.").await;
    let asked = turn.next_of("asked").await["question"].clone();
    assert_eq!(asked["body"]["request"]["tool_name"], "mcp__orders__cancel");
    assert_eq!(service.json("/questions").await, json!([asked]));
    assert_eq!(asked["name"], "acme/ada");
    let path = format!("/questions/{}", asked["id"].as_str().unwrap());

    let (status, why) = service.post_json(ANNA, &path, json!({ "choice": "submit", "content": {} })).await;
    assert_eq!(status, 422, "no answer to this question: {why}");
    // The arguments of a call are the model's.
    assert_eq!(service.post_json(ANNA, &path, json!({ "choice": "allow", "input": {} })).await.0, 422);
    assert_eq!(service.post_json(ANNA, &path, json!({ "choice": "allow" })).await, (200, String::new()));
    let decided = turn.next_of("decided").await["question"]["decision"].clone();
    assert_eq!(decided["answer"]["by"], "anna");
    assert_eq!(turn.outcome().await["text"], "Cancelled.");
    assert_eq!(clis.cli("ada").tool_results(), ["ada gets no lamp"]);
    // Too late.
    assert_eq!(service.post_json(ANNA, &path, json!({ "choice": "deny" })).await.0, 409);
    assert_eq!(service.post_json(ANNA, "/questions/none", json!({ "choice": "allow" })).await.0, 400);
    service.stop().await;
}
