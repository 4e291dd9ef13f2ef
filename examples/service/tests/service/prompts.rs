//! Prompts that are served, and the state of the service meanwhile.

use axum::http::StatusCode;
use greenroom::testkit::{ModelTurn, Script};
use serde_json::json;

use crate::support::*;

#[tokio::test]
async fn a_prompt_streams_its_text_and_its_outcome() {
    let (service, _) = Service::scripted(looks_and_says("Your lamp\narrives on Monday."));
    let events = service.prompt("ada", "Where is my lamp?").await.all().await;

    let texts: Vec<_> = events.iter().filter(|(name, _)| name == "text").collect();
    let said: String = texts.iter().map(|(_, data)| data.as_str().unwrap()).collect();
    assert_eq!(said, "Let me look. Your lamp\narrives on Monday.");
    assert!(texts.len() > 2, "in pieces: {texts:?}");
    let end = json!({ "status": 200, "text": "Your lamp\narrives on Monday." });
    assert_eq!(events[texts.len()..], [("outcome".to_owned(), end)]);
    service.users.stop().await;
}

#[tokio::test(start_paused = true)]
async fn text_arrives_while_the_turn_runs() {
    let (service, mut listener) = Service::by_hand(1);
    let (mut events, mut end) = tokio::join!(service.prompt("ada", "Hello."), accept(&mut listener));
    let prompt = end.expect("user").await;
    end.begin_turn();
    say(&mut end, "Hm.");
    assert_eq!(events.next().await, Some(("text".to_owned(), json!("Hm."))));
    end.finish_turn(&prompt, "Hm.");
    assert_eq!(events.outcome().await["text"], "Hm.");
    tokio::join!(service.users.stop(), end.run_out());
}

#[tokio::test]
async fn users_have_sessions_of_their_own_and_tools_know_the_user() {
    let (service, clis) = Service::scripted(looks_and_says("On Monday."));
    let (ada, bob) =
        tokio::join!(service.outcome("ada", "Where is it?"), service.outcome("bob", "Where is it?"));
    assert_eq!((ada["text"].as_str(), bob["text"].as_str()), (Some("On Monday."), Some("On Monday.")));
    for user in ["ada", "bob"] {
        let expected = format!("{user}'s lamp arrives on Monday");
        assert_eq!(clis.tool_results(user), [expected]);
    }
    let mut started = service.started();
    started.sort();
    assert_eq!(started, ["ada", "bob"]);
    service.users.stop().await;
}

#[tokio::test(start_paused = true)]
async fn users_have_conversations_and_folders_of_their_own() {
    let (service, mut listener) = Service::by_hand(2);
    let mut ends = Vec::new();
    for user in ["ada", "bob"] {
        let (events, mut end) = tokio::join!(service.prompt(user, "Hello."), accept(&mut listener));
        answer(&mut end, "Hello.").await;
        assert_eq!(events.outcome().await["status"], 200);
        ends.push(end);
    }
    assert_ne!(conversation(&ends[0]), conversation(&ends[1]));
    assert_ne!(ends[0].launch().cwd, ends[1].launch().cwd);
    let (ada, bob) = (ends.remove(0), ends.remove(0));
    tokio::join!(service.users.stop(), ada.run_out(), bob.run_out());
}

#[tokio::test(start_paused = true)]
async fn two_first_prompts_at_once_start_one_session() {
    let (service, mut listener) = Service::by_hand(2);
    let (first, second, mut end) =
        tokio::join!(service.prompt("ada", "One."), service.prompt("ada", "Two."), accept(&mut listener));
    answer(&mut end, "Both.").await;
    answer(&mut end, "Both.").await;
    assert_eq!(
        (first.outcome().await["text"].as_str(), second.outcome().await["text"].as_str()),
        (Some("Both."), Some("Both."))
    );
    assert_eq!(service.started(), ["ada"]);
    tokio::join!(service.users.stop(), end.run_out());
}

#[tokio::test]
async fn the_next_prompt_goes_to_the_same_session() {
    let script = Script::new().turn(ModelTurn::new().text("One.")).turn(ModelTurn::new().text("Two."));
    let (service, _) = Service::scripted(script);
    assert_eq!(service.outcome("ada", "Count.").await["text"], "One.");
    assert_eq!(service.outcome("ada", "Count on.").await["text"], "Two.");
    assert_eq!(service.started(), ["ada"]);
    service.users.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_status_shows_each_session_and_its_queue() {
    let (service, mut listener) = Service::by_hand(2);
    assert_eq!(service.status().await, json!({}));
    // A session that is being started is not listed.
    let starting = async {
        let end = listener.accept().await;
        assert_eq!(service.status().await, json!({}));
        end
    };
    let (mut one, mut end) = tokio::join!(service.prompt("ada", "One."), async {
        let mut end = starting.await;
        end.handshake().await;
        end
    });
    let prompt = end.expect("user").await;
    end.begin_turn();
    say(&mut end, "Hm.");
    one.next().await.unwrap();
    let two = service.prompt("ada", "Two.").await;

    let status = service.status().await;
    let ada = &status["ada"];
    assert_eq!(ada["phase"], "ready");
    assert_eq!(
        (&ada["conversation"]["turn_running"], &ada["conversation"]["queued"]),
        (&json!(true), &json!(1))
    );
    assert!(ada["counters"]["messages"].as_u64() > Some(0), "{status}");
    assert_eq!(service.get("/health").await, (StatusCode::OK, "ok".to_owned()));
    end.finish_turn(&prompt, "Hm.");
    answer(&mut end, "Two.").await;
    assert_eq!(two.outcome().await["text"], "Two.");
    tokio::join!(service.users.stop(), end.run_out());
}
