//! The sessions of the users: at most one live session for each user, and one conversation for ever.
//!
//! A task for each live user owns the session. Prompts reach the task through a channel, so two first prompts at the
//! same moment start one session, and a client that goes away cannot interrupt the start. When the user was idle for a
//! while, the task stops the session and ends; the next prompt resumes the conversation.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::http::StatusCode;
use futures_util::future::join_all;
use greenroom::options::{BuiltInTools, EnvPolicy};
use greenroom::{
    ErrorKind, NoArgs, PermissionMode, Session, SessionBuilder, Snapshot, ToolContext, ToolServer, Turn,
};
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::routes::Failure;

/// A user.
#[derive(Clone)]
pub struct User {
    pub name: String,
    /// Names the user's folder and the user's conversation. The id is made of the name, so nothing has to be stored to
    /// find either again, and no name becomes a path.
    pub id: String,
}

impl User {
    pub fn named(name: String) -> Result<Self, Failure> {
        let fits = |c: char| c.is_ascii_alphanumeric() || ".-_@".contains(c);
        if name.is_empty() || name.len() > 64 || !name.chars().all(fits) {
            let help = "a name has 1 to 64 letters, digits, '.', '-', '_' and '@'";
            return Err(Failure::new(StatusCode::BAD_REQUEST, help, None));
        }
        let id = greenroom::conversation_id(&format!("service/{name}"));
        Ok(Self { name, id })
    }
}

/// Gives a session its CLI, or a stand-in.
pub type Connect = Box<dyn Fn(SessionBuilder, &User) -> SessionBuilder + Send + Sync>;

/// The bounds of all sessions, and their way to a CLI.
pub struct Settings {
    /// The folder with a folder for each user.
    pub data: PathBuf,
    /// Most sessions at once. Each has a CLI process of about 200 MB.
    pub sessions: usize,
    /// Time from the end of a session's work to its stop.
    pub idle: Duration,
    pub connect: Connect,
}

/// The users with a live session.
pub struct Users {
    settings: Settings,
    /// The tools of all sessions.
    orders: ToolServer,
    live: Mutex<HashMap<String, Live>>,
    /// Cancelled when the service begins to stop.
    pub stopping: CancellationToken,
    sessions: TaskTracker,
    /// The tasks that send the events of turns to clients.
    pub streams: TaskTracker,
}

/// A user with a task.
struct Live {
    name: String,
    prompts: mpsc::Sender<Request>,
    /// `None` while the session starts.
    session: watch::Receiver<Option<Session>>,
}

struct Request {
    prompt: String,
    reply: oneshot::Sender<Result<Turn, Failure>>,
}

impl Users {
    pub fn new(settings: Settings) -> Arc<Self> {
        // One definition for all sessions. The data of the session says who the user is, whatever the model says.
        let orders = ToolServer::new("orders", "1.0.0")
            .tool("list", "The user's orders", async |_: NoArgs, cx: ToolContext| {
                let user = cx.data::<User>()?;
                Ok::<_, greenroom::Error>(format!("{}'s lamp arrives on Monday", user.name))
            })
            .always_load(true);
        let (live, stopping) = (Mutex::default(), CancellationToken::new());
        let (sessions, streams) = (TaskTracker::new(), TaskTracker::new());
        Arc::new(Self { settings, orders, live, stopping, sessions, streams })
    }

    /// Sends a prompt to the user's session, and starts the session if there is none. Not cancel-safe: if the future is
    /// dropped, the prompt may run all the same.
    pub async fn prompt(self: &Arc<Self>, user: User, prompt: String) -> Result<Turn, Failure> {
        let (reply, turn) = oneshot::channel();
        self.hand_over(user, Request { prompt, reply })?;
        // The task drops requests only when the service stops.
        turn.await.unwrap_or_else(|_| Err(Failure::stopping()))
    }

    fn hand_over(self: &Arc<Self>, user: User, request: Request) -> Result<(), Failure> {
        let mut live = self.live();
        if self.stopping.is_cancelled() {
            return Err(Failure::stopping());
        }
        if !live.contains_key(&user.id) && live.len() >= self.settings.sessions {
            return Err(Failure::new(StatusCode::SERVICE_UNAVAILABLE, "TooManySessions", Some(30)));
        }
        let live = live.entry(user.id.clone()).or_insert_with(|| {
            let ((prompts, received), (shown, session)) = (mpsc::channel(8), watch::channel(None));
            let name = user.name.clone();
            self.sessions.spawn(self.clone().serve(user, received, shown));
            Live { name, prompts, session }
        });
        let full = |_| Failure::new(StatusCode::TOO_MANY_REQUESTS, "TooManyPrompts", Some(5));
        live.prompts.try_send(request).map_err(full)
    }

    /// The task of a user. Each round is the life of a session.
    async fn serve(
        self: Arc<Self>,
        user: User,
        mut prompts: mpsc::Receiver<Request>,
        shown: watch::Sender<Option<Session>>,
    ) {
        let mut next = prompts.recv().await;
        while let Some(request) = next.take() {
            match self.start(&user).await {
                Ok(session) => {
                    shown.send_replace(Some(session.clone()));
                    next = self.converse(&session, request, &mut prompts).await;
                    if let Err(error) = session.stop().await {
                        tracing::error!(user = user.name, ?error, "a session has failed");
                    }
                    shown.send_replace(None);
                }
                Err(failure) => drop(request.reply.send(Err(failure))),
            }
            if next.is_none() {
                self.close_if_empty(&mut prompts);
                next = prompts.recv().await;
            }
        }
    }

    /// Takes the lock under which prompts are sent, so no prompt is lost between the look and the end.
    fn close_if_empty(&self, prompts: &mut mpsc::Receiver<Request>) {
        let _live = self.live();
        if prompts.is_empty() {
            prompts.close();
        }
    }

    /// Serves prompts until the session is idle, has failed, or is to stop. Returns the prompt that found the session
    /// failed: the next session takes it.
    async fn converse(
        &self,
        session: &Session,
        first: Request,
        prompts: &mut mpsc::Receiver<Request>,
    ) -> Option<Request> {
        let mut next = Some(first);
        while let Some(request) = next {
            let turn = match session.prompt(request.prompt.as_str()).await {
                Err(error) if error.kind() == ErrorKind::SessionFailed => return Some(request),
                turn => turn.map_err(Failure::from),
            };
            // Fails only if the caller was dropped, which `routes.rs` never does.
            request.reply.send(turn).ok();
            let idle = async {
                session.wait_idle().await;
                tokio::time::sleep(self.settings.idle).await;
            };
            next = tokio::select! {
                biased;
                () = self.stopping.cancelled() => None,
                () = session.wait() => None,
                request = prompts.recv() => request,
                () = idle => None,
            };
        }
        None
    }

    /// Starts the user's session, which resumes the user's conversation if there is one.
    async fn start(&self, user: &User) -> Result<Session, Failure> {
        let folder = self.settings.data.join(&user.id);
        tokio::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder.join("work")).await?;
        let builder = Session::builder()
            .conversation(&user.id)
            .data(user.clone())
            .mcp_server(self.orders.clone())
            .allow_server_tools("orders")
            // Nobody is there to be asked: all other calls are denied.
            .permission_mode(PermissionMode::DontAsk)
            .cwd(folder.join("work"))
            .env("HOME", folder.display().to_string())
            .env("CLAUDE_CONFIG_DIR", folder.join("claude").display().to_string())
            .configure(|options| {
                let login = ["ANTHROPIC_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN", "HTTPS_PROXY"];
                options.env_policy = EnvPolicy::service_and(login);
                options.tools = Some(BuiltInTools::none());
                options.setting_sources = Some(Vec::new());
                options.strict_mcp_config = true;
                // A user's `/command` and `@path` are text.
                options.verbatim_prompts = true;
                options.include_partial_messages = true;
                options.max_turns = Some(20);
                options.max_budget_usd = Some(1.0);
                options.limits.prompts_queued = 4;
                options.timeouts.turn = Some(Duration::from_secs(300));
                options.timeouts.tool = Some(Duration::from_secs(30));
            });
        let starting = (self.settings.connect)(builder, user).start();
        let started = self.stopping.run_until_cancelled(starting).await;
        Ok(started.ok_or_else(Failure::stopping)??)
    }

    /// The state of each live session, by the user's name; `None` while a session starts or stops.
    pub async fn status(&self) -> BTreeMap<String, Option<Snapshot>> {
        let look = |live: &Live| (live.name.clone(), live.session.borrow().clone());
        let sessions: Vec<_> = self.live().values().map(look).collect();
        let snapshots = sessions.into_iter().map(async |(name, session)| match session {
            Some(session) => (name, session.snapshot().await.ok()),
            None => (name, None),
        });
        join_all(snapshots).await.into_iter().collect()
    }

    /// Takes no more prompts, and stops all sessions at once, within `Session::shutdown_bound`.
    pub async fn stop(&self) {
        {
            // No prompt makes a task after this.
            let _live = self.live();
            self.stopping.cancel();
        }
        self.sessions.close();
        self.sessions.wait().await;
    }

    /// The users whose tasks have not ended.
    fn live(&self) -> MutexGuard<'_, HashMap<String, Live>> {
        let mut live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        live.retain(|_, live| !live.prompts.is_closed());
        live
    }
}
