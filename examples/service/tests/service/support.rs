//! A service on stand-ins, its requests, and the events of its answers.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response, StatusCode};
use greenroom::SessionBuilder;
use greenroom_fleet::backend::{Backend, MemoryBackend};
use greenroom_fleet::{Fleet, Tenant};
use greenroom_testkit::{CliEnd, ModelTurn, Script, ScriptedCli, ScriptedClis, ScriptedListener};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use service::{Connect, router, users};
use tower::ServiceExt;

pub(crate) use crate::wait::in_time;

pub(crate) const IDLE: Duration = Duration::from_secs(30);

pub(crate) struct Service {
    fleet: Fleet,
    router: Router,
    /// The users whose sessions were started, in order.
    started: Arc<Mutex<Vec<String>>>,
}

impl Service {
    pub(crate) async fn at(
        backend: impl Backend,
        sessions: usize,
        connect: impl Fn(SessionBuilder, &Tenant) -> SessionBuilder + Send + Sync + 'static,
    ) -> Self {
        let started: Arc<Mutex<Vec<String>>> = Arc::default();
        let names = started.clone();
        let connect: Connect = Box::new(move |builder, user| {
            names.lock().unwrap().push(user.to_string());
            connect(builder, user)
        });
        let fleet = users(sessions, IDLE, connect).backend(backend).start().await.unwrap();
        Self { router: router(fleet.clone()), fleet, started }
    }

    /// Each user has a CLI of their own that plays this script.
    pub(crate) async fn scripted(script: Script) -> (Self, ScriptedClis) {
        Self::scripted_at(MemoryBackend::new(), script).await
    }

    pub(crate) async fn scripted_at(backend: impl Backend, script: Script) -> (Self, ScriptedClis) {
        let clis = ScriptedClis::new(move |_| script.clone());
        let all = clis.clone();
        let service = Self::at(backend, 20, move |builder, user| builder.transport(all.transport(user)));
        (service.await, clis)
    }

    /// The test is the CLI of all users.
    pub(crate) async fn by_hand(sessions: usize) -> (Self, ScriptedListener) {
        let (transport, listener) = ScriptedCli::by_hand();
        let connect = move |builder: SessionBuilder, _: &Tenant| builder.transport(transport.clone());
        (Self::at(MemoryBackend::new(), sessions, connect).await, listener)
    }

    /// As at SIGTERM.
    pub(crate) async fn stop(&self) {
        in_time("the drain", self.fleet.drain(Duration::from_secs(20))).await;
    }

    pub(crate) async fn request(&self, request: Request<Body>) -> Response<Body> {
        in_time("the answer", self.router.clone().oneshot(request)).await.unwrap()
    }

    pub(crate) async fn post_json(&self, path: &str, body: Value) -> (u16, String) {
        let request = Request::post(path).header("content-type", "application/json");
        refusal(self.request(request.body(body.to_string().into()).unwrap()).await).await
    }

    /// The turn of a prompt again, after the event that was seen last.
    pub(crate) async fn again(&self, turn: &str, last_event_id: Option<&str>) -> Events {
        let mut request = Request::get(turn);
        if let Some(id) = last_event_id {
            request = request.header("last-event-id", id);
        }
        Events::of(self.request(request.body(Body::empty()).unwrap()).await)
    }

    pub(crate) async fn post(&self, user: &str, prompt: impl Into<Body>) -> Response<Body> {
        let request = Request::post(format!("/users/{user}/prompts")).body(prompt.into()).unwrap();
        self.request(request).await
    }

    pub(crate) async fn post_with_key(&self, user: &str, key: &str, prompt: &str) -> Response<Body> {
        let request = Request::post(format!("/users/{user}/prompts")).header("idempotency-key", key);
        self.request(request.body(prompt.to_owned().into()).unwrap()).await
    }

    /// The events of an accepted prompt.
    pub(crate) async fn prompt(&self, user: &str, prompt: &str) -> Events {
        let response = self.post(user, prompt.to_owned()).await;
        assert_eq!(response.status(), StatusCode::OK);
        Events::of(response)
    }

    /// The data of the event `outcome`.
    pub(crate) async fn outcome(&self, user: &str, prompt: &str) -> Value {
        self.prompt(user, prompt).await.outcome().await
    }

    pub(crate) async fn get(&self, path: &str) -> (StatusCode, String) {
        let request = Request::get(path).body(Body::empty()).unwrap();
        let response = self.request(request).await;
        let status = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    pub(crate) async fn json(&self, path: &str) -> Value {
        serde_json::from_str(&self.get(path).await.1).unwrap()
    }

    pub(crate) fn started(&self) -> Vec<String> {
        self.started.lock().unwrap().clone()
    }
}

/// A stream of events.
pub(crate) struct Events {
    body: Body,
    /// The path of the turn, for the stream of a prompt.
    pub(crate) turn: Option<String>,
    pub(crate) last_id: Option<String>,
}

impl Events {
    pub(crate) fn of(response: Response<Body>) -> Self {
        let turn = response.headers().get("location").map(|turn| turn.to_str().unwrap().to_owned());
        Self { body: response.into_body(), turn, last_id: None }
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
            return Some((name, serde_json::from_str(&field("data").unwrap()).unwrap()));
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

/// The status and the error of a refusal.
pub(crate) async fn refusal(response: Response<Body>) -> (u16, String) {
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
