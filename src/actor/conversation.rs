//! The conversation: prompts in order, the turn that runs, the captured session id, and who gets which message.
//!
//! One prompt is written at a time, so that every message and every result has one turn that it belongs to.
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
//!                                              next of the queue
//! ```
//!
//! - here: prompts, messages, results
//! - [`limits`]: the limits of a turn
//! - [`holding`]: a result that waits for the session's store
//! - [`recovery`]: what becomes of a turn whose CLI has ended
//!
//! It survives every restart of the CLI: what is queued is sent to the next incarnation, once. Restart policy:
//! temporary and significant. If it ends, the session fails, for nobody else knows what was promised.

mod holding;
mod limits;
mod recovery;

use std::collections::VecDeque;
use std::sync::Arc;

use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::actor_message;
use super::intake::Weight;
use super::lane::Lane;
use super::message::{Internal, SessionMessage};
use super::run::RunTracker;
use super::shared::Shared;
use super::spill::Bounds;
use super::turn::{Turn, TurnSender, turn};
use super::work::Task;
use crate::error::{Error, ErrorKind, Result};
use crate::report::{ConversationSnapshot, Event, ExitCause, InterruptedBy, Outcome};
use crate::session::Prompt;
use crate::wire::message::TerminalReason;
use crate::wire::{Message, ResultMessage, SessionState};
use holding::{Holding, News};
use limits::TurnLimits;

/// What the conversation understands.
pub(crate) enum ConversationMessage {
    Prompt {
        prompt: Prompt,
        reply: RpcReplyPort<Result<Turn>>,
    },
    /// Messages of the CLI, in order.
    Messages {
        epoch: u64,
        messages: Vec<Message>,
        weight: Weight,
    },
    /// A line of the CLI could not be read; it may have been a message.
    LineLost {
        epoch: u64,
        reason: String,
    },
    /// A message of our own, which comes before what waits for the store.
    Told(Message),
    /// The store has what was written before the result that waits.
    Mirrored {
        number: u64,
    },
    /// An incarnation is ready for prompts.
    CliReady(Lane),
    /// An incarnation has ended; with the cause if it was unasked.
    CliEnded {
        epoch: u64,
        cause: Option<ExitCause>,
    },
    /// The user wants the running turn to end, and perhaps those that wait, too.
    Interrupting {
        cancel_queued: bool,
        reply: oneshot::Sender<Interrupting>,
    },
    /// The user takes a prompt back that waits. Answers whether there was one.
    TakeBack {
        uuid: String,
        reply: oneshot::Sender<bool>,
    },
    /// The CLI did not take note of that.
    NotInterrupted,
    /// Nothing new is accepted; say when the turn in flight has ended.
    Drain,
    /// Give everything up, and end.
    Stop {
        failed: Option<Error>,
    },
    /// A limit of the turn may have passed.
    LimitTick,
    /// The ceiling of the run may have been reached.
    Tick,
    Snapshot(oneshot::Sender<ConversationSnapshot>),
    #[cfg(feature = "testkit")]
    Panic,
}

actor_message!(ConversationMessage);

pub(crate) struct Conversation;

pub(crate) struct ConversationArguments {
    pub(crate) shared: Arc<Shared>,
    pub(crate) session: ActorRef<SessionMessage>,
}

pub(crate) struct ConversationState {
    shared: Arc<Shared>,
    session: ActorRef<SessionMessage>,
    myself: ActorRef<ConversationMessage>,
    lane: Option<Lane>,
    queue: VecDeque<Queued>,
    running: Option<Running>,
    run: RunTracker,
    ceiling: Option<Task>,
    draining: bool,
    /// The newest incarnation that has ended: what is still on its way from it comes too late.
    ended_epoch: u64,
    /// Whether the CLI tells what becomes of each prompt.
    tells_lifecycle: bool,
    limits: TurnLimits,
    holding: Holding,
}

struct Queued {
    prompt: Prompt,
    uuid: String,
    turn: TurnSender,
    before: Before,
    /// When the turn was first written to a CLI.
    first_sent: Option<Instant>,
}

impl Queued {
    /// Ends it: it will not be sent any more.
    fn give_back(self) {
        self.turn.end(match self.before {
            // Its prompt is ours; the application's own was sent and begun.
            Before::CutOff(cause) => {
                Outcome::Interrupted { by: InterruptedBy::CliExit { cause }, result: None }
            }
            Before::Unsent | Before::NotBegun(_) => Outcome::NotStarted { prompt: self.prompt },
        });
    }
}

/// What there is to interrupt.
pub(crate) struct Interrupting {
    /// Whether a turn runs.
    pub(crate) turn: bool,
    /// The uuids of the prompts that wait.
    pub(crate) queued: Vec<String>,
}

/// What became of a queued turn before.
#[derive(Clone, Debug)]
enum Before {
    /// Nothing: it has not been written yet.
    Unsent,
    /// It was written to an incarnation that ended before it began.
    NotBegun(ExitCause),
    /// It was cut off by the end of its incarnation, and this prompt goes on with it.
    CutOff(ExitCause),
}

struct Running {
    prompt: Prompt,
    uuid: String,
    /// `None` once the turn has ended for the application while the CLI still works at it.
    turn: Option<TurnSender>,
    interrupting: bool,
    /// Whether the CLI has shown that it works at something, which may be this.
    begun: bool,
    /// Where it was written.
    lane: Lane,
    /// Whether the CLI has shown that it works at this.
    certain: bool,
    before: Before,
    first_sent: Instant,
    /// Why a line was lost that may have been the result.
    lost: Option<String>,
    span: tracing::Span,
}

#[cfg_attr(feature = "async-trait", ractor::async_trait)]
impl Actor for Conversation {
    type Msg = ConversationMessage;
    type State = ConversationState;
    type Arguments = ConversationArguments;

    async fn pre_start(
        &self,
        myself: ActorRef<ConversationMessage>,
        arguments: ConversationArguments,
    ) -> Result<ConversationState, ActorProcessingErr> {
        let ConversationArguments { shared, session } = arguments;
        Ok(ConversationState {
            run: RunTracker::new(shared.options().timeouts.run_ceiling),
            shared,
            session,
            myself,
            lane: None,
            queue: VecDeque::new(),
            running: None,
            ceiling: None,
            draining: false,
            ended_epoch: 0,
            tells_lifecycle: false,
            limits: TurnLimits::new(),
            holding: Holding::default(),
        })
    }

    async fn handle(
        &self,
        myself: ActorRef<ConversationMessage>,
        message: ConversationMessage,
        state: &mut ConversationState,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            ConversationMessage::Messages { epoch, messages, weight } => {
                state.messages(epoch, messages);
                drop(weight);
            }
            ConversationMessage::LineLost { epoch, reason } => state.news(News::LineLost { epoch, reason }),
            ConversationMessage::Told(message) => state.hand_over(&message),
            ConversationMessage::Mirrored { number } => state.mirrored(number),
            ConversationMessage::Prompt { prompt, reply } => {
                // One who has stopped waiting has no use for the turn, but the prompt is accepted.
                reply.send(state.prompt(prompt)).ok();
            }
            ConversationMessage::CliReady(lane) => state.news(News::Ready(lane)),
            ConversationMessage::CliEnded { epoch, cause } => state.news(News::Ended { epoch, cause }),
            ConversationMessage::Interrupting { cancel_queued, reply } => {
                if let Some(running) = &mut state.running {
                    running.interrupting = true;
                }
                let queued = state.queue.iter().map(|queued| queued.uuid.clone()).collect();
                if cancel_queued {
                    // Before the CLI is told: the end of the turn would send the next one.
                    state.give_back_queue();
                }
                // Whoever asked may have stopped waiting.
                reply.send(Interrupting { turn: state.running.is_some(), queued }).ok();
            }
            ConversationMessage::TakeBack { uuid, reply } => {
                let at = state.queue.iter().position(|queued| queued.uuid == uuid);
                let taken = at.and_then(|at| state.queue.remove(at));
                // Whoever asked may have stopped waiting.
                reply.send(taken.is_some()).ok();
                if let Some(queued) = taken {
                    queued.give_back();
                    state.run_changed();
                }
            }
            ConversationMessage::NotInterrupted => {
                if let Some(running) = &mut state.running {
                    running.interrupting = false;
                }
            }
            ConversationMessage::Drain => {
                state.draining = true;
                state.give_back_queue();
                state.tell_drained();
            }
            ConversationMessage::Stop { failed } => {
                state.give_up(failed);
                myself.stop(None);
            }
            ConversationMessage::LimitTick if state.holds_limits() => {}
            ConversationMessage::LimitTick => state.limit_tick(),
            ConversationMessage::Tick => {
                state.ceiling = None;
                state.run.ceiling(Instant::now());
                state.run_changed();
            }
            ConversationMessage::Snapshot(reply) => {
                // Whoever asked may have stopped waiting.
                reply.send(state.snapshot()).ok();
            }
            #[cfg(feature = "testkit")]
            ConversationMessage::Panic => panic!("a fault was injected into the conversation"),
        }
        Ok(())
    }
}

impl ConversationState {
    fn prompt(&mut self, prompt: Prompt) -> Result<Turn> {
        if self.draining {
            return Err(Error::new(
                ErrorKind::Stopped,
                "the session is stopping and accepts no more prompts",
            ));
        }
        let limits = &self.shared.options().limits;
        if self.queue.len() >= limits.prompts_queued {
            let message =
                format!("{} prompts are waiting already (`limits.prompts_queued`)", self.queue.len());
            return Err(Error::new(ErrorKind::AtCapacity, message).with_help("wait for a turn to end"));
        }
        let uuid = uuid::Uuid::new_v4().to_string();
        let bounds = Bounds::of(self.shared.options());
        let (sender, turn) = turn(uuid.clone(), bounds, self.shared.counting.clone());
        self.queue.push_back(Queued { prompt, uuid, turn: sender, before: Before::Unsent, first_sent: None });
        self.next();
        self.run_changed();
        Ok(turn)
    }

    /// Writes the next prompt, if there is a CLI, none is running, and one is queued.
    fn next(&mut self) {
        let Some(lane) = &self.lane else { return };
        if self.running.is_some() {
            return;
        }
        let Some(queued) = self.queue.pop_front() else { return };
        let line = queued.prompt.line(&queued.uuid, self.shared.options().verbatim_prompts);
        if lane.send_prompt(line.to_string().into_bytes()).is_err() {
            // This incarnation has just ended: it was not written, and waits for the next one.
            self.lane = None;
            self.queue.push_front(queued);
            return;
        }
        let vitals = self.shared.vitals.borrow().session_id.clone();
        let span = tracing::info_span!(
            parent: &self.shared.span,
            "turn",
            prompt_uuid = queued.uuid,
            epoch = lane.epoch(),
            outcome = tracing::field::Empty,
            "gen_ai.operation.name" = "invoke_agent",
            "gen_ai.conversation.id" = vitals,
            "gen_ai.usage.input_tokens" = tracing::field::Empty,
            "gen_ai.usage.output_tokens" = tracing::field::Empty,
        );
        self.shared.turn_span.set(span.clone());
        let Queued { prompt, uuid, turn, before, first_sent } = queued;
        if matches!(before, Before::CutOff(_)) {
            self.shared.emit(Event::TurnContinued { epoch: lane.epoch() });
        }
        self.running = Some(Running {
            prompt,
            uuid,
            turn: Some(turn),
            interrupting: false,
            begun: false,
            lane: lane.clone(),
            certain: false,
            before,
            first_sent: first_sent.unwrap_or_else(Instant::now),
            lost: None,
            span,
        });
        self.start_limits();
        self.arm_limits();
        self.run.prompted();
        self.run_changed();
    }

    /// Messages that came together. Nobody is woken for each of the pieces among them, of which there are many.
    fn messages(&mut self, epoch: u64, messages: Vec<Message>) {
        let mut pieces = Vec::new();
        for message in messages {
            let is_piece = matches!(message, Message::StreamEvent(_));
            if is_piece && epoch > self.ended_epoch && !self.is_holding() {
                pieces.push(message);
            } else {
                self.pieces(std::mem::take(&mut pieces));
                self.news(News::Message { epoch, message });
            }
        }
        self.pieces(pieces);
    }

    /// What [`message`](Self::message) does, for pieces of messages that are still being written.
    fn pieces(&mut self, pieces: Vec<Message>) {
        if pieces.is_empty() {
            return;
        }
        self.heard();
        let now = Instant::now();
        for piece in &pieces {
            self.note_begun(piece);
            self.run.message(piece, now);
        }
        if self.shared.messages.is_heard() {
            for piece in &pieces {
                // Without subscribers nobody is told.
                self.shared.messages.tell(piece.clone());
            }
        }
        let turn = self.running.as_mut().and_then(|running| running.turn.as_ref());
        let unread = &self.shared.counting.unread_messages;
        match turn {
            Some(turn) => match turn.send_all(pieces) {
                Ok(not_taken) => unread.add(not_taken),
                Err((error, behind)) => {
                    unread.add(behind);
                    self.end_turn_for_reader(Outcome::Failed { error, result: None });
                }
            },
            None => unread.add(pieces.len() as u64),
        }
        self.run_changed();
    }

    fn message(&mut self, message: Message) {
        self.heard();
        self.capture(&message);
        self.shared.note_message(&message);
        self.note_begun(&message);
        self.run.message(&message, Instant::now());
        // Meant for the host, and told by the run; or for whoever stores transcripts.
        let hidden = matches!(&message, Message::System(system) if system.sdk_host_only())
            || message.kind() == "transcript_mirror";
        if !hidden {
            self.hand_over(&message);
        }
        match &message {
            Message::Result(result) if self.ends_turn(&message) => self.result(result.clone()),
            Message::Other(other) if other.kind() == "result" && self.ends_turn(&message) => {
                // It cannot be read, but it ends the turn.
                self.unreadable(other.problem().unwrap_or("it cannot be read").to_owned());
            }
            Message::System(system) if system.session_state() == Some(SessionState::Idle) => {
                // Idle without a result: it was in the line that was lost. Before the turn has begun it is the idle of
                // the one before.
                let begun = self.running.as_mut().filter(|running| running.begun);
                if let Some(lost) = begun.and_then(|running| running.lost.take()) {
                    self.run.result(Instant::now());
                    self.unreadable(lost);
                }
            }
            Message::CommandLifecycle(lifecycle) => {
                self.known_already(lifecycle);
                self.appended(lifecycle);
            }
            _ => {}
        }
        self.run_changed();
    }

    /// The turn's result is lost.
    fn unreadable(&mut self, reason: String) {
        self.recorded();
        let text = format!("the result of the turn cannot be read: {reason}");
        self.end_turn(Outcome::Failed { error: Error::new(ErrorKind::Malformed, text), result: None });
        self.next();
    }

    /// Notes that the CLI has written down what was said: it does so before it tells a result.
    fn recorded(&self) {
        self.shared.vitals.send_if_modified(|vitals| !std::mem::replace(&mut vitals.recorded, true));
    }

    /// Notes the id under which the conversation is resumed.
    fn capture(&mut self, message: &Message) {
        let Message::System(system) = message else { return };
        let Some(init) = system.init() else { return };
        let Some(session_id) =
            init.session_id.as_deref().or(message.session_id()).filter(|id| !id.is_empty())
        else {
            return;
        };
        let changed = self.shared.vitals.send_if_modified(|vitals| {
            let changed = vitals.session_id.as_deref() != Some(session_id);
            if changed {
                vitals.session_id = Some(session_id.to_owned());
            }
            changed
        });
        if changed {
            self.shared.span.record("session_id", session_id);
            self.shared.span.record("gen_ai.conversation.id", session_id);
            self.shared.emit(Event::SessionCaptured { session_id: session_id.to_owned() });
        }
    }

    fn hand_over(&mut self, message: &Message) {
        // Without subscribers nobody is told.
        self.shared.messages.tell(message.clone());
        let turn = self.running.as_mut().and_then(|running| running.turn.as_ref());
        match turn.map(|turn| turn.send(message.clone())) {
            Some(Ok(true)) => {}
            Some(Ok(false)) | None => self.shared.counting.unread_messages.one(),
            Some(Err(error)) => {
                self.end_turn_for_reader(Outcome::Failed { error, result: None });
            }
        }
    }

    /// Whether a result belongs to the running turn: a background task may have had a turn of its own.
    fn ends_turn(&self, message: &Message) -> bool {
        let Some(running) = &self.running else { return false };
        let uuids = message.user_message_uuids();
        // A result that names no prompt, of no turns, of a CLI that says what it works at: the end of something of its own,
        // such as CLI 2.1.328 does after a `set_cwd`. Its results of prompts name them, those of local commands as well.
        let another = matches!(message, Message::Result(result) if result.origin.as_ref().is_some_and(|origin| !origin.is_human())
            || (self.tells_lifecycle && result.is_success() && result.num_turns == 0
                && (!running.certain || result.result.as_deref() == Some(""))));
        if uuids.is_empty() { !another } else { uuids.contains(&running.uuid) }
    }

    fn result(&mut self, result: Arc<ResultMessage>) {
        self.recorded();
        let Some(running) = &self.running else { return };
        if let Some(usage) = &result.usage {
            running.span.record("gen_ai.usage.input_tokens", usage.input_tokens);
            running.span.record("gen_ai.usage.output_tokens", usage.output_tokens);
        }
        let aborted = result.terminal_reason.as_ref().is_some_and(TerminalReason::is_aborted);
        let outcome = if result.is_success() {
            Outcome::Completed { result }
        } else if let Some(by) = self.limits.passed() {
            Outcome::Interrupted { by, result: Some(result) }
        } else if aborted || running.interrupting {
            Outcome::Interrupted { by: InterruptedBy::User, result: Some(result) }
        } else {
            let text = result.error_text().unwrap_or_else(|| result.subtype.clone());
            Outcome::Failed { error: Error::new(ErrorKind::TurnFailed, text), result: Some(result) }
        };
        self.end_turn(outcome);
        self.next();
    }

    /// Ends the running turn, if there is one.
    fn end_turn(&mut self, outcome: Outcome) {
        self.end_turn_for_reader(outcome);
        self.running = None;
        self.limits = TurnLimits::new();
        self.shared.turn_span.set(self.shared.span.clone());
        self.tell_drained();
    }

    /// Ends the running turn for the application only.
    fn end_turn_for_reader(&mut self, outcome: Outcome) {
        let Some(running) = &mut self.running else { return };
        if let Some(turn) = running.turn.take() {
            running.span.record(
                "outcome",
                match &outcome {
                    Outcome::Completed { .. } => "completed",
                    Outcome::Appended => "appended",
                    Outcome::Interrupted { .. } => "interrupted",
                    Outcome::Failed { .. } => "failed",
                    Outcome::NotStarted { .. } => "not_started",
                },
            );
            turn.end(outcome);
        }
    }

    fn give_back_queue(&mut self) {
        self.queue.drain(..).for_each(Queued::give_back);
        self.run_changed();
    }

    fn give_up(&mut self, failed: Option<Error>) {
        self.draining = true;
        self.release_all();
        let outcome = match failed {
            Some(error) => Outcome::Failed { error, result: None },
            None => Outcome::Interrupted { by: InterruptedBy::Stop, result: None },
        };
        self.end_turn(outcome);
        self.give_back_queue();
    }

    fn tell_drained(&self) {
        if self.draining && self.running.is_none() {
            // A supervisor that has ended takes the conversation with it.
            self.session.cast(SessionMessage::Internal(Internal::Drained)).ok();
        }
    }

    /// Tells the state of the run, and arranges for its ceiling.
    fn run_changed(&mut self) {
        let ended = self.run.ended() && self.running.is_none() && self.queue.is_empty();
        self.shared
            .vitals
            .send_if_modified(|vitals| std::mem::replace(&mut vitals.run_ended, ended) != ended);
        match self.run.ceiling_at() {
            None => self.ceiling = None,
            Some(_) if self.ceiling.as_ref().is_some_and(|task| !task.is_finished()) => {}
            Some(at) => {
                let myself = self.myself.clone();
                self.ceiling = Some(Task::spawn(async move {
                    tokio::time::sleep_until(at).await;
                    // A conversation that has ended has no run.
                    myself.cast(ConversationMessage::Tick).ok();
                }));
            }
        }
    }

    fn snapshot(&self) -> ConversationSnapshot {
        let turn = self.running.as_ref().and_then(|running| running.turn.as_ref());
        ConversationSnapshot {
            turn_running: self.running.is_some(),
            queued: self.queue.len(),
            unread_bytes: turn.map_or(0, TurnSender::unread),
            spilled_bytes: turn.map_or(0, TurnSender::spilled),
            run_ended: self.shared.vitals.borrow().run_ended,
            background_tasks: self.run.tasks(),
        }
    }
}
