//! Requests to handlers with the extractors of a fleet.

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use axum::routing::{any, get};
use greenroom::Session;
use greenroom_fleet::web::{self, Choice, IdempotencyKey, LastEventId, Login, Problem};
use greenroom_fleet::{Access, Denied, Fleet, FleetSession, FleetTenant, Tenant};
use greenroom_testkit::{ModelTurn, Script, ScriptedCli};
use http_body_util::BodyExt;
use tower::ServiceExt;

use crate::wait::in_time;

async fn fleet() -> Fleet {
    let cli = ScriptedCli::play(Script::new().otherwise(ModelTurn::new().text("On\nMonday.")));
    let profile = move |_: &_| Session::builder().transport(cli.transport());
    let anna = |access: Access<'_>| match access.person {
        "anna" => Ok(()),
        _ => Err(Denied::new("only anna may")),
    };
    Fleet::builder().profile("default", profile).authoriser(anna).start().await.unwrap()
}

/// The headers `tenant` and `person` stand for a login.
async fn login(mut request: Request, next: Next) -> Response {
    if let Some(tenant) = request.headers().get("tenant") {
        let tenant = Tenant::new(tenant.to_str().unwrap()).unwrap();
        let person = request.headers().get("person").map(|person| person.to_str().unwrap().to_owned());
        let login = person.into_iter().fold(Login::new(tenant), Login::person);
        request.extensions_mut().insert(login);
    }
    next.run(request).await
}

fn router(fleet: &Fleet) -> Router {
    Router::new()
        .route("/tenant", get(async |tenant: FleetTenant| tenant.id().to_string()))
        .route("/person", get(async |login: Login| login.person.unwrap_or_default()))
        .route("/sessions/{session}", get(async |session: FleetSession| session.name().to_string()))
        .route("/pathless", get(async |session: FleetSession| session.name().to_string()))
        .route("/turns/{turn}", get(web::events))
        .route("/last", get(async |last: LastEventId| last.0.map(|id| id.to_string()).unwrap_or_default()))
        .route("/key", get(async |key: IdempotencyKey| key.0.unwrap_or_default()))
        .layer(from_fn(login))
        .merge(web::health())
        .with_state(fleet.clone())
}

/// The status and the body of the answer.
async fn ask(fleet: &Fleet, path: &str, headers: &[(&str, &str)]) -> (u16, String) {
    let request =
        headers.iter().fold(Request::get(path), |request, (name, value)| request.header(*name, *value));
    let response = router(fleet).oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
    let status = response.status().as_u16();
    let body = in_time("the body", response.into_body().collect()).await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

const ANNA: &[(&str, &str)] = &[("tenant", "acme"), ("person", "anna")];
const ACME: &[(&str, &str)] = &[("tenant", "acme")];

#[tokio::test]
async fn a_request_reaches_the_tenant_of_its_login() {
    let fleet = fleet().await;
    let said = |text: &str| (200, text.to_owned());
    assert_eq!(ask(&fleet, "/tenant", ACME).await, said("acme"));
    assert_eq!(ask(&fleet, "/person", ACME).await, said(""));
    assert_eq!(ask(&fleet, "/person", ANNA).await, said("anna"));
    assert_eq!(ask(&fleet, "/sessions/customer%2042", ACME).await, said("acme/customer 42"));
    // Nothing but the login says which tenant it is.
    assert_eq!(ask(&fleet, "/sessions/umbrella%2F42?tenant=umbrella", ACME).await, said("acme/umbrella/42"));
    let (status, body) = ask(&fleet, &format!("/sessions/{}", "a".repeat(300)), ACME).await;
    assert_eq!(status, 400, "{body}");
    assert_eq!(ask(&fleet, "/sessions/%FF", ACME).await.0, 400);
    // The route is at fault.
    assert_eq!(ask(&fleet, "/pathless", ACME).await.0, 500);
    fleet.drain(std::time::Duration::from_secs(20)).await;
}

#[tokio::test]
async fn without_a_login_each_extractor_answers_401() {
    let fleet = fleet().await;
    for path in ["/tenant", "/person", "/sessions/42", "/pathless", "/turns/none"] {
        let (status, body) = ask(&fleet, path, &[]).await;
        assert_eq!(status, 401, "{path}");
        assert!(body.contains("\"code\":\"no_login\""), "{body}");
    }
    fleet.drain(std::time::Duration::from_secs(20)).await;
}

#[tokio::test]
async fn a_person_may_do_what_the_authoriser_allows() {
    let fleet = fleet().await;
    let session = fleet.tenant("acme").unwrap().session("42").unwrap();
    let turn = session.prompt("When?").await.unwrap();
    let path = format!("/turns/{}", turn.prompt_id());
    assert_eq!(ask(&fleet, &path, ANNA).await.0, 200);
    let eve = [("tenant", "acme"), ("person", "eve")];
    let (status, body) = ask(&fleet, &path, &eve).await;
    assert_eq!((status, body.contains("denied")), (403, true), "{body}");
    fleet.drain(std::time::Duration::from_secs(20)).await;
}

#[tokio::test]
async fn the_events_of_a_turn_go_on_after_the_last_one_that_was_seen() {
    let fleet = fleet().await;
    let session = fleet.tenant("acme").unwrap().session("42").unwrap();
    let mut turn = session.prompt("When?").await.unwrap();
    turn.outcome().await.unwrap();
    let path = format!("/turns/{}", turn.prompt_id());
    let (status, all) = ask(&fleet, &path, ACME).await;
    assert_eq!(status, 200);
    let ids: Vec<_> = all.lines().filter_map(|line| line.strip_prefix("id: ")).collect();
    assert_eq!(ids.last(), Some(&"end"));
    for (at, id) in ids.iter().enumerate().take(ids.len() - 1) {
        let (_, rest) = ask(&fleet, &path, &[("tenant", "acme"), ("last-event-id", id)]).await;
        let next: Vec<_> = rest.lines().filter_map(|line| line.strip_prefix("id: ")).collect();
        assert_eq!(next, ids[at + 1..]);
    }
    let (_, again) = ask(&fleet, &path, &[("tenant", "acme"), ("last-event-id", "nonsense")]).await;
    assert_eq!(again, all);
    assert_eq!(
        ask(&fleet, &path, &[("tenant", "acme"), ("last-event-id", "end")]).await,
        (204, String::new())
    );
    // A line break in a text ends no event.
    assert!(all.contains(r#""text":"On\nMonday.""#), "{all}");

    let (status, body) = ask(&fleet, &path, &[("tenant", "umbrella")]).await;
    assert_eq!((status, body.contains("not_found")), (404, true), "{body}");
    fleet.drain(std::time::Duration::from_secs(20)).await;
}

#[tokio::test(start_paused = true)]
async fn a_silent_turn_sends_a_heartbeat_each_fifteen_seconds() {
    // The CLI says nothing.
    let (transport, _listener) = ScriptedCli::by_hand();
    let profile = move |_: &_| Session::builder().transport(transport.clone());
    let fleet = Fleet::builder().profile("default", profile).start().await.unwrap();
    let session = fleet.tenant("acme").unwrap().session("42").unwrap();
    let turn = session.prompt("When?").await.unwrap();
    let request = Request::get(format!("/turns/{}", turn.prompt_id())).header("tenant", "acme");
    let response = router(&fleet).oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
    let (mut body, begun) = (response.into_body(), tokio::time::Instant::now());
    for beats in 1..=2 {
        let data = in_time("a heartbeat", body.frame()).await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(data, "event: heartbeat\ndata: {\"type\":\"heartbeat\"}\n\n");
        assert_eq!(begun.elapsed().as_secs(), beats * 15);
    }
    fleet.drain(std::time::Duration::ZERO).await;
}

#[tokio::test]
async fn headers_that_are_wrong_count_as_none() {
    let fleet = fleet().await;
    for (value, seen) in [("7.2", "7.2"), ("end", "end"), ("", ""), ("-1.2", ""), ("7", "")] {
        assert_eq!(ask(&fleet, "/last", &[("last-event-id", value)]).await.1, seen, "{value:?}");
    }
    assert_eq!(ask(&fleet, "/key", &[("idempotency-key", "k-1")]).await.1, "k-1");
    assert_eq!(ask(&fleet, "/key", &[]).await.1, "");
    fleet.drain(std::time::Duration::from_secs(20)).await;
}

#[tokio::test]
async fn a_fleet_that_drains_lives_and_is_not_ready() {
    let fleet = fleet().await;
    assert_eq!(ask(&fleet, "/health/live", &[]).await, (200, "live".to_owned()));
    assert_eq!(ask(&fleet, "/health/ready", &[]).await, (200, "ready".to_owned()));
    fleet.drain(std::time::Duration::from_secs(20)).await;
    assert_eq!(ask(&fleet, "/health/live", &[]).await, (200, "live".to_owned()));
    assert_eq!(ask(&fleet, "/health/ready", &[]).await, (503, "draining".to_owned()));
}

#[tokio::test]
async fn a_fleet_without_its_cli_is_not_ready() {
    let profile = |_: &_| Session::builder().cli_path("/none/claude");
    let fleet = Fleet::builder().profile("default", profile).start().await.unwrap();
    let session = fleet.tenant("acme").unwrap().session("42").unwrap();
    let _turn = session.prompt("When?").await.unwrap();
    in_time("the degraded state", async {
        while ask(&fleet, "/health/ready", &[]).await != (503, "degraded".to_owned()) {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(ask(&fleet, "/health/live", &[]).await.0, 200);
    fleet.drain(std::time::Duration::ZERO).await;
}

/// The answer of a service without a fleet to a request with these headers.
async fn hardened(method: &str, path: &str, headers: &[(&str, &str)]) -> Response {
    let own = [("content-security-policy", "default-src 'none'")];
    let service =
        Router::new().route("/", any("done")).route("/own", get((own, "done"))).layer(from_fn(web::harden));
    let request = Request::builder().method(method).uri(path).header("host", "desk.test:8080");
    let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    service.oneshot(request.body(Body::empty()).unwrap()).await.unwrap()
}

/// The headers of a browser by the page that sends the request, and whether it is of the service itself.
const PAGES: [(&[(&str, &str)], bool); 13] = [
    // A program.
    (&[], true),
    (&[("sec-fetch-site", "same-origin")], true),
    (&[("sec-fetch-site", "none")], true),
    (&[("sec-fetch-site", "same-site")], false),
    (&[("sec-fetch-site", "cross-site")], false),
    (&[("sec-fetch-site", "")], false),
    (&[("sec-fetch-site", "same-origin, cross-site")], false),
    // Over HTTP without TLS, browsers send the origin alone.
    (&[("origin", "http://desk.test:8080")], true),
    (&[("origin", "http://desk.test")], false),
    (&[("origin", "http://other.test:8080")], false),
    (&[("origin", "null")], false),
    // A proxy behind TLS has another port; the browser knows better.
    (&[("sec-fetch-site", "same-origin"), ("origin", "https://desk.test")], true),
    (&[("sec-fetch-site", "same-site"), ("origin", "http://desk.test:8080")], false),
];

#[tokio::test]
async fn a_page_of_another_origin_changes_nothing() {
    for method in ["POST", "PUT", "PATCH", "DELETE"] {
        for (headers, own) in PAGES {
            let response = hardened(method, "/", headers).await;
            assert_eq!(response.status(), if own { 200 } else { 403 }, "{method} {headers:?}");
            let body = response.into_body().collect().await.unwrap().to_bytes();
            if !own {
                let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
                assert_eq!(body["code"], "cross_origin");
            }
        }
    }
    // A link on another site.
    for method in ["GET", "HEAD"] {
        for (headers, _) in PAGES {
            assert_eq!(hardened(method, "/", headers).await.status(), 200, "{method} {headers:?}");
        }
    }
}

#[tokio::test]
async fn a_page_of_another_origin_opens_no_websocket() {
    for protocol in ["websocket", "WebSocket", "h2c, websocket"] {
        for (headers, own) in PAGES {
            let headers = [headers, &[("upgrade", protocol)]].concat();
            let status = hardened("GET", "/", &headers).await.status();
            assert_eq!(status, if own { 200 } else { 403 }, "{headers:?}");
        }
    }
}

#[tokio::test]
async fn the_host_of_http_2_is_in_the_uri() {
    for (origin, status) in [("https://desk.test", 200), ("https://other.test", 403)] {
        let response = hardened("POST", "https://desk.test/", &[("origin", origin)]).await;
        assert_eq!(response.status(), status, "{origin}");
    }
}

#[tokio::test]
async fn each_answer_has_the_headers_of_security() {
    // An answer, a refusal, and an answer with a policy of its own.
    let policy = "form-action 'self'; frame-ancestors 'none'";
    for (method, path, policy) in
        [("GET", "/", policy), ("POST", "/", policy), ("GET", "/own", "default-src 'none'")]
    {
        let response = hardened(method, path, &[("sec-fetch-site", "cross-site")]).await;
        let header = |name: &str| response.headers()[name].to_str().unwrap();
        assert!(header("content-security-policy").ends_with(policy), "{method}");
        assert_eq!(response.headers().get_all("content-security-policy").iter().count(), 1);
        assert_eq!(header("x-content-type-options"), "nosniff");
        assert_eq!(header("referrer-policy"), "no-referrer");
    }
}

#[test]
fn a_choice_of_a_browser_changes_no_arguments_and_no_rules() {
    let read = |json: &str| serde_json::from_str::<Choice>(json);
    assert_eq!(read(r#"{"choice":"allow"}"#).unwrap(), Choice::Allow {});
    for json in [
        r#"{"choice":"allow","input":{"amount":1}}"#,
        r#"{"choice":"allow","updates":[]}"#,
        r#"{"choice":"deny","interrupt":true}"#,
        r#"{"kind":"allowed"}"#,
        r#"{"choice":"complete"}"#,
    ] {
        assert!(read(json).is_err(), "{json}");
    }
}

#[test]
fn a_problem_is_small_enough_for_a_result() {
    assert!(size_of::<Problem>() <= 128, "{}", size_of::<Problem>());
}
