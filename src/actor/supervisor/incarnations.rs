//! The incarnations of the CLI, one after another: the end of one leads to the next, or to the end of the session.
//!
//! When a CLI refuses to open the conversation, the next incarnation opens it another way:
//!
//! ```text
//!             no transcript, and no result in this session: once
//!   SameId ◄────────────────────────────────────────► Begin (the same id)
//!     │               it exists already: once           │
//!     └────── refused ──► Fork ◄── refused ─────────────┘        each only if `Options::resume_ladder` allows it, and
//!                          └── refused ──► Fresh                 not before the first incarnation was ready
//! ```
//!
//! A session with the option `conversation` begins at `SameId` if its conversation was found, else at `Begin`.

use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

use super::child::{ChildActor, ChildEnd};
use super::{Handled, SessionStage, SupervisorState, later};
use crate::actor::base::restart_window::{RestartWindow, Verdict};
use crate::actor::base::task::Task;
use crate::actor::context::Shared;
use crate::actor::incarnation::initialize::first_channel;
use crate::actor::incarnation::port::CliPort;
use crate::actor::incarnation::run::{ExitSignal, IncarnationTask};
use crate::actor::incarnation::stderr::StderrTail;
use crate::actor::messages::children::{PortEnd, PortMessage};
use crate::actor::messages::conversation::{CliEvent, ConversationMessage};
use crate::actor::messages::router::RouterMessage;
use crate::actor::messages::session::Internal;
use crate::error::{Error, ErrorKind};
use crate::options::ResumeLadder;
use crate::plain::shorten;
use crate::report::{Event, ExitCause};
use crate::transport::{Channel, Resume};

/// The conversation that the next incarnation opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResumeStep {
    /// The conversation with the known id.
    SameId,
    /// A new conversation under the known id: the CLI has nothing under the id.
    Begin,
    /// A fork of the conversation with the known id.
    Fork,
    /// A new conversation.
    Fresh,
}

impl ResumeStep {
    /// The first step of a session.
    pub(super) fn first(shared: &Shared) -> Self {
        let is_new = shared.options().conversation.is_some() && !shared.facts.borrow().resumed;
        if is_new { ResumeStep::Begin } else { ResumeStep::SameId }
    }

    /// The step after a refusal, and the rung of the ladder that it is told as. `None` where the policy allows no more.
    fn next(
        self,
        refused: &ExitCause,
        may_switch: bool,
        policy: ResumeLadder,
    ) -> Option<(Self, ResumeLadder)> {
        let (next, rung) = match (self, refused) {
            (ResumeStep::SameId, ExitCause::ResumeRefused { transcript_missing: true, .. }) if may_switch => {
                (ResumeStep::Begin, ResumeLadder::SameId)
            }
            (ResumeStep::Begin, ExitCause::ConversationExists { .. }) if may_switch => {
                (ResumeStep::SameId, ResumeLadder::SameId)
            }
            (ResumeStep::SameId | ResumeStep::Begin, _) => (ResumeStep::Fork, ResumeLadder::Fork),
            (ResumeStep::Fork, _) => (ResumeStep::Fresh, ResumeLadder::Fresh),
            (ResumeStep::Fresh, _) => return None,
        };
        (rung <= policy).then_some((next, rung))
    }
}

/// The incarnations of a session.
pub(super) struct Incarnations {
    /// The actor of the incarnation that runs.
    pub(super) port: ChildActor<PortMessage>,
    /// Commands the incarnation to end.
    command: watch::Sender<Option<ExitSignal>>,
    /// Gets the end of the incarnation before its actor stops.
    end: Option<oneshot::Receiver<PortEnd>>,
    /// The epoch of the newest incarnation; 0 before the first.
    epoch: u64,
    /// The channel of the next incarnation for options that may be secret.
    private: Channel,
    /// The conversation that the next incarnation opens.
    resume: ResumeStep,
    /// The first refusal to open the conversation since an incarnation was ready.
    refused: Option<ExitCause>,
    window: RestartWindow,
    /// The backoff timer.
    pub(super) timer: Option<Task>,
}

impl Incarnations {
    pub(super) fn new(shared: &Shared, window: RestartWindow) -> Self {
        Self {
            port: ChildActor::down(),
            command: watch::channel(None).0,
            end: None,
            epoch: 0,
            private: first_channel(shared.options()),
            resume: ResumeStep::first(shared),
            refused: None,
            window,
            timer: None,
        }
    }

    pub(super) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// True if the incarnation of this epoch runs.
    pub(super) fn runs(&self, epoch: u64) -> bool {
        epoch == self.epoch && self.port.is_up()
    }

    /// Has the incarnation end. The first command counts.
    pub(super) fn command(&self, signal: ExitSignal) {
        self.command.send_if_modified(|command| {
            let is_first = command.is_none();
            command.get_or_insert(signal);
            is_first
        });
    }

    /// An incarnation is ready: it has opened the conversation, as the next one will.
    pub(super) fn ready(&mut self) {
        (self.resume, self.refused) = (ResumeStep::SameId, None);
    }

    /// The launch option of the next incarnation for its conversation, whose id is `known` once something was said in it.
    fn next_resume(&self, known: Option<String>) -> Resume {
        match (known, self.resume) {
            (Some(id), ResumeStep::SameId) => Resume::Same(id),
            (Some(id), ResumeStep::Begin) => Resume::Begin(id),
            (Some(id), ResumeStep::Fork) => Resume::Fork(id),
            (Some(_), ResumeStep::Fresh) => Resume::Fresh,
            // Nothing was said yet in the conversation that the options name.
            (None, _) => Resume::AsOptions,
        }
    }

    /// Chooses another way to open the conversation after a refusal, and returns the rung of the ladder that it is told as. `None`
    /// if there is no other way, or the policy allows none. `recorded`: the conversation has a result.
    fn open_otherwise(
        &mut self,
        refused: &ExitCause,
        recorded: bool,
        policy: ResumeLadder,
    ) -> Option<ResumeLadder> {
        // A conversation that has a result is not started again in silence. Without a result, the CLI may have died
        // before it wrote the transcript of the first turn, which has ended as interrupted.
        let is_lost = self.resume == ResumeStep::SameId && recorded;
        let may_switch = self.refused.is_none() && !is_lost;
        let (next, rung) = self.resume.next(refused, may_switch, policy)?;
        self.resume = next;
        self.refused.get_or_insert_with(|| refused.clone());
        Some(rung)
    }
}

impl SupervisorState {
    /// Starts the next incarnation. Without a router, the incarnation waits in its handshake for the next router.
    pub(super) async fn start_port(&mut self) -> Handled {
        self.cli.epoch += 1;
        let (ended, end) = oneshot::channel();
        self.cli.end = Some(end);
        let known = self.shared.facts.borrow().session_id.clone();
        let (command, commands) = watch::channel(None);
        self.cli.command = command;
        let incarnation = IncarnationTask {
            shared: self.shared.clone(),
            epoch: self.cli.epoch,
            resume: self.cli.next_resume(known),
            private: self.cli.private,
            commands,
            ended,
            stderr: StderrTail::default(),
        };
        self.cli.port = ChildActor::up(self.spawn(CliPort, incarnation).await?);
        Ok(())
    }

    /// Notes how the conversation of the option `conversation` was opened: the first incarnation is ready.
    pub(super) fn opened(&self) {
        let Some(session_id) = self.shared.options().conversation.clone() else { return };
        let resumed = self.cli.resume == ResumeStep::SameId;
        self.shared.facts.send_modify(|facts| {
            facts.resumed = resumed;
            // What was resumed has a transcript, so it is not replaced when the transcript is gone later.
            facts.recorded |= resumed;
        });
        self.shared.emit(Event::ConversationOpened { session_id, resumed });
    }

    /// Has the next incarnation open the conversation another way after a refusal. False if there is no other way.
    fn resume_otherwise(&mut self, refused: &ExitCause) -> bool {
        let policy = match self.stage {
            // Nobody was told of the conversation yet, so the start fails instead of replacing it.
            SessionStage::Starting => ResumeLadder::SameId,
            _ => self.shared.options().resume_ladder,
        };
        let recorded = self.shared.facts.borrow().recorded;
        let Some(step) = self.cli.open_otherwise(refused, recorded, policy) else { return false };
        let epoch = self.cli.epoch + 1;
        self.shared.emit(Event::ResumeStep { epoch, step, refused: refused.to_string() });
        true
    }

    /// The error of a session whose CLI refuses to open the conversation.
    fn refused_for_good(&self, cause: &ExitCause) -> Error {
        let error = cause.to_error();
        match (&self.cli.refused, self.cli.resume) {
            (Some(first), ResumeStep::SameId | ResumeStep::Begin) => {
                let text = format!("the CLI neither resumes nor starts the conversation: {first}; {cause}");
                Error::new(ErrorKind::CliExited, text)
                    .with_help(
                        "a transcript without any message has this effect: remove it (`LocalSessions::delete`), or \
                         choose another id",
                    )
                    .with_stderr(error.stderr().unwrap_or_default())
            }
            _ if matches!(self.stage, SessionStage::Starting)
                && self.shared.options().conversation.is_some() =>
            {
                error.with_help(
                    "repair or delete the conversation, on disk or in the store, or choose another id",
                )
            }
            _ => error,
        }
    }

    /// The port's actor has ended, and with it the incarnation.
    pub(super) async fn port_ended(&mut self, end: ChildEnd) -> Handled {
        let told = self.cli.end.take().and_then(|mut told| told.try_recv().ok());
        let end = told.unwrap_or_else(|| PortEnd::untold(end));
        let cause = end.cause().cloned().map(|mut cause| {
            cause.each_text(&mut shorten);
            cause
        });
        // Before the conversation is told, which ends the turn.
        let resuming = self.shared.facts.borrow().resuming;
        self.tell_cli_ended(cause.as_ref());
        if self.shared.ending.is_killed() && !self.stopping() {
            // The message that asks for the kill is still on its way.
            return self.kill().await;
        }
        if self.stopping() {
            return self.check_step().await;
        }
        let Some(cause) = cause else {
            if matches!(end, PortEnd::Reregister) {
                self.cli.private = Channel::Arguments;
                self.shared.emit(Event::CliReregistered { epoch: self.cli.epoch });
            }
            return self.start_port().await;
        };
        self.shared.emit(Event::CliExited { epoch: self.cli.epoch, cause: cause.clone() });
        // A CLI that refuses to open the conversation refuses again: it is asked another way, or the session fails.
        let refused = matches!(cause, ExitCause::ResumeRefused { .. } | ExitCause::ConversationExists { .. });
        if refused && !self.resume_otherwise(&cause) {
            return self.fail(self.refused_for_good(&cause)).await;
        }
        if !refused {
            self.cli.refused = None;
            // The CLI may have written the conversation down before it died.
            if self.cli.resume == ResumeStep::Begin {
                self.cli.resume = ResumeStep::SameId;
            }
        }
        if resuming {
            // The next CLI would ask for the deferred call again, which may have run.
            return self.fail(cause.to_error()).await;
        }
        if matches!(self.stage, SessionStage::Starting) {
            return if refused { self.start_port().await } else { self.fail(cause.to_error()).await };
        }
        // A refusal and an exit after an error result do not count as crashes. They cannot go on for ever: the ladder
        // ends, and an error result needs a prompt.
        let verdict = if refused || matches!(end, PortEnd::AfterErrorResult(_)) {
            Verdict::After { delay: self.cli.window.delay(1), attempt: 0 }
        } else {
            self.cli.window.record(Instant::now())
        };
        match verdict {
            Verdict::After { delay, attempt } => {
                self.stage = SessionStage::Recovering;
                self.shared.counting.cli_restarts.one();
                self.shared.emit(Event::CliRestarting { epoch: self.cli.epoch + 1, attempt, delay });
                self.cli.timer = Some(later(&self.shared, delay, Internal::RestartCli));
                Ok(())
            }
            Verdict::GiveUp => self.fail(self.died_too_often(&cause)).await,
        }
    }

    /// Tells everyone that the incarnation has ended; with the cause if nobody asked for the end.
    fn tell_cli_ended(&mut self, cause: Option<&ExitCause>) {
        let epoch = self.cli.epoch;
        self.shared.cli.ended(epoch);
        self.shared.ledger.end_epoch(epoch);
        self.router.actor.tell(RouterMessage::Ended);
        if let Some(mirror) = self.shared.mirror() {
            // Before the conversation is told, so that the turn's outcome waits until the store has what the CLI
            // mirrored and, after a crash, what the CLI had no time to mirror.
            match cause {
                Some(_) => mirror.catch_up(self.shared.facts.borrow().session_id.clone()),
                None => mirror.flush(|| {}),
            }
        }
        let event = CliEvent::Ended { epoch, cause: cause.cloned() };
        self.conversation.tell(ConversationMessage::Cli(event));
        self.change_ends_with_cli();
    }

    fn died_too_often(&self, cause: &ExitCause) -> Error {
        let limits = &self.shared.options().restarts.cli;
        let error = cause.to_error();
        let text = format!(
            "the CLI died more than {} times within {:?}, the last time because: {cause}",
            limits.intensity, limits.period
        );
        let failed = Error::new(ErrorKind::SessionFailed, text);
        failed.with_stderr(error.stderr().unwrap_or_default()).with_source(error)
    }
}

impl PortEnd {
    /// The end of an incarnation whose actor has ended before it told one.
    fn untold(end: ChildEnd) -> Self {
        match end {
            ChildEnd::Stopped(None) => PortEnd::Asked,
            ChildEnd::Stopped(Some(reason)) => PortEnd::Died(ExitCause::Port { reason }),
            ChildEnd::Failed(error) => PortEnd::Died(ExitCause::Port { reason: error.to_string() }),
        }
    }

    /// The cause of an end that nobody asked for.
    fn cause(&self) -> Option<&ExitCause> {
        match self {
            PortEnd::Died(cause) | PortEnd::AfterErrorResult(cause) => Some(cause),
            PortEnd::Asked | PortEnd::Reregister => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_port_that_told_none_is_a_death_unless_it_was_stopped() {
        assert!(matches!(PortEnd::untold(ChildEnd::Stopped(None)), PortEnd::Asked));
        for end in [ChildEnd::Stopped(Some("killed".into())), ChildEnd::Failed("killed".into())] {
            let PortEnd::Died(ExitCause::Port { reason }) = PortEnd::untold(end) else {
                panic!("not a death")
            };
            assert_eq!(reason, "killed");
        }
    }
}
