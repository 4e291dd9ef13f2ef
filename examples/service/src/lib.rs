//! A web service with an agent session for each user: copy it as the start of your own.
//!
//! | request | answer |
//! |---|---|
//! | `POST /users/NAME/prompts`, the prompt as the body | a stream of events: `text` (a string), and at last `outcome` (status, and the whole text or the error) |
//! | `GET /status` | the state of each live session, by the user's name |
//! | `GET /health` | 200, or 503 when the service stops |
//!
//! The name in the path stands for your authentication. In your service take the user from the login, and keep users away
//! from `/status`.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_stream::stream;
use axum::extract::{Json, Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Sse, sse::Event, sse::KeepAlive};
use axum::{Router, routing::get, routing::post};
use futures_util::future::join_all;
use greenroom::ErrorKind::{AtCapacity, RateLimited, SessionFailed, Stopped};
use greenroom::options::{BuiltInTools, EnvPolicy};
use greenroom::{NoArgs, Options, Outcome, PermissionMode, Session, SessionBuilder};
use greenroom::{Snapshot, ToolContext, ToolServer, Turn};
use tokio::sync::{Mutex, OnceCell};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// A result, or the status of the request that is refused, and why.
type Result<T> = std::result::Result<T, (StatusCode, String)>;

/// The data of a session, for its tools.
#[derive(Clone)]
pub struct User(pub String);

/// Gives a session its CLI, or a stand-in.
pub type Connect = Box<dyn Fn(SessionBuilder, &User) -> SessionBuilder + Send + Sync>;

/// The sessions of the users: at most one live session for each user, and one conversation for ever.
pub struct Users {
    /// The folder with a folder for each user.
    data: PathBuf,
    most: usize,
    idle: Duration,
    connect: Connect,
    /// A slot for each user with a session that starts or lives.
    slots: Mutex<HashMap<String, Slot>>,
    /// Cancelled when the service begins to stop.
    pub stopping: CancellationToken,
    /// The starts of sessions, and the server.
    pub tasks: TaskTracker,
}

/// Empty until the session has started. Only one caller at a time starts it.
type Slot = Arc<OnceCell<Session>>;

impl Users {
    /// At most `most` sessions are live, each with a CLI process of about 200 MB. A session without work stops when
    /// `idle` has passed.
    pub fn new(data: PathBuf, most: usize, idle: Duration, connect: Connect) -> Arc<Self> {
        let (slots, stopping, tasks) = Default::default();
        Arc::new(Self { data, most, idle, connect, slots, stopping, tasks })
    }

    /// Sends a prompt to the user's session, and starts the session if there is none.
    async fn prompt(self: &Arc<Self>, user: User, prompt: &str) -> Result<Turn> {
        loop {
            let (users, user, slot) = (self.clone(), user.clone(), self.slot(&user).await?);
            let start = async move { slot.get_or_try_init(|| users.start(user)).await.cloned() };
            // A task goes on if the client goes away. It has no session if the service stops, or if the start panics.
            let task = self.tasks.spawn(self.stopping.clone().run_until_cancelled_owned(start));
            let session = task.await.ok().flatten().ok_or_else(|| refuse("Stopping"))??;
            match session.prompt(prompt).await {
                // Idle for too long, or failed. The next session begins when nothing of this session is left.
                Err(error) if matches!(error.kind(), Stopped | SessionFailed) => session.wait().await,
                turn => return turn.map_err(failure),
            }
        }
    }

    /// The user's slot. Slots that no task uses are free if their session has ended or did not start.
    async fn slot(&self, user: &User) -> Result<Slot> {
        let mut slots = self.slots.lock().await;
        slots.retain(|_, slot| slot.get().map_or(Arc::strong_count(slot) > 1, |live| !live.has_ended()));
        // Under the lock, so that `stop` finds every slot.
        self.open()?;
        if slots.len() >= self.most && !slots.contains_key(&user.0) {
            return Err(refuse("TooManySessions"));
        }
        Ok(slots.entry(user.0.clone()).or_default().clone())
    }

    /// Starts the user's session, which resumes the user's conversation if there is one.
    async fn start(self: Arc<Self>, user: User) -> Result<Session> {
        // Made of the name, so nothing has to be stored to find the conversation again, and no name becomes a path.
        let id = greenroom::conversation_id(&format!("service/{}", user.0));
        let folder = self.data.join(&id);
        let made = tokio::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder.join("work")).await;
        made.map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, error.kind().to_string()))?;
        let mut options = Options::isolated(folder).map_err(failure)?;
        options.env_policy = EnvPolicy::service_and(["ANTHROPIC_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN"]);
        options.tools = Some(BuiltInTools::none());
        // Nobody is there to be asked: all calls that no rule allows are denied.
        options.permission_mode = Some(PermissionMode::DontAsk);
        options.include_partial_messages = true;
        options.max_budget_usd = Some(1.0);
        options.limits.prompts_queued = 4;
        options.timeouts.turn = Some(Duration::from_secs(300));
        options.timeouts.idle = Some(self.idle);
        let builder = Session::builder().options(options).conversation(id).data(user.clone());
        let builder = builder.mcp_server(orders()).allow_server_tools("orders");
        (self.connect)(builder, &user).start().await.map_err(failure)
    }

    /// Fails as soon as the service stops.
    fn open(&self) -> Result<()> {
        if self.stopping.is_cancelled() { Err(refuse("Stopping")) } else { Ok(()) }
    }

    /// The state of each live session, by the user's name.
    async fn status(&self) -> BTreeMap<String, Snapshot> {
        let slots = self.slots.lock().await.clone();
        let look = async |(name, slot): (_, Slot)| Some((name, slot.get()?.snapshot().await.ok()?));
        join_all(slots.into_iter().map(look)).await.into_iter().flatten().collect()
    }

    /// Takes no more prompts, and stops all sessions at once, within `Session::shutdown_bound`.
    pub async fn stop(&self) {
        self.stopping.cancel();
        let slots: Vec<_> = self.slots.lock().await.values().cloned().collect();
        // A slot without a session gets none any more. A start that succeeds at this moment is waited for.
        let stop = async |slot: Slot| slot.get_or_try_init(async || Err(())).await.ok()?.stop().await.err();
        join_all(slots.into_iter().map(stop)).await;
    }
}

/// The tools of a session, whose data says who the user is, whatever the model says.
fn orders() -> ToolServer {
    let list = async |_: NoArgs, cx: ToolContext| {
        Ok::<_, greenroom::Error>(format!("{}'s lamp arrives on Monday", cx.data::<User>()?.0))
    };
    ToolServer::new("orders", "1.0.0").tool("list", "The user's orders", list).always_load(true)
}

pub fn router(users: Arc<Users>) -> Router {
    Router::new()
        .route("/users/{name}/prompts", post(prompt))
        .route("/status", get(async |users: State<Arc<Users>>| Json(users.status().await)))
        .route("/health", get(async |users: State<Arc<Users>>| users.open().map(|()| "ok")))
        .with_state(users)
}

/// Streams a turn: text as the model writes it, without the work of subagents, and the outcome.
///
/// A client that goes away drops the stream, and the stream drops the turn, which is cancelled: it costs money, nobody
/// reads the answer, and the user's next prompt would wait for it.
async fn prompt(users: State<Arc<Users>>, name: Path<String>, prompt: String) -> Result<impl IntoResponse> {
    let mut turn = users.prompt(User(name.0), &prompt).await?.cancel_on_drop();
    let events = stream! {
        let mut deltas = turn.deltas();
        while let Some(text) = deltas.next_text().await {
            // JSON, because a line break would end the event.
            yield Event::default().event("text").json_data(text);
        }
        let outcome = match turn.outcome().await.and_then(Outcome::into_result).map_err(failure) {
            Ok(result) => serde_json::json!({ "status": 200, "text": result.result }),
            Err((status, error)) => serde_json::json!({ "status": status.as_u16(), "error": error }),
        };
        yield Event::default().event("outcome").json_data(outcome);
    };
    Ok(Sse::new(events).keep_alive(KeepAlive::default()))
}

/// The error as the client sees it. The log has the rest, which is not for users: the CLI's stderr, and what to do.
fn failure(error: greenroom::Error) -> (StatusCode, String) {
    tracing::warn!(?error, "a prompt has failed");
    let status = match error.kind() {
        AtCapacity | RateLimited => StatusCode::TOO_MANY_REQUESTS,
        kind if error.is_retryable() || kind == Stopped => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    (status, format!("{:?}", error.kind()))
}

fn refuse(why: &str) -> (StatusCode, String) {
    (StatusCode::SERVICE_UNAVAILABLE, why.to_owned())
}
