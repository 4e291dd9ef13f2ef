//! People of one tenant, and what they cannot reach of another.

use axum::body::Body;
use axum::http::Request;
use greenroom_testkit::{ModelTurn, Script};
use serde_json::json;

use crate::support::*;

const UNKNOWN: &str = "00000000-0000-4000-8000-000000000000";

#[tokio::test]
async fn without_a_login_nothing_is_reached() {
    let (service, _) = Service::scripted(Script::new()).await;
    let gets = ["/me", "/customers/ada/turns", "/questions", &format!("/turns/{UNKNOWN}/events")];
    let posts = ["/customers/ada/prompts", &format!("/customers/ada/turns/{UNKNOWN}/interrupt")];
    for login in ["", "secret", "secret-of-anna2"] {
        for path in gets {
            assert_eq!(service.get(login, path).await.0, 401, "{path}");
        }
        for path in posts {
            assert_eq!(service.post_json(login, path, json!({})).await.0, 401, "{path}");
        }
        let (status, said) =
            service.post_json(login, &format!("/questions/{UNKNOWN}"), json!({ "choice": "allow" })).await;
        assert_eq!(status, 401);
        assert!(said.contains("You are not logged in."), "{said}");
        assert_eq!(service.get(login, &format!("/login/{login}x")).await.0, 404);
    }
    assert!(service.started().is_empty());
    service.stop().await;
}

#[tokio::test]
async fn what_is_of_another_tenant_is_as_what_does_not_exist() {
    let script = Script::new()
        .turn(ModelTurn::new().text("I ask. ").call("mcp__orders__cancel", json!({})))
        .turn(ModelTurn::new().text("Cancelled."));
    let (service, _) = Service::scripted(script).await;
    let mut turn = service.prompt("ada", "I want no lamp.").await;
    let asked = turn.next_of("asked").await["question"]["id"].as_str().unwrap().to_owned();
    let id = turn.turn.split('/').nth(2).unwrap().to_owned();

    // Every path, with the ids of acme and with ids that nobody has: the same answers.
    let tried = async |turn: &str, question: &str| {
        let interrupt = format!("/customers/ada/turns/{turn}/interrupt");
        let answer = format!("/questions/{question}");
        [
            service.get(BELA, &format!("/turns/{turn}/events")).await,
            service.get(BELA, "/customers/ada/turns").await,
            service.get(BELA, "/questions").await,
            service.post_json(BELA, &interrupt, json!({})).await,
            service.post_json(BELA, &answer, json!({ "choice": "allow" })).await,
        ]
    };
    let theirs = tried(&id, &asked).await;
    assert_eq!(theirs, tried(UNKNOWN, UNKNOWN).await);
    let statuses: Vec<_> = theirs.iter().map(|(status, _)| *status).collect();
    assert_eq!(statuses, [404, 200, 200, 200, 404], "{theirs:?}");

    // The same name is another customer.
    let request = Request::post("/customers/ada/prompts");
    let response = service.send(BELA, request, Body::from("Where is it?")).await;
    assert_eq!(response.status().as_u16(), 202);
    let one = |list: &str| list.matches("\"id\"").count();
    assert_eq!(one(&service.get(BELA, "/customers/ada/turns").await.1), 1);
    assert_eq!(one(&service.get(ANNA, "/customers/ada/turns").await.1), 1);

    let path = format!("/questions/{asked}");
    assert_eq!(service.post_json(ANNA, &path, json!({ "choice": "deny" })).await.0, 200);
    assert_eq!(turn.outcome().await["outcome"], "completed");
    service.stop().await;
}
