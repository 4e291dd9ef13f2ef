//! The end of an incarnation leads to the next incarnation, or to the end of the session.
//!
//! When a CLI refuses to resume, the next incarnation opens the conversation another way:
//!
//! ```text
//!   SameId ── no transcript, no result yet ──► Recreate (the same id)
//!     └────── refused ──► Fork ── refused ──► Fresh          each only if `Options::resume_ladder` allows it
//! ```

use tokio::time::Instant;

use super::child::ChildEnd;
use super::{Handled, SessionStage, SupervisorState};
use crate::actor::base::restart_window::Verdict;
use crate::actor::messages::conversation::ConversationMessage;
use crate::actor::messages::port::PortEnd;
use crate::actor::messages::router::RouterMessage;
use crate::actor::messages::session::Internal;
use crate::error::{Error, ErrorKind};
use crate::options::ResumeLadder;
use crate::plain::make_plain;
use crate::report::{Event, ExitCause};
use crate::transport::{Channel, Resume};

/// The conversation that the next incarnation opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResumeStep {
    /// The captured conversation.
    SameId,
    /// A new conversation under the captured id: the CLI wrote nothing down under the id.
    Recreate,
    /// A fork of the captured conversation.
    Fork,
    /// A new conversation.
    Fresh,
}

impl ResumeStep {
    /// The step after a refusal, and the rung of the ladder that it is told as. `None` where the policy allows no more.
    fn next(self, nothing_written: bool, policy: ResumeLadder) -> Option<(Self, ResumeLadder)> {
        let (next, rung) = match self {
            ResumeStep::SameId if nothing_written => {
                return Some((ResumeStep::Recreate, ResumeLadder::SameId));
            }
            ResumeStep::SameId | ResumeStep::Recreate => (ResumeStep::Fork, ResumeLadder::Fork),
            ResumeStep::Fork => (ResumeStep::Fresh, ResumeLadder::Fresh),
            ResumeStep::Fresh => return None,
        };
        (rung <= policy).then_some((next, rung))
    }
}

impl SupervisorState {
    /// The launch option of the next incarnation for its conversation.
    pub(super) fn next_resume(&self) -> Resume {
        let captured = self.shared.facts.borrow().session_id.clone();
        match (captured, self.resume) {
            (Some(id), ResumeStep::SameId) => Resume::Same(id),
            (Some(id), ResumeStep::Recreate) => Resume::Recreate(id),
            (Some(id), ResumeStep::Fork) => Resume::Fork(id),
            (Some(_), ResumeStep::Fresh) => Resume::Fresh,
            // Nothing was said yet in the conversation that the options name.
            (None, _) => Resume::AsOptions,
        }
    }

    /// Chooses another way to open the conversation after a refusal to resume. False if the policy allows none.
    fn resume_otherwise(&mut self, refused: &ExitCause) -> bool {
        // The CLI died before it wrote the transcript of the first turn, which has ended as interrupted.
        let nothing_written = matches!(refused, ExitCause::ResumeRefused { transcript_missing: true, .. })
            && !self.shared.facts.borrow().recorded;
        let Some((next, step)) = self.resume.next(nothing_written, self.shared.options().resume_ladder)
        else {
            return false;
        };
        self.resume = next;
        self.shared.emit(Event::ResumeStep { epoch: self.epoch + 1, step, refused: refused.to_string() });
        true
    }

    /// The port's actor has ended, and with it the incarnation.
    pub(super) async fn port_ended(&mut self, end: ChildEnd) -> Handled {
        if self.resume == ResumeStep::Recreate {
            // The recreated conversation is resumed from now on, if the CLI wrote it down.
            self.resume = ResumeStep::SameId;
        }
        let end = PortEnd::of(end);
        let cause = end.cause().cloned().map(|mut cause| {
            cause.each_text(&mut make_plain);
            cause
        });
        self.tell_cli_ended(cause.as_ref());
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
        if matches!(self.stage, SessionStage::Starting) {
            return self.fail(cause.to_error()).await;
        }
        // A CLI that refuses to resume refuses again: it is asked another way, or the session fails.
        let refused = matches!(cause, ExitCause::ResumeRefused { .. });
        if refused && !self.resume_otherwise(&cause) {
            return self.fail(cause.to_error()).await;
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
