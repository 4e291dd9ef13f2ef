//! Prompts that are served, and the state of the service meanwhile.

use axum::http::StatusCode;
use greenroom_testkit::{ModelTurn, Script};
use serde_json::json;

use crate::support::*;

#[tokio::test]
async fn a_prompt_streams_its_text_and_its_outcome() {
    let (service, _) = Service::scripted(looks_and_says("Your lamp\narrives on Monday.")).await;
    let events = service.prompt("ada", "Where is my lamp?").await.all().await;

    let said = |kind: &str| -> Vec<&str> {
        let of_kind = events.iter().filter(|(name, _)| name == kind);
        of_kind.map(|(_, data)| data.as_str().unwrap()).collect()
    };
    let deltas = said("delta");
    assert_eq!(deltas.concat(), "Let me look. Your lamp\narrives on Monday.");
    assert!(deltas.len() > 2, "in pieces: {deltas:?}");
    assert_eq!(said("text"), ["Let me look. ", "Your lamp\narrives on Monday."]);
    let end = json!({ "outcome": "completed", "text": "Your lamp\narrives on Monday.", "error": null });
    assert_eq!(events.last().unwrap(), &("outcome".to_owned(), end));
    service.stop().await;
}

#[tokio::test(start_paused = true)]
async fn text_arrives_while_the_turn_runs() {
    let (service, mut listener) = Service::by_hand(1).await;
    let (mut events, mut end) = tokio::join!(service.prompt("ada", "Hello."), accept(&mut listener));
    let prompt = end.expect("user").await;
    end.begin_turn();
    say(&mut end, "Hm.");
    assert_eq!(events.next().await, Some(("text".to_owned(), json!("Hm."))));
    end.finish_turn(&prompt, "Hm.");
    assert_eq!(events.outcome().await["text"], "Hm.");
    tokio::join!(service.stop(), end.run_out());
}

#[tokio::test]
async fn users_have_sessions_of_their_own_and_tools_know_the_user() {
    let (service, clis) = Service::scripted(looks_and_says("On Monday.")).await;
    let (ada, bob) =
        tokio::join!(service.outcome("ada", "Where is it?"), service.outcome("bob", "Where is it?"));
    assert_eq!((ada["text"].as_str(), bob["text"].as_str()), (Some("On Monday."), Some("On Monday.")));
    for user in ["ada", "bob"] {
        let expected = format!("{user}'s lamp arrives on Monday");
        assert_eq!(clis.cli(user).tool_results(), [expected]);
    }
    let mut started = service.started();
    started.sort();
    assert_eq!(started, ["ada", "bob"]);
    service.stop().await;
}

#[tokio::test(start_paused = true)]
async fn users_have_conversations_and_folders_of_their_own() {
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
async fn the_status_shows_each_session_and_its_queue() {
    let (service, mut listener) = Service::by_hand(2).await;
    assert_eq!(service.json("/status").await["names"], json!([]));
    let (mut one, mut end) = tokio::join!(service.prompt("ada", "One."), accept(&mut listener));
    let prompt = end.expect("user").await;
    end.begin_turn();
    say(&mut end, "Hm.");
    one.next().await.unwrap();
    let two = service.prompt("ada", "Two.").await;

    let status = service.json("/status").await;
    assert_eq!(
        (&status["live"], &status["live_limit"], &status["queued"]),
        (&json!(1), &json!(2), &json!(1))
    );
    let ada = &status["names"][0];
    assert_eq!((&ada["record"]["name"], &ada["stage"]), (&json!("ada"), &json!("running")));
    assert_eq!(one.turn, Some(format!("/turns/{}", ada["running"].as_str().unwrap())));
    assert_eq!(service.get("/health").await, (StatusCode::OK, "ok".to_owned()));
    end.finish_turn(&prompt, "Hm.");
    answer(&mut end, "Two.").await;
    assert_eq!(two.outcome().await["text"], "Two.");
    tokio::join!(service.stop(), end.run_out());
}

#[tokio::test(start_paused = true)]
async fn the_turn_of_a_client_that_goes_away_goes_on_and_is_read_on() {
    let (service, mut listener) = Service::by_hand(1).await;
    let (mut events, mut end) = tokio::join!(service.prompt("ada", "Hello."), accept(&mut listener));
    let prompt = end.expect("user").await;
    end.begin_turn();
    say(&mut end, "One.");
    assert_eq!(events.next().await, Some(("text".to_owned(), json!("One."))));
    let (turn, seen) = (events.turn.take().unwrap(), events.last_id.take().unwrap());
    drop(events);
    say(&mut end, "Two.");
    let mut events = service.again(&turn, Some(&seen)).await;
    assert_eq!(events.next().await, Some(("text".to_owned(), json!("Two."))));
    end.finish_turn(&prompt, "Two.");
    assert_eq!(events.outcome().await["text"], "Two.");

    // After its end, too, from the first event on.
    let all = service.again(&turn, None).await.all().await;
    let names: Vec<_> = all.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["text", "text", "outcome"]);
    tokio::join!(service.stop(), end.run_out());
}

#[tokio::test]
async fn a_prompt_with_a_key_is_asked_once() {
    let script = Script::new().turn(ModelTurn::new().text("One.")).turn(ModelTurn::new().text("Two."));
    let (service, _) = Service::scripted(script).await;
    let first = Events::of(service.post_with_key("ada", "k-1", "Count.").await);
    let again = Events::of(service.post_with_key("ada", "k-1", "Count.").await);
    assert_eq!(first.turn, again.turn);
    assert_eq!(
        (&first.outcome().await["text"], &again.outcome().await["text"]),
        (&json!("One."), &json!("One."))
    );
    let (status, why) = refusal(service.post_with_key("ada", "k-1", "Another.").await).await;
    assert_eq!(status, 409, "{why}");
    let next = Events::of(service.post_with_key("ada", "k-2", "Count.").await);
    assert_eq!(next.outcome().await["text"], "Two.");
    service.stop().await;
}

#[tokio::test]
async fn a_person_decides_about_a_call_without_a_rule() {
    let script = Script::new()
        .turn(ModelTurn::new().text("I ask. ").call("mcp__orders__cancel", json!({})))
        .turn(ModelTurn::new().text("Cancelled."));
    let (service, clis) = Service::scripted(script).await;
    assert_eq!(service.json("/questions").await, json!([]));
    let turn = service.prompt("ada", "I want no lamp.").await;
    let question = in_time("a question", async {
        loop {
            let open = service.json("/questions").await;
            if let Some(question) = open.get(0) {
                return question.clone();
            }
            tokio::task::yield_now().await;
        }
    });
    let question = question.await;
    assert_eq!(question["user"], "ada");
    assert_eq!(question["inquiry"]["request"]["tool_name"], "mcp__orders__cancel");
    let path = format!("/questions/{}", question["id"].as_str().unwrap());

    let (status, why) = service.post_json(&path, json!({ "kind": "accepted", "content": {} })).await;
    assert_eq!(status, 409, "no answer to this question: {why}");
    assert_eq!(service.post_json(&path, json!({ "kind": "allowed" })).await.0, 200);
    assert_eq!(turn.outcome().await["text"], "Cancelled.");
    assert_eq!(clis.cli("ada").tool_results(), ["ada gets no lamp"]);
    // Too late.
    assert_eq!(service.post_json(&path, json!({ "kind": "denied", "message": "No." })).await.0, 409);
    assert_eq!(service.post_json("/questions/none", json!({ "kind": "allowed" })).await.0, 400);
    service.stop().await;
}
