//! The life of one incarnation: open, shake hands, run, end.
//!
//! ```text
//!   open ──► initialize ──► ready ───────────────────────────────┐
//!     │          │            │ stdout or stdin breaks,          │ asked to shut down
//!     │          │            │ process exits                    ▼
//!     │          │            │                 EOF ─wait─ SIGTERM ─wait─ SIGKILL
//!     ▼          ▼            ▼                                  │
//!   ended: NotStarted, StartTimeout, …, Exited, StdoutClosed     ▼
//!          (always: every process is killed and reaped)       ended: Asked
//! ```
//!
//! When the session is killed (`Ending::killed`), every state goes to SIGKILL at once, and ends as `Asked`.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;
use ractor::ActorRef;
use tempfile::TempDir;
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

use super::evidence::ExitEvidence;
use super::feeder::MessageFeeder;
use super::initialize;
use super::reader::StdoutReader;
use super::stderr::StderrTail;
use crate::actor::base::deadlines::after;
use crate::actor::base::left;
use crate::actor::base::task::Task;
use crate::actor::context::Shared;
use crate::actor::current_cli::RunningCli;
use crate::actor::messages::children::{PortEnd, PortMessage};
use crate::actor::outbound::Outbound;
use crate::actor::outbound::writer::{WriteError, write_lines};
use crate::blocking::caught::panic_text;
use crate::error::Error;
use crate::report::{Event, ExitCause};
use crate::transport::{Channel, Exit, Process, Resume, StderrSink, flags, launch_for, private as files};

/// The task of one incarnation.
pub(crate) struct IncarnationTask {
    pub(crate) shared: Arc<Shared>,
    pub(crate) epoch: u64,
    pub(crate) resume: Resume,
    /// The channel for options that may be secret.
    pub(crate) private: Channel,
    /// The supervisor's command to end, once there is one.
    pub(crate) commands: watch::Receiver<Option<ExitSignal>>,
    /// Gets the end of the incarnation.
    pub(crate) ended: oneshot::Sender<PortEnd>,
    pub(crate) stderr: StderrTail,
}

/// An incarnation whose process was started.
pub(super) struct OpenIncarnation {
    // Fields are dropped in this order.
    process: Box<dyn Process>,
    /// The folder of the private files that the CLI's arguments name.
    _files: Option<TempDir>,
    /// The file of the CLI and its flags, if there is a real process.
    pub(super) command: Option<String>,
    pub(super) outbound: Outbound,
    reader: Task<Result<(), String>>,
    writer: Task<Result<(), WriteError>>,
    pub(super) evidence: Arc<ExitEvidence>,
    feeder: Task,
    /// All processes were killed, and the events that tell it were emitted.
    is_killed: bool,
}

/// A reason for a running incarnation to end. The supervisor commands the first two.
#[derive(Clone)]
pub(crate) enum ExitSignal {
    /// The end was asked for.
    Asked,
    /// The CLI does not do what it was told, for this reason.
    GivenUp(String),
    Exited(Exit),
    /// Stdout was closed, or could not be read for this reason.
    StdoutEnded(Option<String>),
    StdinBroke(String),
    /// The CLI does not read its stdin.
    StdinStalled(String),
}

impl IncarnationTask {
    /// Runs the incarnation, tells the supervisor how it ended, and the port that it ended.
    pub(super) async fn live(mut self, port: ActorRef<PortMessage>) {
        // A transport is code of the application: its panic ends the incarnation, and must not leave the port waiting.
        let end = AssertUnwindSafe(self.run()).catch_unwind().await.unwrap_or_else(|panic| {
            let reason = format!("its transport, or the port itself, panicked: {}", panic_text(&*panic));
            PortEnd::Died(ExitCause::Port { reason })
        });
        // The supervisor may have ended, and a port that has ended was killed.
        self.ended.send(end).ok();
        port.cast(PortMessage::Ended).ok();
    }

    async fn run(&mut self) -> PortEnd {
        let started = Instant::now();
        let timeouts = &self.shared.options().timeouts;
        let (limit, reap) = (timeouts.start, timeouts.reap);
        let killed = self.shared.ending.killed.clone();
        if killed.is_cancelled() {
            return PortEnd::Asked;
        }
        let mut commands = self.commands.clone();
        let mut opening = Box::pin(self.open());
        let mut open = tokio::select! {
            opened = tokio::time::timeout(limit, &mut opening) => match opened {
                Ok(Ok(open)) => open,
                Ok(Err(error)) => return PortEnd::Died(ExitCause::NotStarted { error }),
                Err(_) => return PortEnd::Died(self.start_timeout(0)),
            },
            // Dropping the attempt leaves nothing behind.
            _ = commanded_to_end(&mut commands) => return PortEnd::Asked,
            // A process that is on its way is waited for: nobody waits for the end of a process that is dropped.
            () = killed.cancelled() => match tokio::time::timeout(reap, &mut opening).await {
                Ok(Ok(open)) => open,
                Ok(Err(_)) | Err(_) => return PortEnd::Asked,
            },
        };
        drop(opening);
        let end = tokio::select! {
            biased;
            () = killed.cancelled() => None,
            end = Box::pin(self.run_open(&mut open, after(started, limit))) => Some(end),
        };
        match end {
            Some(end) => end,
            None => {
                open.outbound.end();
                self.kill(&mut open).await;
                PortEnd::Asked
            }
        }
    }

    /// Runs the incarnation from its handshake on.
    async fn run_open(&mut self, open: &mut OpenIncarnation, deadline: Instant) -> PortEnd {
        if let Err(end) = Box::pin(self.initialize(open, deadline)).await {
            self.kill(open).await;
            return end;
        }
        match open.ends(&mut self.commands).await {
            ExitSignal::Asked => Box::pin(self.shut_down(open)).await,
            signal => {
                let cause = Box::pin(self.died(open, signal)).await;
                let failed = matches!(cause, ExitCause::Exited { exit: Exit::Code(1..), .. });
                // Only after a prompt: a CLI that fails without a prompt would be restarted for ever.
                if failed && open.outbound.was_prompted() && open.evidence.last_error().is_some() {
                    PortEnd::AfterErrorResult(cause)
                } else {
                    PortEnd::Died(cause)
                }
            }
        }
    }

    /// Starts the process, its reader and its writer, and publishes the queue to its stdin.
    async fn open(&self) -> Result<OpenIncarnation, Error> {
        let Self { shared, epoch, resume, private, .. } = self;
        let options = shared.options();
        let (tail, bound) = (self.stderr.clone(), options.limits.stderr_tail_bytes);
        let (user, span) = (shared.spec.stderr.clone(), shared.span.clone());
        let sink: StderrSink = Arc::new(move |line: &str| {
            tracing::debug!(parent: &span, line, "stderr of the CLI");
            tail.push(line, bound);
            if let Some(user) = &user {
                user(line);
            }
        });
        let spec = initialize::launch_spec(&shared.spec, *private, *epoch, resume.clone(), sink);
        let mut launch = launch_for(options, &spec)?;
        launch.command.watchdog.clone_from(&shared.spec.watchdog);
        let flags = flags(&launch.args).join(" ");
        let (files, connection) = files::open(&*shared.spec.transport, launch, *private).await?;
        let (outbound, receiver) = Outbound::new(*epoch, &options.limits);
        let receiver = receiver.answers_to(shared.gate.clone());
        let command = connection.process.program().map(|program| format!("{} {flags}", program.display()));
        let (pid, contained_by) = (connection.process.pid(), connection.process.contained_by());
        let resumes = resume.session_id().map(str::to_owned);
        let identity = connection.process.identity();
        let evidence = Arc::new(ExitEvidence::default());
        let (feeder, task) = MessageFeeder::new(shared, *epoch, evidence.clone());
        // Before the event, whose receiver may ask for the process.
        shared.cli.opened(RunningCli {
            outbound: outbound.clone(),
            process: identity.clone(),
            pid,
            contained_by,
            flush: Arc::new(feeder.flush()),
        });
        shared.emit(Event::CliStarted { epoch: *epoch, pid, process: identity, resumes });
        let reader = StdoutReader::new(shared.clone(), outbound.clone(), feeder, evidence.clone());
        Ok(OpenIncarnation {
            process: connection.process,
            _files: files,
            command,
            reader: Task::spawn(reader.run(connection.reader)),
            writer: Task::spawn(write_lines(receiver, connection.writer, options.timeouts.stdin_stall)),
            outbound,
            evidence,
            feeder: task,
            is_killed: false,
        })
    }

    pub(super) fn start_timeout(&self, noise: u64) -> ExitCause {
        let after = self.shared.options().timeouts.start;
        ExitCause::StartTimeout { after, noise, stderr: self.stderr.text() }
    }

    /// Ends the CLI in order: end of input, then SIGTERM, then SIGKILL.
    async fn shut_down(&self, open: &mut OpenIncarnation) -> PortEnd {
        let timeouts = &self.shared.options().timeouts;
        open.outbound.close();
        if tokio::time::timeout(timeouts.exit_after_eof, open.process.wait()).await.is_err() {
            open.process.terminate();
            // Killed below in either case.
            tokio::time::timeout(timeouts.exit_after_term, open.process.wait()).await.ok();
        }
        self.kill(open).await;
        self.read_rest(open).await;
        PortEnd::Asked
    }

    /// Ends every process of the incarnation, and says why the incarnation ended.
    pub(super) async fn died(&self, open: &mut OpenIncarnation, signal: ExitSignal) -> ExitCause {
        let timeouts = &self.shared.options().timeouts;
        // Nobody would read what is written from now on: it waits for the next incarnation.
        open.outbound.end();
        let exit = match &signal {
            ExitSignal::Exited(exit) => Some(*exit),
            // A CLI that closed its pipes is most likely exiting.
            ExitSignal::StdoutEnded(_) | ExitSignal::StdinBroke(_) => {
                tokio::time::timeout(timeouts.exit_after_eof, open.process.wait()).await.ok()
            }
            ExitSignal::GivenUp(_) | ExitSignal::StdinStalled(_) | ExitSignal::Asked => None,
        };
        self.kill(open).await;
        self.read_rest(open).await;
        let stderr = self.stderr.text();
        if let ExitSignal::StdoutEnded(Some(error)) = &signal {
            // Logged, because the cause may be the exit, which explains more than the read that failed with it.
            tracing::warn!(parent: &self.shared.span, error, "stdout of the CLI cannot be read");
        }
        match (exit, signal) {
            (Some(exit), _) => ExitCause::Exited { exit, stderr },
            (None, ExitSignal::GivenUp(reason)) => ExitCause::Unresponsive { reason, stderr },
            (None, ExitSignal::StdinBroke(reason) | ExitSignal::StdinStalled(reason)) => {
                ExitCause::StdinBroken { reason, stderr }
            }
            (None, ExitSignal::StdoutEnded(error)) => ExitCause::StdoutClosed { error, stderr },
            (None, ExitSignal::Asked | ExitSignal::Exited(_)) => {
                ExitCause::StdoutClosed { error: None, stderr }
            }
        }
    }

    /// Kills what is left of the incarnation's processes, waits until they are gone, and reports processes that
    /// outlived the CLI, and those that still run.
    async fn kill(&self, open: &mut OpenIncarnation) {
        if open.is_killed {
            return;
        }
        let (shared, epoch) = (&self.shared, self.epoch);
        let timeouts = &shared.options().timeouts;
        open.process.kill();
        let gone = async {
            open.process.wait().await;
            open.process.cleared().await
        };
        let mut cleared = tokio::time::timeout(timeouts.reap, gone).await.ok();
        let in_time = cleared.is_some();
        if !in_time {
            let pid = open.process.pid();
            tracing::warn!(parent: &shared.span, pid, "a killed process was not reaped in time");
        }
        let leftovers = open.process.left();
        // A look that would hang would have hung the search before it.
        let remain = match in_time {
            true => leftovers.ask(),
            false => left::ask(vec![leftovers.clone()], timeouts.child_stop).await.pop().flatten(),
        };
        // The search may have ended since.
        cleared = cleared.or_else(|| open.process.cleared().now_or_never());
        // No wait follows, so each event is emitted once.
        open.is_killed = true;
        if let Some(processes) = cleared.filter(|processes| !processes.is_empty()) {
            shared.emit(Event::LeftoversKilled { epoch, processes });
        }
        match remain {
            None if in_time && !leftovers.can_be_asked() => {}
            Some(processes) if processes.is_empty() => {}
            processes => {
                shared.ending.left.add(leftovers);
                shared.emit(Event::LeftoversRemain { epoch, processes: processes.unwrap_or_default() });
            }
        }
    }

    /// Reads what an ended process has left in the pipe. Limited, because a process that the system could not kill may
    /// hold the pipe open.
    async fn read_rest(&self, open: &mut OpenIncarnation) {
        if !open.reader.is_joined() {
            let limit = self.shared.options().timeouts.child_stop;
            tokio::time::timeout(limit, open.reader.join()).await.ok();
        }
    }
}

impl OpenIncarnation {
    /// Waits for a reason to end. Cancel-safe.
    pub(super) async fn ends(&mut self, commands: &mut watch::Receiver<Option<ExitSignal>>) -> ExitSignal {
        tokio::select! {
            biased;
            signal = commanded_to_end(commands) => signal,
            exit = self.process.wait() => ExitSignal::Exited(exit),
            () = self.outbound.overflowed() => {
                ExitSignal::StdinStalled("more lines wait for it than `limits.lines_queued`".into())
            }
            read = self.reader.join() => ExitSignal::StdoutEnded(read.and_then(Result::err)),
            _ = self.feeder.join() => ExitSignal::GivenUp("the task that reads its messages has ended".into()),
            written = self.writer.join() => match written {
                Some(Err(WriteError::Stalled(reason))) => ExitSignal::StdinStalled(reason),
                Some(Err(WriteError::Broken(reason))) => ExitSignal::StdinBroke(reason),
                _ => ExitSignal::StdinBroke("its writer ended".into()),
            },
        }
    }
}

/// Waits for the command to end the incarnation.
async fn commanded_to_end(commands: &mut watch::Receiver<Option<ExitSignal>>) -> ExitSignal {
    let command = commands.wait_for(Option::is_some).await.ok().and_then(|command| command.clone());
    match command {
        Some(signal) => signal,
        // The sender is part of the supervisor's state: the end of the supervisor ends the port, and so this task.
        None => std::future::pending().await,
    }
}
