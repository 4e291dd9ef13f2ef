//! Requests that are refused, and prompts that fail.

use axum::body::Body;
use axum::http::{Request, StatusCode};
use greenroom_fleet::backend::LocalBackend;
use greenroom_testkit::{ModelTurn, Script};
use serde_json::json;

use crate::support::*;

#[tokio::test]
async fn a_name_never_becomes_a_path() {
    let data = tempfile::tempdir().unwrap();
    let backend = LocalBackend::open(data.path().join("fleet.redb")).await.unwrap();
    let (service, _) = Service::scripted_at(backend, Script::new()).await;
    let long = "a".repeat(256);
    let names =
        ["..", ".", "ada@example.com", "..%2F..%2Fetc", "%00", "ada%20b", "%C3%A4da", "a%0d%0a", &long];
    for name in names {
        assert_eq!(service.outcome(name, "Hello.").await["outcome"], "completed");
    }
    service.stop().await;
    let files = |folder: &std::path::Path| -> Vec<String> {
        let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
        entries.map(|name| name.into_string().unwrap()).collect()
    };
    let mut top = files(data.path());
    top.sort();
    assert_eq!(top, ["fleet.redb", "fleet.redb.sessions"]);
    let folders = files(&data.path().join("fleet.redb.sessions"));
    for name in &folders {
        assert!(name.len() == 36 && name.chars().all(|c| c == '-' || c.is_ascii_hexdigit()), "{name}");
    }
    assert_eq!(folders.len(), names.len());
}

#[tokio::test]
async fn a_name_or_a_prompt_that_is_no_text_or_too_long_is_refused() {
    let (service, _) = Service::scripted(Script::new()).await;
    for name in ["%ff", &"a".repeat(257)] {
        assert_eq!(service.post(name, "Hello.").await.status(), StatusCode::BAD_REQUEST);
    }
    assert_eq!(service.post("ada", vec![0xff]).await.status(), StatusCode::BAD_REQUEST);
    let large = Body::from("a".repeat(3 << 20));
    assert_eq!(service.post("ada", large).await.status(), StatusCode::PAYLOAD_TOO_LARGE);
    assert!(service.started().is_empty());
}

#[tokio::test]
async fn each_answer_has_the_headers_of_security_and_other_origins_send_nothing() {
    let (service, _) = Service::scripted(Script::new()).await;
    let paths = ["/", "/desk/ada", "/desk.js", "/me", "/questions", "/health/live", "/login/none", "/none"];
    for path in paths {
        for login in [ANNA, ""] {
            let answer = service.send(login, Request::get(path), Body::empty()).await;
            let header = |name: &str| answer.headers()[name].to_str().unwrap();
            assert!(header("content-security-policy").contains("frame-ancestors 'none'"), "{path}");
            assert_eq!(
                (header("x-content-type-options"), header("referrer-policy")),
                ("nosniff", "no-referrer")
            );
        }
    }
    let unknown = "00000000-0000-4000-8000-000000000000";
    for path in [
        "/customers/ada/prompts",
        &format!("/customers/ada/turns/{unknown}/interrupt"),
        &format!("/questions/{unknown}"),
    ] {
        let request = Request::post(path).header("sec-fetch-site", "same-site");
        assert_eq!(service.send(ANNA, request, "Hello.").await.status(), StatusCode::FORBIDDEN, "{path}");
    }
    assert!(service.started().is_empty());
    service.stop().await;
}

#[tokio::test]
async fn a_cookie_is_for_the_desk_alone() {
    let (service, _) = Service::scripted(Script::new()).await;
    let answer = service.request(Request::get(format!("/login/{ANNA}")).body(Body::empty()).unwrap()).await;
    let cookie = answer.headers()["set-cookie"].to_str().unwrap();
    assert_eq!(cookie, format!("login={ANNA}; Path=/; HttpOnly; SameSite=Strict"));
    service.stop().await;
}

#[tokio::test]
async fn a_turn_that_is_not_known_is_told() {
    let (service, _) = Service::scripted(Script::new()).await;
    for turn in ["00000000-0000-4000-8000-000000000000", "none"] {
        let (status, text) = service.get(ANNA, &format!("/turns/{turn}/events")).await;
        assert_eq!(status, 404, "{text}");
        assert!(text.contains("This does not exist, or is not kept any more."), "{text}");
    }
    service.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_prompt_too_many_is_refused_until_later() {
    let (service, mut listener) = Service::by_hand(1).await;
    let (first, mut end) = tokio::join!(service.prompt("ada", "Now."), accept(&mut listener));
    // The running turn has left the queue.
    let prompt = end.expect("user").await;
    let mut waiting = Vec::new();
    for _ in 0..4 {
        waiting.push(service.prompt("ada", "Later.").await);
    }
    let refused = service.post("ada", "Too much.").await;
    assert_eq!((refused.status().as_u16(), &refused.headers()["retry-after"]), (429, &"1".parse().unwrap()));
    assert_eq!(refused.headers()["content-type"], "application/problem+json");

    end.begin_turn();
    end.finish_turn(&prompt, "Done.");
    assert_eq!(first.outcome().await["text"], "Done.");
    for events in waiting {
        answer(&mut end, "Done, too.").await;
        assert_eq!(events.outcome().await["text"], "Done, too.");
    }
    tokio::join!(service.stop(), end.run_out());
}

#[tokio::test(start_paused = true)]
async fn a_customer_too_many_waits_for_a_session_that_is_idle() {
    let (service, mut listener) = Service::by_hand(1).await;
    let (events, mut end) = tokio::join!(service.prompt("ada", "Hello."), accept(&mut listener));
    answer(&mut end, "Hello.").await;
    events.outcome().await;
    let events = service.prompt("bob", "Hello.").await;
    // Ada's session makes room before its time of idleness has passed.
    let before = tokio::time::Instant::now();
    end.run_out().await;
    assert!(before.elapsed() < IDLE, "{:?}", before.elapsed());
    let mut end = accept(&mut listener).await;
    answer(&mut end, "Hello, bob.").await;
    assert_eq!(events.outcome().await["text"], "Hello, bob.");
    assert_eq!(service.started(), ["ada", "bob"]);
    tokio::join!(service.stop(), end.run_out());
}

#[tokio::test]
async fn an_error_of_the_api_is_the_outcome_with_its_kind() {
    let script = Script::new()
        .turn(ModelTurn::new().final_error(400, "invalid_request_error", "made-up-secret"))
        .turn(ModelTurn::new().final_error(529, "overloaded_error", "busy"))
        .turn(ModelTurn::new().final_error(429, "rate_limit_error", "too many"))
        .turn(ModelTurn::new().text("Hello, Ada."));
    let (service, _) = Service::scripted(script).await;
    // The client is told no more.
    let expected = json!({ "type": "outcome", "id": "end", "outcome": "failed", "why": "turn_failed" });
    assert_eq!(service.outcome("ada", "Hello.").await, expected);
    // Limits of the API are waited out.
    let expected = json!({ "type": "outcome", "id": "end", "outcome": "completed", "text": "Hello, Ada." });
    assert_eq!(service.outcome("ada", "Hello.").await, expected);
    service.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_prompt_whose_session_does_not_start_ends_as_unsent() {
    let (service, listener) = Service::by_hand(1).await;
    // No CLI starts any more.
    drop(listener);
    let expected = json!({ "type": "outcome", "id": "end", "outcome": "unsent", "why": "expired" });
    // It waits for 5 minutes.
    assert_eq!(service.outcome("ada", "Hello.").await, expected);
    assert_eq!(service.started(), ["ada", "ada", "ada"]);
    service.stop().await;
}
