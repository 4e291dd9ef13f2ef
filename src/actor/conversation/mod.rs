//! The conversation: it queues prompts, runs one turn at a time, and gives each message of the CLI to the running turn.
//!
//! Only one prompt runs at a time, so that every message and every result belongs to one turn. The other prompts wait
//! here; only messages into the running turn ([`steering`]) are written before the turn ends.
//!
//! ```text
//!            prompt            CLI ready, no turn          result of the CLI
//!   caller ─────────► queued ────────────────────► running ─────────────────► Completed | Failed | Interrupted(User)
//!     ▲                 │ ▲                          │  CLI ends: Interrupted(CliExit)
//!     │                 │ └── CLI ended before it ───┤
//!     │                 │     began; once            │
//!     │ AtCapacity      │ session ends               │  session stops: Interrupted(Stop)
//!     │ Stopped         ▼                            │  messages not read: Failed(Overflow), the CLI goes on
//!                  NotStarted (returned)             ▼
//!                     ▲                        next prompt of the queue, once no cancel is unanswered
//!                     │ cancel: waits, or        cancel: runs
//!                     └─ the CLI drops it        ──► interrupt ──► Interrupted(User), also if the CLI ends first
//! ```
//!
//! - here: the actor, and prompts on their way to the CLI
//! - [`cli`]: which incarnation takes prompts
//! - [`cli_run`]: runs that the CLI begins by itself
//! - [`queue`]: prompts that wait for their turn
//! - [`incoming`]: messages of the CLI
//! - [`results`]: which result ends a turn
//! - [`store_wait`]: results that wait for the session's store
//! - [`ending`]: the end of a turn
//! - [`deferral`]: turns that wait for a person without a CLI, and turns that go on from there
//! - [`recovery`]: a turn whose CLI has ended
//! - [`steering`]: messages into a running turn
//! - [`interrupt`]: interrupts and cancelled turns
//! - [`limits`]: the limits of a turn, of a run, and of the time without work
//! - [`run`]: when the run is over
//! - [`meter`]: what the turn has used
//!
//! The conversation outlives every restart of the CLI: it sends a queued prompt to the next incarnation, once. Restart
//! policy: temporary and significant. When the conversation ends, the session fails, because no other actor knows which
//! prompts were accepted.

mod cli;
mod cli_run;
mod deferral;
mod ending;
mod incoming;
mod interrupt;
mod limits;
mod meter;
mod queue;
mod recovery;
mod results;
mod run;
mod steering;
mod store_wait;

use std::collections::VecDeque;
use std::sync::Arc;

use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::base::reply::respond;
use super::context::Shared;
use super::messages::conversation::ConversationMessage;
use super::outbound::Outbound;
use super::spans::TurnSpan;
use super::turn::{Turn, TurnSender, turn};
use crate::error::{Error, ErrorKind, Result};
use crate::prompt::Prompt;
use crate::report::failure::FailureSigns;
use crate::report::{ConversationSnapshot, Event, Outcome};
use cli::CliState;
use cli_run::CliRun;
use deferral::ResumedTurn;
use interrupt::Cancels;
use limits::{Limit, Limits};
use meter::TurnMeter;
use queue::{PromptQueue, Queued, TurnHistory};
use results::ResultWatch;
use run::RunTracker;
use steering::{Offer, PendingMessage};
use store_wait::StoreBarrier;

pub(crate) struct Conversation;

pub(crate) struct ConversationState {
    shared: Arc<Shared>,
    myself: ActorRef<ConversationMessage>,
    cli: CliState,
    queue: PromptQueue,
    running: Option<RunningTurn>,
    cli_run: CliRun,
    /// Messages into the running turn whose outcome is not known yet.
    steering: VecDeque<PendingMessage>,
    run: RunTracker,
    cancels: Cancels,
    draining: bool,
    limits: Limits,
    failure: FailureSigns,
    store_barrier: StoreBarrier,
    resumed: ResumedTurn,
    meter: TurnMeter,
}

/// The turn whose prompt was written last.
struct RunningTurn {
    prompt: Prompt,
    watch: ResultWatch,
    /// `None` once the turn has ended for the application while the CLI still works at the prompt.
    turn: Option<TurnSender>,
    interrupting: bool,
    /// Whether the application has cancelled the turn: it ends as interrupted, also with its CLI.
    cancelled: bool,
    /// The outcome of a turn that was deferred, until its CLI has ended.
    deferred: Option<Outcome>,
    /// Callers of `cancel`; dropped when the turn has ended.
    await_end: Vec<oneshot::Sender<()>>,
    /// The queue that the prompt was written to.
    outbound: Outbound,
    history: TurnHistory,
    first_sent: Instant,
    /// The handle of a steering message that may have become this turn, until that is known.
    offer: Option<Offer>,
    span: tracing::Span,
}

#[cfg_attr(feature = "async-trait", ractor::async_trait)]
impl Actor for Conversation {
    type Msg = ConversationMessage;
    type State = ConversationState;
    type Arguments = Arc<Shared>;

    async fn pre_start(
        &self,
        myself: ActorRef<ConversationMessage>,
        shared: Arc<Shared>,
    ) -> Result<ConversationState, ActorProcessingErr> {
        let mut state = ConversationState {
            run: RunTracker::new(shared.options().timeouts.run_ceiling),
            shared,
            cli: CliState::default(),
            queue: PromptQueue::default(),
            running: None,
            cli_run: CliRun::None,
            steering: VecDeque::new(),
            cancels: Cancels::new(&myself),
            draining: false,
            limits: Limits::new(),
            failure: FailureSigns::default(),
            store_barrier: StoreBarrier::default(),
            resumed: ResumedTurn::None,
            meter: TurnMeter::default(),
            myself,
        };
        state.expect_resumed();
        Ok(state)
    }

    async fn handle(
        &self,
        myself: ActorRef<ConversationMessage>,
        message: ConversationMessage,
        state: &mut ConversationState,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            ConversationMessage::Messages { epoch, messages, permit } => {
                state.messages(epoch, messages);
                drop(permit);
            }
            ConversationMessage::Cli(event) => state.cli_event(event),
            ConversationMessage::Told(message) => state.hand_over(&message),
            ConversationMessage::Mirrored { number } => state.mirrored(number),
            ConversationMessage::Prompt { prompt, cancel_on_drop, reply } => {
                let turn = state.prompt(prompt);
                respond(reply, turn.map(|turn| if cancel_on_drop { turn.cancel_on_drop() } else { turn }));
            }
            // If the caller has stopped waiting, an accepted message is still sent.
            ConversationMessage::Steer { prompt, reply } => respond(reply, state.steer(prompt)),
            ConversationMessage::Interrupt { cancel_queued, limit, reply } => {
                state.interrupt(cancel_queued, limit, reply);
            }
            ConversationMessage::NotInterrupted => {
                if let Some(running) = &mut state.running {
                    running.interrupting = false;
                }
                if let Some(run) = state.cli_run.open_mut() {
                    run.set_interrupting(false);
                }
            }
            ConversationMessage::Cancel { turn, ended } => state.cancel(turn, ended),
            ConversationMessage::CancelAnswered { number, answer } => state.cancel_answered(number, answer),
            ConversationMessage::TakeBack { uuid, reply } => respond(reply, state.take_back(&uuid)),
            ConversationMessage::Drain => {
                state.draining = true;
                state.give_back_queue();
                state.tell_drained();
            }
            ConversationMessage::Stop { failed } => {
                state.give_up(failed);
                myself.stop(None);
            }
            ConversationMessage::Defer { deferral, reply } => respond(reply, state.defer(*deferral)),
            ConversationMessage::ResumedTurn(reply) => respond(reply, state.resumed.take_turn()),
            ConversationMessage::NotResumed => state.not_resumed(),
            ConversationMessage::LimitTick => state.limit_tick(),
            ConversationMessage::Snapshot(reply) => respond(reply, state.snapshot()),
            #[cfg(feature = "testing")]
            ConversationMessage::Panic => panic!("a fault was injected into the conversation"),
        }
        Ok(())
    }
}

impl ConversationState {
    /// Checks that one more prompt may wait, and returns its length.
    fn admit(&self, prompt: &Prompt) -> Result<usize> {
        if self.draining || self.shared.ending.refuses_prompts() {
            return Err(Error::new(
                ErrorKind::Stopped,
                "the session is stopping and accepts no more prompts",
            ));
        }
        let bytes = prompt.bytes();
        self.queue.admits(bytes, self.steering_size(), &self.shared.options().limits)?;
        Ok(bytes)
    }

    fn prompt(&mut self, prompt: Prompt) -> Result<Turn> {
        let bytes = self.admit(&prompt)?;
        let uuid = uuid::Uuid::new_v4().to_string();
        let (sender, turn) = self.new_turn(&uuid);
        let history = TurnHistory::Unsent;
        self.queue.push(Queued { prompt, uuid, turn: sender, history, first_sent: None }, bytes);
        self.next();
        self.run_changed();
        Ok(turn)
    }

    fn new_turn(&self, uuid: &str) -> (TurnSender, Turn) {
        let canceller = self.cancels.canceller.clone();
        turn(uuid.to_owned(), self.shared.options(), self.shared.counting.clone(), canceller)
    }

    /// The queue of the incarnation that takes prompts. `None` while there is none, or when the incarnation has ended
    /// and its end is still to be told.
    fn outbound(&mut self) -> Option<Outbound> {
        let outbound = self.shared.cli.outbound_of(self.cli.ready_epoch()?);
        if outbound.is_none() {
            self.cli.queue_closed();
        }
        outbound
    }

    /// Starts the next turn if a CLI takes prompts and no turn runs: from a message into the turn before, or from the
    /// next prompt of the queue.
    fn next(&mut self) {
        if self.running.is_some() || self.resumed.comes_first() || self.holds_prompts() {
            return;
        }
        self.write_steering();
        if self.offer_next() {
            return;
        }
        // An interrupt that is on its way would hit the next prompt.
        if !self.cancels.unanswered.is_empty() {
            return;
        }
        let Some(outbound) = self.outbound() else { return };
        let Some(queued) = self.queue.pop() else { return };
        let line = queued.prompt.line(&queued.uuid, self.shared.options().verbatim_prompts);
        if outbound.send_prompt(line.to_string().into_bytes()).is_err() {
            // The incarnation has just ended: the prompt was not written, and waits for the next one.
            self.cli.queue_closed();
            self.queue.push_front(queued);
            return;
        }
        if matches!(queued.history, TurnHistory::CutOff(_)) {
            self.shared.emit(Event::TurnContinued { epoch: outbound.epoch() });
        }
        let watch = ResultWatch::new(queued.uuid.clone());
        self.begin(queued, outbound, watch, None);
    }

    /// Begins the turn of a prompt that was written.
    fn begin(&mut self, queued: Queued, outbound: Outbound, watch: ResultWatch, offer: Option<Offer>) {
        let Queued { prompt, uuid, turn, history, first_sent } = queued;
        let session_id = self.shared.facts.borrow().session_id.clone();
        let span = self.shared.spans.turn(TurnSpan {
            parent: &self.shared.span,
            prompt: &prompt,
            uuid: &uuid,
            epoch: outbound.epoch(),
            session_id: session_id.as_deref(),
        });
        self.shared.turn_span.set(span.clone());
        self.failure.turn_begins();
        self.running = Some(RunningTurn {
            prompt,
            watch,
            turn: Some(turn),
            interrupting: false,
            cancelled: false,
            deferred: None,
            await_end: Vec::new(),
            outbound,
            history,
            first_sent: first_sent.unwrap_or_else(Instant::now),
            offer,
            span,
        });
        self.start_limits();
        self.arm_limits();
        self.run.prompted();
        self.run_changed();
    }

    /// Publishes whether the run is over, and sets the limits of the run and of an idle session.
    fn run_changed(&mut self) {
        let works = self.running.is_some() || self.cli_run.is_open();
        let ended = self.run.ended() && !works && self.steering.is_empty() && self.queue.is_empty();
        let background = self.run.tasks() > 0;
        self.shared.facts.send_if_modified(|facts| {
            let before = (facts.run_ended, facts.background);
            (facts.run_ended, facts.background) = (ended, background);
            before != (ended, background)
        });
        self.limit_idle(ended);
        self.limit_session(Limit::Run, self.run.ceiling_at());
    }

    fn snapshot(&self) -> ConversationSnapshot {
        let turns = [
            self.running.as_ref().and_then(|running| running.turn.as_ref()),
            self.cli_run.open().and_then(|run| run.sender()),
        ];
        ConversationSnapshot {
            turn_running: self.running.is_some() || self.cli_run.is_open(),
            queued: self.queue.len(),
            steering: self.steering.len(),
            unread_bytes: turns.into_iter().flatten().map(|turn| turn.buffer.unread()).sum(),
            idle: self.shared.facts.borrow().run_ended,
            background_tasks: self.run.tasks(),
        }
    }
}
