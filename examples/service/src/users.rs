//! The sessions of the users: at most one live session for each user, and one conversation for ever.
//!
//! Each user has a slot, behind a lock:
//!
//! - A prompt locks the slot, starts a session if there is none, and hands the prompt to the session. A second first
//!   prompt waits for the lock and finds the session started.
//! - The janitor locks the slot and stops a session that was idle for a while. The next prompt resumes the conversation.
//! - A session holds one of the places for sessions until it is stopped.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{FutureExt, future::join_all};
use greenroom::options::{BuiltInTools, EnvPolicy};
use greenroom::{NoArgs, PermissionMode, Session, SessionBuilder, Snapshot, ToolContext, ToolServer, Turn};
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::routes::Failure;

/// The data of a session, for its tools.
#[derive(Clone)]
pub struct User {
    pub name: String,
}

/// Gives a session its CLI, or a stand-in.
pub type Connect = Box<dyn Fn(SessionBuilder, &User) -> SessionBuilder + Send + Sync>;

pub struct Users {
    /// The folder with a folder for each user.
    data: PathBuf,
    connect: Connect,
    /// A permit for each session that may be live.
    places: Arc<Semaphore>,
    slots: Mutex<HashMap<String, Slot>>,
    /// Cancelled when the service begins to stop.
    pub stopping: CancellationToken,
    /// The janitor, the tasks that hand prompts over, and the server.
    pub tasks: TaskTracker,
}

type Slot = Arc<Mutex<Option<Live>>>;

struct Live {
    session: Session,
    /// When the session was last known to have work.
    used: Instant,
    _place: OwnedSemaphorePermit,
}

/// A turn that is cancelled if it is dropped before its end.
pub struct CancelOnDrop(pub Turn);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        // Polled once, which is enough to cancel the turn; nobody waits for its end.
        self.0.cancel().now_or_never();
    }
}

impl Users {
    /// At most `sessions` are live, each with a CLI process of about 200 MB. A session without work is stopped when
    /// `idle` has passed.
    pub fn new(data: PathBuf, sessions: usize, idle: Duration, connect: Connect) -> Arc<Self> {
        let (slots, stopping, tasks) = Default::default();
        let places = Arc::new(Semaphore::new(sessions));
        let users = Arc::new(Self { data, connect, places, slots, stopping, tasks });
        let janitor = users.clone();
        users.tasks.spawn(async move {
            loop {
                sleep(idle / 10).await;
                janitor.stop_idle(idle).await;
            }
        });
        users
    }

    /// Sends a prompt to the user's session, and starts the session if there is none.
    ///
    /// A client that goes away drops this future. If the future still waits for the lock, nothing has happened, and it
    /// waits no longer. Otherwise the task goes on, so the session is started all the same; then the task drops the turn,
    /// which is cancelled.
    pub async fn prompt(self: Arc<Self>, user: User, prompt: String) -> Result<CancelOnDrop, Failure> {
        self.open()?;
        let slot = self.slots.lock().await.entry(user.name.clone()).or_default().clone();
        let mut slot = slot.lock_owned().await;
        let users = self.clone();
        let work = async move {
            if let Some(failed) = slot.take_if(|live| live.session.failure().is_some()) {
                // Until nothing is left of it: two sessions cannot have one conversation.
                failed.session.wait().await;
            }
            let live = match &mut *slot {
                Some(live) => live,
                empty => empty.insert(users.start(user).await?),
            };
            let turn = live.session.prompt(prompt).await?;
            live.used = Instant::now();
            Ok(CancelOnDrop(turn))
        };
        let task = self.tasks.spawn(self.stopping.clone().run_until_cancelled_owned(work));
        // There is no result if the service stops, or if the task has panicked.
        task.await.ok().flatten().unwrap_or_else(|| Err(stopping()))
    }

    /// Starts the user's session, which resumes the user's conversation if there is one.
    async fn start(&self, user: User) -> Result<Live, Failure> {
        let full = |_| Failure { status: 503, error: "TooManySessions".into(), retry_after: Some(30) };
        let place = self.places.clone().try_acquire_owned().map_err(full)?;
        // Made of the name, so nothing has to be stored to find the conversation again, and no name becomes a path.
        let id = greenroom::conversation_id(&format!("service/{}", user.name));
        let folder = self.data.join(&id);
        tokio::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder.join("work")).await?;
        let builder = Session::builder()
            .conversation(id)
            .data(user.clone())
            .mcp_server(orders())
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
                options.max_budget_usd = Some(1.0);
                options.limits.prompts_queued = 4;
                options.timeouts.turn = Some(Duration::from_secs(300));
            });
        let session = (self.connect)(builder, &user).start().await?;
        Ok(Live { session, used: Instant::now(), _place: place })
    }

    /// Fails as soon as the service stops.
    pub fn open(&self) -> Result<(), Failure> {
        if self.stopping.is_cancelled() { Err(stopping()) } else { Ok(()) }
    }

    /// The state of each session that is not being started, prompted or stopped, by the user's name.
    pub async fn status(&self) -> BTreeMap<String, Option<Snapshot>> {
        let session = |slot: &Slot| Some(slot.try_lock().ok()?.as_ref()?.session.clone());
        let slots = self.slots.lock().await;
        let sessions: Vec<_> =
            slots.iter().filter_map(|(name, slot)| Some((name.clone(), session(slot)?))).collect();
        drop(slots);
        let looks = sessions.into_iter().map(async |(name, session)| (name, session.snapshot().await.ok()));
        join_all(looks).await.into_iter().collect()
    }

    /// Takes no more prompts, and stops all sessions at once, within `Session::shutdown_bound`.
    pub async fn stop(&self) {
        self.stopping.cancel();
        self.stop_idle(Duration::ZERO).await;
    }

    /// Stops the sessions that have been without work for so long, and those that have failed, all at once.
    async fn stop_idle(&self, idle: Duration) {
        let slots: Vec<_> = self.slots.lock().await.values().cloned().collect();
        let stops = slots.into_iter().map(async |slot| {
            let mut slot = slot.lock().await;
            let Some(live) = &mut *slot else { return };
            if live.session.wait_idle().now_or_never().is_none() {
                live.used = Instant::now();
            }
            if live.used.elapsed() >= idle || live.session.failure().is_some() {
                if let Err(error) = live.session.stop().await {
                    tracing::error!(?error, "a session has failed");
                }
                *slot = None;
            }
        });
        join_all(stops).await;
        // The map has the only handle of a slot that nobody waits for.
        let kept =
            |slot: &Slot| Arc::strong_count(slot) > 1 || slot.try_lock().is_ok_and(|slot| slot.is_some());
        self.slots.lock().await.retain(|_, slot| kept(slot));
    }
}

fn stopping() -> Failure {
    Failure { status: 503, error: "Stopping".into(), retry_after: Some(5) }
}

/// The tools of a session, whose data says who the user is, whatever the model says.
fn orders() -> ToolServer {
    ToolServer::new("orders", "1.0.0")
        .tool("list", "The user's orders", async |_: NoArgs, cx: ToolContext| {
            Ok::<_, greenroom::Error>(format!("{}'s lamp arrives on Monday", cx.data::<User>()?.name))
        })
        .always_load(true)
}
