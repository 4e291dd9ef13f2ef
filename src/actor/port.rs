//! The port: one incarnation of the CLI, from its start to its last process.
//!
//! The actor is a shell around one task, which does the waiting. When the actor ends, however that is, the task is
//! aborted, and with it go the process and everything that it started.
//!
//! ```text
//!   open ──► initialize ──► ready ───────────────────────────────┐
//!     │          │            │ stdout or stdin breaks,          │ asked to shut down
//!     │          │            │ process exits                    ▼
//!     │          │            │                 EOF ─wait─ SIGTERM ─wait─ SIGKILL
//!     ▼          ▼            ▼                                  │
//!   ended: NotStarted, StartTimeout, …, Exited, StdoutClosed     ▼
//!          (always: group killed, process reaped)             ended: Asked
//! ```
//!
//! Restart policy: permanent, with the limits of `Restarts::cli`. A restart is a new incarnation with the next
//! epoch; router and servers are told of it and go on.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::FutureExt;
use ractor::{Actor, ActorProcessingErr, ActorRef};
use serde_json::value::RawValue;
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

use super::actor_message;
use super::asking::ask_again;
use super::conversation::ConversationMessage;
use super::initialize::{self, Answered, Ways};
use super::intake::{Flush, Intake, Seen};
use super::lane::{Lane, WriteError, write_lines};
use super::message::{Internal, SessionMessage};
use super::reader::Reader;
use super::router::RouterMessage;
use super::settings;
use super::shared::Shared;
use super::stderr::StderrTail;
use super::work::{Task, after};
use crate::error::{Error, ErrorKind};
use crate::options::{Delivery, McpRegistration};
use crate::report::{CliSnapshot, Event, ExitCause, McpSetServersResult};
use crate::requests::Reply;
use crate::tool::instance::panic_text;
use crate::transport::{Exit, Process, Resume, StderrSink, Way, launch_for};

/// What the port understands.
pub(crate) enum PortMessage {
    /// The CLI was started.
    Opened {
        lane: Lane,
        pid: Option<u32>,
        messages: Flush,
    },
    /// It answered `initialize`.
    Ready {
        version: Option<String>,
    },
    /// The incarnation has ended; nothing of it is left.
    Ended(PortEnd),
    /// End it in order.
    Shutdown,
    /// End it at once: it does not do what it was told.
    GiveUp(String),
    Snapshot(oneshot::Sender<CliSnapshot>),
    #[cfg(feature = "testkit")]
    Panic,
}

actor_message!(PortMessage);

/// How an incarnation ended. The reason why the port's actor fails, too.
#[derive(Clone, Debug)]
pub(crate) enum PortEnd {
    /// It was asked to.
    Asked,
    /// It ended by itself.
    Died(ExitCause),
    /// It ended with a failure code right after the error result that announced it: on purpose, and no crash.
    AfterErrorResult(ExitCause),
    /// It takes something not from `initialize`, and was ended to be told in these ways.
    Reregister(Ways),
}

impl fmt::Display for PortEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PortEnd::Asked => f.write_str("the CLI was asked to end"),
            PortEnd::Died(cause) | PortEnd::AfterErrorResult(cause) => cause.fmt(f),
            PortEnd::Reregister(ways) => {
                let what = match ways.private {
                    Way::Arguments => "settings, servers or plugins",
                    Way::Initialize => "servers",
                };
                write!(f, "the CLI takes no {what} from `initialize`")
            }
        }
    }
}

impl std::error::Error for PortEnd {}

pub(crate) struct CliPort;

pub(crate) struct PortArguments {
    pub(crate) shared: Arc<Shared>,
    pub(crate) session: ActorRef<SessionMessage>,
    pub(crate) router: ActorRef<RouterMessage>,
    pub(crate) conversation: ActorRef<ConversationMessage>,
    pub(crate) epoch: u64,
    pub(crate) resume: Resume,
    pub(crate) ways: Ways,
}

pub(crate) struct PortState {
    epoch: u64,
    lane: Option<Lane>,
    pid: Option<u32>,
    ready: bool,
    version: Option<String>,
    messages: Option<Flush>,
    wish: watch::Sender<Wish>,
    _life: Task,
}

#[cfg_attr(feature = "async-trait", ractor::async_trait)]
impl Actor for CliPort {
    type Msg = PortMessage;
    type State = PortState;
    type Arguments = PortArguments;

    async fn pre_start(
        &self,
        myself: ActorRef<PortMessage>,
        arguments: PortArguments,
    ) -> Result<PortState, ActorProcessingErr> {
        let epoch = arguments.epoch;
        let (wish, wished) = watch::channel(Wish::Live);
        let life = Incarnation { arguments, port: myself, wished, stderr: StderrTail::default() };
        let life = Task::spawn(Box::pin(life.live()));
        Ok(PortState {
            epoch,
            lane: None,
            pid: None,
            ready: false,
            version: None,
            messages: None,
            wish,
            _life: life,
        })
    }

    async fn handle(
        &self,
        myself: ActorRef<PortMessage>,
        message: PortMessage,
        state: &mut PortState,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            PortMessage::Opened { lane, pid, messages } => {
                state.lane = Some(lane);
                state.messages = Some(messages);
                state.pid = pid;
            }
            PortMessage::Ready { version } => {
                state.ready = true;
                state.version = version;
            }
            PortMessage::Shutdown => {
                state.wish.send_replace(Wish::ShutDown);
            }
            PortMessage::GiveUp(reason) => {
                state.wish.send_replace(Wish::GiveUp(reason));
            }
            PortMessage::Ended(PortEnd::Asked) => myself.stop(None),
            PortMessage::Ended(end) => return Err(Box::new(end)),
            PortMessage::Snapshot(reply) => {
                if let Some(messages) = &state.messages {
                    // What was read is told to the conversation, which is asked after this.
                    messages.told().await;
                }
                let snapshot = CliSnapshot {
                    epoch: state.epoch,
                    pid: state.pid,
                    ready: state.ready,
                    version: state.version.clone(),
                    lines_queued: state.lane.as_ref().map_or(0, Lane::queued),
                };
                // Whoever asked may have stopped waiting.
                reply.send(snapshot).ok();
            }
            #[cfg(feature = "testkit")]
            PortMessage::Panic => panic!("a fault was injected into the CLI port"),
        }
        Ok(())
    }
}

/// The life of one incarnation.
struct Incarnation {
    arguments: PortArguments,
    port: ActorRef<PortMessage>,
    wished: watch::Receiver<Wish>,
    stderr: StderrTail,
}

/// What runs while an incarnation does.
struct Running {
    process: Box<dyn Process>,
    lane: Lane,
    reader: Task<Result<(), String>>,
    writer: Task<Result<(), WriteError>>,
    seen: Arc<Seen>,
    intake: Task,
}

/// What the actor wishes of its incarnation.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Wish {
    Live,
    ShutDown,
    GiveUp(String),
}

/// What may happen to one that runs.
enum Happened {
    Asked,
    GivenUp(String),
    Exited(Exit),
    StdoutEnded,
    StdinBroke(String),
    /// It does not read, though it could.
    StdinStalled(String),
}

impl Incarnation {
    async fn live(mut self) {
        // A transport is code of the application; its panic is the end of the incarnation and not of the waiting.
        let end = AssertUnwindSafe(self.run()).catch_unwind().await.unwrap_or_else(|panic| {
            let reason = format!("its transport, or the port itself, panicked: {}", panic_text(&*panic));
            PortEnd::Died(ExitCause::Port { reason })
        });
        // A port that has ended was killed, and knows.
        self.port.cast(PortMessage::Ended(end)).ok();
    }

    async fn run(&mut self) -> PortEnd {
        let started = Instant::now();
        let limit = self.arguments.shared.options().timeouts.start;
        let mut wished = self.wished.clone();
        let mut running = tokio::select! {
            opened = tokio::time::timeout(limit, Box::pin(self.open())) => match opened {
                Ok(Ok(running)) => running,
                Ok(Err(error)) => return PortEnd::Died(ExitCause::NotStarted { error }),
                Err(_) => return PortEnd::Died(self.start_timeout(0)),
            },
            // Giving up the attempt leaves nothing behind.
            _ = unwanted(&mut wished) => return PortEnd::Asked,
        };
        match Box::pin(self.initialize(&mut running, after(started, limit))).await {
            Ok(()) => {}
            Err(end) => {
                self.kill(&mut running).await;
                return end;
            }
        }
        match running.happens(&mut self.wished).await {
            Happened::Asked => Box::pin(self.shut_down(&mut running)).await,
            happened => {
                let cause = Box::pin(self.died(&mut running, happened)).await;
                let on_purpose = matches!(cause, ExitCause::Exited { exit: Exit::Code(1..), .. });
                // Only a prompt has such an end; a CLI that ends so without one would do it for ever.
                if on_purpose && running.lane.was_prompted() && running.seen.last_error().is_some() {
                    PortEnd::AfterErrorResult(cause)
                } else {
                    PortEnd::Died(cause)
                }
            }
        }
    }

    /// Starts the process, its reader and its writer.
    async fn open(&self) -> Result<Running, Error> {
        let PortArguments { shared, session, router, conversation, epoch, resume, ways } = &self.arguments;
        let options = shared.options();
        let (tail, bound) = (self.stderr.clone(), options.limits.stderr_tail_bytes);
        let (user, span) = (shared.spec.stderr.clone(), shared.span.clone());
        let sink = StderrSink::new(move |line| {
            tracing::debug!(parent: &span, line, "stderr of the CLI");
            tail.push(line, bound);
            if let Some(user) = &user {
                user.line(line);
            }
        });
        let spec =
            initialize::launch_spec(&shared.spec, &shared.roster(), *ways, *epoch, resume.clone(), sink);
        let launch = launch_for(options, &spec)?;
        let connection = shared.spec.transport.open(launch).await?;
        let (lane, lane_end) = Lane::new(*epoch, &options.limits);
        let lane_end = lane_end.answers_to(shared.gate.clone());
        let pid = connection.process.pid();
        shared.emit(Event::CliStarted {
            epoch: *epoch,
            pid,
            resumes: resume.session_id().map(str::to_owned),
        });
        // In this order: whoever replaces the router must know the lane before the router does. None of the three
        // can have ended without ending this task.
        session.cast(SessionMessage::Internal(Internal::LaneOpened(lane.clone()))).ok();
        router.cast(RouterMessage::Opened(lane.clone())).ok();
        let seen = Arc::new(Seen::default());
        let (intake, task) = Intake::new(shared, *epoch, conversation.clone(), seen.clone());
        self.port.cast(PortMessage::Opened { lane: lane.clone(), pid, messages: intake.flush() }).ok();
        let reader = Reader::new(shared.clone(), lane.clone(), intake, seen.clone());
        Ok(Running {
            process: connection.process,
            reader: Task::spawn(reader.run(connection.reader)),
            writer: Task::spawn(write_lines(lane_end, connection.writer, options.timeouts.stdin_stall)),
            lane,
            seen,
            intake: task,
        })
    }

    /// The handshake. Requests of the CLI are served all the while: it may want to know the servers first.
    async fn initialize(&mut self, running: &mut Running, deadline: Instant) -> Result<(), PortEnd> {
        let shared = self.arguments.shared.clone();
        let (epoch, ways) = (self.arguments.epoch, self.arguments.ways);
        let body = initialize::body(&shared.spec, &shared.roster(), ways, &self.arguments.resume)
            .map_err(|error| PortEnd::Died(ExitCause::NotStarted { error }))?;
        let by_arguments = PortEnd::Reregister(Ways { private: Way::Arguments, ..ways });
        let may_change = ways.private == Way::Initialize && shared.options().delivery == Delivery::Auto;
        let reply = match self.ask(running, &body, deadline).await {
            Err(PortEnd::Died(_))
                if may_change && initialize::knows_no_private(shared.options(), &self.stderr.text()) =>
            {
                return Err(by_arguments);
            }
            reply => reply?,
        };
        let raw = match reply {
            Ok(raw) => raw,
            Err(error) if error.kind() == ErrorKind::Timeout => {
                return Err(PortEnd::Died(self.start_timeout(running.seen.noise.load(Ordering::Relaxed))));
            }
            Err(error) => {
                return Err(PortEnd::Died(ExitCause::InitializeRefused { message: error.to_string() }));
            }
        };
        let answered = Answered::parse(&raw);
        // What cannot be read here is no answer to `initialize` for `Answered` either.
        if let Ok(info) = Reply::read("initialize", raw) {
            shared.note_server_info(info);
        }
        if let Some(message) = answered.unfit(&shared.spec) {
            return Err(PortEnd::Died(ExitCause::InitializeRefused { message }));
        }
        if answered.hooks_were_left_out(&shared.spec) {
            shared.emit(Event::HooksNotApplied { epoch });
        }
        if let Some(field) = answered.overlooked(&body) {
            if may_change {
                return Err(by_arguments);
            }
            let message =
                format!("it did not take `{field}` from `initialize`, and must not be told by arguments");
            return Err(PortEnd::Died(ExitCause::InitializeRefused { message }));
        }
        for field in answered.not_applied(&body) {
            let reason = format!("the CLI did not take `{field}`");
            shared.emit(Event::SettingLost { epoch, subtype: "initialize".into(), reason });
        }
        if !self.registered(running, &answered, deadline).await? {
            return Err(PortEnd::Reregister(Ways { servers: Way::Arguments, ..ways }));
        }
        self.set_again(running, deadline).await?;
        // Before anybody hears of it: whoever does may ask at once.
        running.lane.set_ready();
        let version = answered.claude_code_version;
        shared.emit(Event::CliReady { epoch, version: version.clone() });
        self.port.cast(PortMessage::Ready { version }).ok();
        let ready = Internal::CliReady { lane: running.lane.clone() };
        self.arguments.session.cast(SessionMessage::Internal(ready)).ok();
        Ok(())
    }

    /// Asks the CLI something of the handshake, while it may die or be asked to end. A router that restarts meanwhile is
    /// not the CLI's fault: the next one is asked again.
    async fn ask(
        &mut self,
        running: &mut Running,
        body: &serde_json::Value,
        deadline: Instant,
    ) -> Result<Result<Box<RawValue>, Error>, PortEnd> {
        let shared = self.arguments.shared.clone();
        let mut routers = shared.router.subscribe();
        loop {
            routers.mark_unchanged();
            let left = deadline.saturating_duration_since(Instant::now());
            // One that was started between the opening and now may not have been told.
            if let Some(router) = &*shared.router.borrow() {
                router.actor.cast(RouterMessage::Opened(running.lane.clone())).ok();
            }
            let asking = async {
                let reply = ask_again(&shared, body.clone(), left).await;
                if matches!(&reply, Err(error) if error.kind() == ErrorKind::NotReady) {
                    // Without a next router there is nothing to ask, and the limit passes.
                    tokio::time::timeout_at(deadline, routers.changed()).await.ok();
                }
                reply
            };
            let reply = tokio::select! {
                reply = asking => reply,
                happened = running.happens(&mut self.wished) => return Err(match happened {
                    Happened::Asked => PortEnd::Asked,
                    happened => PortEnd::Died(self.died_at_start(running, happened).await),
                }),
            };
            match reply {
                Err(error) if error.kind() == ErrorKind::NotReady && Instant::now() < deadline => {}
                reply => return Ok(reply),
            }
        }
    }

    /// Whether the CLI has taken the in-process servers: by its answer, or by what it says when asked.
    async fn registered(
        &mut self,
        running: &mut Running,
        answered: &Answered,
        deadline: Instant,
    ) -> Result<bool, PortEnd> {
        let shared = self.arguments.shared.clone();
        let sure = shared.roster().inside().is_empty()
            || self.arguments.ways.servers == Way::Arguments
            || shared.options().mcp_registration == McpRegistration::Initialize
            || answered.shows_registration();
        if sure {
            return Ok(true);
        }
        match self.ask(running, &serde_json::json!({ "subtype": "mcp_status" }), deadline).await? {
            Ok(status) => Ok(initialize::lists_servers(&status, &shared.roster())),
            // A CLI that cannot be asked is older than the question.
            Err(error) if matches!(error.kind(), ErrorKind::Refused | ErrorKind::Unsupported) => Ok(false),
            Err(error) if error.kind() == ErrorKind::Timeout => {
                Err(PortEnd::Died(self.start_timeout(running.seen.noise.load(Ordering::Relaxed))))
            }
            Err(error) => Err(PortEnd::Died(ExitCause::InitializeRefused { message: error.to_string() })),
        }
    }

    /// Sets again what was set at run time. A permission mode or a working directory that cannot be is not gone without:
    /// the CLI would do what it was told not to do, or do it elsewhere.
    async fn set_again(&mut self, running: &mut Running, deadline: Instant) -> Result<(), PortEnd> {
        self.set_servers_again(running, deadline).await?;
        for body in self.arguments.shared.settings() {
            let subtype = body["subtype"].as_str().unwrap_or_default().to_owned();
            let reason = match self.ask(running, &body, deadline).await? {
                Ok(raw) => {
                    let answer = serde_json::from_str(raw.get()).unwrap_or_default();
                    let Err(reason) = settings::took_effect(&body, &answer) else { continue };
                    reason
                }
                Err(error) => error.to_string(),
            };
            if settings::is_vital(&body) {
                let what = match &*subtype {
                    "set_permission_mode" => "the permission mode",
                    "set_cwd" => "the working directory",
                    "apply_flag_settings" => "the permission rules",
                    _ => "the permission mode of an MCP server",
                };
                let message = format!("{what} could not be set again: {reason}");
                return Err(PortEnd::Died(ExitCause::InitializeRefused { message }));
            }
            self.arguments.shared.emit(Event::SettingLost { epoch: self.arguments.epoch, subtype, reason });
        }
        Ok(())
    }

    /// Names the MCP servers again that the CLI was not started with.
    async fn set_servers_again(&mut self, running: &mut Running, deadline: Instant) -> Result<(), PortEnd> {
        let roster = self.arguments.shared.roster();
        if roster.is_announced_at_start() {
            return Ok(());
        }
        let answer = self.ask(running, &roster.request(), deadline).await?;
        let reasons = match answer.and_then(|answer| McpSetServersResult::parse(&answer)) {
            Ok(result) => result
                .errors
                .into_iter()
                .map(|(name, error)| format!("MCP server '{name}': {error}"))
                .collect(),
            Err(error) => vec![error.to_string()],
        };
        for reason in reasons {
            let (epoch, subtype) = (self.arguments.epoch, "mcp_set_servers".to_owned());
            self.arguments.shared.emit(Event::SettingLost { epoch, subtype, reason });
        }
        Ok(())
    }

    fn start_timeout(&self, noise: u64) -> ExitCause {
        let after = self.arguments.shared.options().timeouts.start;
        ExitCause::StartTimeout { after, noise, stderr: self.stderr.text() }
    }

    /// Ends an incarnation in order: end of input, SIGTERM, SIGKILL.
    async fn shut_down(&self, running: &mut Running) -> PortEnd {
        let timeouts = &self.arguments.shared.options().timeouts;
        running.lane.close();
        if tokio::time::timeout(timeouts.exit_after_eof, running.process.wait()).await.is_err() {
            running.process.terminate();
            // Whether it went or not, the next step is the same.
            tokio::time::timeout(timeouts.exit_after_term, running.process.wait()).await.ok();
        }
        self.kill(running).await;
        self.read_rest(running).await;
        PortEnd::Asked
    }

    /// Ends what is left, at once.
    async fn kill(&self, running: &mut Running) {
        running.process.kill();
        let reap = self.arguments.shared.options().timeouts.reap;
        if tokio::time::timeout(reap, running.process.wait()).await.is_err() {
            tracing::warn!(parent: &self.arguments.shared.span, pid = running.process.pid(), "a killed process was not handed over in time");
        }
    }

    /// Reads what an ended process group has left in the pipe. One that the system could not kill may hold it open.
    async fn read_rest(&self, running: &mut Running) {
        if !running.reader.is_joined() {
            let limit = self.arguments.shared.options().timeouts.child_stop;
            tokio::time::timeout(limit, running.reader.join()).await.ok();
        }
    }

    /// Why it died; nothing of it is left afterwards.
    async fn died(&self, running: &mut Running, happened: Happened) -> ExitCause {
        let timeouts = &self.arguments.shared.options().timeouts;
        // What is written from now on would be read by nobody: it waits for the next incarnation.
        running.lane.end();
        let exit = match &happened {
            Happened::Exited(exit) => Some(*exit),
            // One that closed its pipes is most likely exiting.
            Happened::StdoutEnded | Happened::StdinBroke(_) => {
                tokio::time::timeout(timeouts.exit_after_eof, running.process.wait()).await.ok()
            }
            Happened::GivenUp(_) | Happened::StdinStalled(_) | Happened::Asked => None,
        };
        self.kill(running).await;
        self.read_rest(running).await;
        let stderr = self.stderr.text();
        match (exit, happened) {
            (Some(exit), _) => ExitCause::Exited { exit, stderr },
            (None, Happened::GivenUp(reason)) => ExitCause::Unresponsive { reason, stderr },
            (None, Happened::StdinBroke(reason) | Happened::StdinStalled(reason)) => {
                ExitCause::StdinBroken { reason, stderr }
            }
            (None, _) => ExitCause::StdoutClosed { stderr },
        }
    }

    async fn died_at_start(&self, running: &mut Running, happened: Happened) -> ExitCause {
        match (
            self.died(running, happened).await,
            running.seen.last_error(),
            self.arguments.resume.session_id(),
        ) {
            // It says so in an error result, and exits. Its other troubles at the start have a name of their own.
            (ExitCause::Exited { stderr, .. }, Some(said), Some(session_id)) if !said.of_start => {
                ExitCause::ResumeRefused {
                    session_id: session_id.to_owned(),
                    transcript_missing: said.text.contains("No conversation found"),
                    said: said.text,
                    stderr,
                }
            }
            (ExitCause::Exited { exit, stderr }, said, _) => {
                ExitCause::ExitedAtStart { exit, said: said.map(|said| said.text), stderr }
            }
            (cause, ..) => cause,
        }
    }
}

impl Running {
    /// The next thing that ends it. Safe to cancel.
    async fn happens(&mut self, wished: &mut watch::Receiver<Wish>) -> Happened {
        tokio::select! {
            biased;
            happened = unwanted(wished) => happened,
            exit = self.process.wait() => Happened::Exited(exit),
            () = self.lane.overflowed() => {
                Happened::StdinStalled("more lines wait for it than `limits.lines_queued`".into())
            }
            _ = self.reader.join() => Happened::StdoutEnded,
            _ = self.intake.join() => Happened::GivenUp("what reads its messages has ended".into()),
            written = self.writer.join() => match written {
                Some(Err(WriteError::Stalled(reason))) => Happened::StdinStalled(reason),
                Some(Err(WriteError::Broken(reason))) => Happened::StdinBroke(reason),
                _ => Happened::StdinBroke("its writer ended".into()),
            },
        }
    }
}

/// Resolves when the incarnation is wanted no more.
async fn unwanted(wished: &mut watch::Receiver<Wish>) -> Happened {
    match wished.wait_for(|wish| *wish != Wish::Live).await.map(|wish| wish.clone()) {
        Ok(Wish::GiveUp(reason)) => Happened::GivenUp(reason),
        Ok(_) => Happened::Asked,
        // The sender is the actor's own state: when it is gone, this task is too.
        Err(_) => std::future::pending().await,
    }
}
