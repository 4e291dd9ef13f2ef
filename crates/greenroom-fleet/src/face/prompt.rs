//! A prompt for a session of a fleet.

use std::time::{Duration, SystemTime};

use greenroom::Prompt;

use crate::record::label::Labels;

/// A prompt for a session of a fleet: what is said, and how it is kept.
///
/// ```
/// use std::time::Duration;
///
/// use greenroom_fleet::FleetPrompt;
///
/// let prompt = FleetPrompt::new("Where is my lamp?").key("msg-881").wait(Duration::from_secs(60));
/// # let _ = prompt;
/// ```
#[derive(Clone, Debug)]
pub struct FleetPrompt {
    pub(crate) prompt: Prompt,
    pub(crate) key: Option<String>,
    pub(crate) labels: Labels,
    pub(crate) not_before: Option<SystemTime>,
    pub(crate) wait: Option<Duration>,
    /// The prompt after a lost owner, and how often it may be sent.
    pub(crate) continuation: Option<(Prompt, u32)>,
}

impl FleetPrompt {
    /// A prompt without a key, which may begin at once.
    pub fn new(prompt: impl Into<Prompt>) -> Self {
        let prompt = prompt.into();
        Self { prompt, key: None, labels: Labels::new(), not_before: None, wait: None, continuation: None }
    }

    /// Sets the application's key, unique in its session: a prompt that is sent again with its key is found, and not sent twice.
    #[must_use]
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Sets a [label](Labels), by which [`FleetSession::prompts`](crate::FleetSession::prompts) finds the prompt. Labels that are too many or
    /// too long have the prompt refused.
    #[must_use]
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels = self.labels.with(key, value);
        self
    }

    /// Makes the prompt a reminder: it begins at this moment at the earliest, and wakes its session then.
    #[must_use]
    pub fn not_before(mut self, moment: SystemTime) -> Self {
        self.not_before = Some(moment);
        self
    }

    /// Sets the time for which the prompt may wait, from the moment at which it may begin. Default:
    /// [`FleetLimits::wait`](crate::FleetLimits::wait).
    #[must_use]
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = Some(wait);
        self
    }

    /// Sets the prompt to send in place of this one if the process is lost, or the fleet drains, after a CLI has begun with this
    /// one: at most `times` times. Without it such a turn ends as interrupted.
    #[must_use]
    pub fn continue_with(mut self, prompt: impl Into<Prompt>, times: u32) -> Self {
        self.continuation = Some((prompt.into(), times));
        self
    }
}

impl<P: Into<Prompt>> From<P> for FleetPrompt {
    fn from(prompt: P) -> Self {
        Self::new(prompt)
    }
}
