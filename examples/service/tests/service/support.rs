//! A service on stand-ins, its requests, and the events of its answers.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response, StatusCode};
use greenroom::SessionBuilder;
use greenroom::testkit::{CliEnd, ModelTurn, Script, ScriptedCli, ScriptedListener};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use service::{Connect, User, Users, router};
use tempfile::TempDir;
use tower::ServiceExt;

/// Far more than anything here takes.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

pub(crate) const IDLE: Duration = Duration::from_secs(30);

pub(crate) async fn in_time<T>(what: &str, work: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, work).await.unwrap_or_else(|_| panic!("{what} took more than {LIMIT:?}"))
}

pub(crate) struct Service {
    pub(crate) users: Arc<Users>,
    router: Router,
    pub(crate) data: Arc<TempDir>,
    /// The users whose sessions were started, in order.
    started: Arc<Mutex<Vec<String>>>,
}

impl Service {
    pub(crate) fn new(
        sessions: usize,
        connect: impl Fn(SessionBuilder, &User) -> SessionBuilder + Send + Sync + 'static,
    ) -> Self {
        Self::at(Arc::new(tempfile::tempdir().unwrap()), sessions, connect)
    }

    /// With the users' folders in this one.
    pub(crate) fn at(
        data: Arc<TempDir>,
        sessions: usize,
        connect: impl Fn(SessionBuilder, &User) -> SessionBuilder + Send + Sync + 'static,
    ) -> Self {
        let started: Arc<Mutex<Vec<String>>> = Arc::default();
        let names = started.clone();
        let connect: Connect = Box::new(move |builder, user| {
            names.lock().unwrap().push(user.0.clone());
            connect(builder, user)
        });
        let users = Users::new(data.path().to_owned(), sessions, IDLE, connect);
        Self { router: router(users.clone()), users, data, started }
    }

    /// Each user has a CLI of their own that plays this script.
    pub(crate) fn scripted(script: Script) -> (Self, Clis) {
        let clis = Clis::default();
        let all = clis.clone();
        let service = Self::new(20, move |builder, user| {
            let mut clis = all.0.lock().unwrap();
            let cli = clis.entry(user.0.clone()).or_insert_with(|| ScriptedCli::play(script.clone()));
            builder.transport(cli.transport())
        });
        (service, clis)
    }

    /// The test is the CLI of all users.
    pub(crate) fn by_hand(sessions: usize) -> (Self, ScriptedListener) {
        let (transport, listener) = ScriptedCli::by_hand();
        (Self::new(sessions, move |builder, _| builder.transport(transport.clone())), listener)
    }

    pub(crate) async fn post(&self, user: &str, prompt: impl Into<Body>) -> Response<Body> {
        let request = Request::post(format!("/users/{user}/prompts")).body(prompt.into()).unwrap();
        in_time("the answer", self.router.clone().oneshot(request)).await.unwrap()
    }

    /// The events of an accepted prompt.
    pub(crate) async fn prompt(&self, user: &str, prompt: &str) -> Events {
        let response = self.post(user, prompt.to_owned()).await;
        assert_eq!(response.status(), StatusCode::OK);
        Events(response.into_body())
    }

    /// The data of the event `outcome`.
    pub(crate) async fn outcome(&self, user: &str, prompt: &str) -> Value {
        self.prompt(user, prompt).await.outcome().await
    }

    pub(crate) async fn get(&self, path: &str) -> (StatusCode, String) {
        let request = Request::get(path).body(Body::empty()).unwrap();
        let response = in_time(path, self.router.clone().oneshot(request)).await.unwrap();
        let status = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    pub(crate) async fn status(&self) -> Value {
        serde_json::from_str(&self.get("/status").await.1).unwrap()
    }

    pub(crate) fn started(&self) -> Vec<String> {
        self.started.lock().unwrap().clone()
    }
}

/// The scripted CLIs, by user.
#[derive(Clone, Default)]
pub(crate) struct Clis(Arc<Mutex<HashMap<String, ScriptedCli>>>);

impl Clis {
    pub(crate) fn tool_results(&self, user: &str) -> Vec<String> {
        self.0.lock().unwrap()[user].tool_results()
    }
}

/// A stream of events.
pub(crate) struct Events(pub(crate) Body);

impl Events {
    /// Name and data of the next event.
    pub(crate) async fn next(&mut self) -> Option<(String, Value)> {
        loop {
            let frame = in_time("an event", self.0.frame()).await?.unwrap().into_data().unwrap();
            let event = std::str::from_utf8(&frame).unwrap();
            // Other frames are comments that keep the connection open.
            let Some((name, data)) = event.split_once('\n').filter(|_| event.starts_with("event: ")) else {
                continue;
            };
            let data = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
            return Some((name.strip_prefix("event: ").unwrap().to_owned(), data));
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

/// Posts as a client that tries again while there are too many sessions. On the paused clock.
pub(crate) async fn post_until_free(service: &Service, user: &str) -> Response<Body> {
    loop {
        let response = service.post(user, "Hello.").await;
        if response.status() != StatusCode::SERVICE_UNAVAILABLE {
            return response;
        }
        assert_eq!(refusal(response).await.1, "TooManySessions");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
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
