//! A desk on stand-ins, its requests, and the events of its turns.

#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::request::Builder;
use axum::http::{Request, Response, StatusCode};
use desk::{Connect, desk, router};
use greenroom::SessionBuilder;
use greenroom_fleet::backend::{Backend, MemoryBackend};
use greenroom_fleet::web::Login;
use greenroom_fleet::{Fleet, FleetBuilder, Name, SnapshotQuery, Tenant};
use greenroom_testkit::{CliEnd, ModelTurn, Script, ScriptedCli, ScriptedClis, ScriptedListener};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tower::ServiceExt;

pub(crate) use crate::wait::in_time;

pub(crate) const IDLE: Duration = Duration::from_secs(30);

/// The secret of anna's login at acme, and of bela's at umbrella.
pub(crate) const ANNA: &str = "secret-of-anna";
pub(crate) const BELA: &str = "secret-of-bela";

pub(crate) struct Service {
    pub(crate) fleet: Fleet,
    pub(crate) router: Router,
    /// The customers whose sessions were started, in order.
    started: Arc<Mutex<Vec<String>>>,
}

impl Service {
    pub(crate) async fn at(
        backend: impl Backend,
        sessions: usize,
        connect: impl Fn(SessionBuilder, &Name) -> SessionBuilder + Send + Sync + 'static,
    ) -> Self {
        Self::on(|desk| desk.backend(backend), sessions, connect).await
    }

    /// `place` names the backend and the place of the node.
    pub(crate) async fn on(
        place: impl FnOnce(FleetBuilder) -> FleetBuilder,
        sessions: usize,
        connect: impl Fn(SessionBuilder, &Name) -> SessionBuilder + Send + Sync + 'static,
    ) -> Self {
        let started: Arc<Mutex<Vec<String>>> = Arc::default();
        let names = started.clone();
        let connect: Connect = Box::new(move |builder, user| {
            names.lock().unwrap().push(user.session().to_owned());
            connect(builder, user)
        });
        let fleet = place(desk(sessions, IDLE, connect)).start().await.unwrap();
        // The start has tried the profile.
        started.lock().unwrap().clear();
        let login = |person: &str, tenant: &str| Login::new(Tenant::new(tenant).unwrap()).person(person);
        let logins = [(ANNA, login("anna", "acme")), (BELA, login("bela", "umbrella"))];
        let logins: HashMap<_, _> = logins.map(|(secret, login)| (secret.to_owned(), login)).into();
        Self { router: router(fleet.clone(), Arc::new(logins)), fleet, started }
    }

    /// Each customer has a CLI of their own that plays this script.
    pub(crate) async fn scripted(script: Script) -> (Self, ScriptedClis) {
        Self::scripted_at(MemoryBackend::new(), script).await
    }

    pub(crate) async fn scripted_at(backend: impl Backend, script: Script) -> (Self, ScriptedClis) {
        let clis = ScriptedClis::new(move |_| script.clone());
        let all = clis.clone();
        let connect = move |builder: SessionBuilder, customer: &Name| {
            builder.transport(all.transport(customer.session()))
        };
        (Self::at(backend, 20, connect).await, clis)
    }

    /// The test is the CLI of all customers.
    pub(crate) async fn by_hand(sessions: usize) -> (Self, ScriptedListener) {
        let (transport, listener) = ScriptedCli::by_hand();
        let connect = move |builder: SessionBuilder, _: &Name| builder.transport(transport.clone());
        (Self::at(MemoryBackend::new(), sessions, connect).await, listener)
    }

    /// As at SIGTERM.
    pub(crate) async fn stop(&self) {
        in_time("the drain", self.fleet.drain(Duration::from_secs(20))).await;
    }

    pub(crate) async fn request(&self, request: Request<Body>) -> Response<Body> {
        in_time("the answer", self.router.clone().oneshot(request)).await.unwrap()
    }

    /// Sends a request of a person.
    pub(crate) async fn send(&self, login: &str, request: Builder, body: impl Into<Body>) -> Response<Body> {
        let request = request.header("cookie", format!("theme=dark; login={login}"));
        self.request(request.body(body.into()).unwrap()).await
    }

    pub(crate) async fn post_json(&self, login: &str, path: &str, body: Value) -> (u16, String) {
        let request = Request::post(path).header("content-type", "application/json");
        answered(self.send(login, request, body.to_string()).await).await
    }

    /// The events of a turn, after the one that was seen last.
    pub(crate) async fn events(&self, turn: &str, last_event_id: Option<&str>) -> Events {
        let mut request = Request::get(turn);
        if let Some(id) = last_event_id {
            request = request.header("last-event-id", id);
        }
        let response = self.send(ANNA, request, Body::empty()).await;
        assert_eq!(response.status(), StatusCode::OK);
        Events::of(turn, response)
    }

    pub(crate) async fn post(&self, customer: &str, prompt: impl Into<Body>) -> Response<Body> {
        self.send(ANNA, Request::post(format!("/customers/{customer}/prompts")), prompt).await
    }

    /// The path of the events of a prompt that is accepted.
    pub(crate) async fn accepted(&self, response: Response<Body>) -> String {
        let location = response.headers().get("location").cloned();
        let (status, body) = answered(response).await;
        assert_eq!(status, 202, "{body}");
        location.unwrap().to_str().unwrap().to_owned()
    }

    /// The events of a prompt with a key.
    pub(crate) async fn prompt_with_key(&self, customer: &str, key: &str, prompt: &str) -> Events {
        let turn = self.accepted(self.post_with_key(customer, key, prompt).await).await;
        self.events(&turn, None).await
    }

    pub(crate) async fn post_with_key(&self, customer: &str, key: &str, prompt: &str) -> Response<Body> {
        let request = Request::post(format!("/customers/{customer}/prompts")).header("idempotency-key", key);
        self.send(ANNA, request, prompt.to_owned()).await
    }

    /// The events of an accepted prompt.
    pub(crate) async fn prompt(&self, customer: &str, prompt: &str) -> Events {
        let turn = self.accepted(self.post(customer, prompt.to_owned()).await).await;
        self.events(&turn, None).await
    }

    /// The data of the event `outcome`.
    pub(crate) async fn outcome(&self, customer: &str, prompt: &str) -> Value {
        self.prompt(customer, prompt).await.outcome().await
    }

    pub(crate) async fn get(&self, login: &str, path: &str) -> (u16, String) {
        answered(self.send(login, Request::get(path), Body::empty()).await).await
    }

    pub(crate) async fn json(&self, path: &str) -> Value {
        serde_json::from_str(&self.get(ANNA, path).await.1).unwrap()
    }

    /// What the first session that is awake does.
    pub(crate) async fn stage(&self) -> String {
        let snapshot = self.fleet.operator().snapshot(SnapshotQuery::active()).await.unwrap();
        serde_json::to_value(&snapshot.names[0]).unwrap()["stage"].as_str().unwrap().to_owned()
    }

    pub(crate) fn started(&self) -> Vec<String> {
        self.started.lock().unwrap().clone()
    }
}

/// A stream of events.
pub(crate) struct Events {
    body: Body,
    /// The path of the stream.
    pub(crate) turn: String,
    pub(crate) last_id: Option<String>,
}

impl Events {
    pub(crate) fn of(turn: &str, response: Response<Body>) -> Self {
        Self { body: response.into_body(), turn: turn.to_owned(), last_id: None }
    }

    /// Name and data of the next event.
    pub(crate) async fn next(&mut self) -> Option<(String, Value)> {
        loop {
            let frame = in_time("an event", self.body.frame()).await?.unwrap().into_data().unwrap();
            let event = std::str::from_utf8(&frame).unwrap();
            let field = |name: &str| {
                let value = event.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
                value.map(str::to_owned)
            };
            // Other frames are comments that keep the connection open.
            let Some(name) = field("event") else { continue };
            self.last_id = field("id").or(self.last_id.take());
            let data: Value = serde_json::from_str(&field("data").unwrap()).unwrap();
            assert_eq!(data["type"], name);
            return Some((name, data));
        }
    }

    /// The next event with this name.
    pub(crate) async fn next_of(&mut self, kind: &str) -> Value {
        loop {
            let (name, data) = self.next().await.expect("the stream goes on");
            if name == kind {
                return data;
            }
        }
    }

    pub(crate) async fn all(mut self) -> Vec<(String, Value)> {
        let mut all = Vec::new();
        while let Some(event) = self.next().await {
            all.push(event);
        }
        all
    }

    /// The data of the last event, which is the outcome.
    pub(crate) async fn outcome(self) -> Value {
        let (name, data) = self.all().await.pop().unwrap();
        assert_eq!(name, "outcome");
        data
    }
}

/// The status and the body of an answer.
pub(crate) async fn answered(response: Response<Body>) -> (u16, String) {
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

/// The next incarnation, after its handshake.
pub(crate) async fn accept(listener: &mut ScriptedListener) -> CliEnd {
    in_time("a CLI", async {
        let mut end = listener.accept().await;
        end.handshake().await;
        end
    })
    .await
}

/// Answers the next prompt.
pub(crate) async fn answer(end: &mut CliEnd, text: &str) {
    let prompt = in_time("a prompt", end.expect("user")).await;
    end.begin_turn();
    end.finish_turn(&prompt, text);
}

/// The conversation that a CLI was started with.
pub(crate) fn conversation(end: &CliEnd) -> String {
    let flags = ["--resume=", "--session-id="];
    let named = |arg: &String| flags.iter().find_map(|flag| arg.strip_prefix(flag)).map(str::to_owned);
    end.launch().args.iter().find_map(named).expect("the CLI is told its conversation")
}

/// Writes a part of the answer.
pub(crate) fn say(end: &mut CliEnd, text: &str) {
    let content = json!([{ "type": "text", "text": text }]);
    end.message(json!({ "type": "assistant", "message": { "id": "m", "content": content } }));
}

/// Asks for the user's orders, and says something.
pub(crate) fn looks_and_says(text: &str) -> Script {
    Script::new()
        .turn(ModelTurn::new().text("Let me look. ").call("mcp__orders__list", json!({})))
        .turn(ModelTurn::new().text(text))
}

/// Writes a piece of a text, as the first one or as a later one.
pub(crate) fn piece(end: &mut CliEnd, text: &str, first: bool) {
    let mut event = |event: Value| {
        end.message(json!({ "type": "stream_event", "parent_tool_use_id": null, "event": event }));
    };
    if first {
        event(
            json!({ "type": "content_block_start", "index": 0, "content_block": { "type": "text", "text": "" } }),
        );
    }
    let delta = json!({ "type": "text_delta", "text": text });
    event(json!({ "type": "content_block_delta", "index": 0, "delta": delta }));
}
