//! The end of an incarnation leads to the next incarnation, or to the end of the session.
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

use tokio::time::Instant;

use super::child::ChildEnd;
use super::{Handled, SessionStage, SupervisorState};
use crate::actor::base::restart_window::Verdict;
use crate::actor::context::Shared;
use crate::actor::messages::conversation::ConversationMessage;
use crate::actor::messages::port::PortEnd;
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

impl SupervisorState {
    /// The launch option of the next incarnation for its conversation.
    pub(super) fn next_resume(&self) -> Resume {
        let known = self.shared.facts.borrow().session_id.clone();
        match (known, self.resume) {
            (Some(id), ResumeStep::SameId) => Resume::Same(id),
            (Some(id), ResumeStep::Begin) => Resume::Begin(id),
            (Some(id), ResumeStep::Fork) => Resume::Fork(id),
            (Some(_), ResumeStep::Fresh) => Resume::Fresh,
            // Nothing was said yet in the conversation that the options name.
            (None, _) => Resume::AsOptions,
        }
    }

    /// Notes how the conversation of the option `conversation` was opened: the first incarnation is ready.
    pub(super) fn opened(&self) {
        let Some(session_id) = self.shared.options().conversation.clone() else { return };
        let resumed = self.resume == ResumeStep::SameId;
        self.shared.facts.send_modify(|facts| {
            facts.resumed = resumed;
            // What was resumed has a transcript, so it is not replaced when the transcript is gone later.
            facts.recorded |= resumed;
        });
        self.shared.emit(Event::ConversationOpened { session_id, resumed });
    }

    /// Chooses another way to open the conversation after a refusal. False if there is none, or the policy allows none.
    fn resume_otherwise(&mut self, refused: &ExitCause) -> bool {
        // A conversation that has a result is not started again in silence. Without a result, the CLI may have died
        // before it wrote the transcript of the first turn, which has ended as interrupted.
        let is_lost = self.resume == ResumeStep::SameId && self.shared.facts.borrow().recorded;
        let may_switch = self.refused.is_none() && !is_lost;
        let policy = match self.stage {
            // Nobody was told of the conversation yet, so the start fails instead of replacing it.
            SessionStage::Starting => ResumeLadder::SameId,
            _ => self.shared.options().resume_ladder,
        };
        let Some((next, step)) = self.resume.next(refused, may_switch, policy) else { return false };
        self.resume = next;
        self.refused.get_or_insert_with(|| refused.clone());
        self.shared.emit(Event::ResumeStep { epoch: self.epoch + 1, step, refused: refused.to_string() });
        true
    }

    /// The error of a session whose CLI refuses to open the conversation.
    fn refused_for_good(&self, cause: &ExitCause) -> Error {
        let error = cause.to_error();
        match (&self.refused, self.resume) {
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
        let end = PortEnd::of(end);
        let cause = end.cause().cloned().map(|mut cause| {
            cause.each_text(&mut shorten);
            cause
        });
        self.tell_cli_ended(cause.as_ref());
        if self.shared.is_killed() && !self.stopping() {
            // The message that asks for the kill is still on its way.
            return self.kill().await;
        }
        if self.stopping() {
            return self.check_step().await;
        }
        let Some(cause) = cause else {
            if let PortEnd::Reregister(channels) = end {
                self.channels = channels;
                let servers = channels.servers == Channel::Arguments;
                let private = channels.private == Channel::Arguments;
                self.shared.emit(Event::CliReregistered { epoch: self.epoch, servers, private });
            }
            return self.start_port().await;
        };
        self.shared.emit(Event::CliExited { epoch: self.epoch, cause: cause.clone() });
        // A CLI that refuses to open the conversation refuses again: it is asked another way, or the session fails.
        let refused = cause.is_refusal();
        if refused && !self.resume_otherwise(&cause) {
            return self.fail(self.refused_for_good(&cause)).await;
        }
        if !refused {
            self.refused = None;
            // The CLI may have written the conversation down before it died.
            if self.resume == ResumeStep::Begin {
                self.resume = ResumeStep::SameId;
            }
        }
        if matches!(self.stage, SessionStage::Starting) {
            return if refused { self.start_port().await } else { self.fail(cause.to_error()).await };
        }
        // A refusal and an exit after an error result do not count as crashes. They cannot go on for ever: the ladder
        // ends, and an error result needs a prompt.
        let verdict = if refused || matches!(end, PortEnd::AfterErrorResult(_)) {
            Verdict::After { delay: self.windows.port.delay(1), attempt: 0 }
        } else {
            self.windows.port.record(Instant::now())
        };
        match verdict {
            Verdict::After { delay, attempt } => {
                self.stage = SessionStage::Recovering;
                self.shared.counting.cli_restarts.one();
                self.shared.emit(Event::CliRestarting { epoch: self.epoch + 1, attempt, delay });
                self.after(delay, Internal::RestartCli);
                Ok(())
            }
            Verdict::GiveUp => self.fail(self.died_too_often(&cause)).await,
        }
    }

    /// Tells everyone that the incarnation has ended; with the cause if nobody asked for the end.
    fn tell_cli_ended(&mut self, cause: Option<&ExitCause>) {
        let epoch = self.epoch;
        self.shared.outbound_ended(epoch);
        self.shared.process.set(None);
        self.router.tell(RouterMessage::Ended { epoch });
        if let Some(mirror) = self.shared.mirror() {
            // Before the conversation is told, so that the turn's outcome waits until the store has what the CLI
            // mirrored and, after a crash, what the CLI had no time to mirror.
            match cause {
                Some(_) => mirror.catch_up(self.shared.facts.borrow().session_id.clone()),
                None => mirror.flush(|| {}),
            }
        }
        self.conversation.tell(ConversationMessage::CliEnded { epoch, cause: cause.cloned() });
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
    fn of(end: ChildEnd) -> Self {
        match end {
            ChildEnd::Stopped(None) => PortEnd::Asked,
            ChildEnd::Stopped(Some(reason)) => PortEnd::Died(ExitCause::Port { reason }),
            ChildEnd::Failed(error) => match error.downcast::<PortEnd>() {
                Ok(end) => *end,
                Err(error) => PortEnd::Died(ExitCause::Port { reason: error.to_string() }),
            },
        }
    }

    /// The cause of an end that nobody asked for.
    fn cause(&self) -> Option<&ExitCause> {
        match self {
            PortEnd::Died(cause) | PortEnd::AfterErrorResult(cause) => Some(cause),
            PortEnd::Asked | PortEnd::Reregister(_) => None,
        }
    }
}
