//! Requests that are refused, and prompts that fail.

use axum::body::Body;
use axum::http::StatusCode;
use greenroom::testkit::{ModelTurn, Script};

use crate::support::*;

#[tokio::test]
async fn a_name_never_becomes_a_path() {
    let (service, _) = Service::scripted(Script::new());
    let long = "a".repeat(1000);
    let names =
        ["..", ".", "ada@example.com", "..%2F..%2Fetc", "%00", "ada%20b", "%C3%A4da", "a%0d%0a", &long];
    for name in names {
        assert_eq!(service.outcome(name, "Hello.").await["status"], 200);
    }
    for entry in std::fs::read_dir(service.data.path()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(name.len() == 36 && name.chars().all(|c| c == '-' || c.is_ascii_hexdigit()), "{name}");
    }
    assert_eq!(std::fs::read_dir(service.data.path()).unwrap().count(), names.len());
    service.users.stop().await;
}

#[tokio::test]
async fn a_name_or_a_prompt_that_is_no_text_or_too_long_is_refused() {
    let (service, _) = Service::scripted(Script::new());
    assert_eq!(service.post("%ff", "Hello.").await.status(), StatusCode::BAD_REQUEST);
    assert_eq!(service.post("ada", vec![0xff]).await.status(), StatusCode::BAD_REQUEST);
    let large = Body::from("a".repeat(3 << 20));
    assert_eq!(service.post("ada", large).await.status(), StatusCode::PAYLOAD_TOO_LARGE);
    assert!(service.started().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_prompt_too_many_is_refused_until_later() {
    let (service, mut listener) = Service::by_hand(1);
    let (first, mut end) = tokio::join!(service.prompt("ada", "Now."), accept(&mut listener));
    // The running turn has left the queue.
    let prompt = end.expect("user").await;
    let mut waiting = Vec::new();
    for _ in 0..4 {
        waiting.push(service.prompt("ada", "Later.").await);
    }
    let refused = refusal(service.post("ada", "Too much.").await).await;
    assert_eq!(refused, (429, "AtCapacity".to_owned()));

    end.begin_turn();
    end.finish_turn(&prompt, "Done.");
    assert_eq!(first.outcome().await["text"], "Done.");
    for events in waiting {
        answer(&mut end, "Done, too.").await;
        assert_eq!(events.outcome().await["text"], "Done, too.");
    }
    tokio::join!(service.users.stop(), end.run_out());
}

#[tokio::test(start_paused = true)]
async fn too_many_prompts_during_a_start_are_refused() {
    let (service, mut listener) = Service::by_hand(1);
    let ten = futures_util::future::join_all((0..10).map(|_| service.post("ada", "Hello.")));
    let (responses, mut end) = tokio::join!(ten, accept(&mut listener));
    let (mut served, mut refused) = (Vec::new(), 0);
    for response in responses {
        if response.status() == StatusCode::OK {
            served.push(Events(response.into_body()));
        } else {
            assert_eq!(refusal(response).await, (429, "AtCapacity".to_owned()));
            refused += 1;
        }
    }
    assert!(refused >= 2, "{refused}");
    for events in served {
        answer(&mut end, "Hello.").await;
        assert_eq!(events.outcome().await["status"], 200);
    }
    tokio::join!(service.users.stop(), end.run_out());
}

#[tokio::test(start_paused = true)]
async fn a_user_too_many_is_refused_until_a_session_is_idle() {
    let (service, mut listener) = Service::by_hand(1);
    let (events, mut end) = tokio::join!(service.prompt("ada", "Hello."), accept(&mut listener));
    answer(&mut end, "Hello.").await;
    events.outcome().await;
    let refused = refusal(service.post("bob", "Hello.").await).await;
    assert_eq!(refused, (503, "TooManySessions".to_owned()));

    // Ada's session is stopped when it was idle for long enough.
    end.run_out().await;
    let (response, mut end) = tokio::join!(post_until_free(&service, "bob"), accept(&mut listener));
    let events = Events(response.into_body());
    answer(&mut end, "Hello, bob.").await;
    assert_eq!(events.outcome().await["text"], "Hello, bob.");
    tokio::join!(service.users.stop(), end.run_out());
}

#[tokio::test]
async fn an_error_of_the_api_is_the_outcome_with_its_status() {
    let script = Script::new()
        .turn(ModelTurn::new().final_error(529, "overloaded_error", "busy"))
        .turn(ModelTurn::new().final_error(429, "rate_limit_error", "too many"))
        .turn(ModelTurn::new().final_error(401, "authentication_error", "made-up-secret"));
    let (service, _) = Service::scripted(script);
    for expected in [
        serde_json::json!({ "status": 503, "error": "Overloaded" }),
        serde_json::json!({ "status": 429, "error": "RateLimited" }),
        // The machine is to be changed; the client is told no more.
        serde_json::json!({ "status": 500, "error": "Unauthenticated" }),
    ] {
        assert_eq!(service.outcome("ada", "Hello.").await, expected);
    }
    service.users.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_session_that_does_not_start_is_an_error_and_holds_no_place() {
    let (service, listener) = Service::by_hand(1);
    // No CLI starts any more.
    drop(listener);
    for user in ["ada", "bob"] {
        // The place is free a moment after the answer.
        let refused = refusal(post_until_free(&service, user).await).await;
        assert_eq!(refused, (500, "Spawn".to_owned()));
    }
    assert_eq!(service.started(), ["ada", "bob"]);
}
