//! The feed: what happened to names, prompts and questions, for readers that have to miss nothing.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::access::Denied;
use crate::error::{BackendError, debug_as_report};
use crate::event::FleetEvent;
use crate::id::{Name, PromptId, QuestionId, Timestamp};
use crate::query::lists::InvalidCursor;
use crate::record::QuarantineKind;
use crate::record::usage::Usage;

/// The entries that a feed keeps. A reader that is further behind gets [`FeedError::Gap`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct FeedRetention {
    /// The time for which an entry is kept, at least. Default: 7 days.
    pub time: Duration,
    /// The number of entries that are kept, about: when there are more, the oldest ones are removed together with the others of their
    /// second or minute. Default: 1,000,000.
    pub entries: u64,
}

impl FeedRetention {
    /// Seven days and a million entries.
    pub fn new() -> Self {
        Self { time: Duration::from_secs(7 * 24 * 3600), entries: 1_000_000 }
    }

    /// Sets the time for which an entry is kept.
    #[must_use]
    pub fn time(mut self, time: Duration) -> Self {
        self.time = time;
        self
    }

    /// Sets the number of entries that are kept.
    #[must_use]
    pub fn entries(mut self, entries: u64) -> Self {
        self.entries = entries;
        self
    }
}

impl Default for FeedRetention {
    fn default() -> Self {
        Self::new()
    }
}

/// An entry of a feed: something that happened to a name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct FeedEntry {
    /// The place behind the entry. Keep it once the entry is handled, and [go on](crate::FleetTenant::feed) from it.
    pub cursor: FeedCursor,
    /// The name.
    pub name: Name,
    /// The number of the entry. Those of a name grow in the order in which things happened; a name that was deleted and made anew goes on
    /// with a greater one. With the name it tells an entry that comes again.
    pub number: u64,
    /// When it happened, on the backend's clock.
    pub at: Timestamp,
    /// The event.
    #[serde(flatten)]
    pub event: FeedEvent,
}

/// Something that happened to a name, in a feed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[allow(missing_docs, reason = "fields are named by their types")]
#[non_exhaustive]
pub enum FeedEvent {
    /// A prompt was accepted.
    Accepted { prompt: PromptId },
    /// A CLI begins with a prompt.
    Begun { prompt: PromptId },
    /// The session's CLI has begun a turn by itself.
    BegunByCli { prompt: PromptId },
    /// A turn is parked: no CLI runs until a person has decided the question, or its deadline has passed.
    Parked { prompt: PromptId, question: QuestionId },
    /// The prompt waits to go on: with its continuation, because the owner that had begun with it was lost or its node drained, or with the
    /// tool call for which the turn was parked, because the question is decided.
    Continues { prompt: PromptId },
    /// The API has rejected the turn of a prompt before anything ran: its credential is held, and the prompt waits again.
    Held { prompt: PromptId },
    /// A prompt has its outcome: `completed`, `interrupted`, `failed` or `unsent`.
    Ended { prompt: PromptId, outcome: String, usage: Usage },
    /// A session asks a person.
    Asked { prompt: PromptId, question: QuestionId },
    /// A question was decided, or ended with its turn.
    Decided { prompt: PromptId, question: QuestionId },
    /// The name is not activated until `unquarantine` is called.
    Quarantined { kind: QuarantineKind, why: String },
    /// The name may be activated again.
    Unquarantined,
    /// The name takes no more prompts: its files are removed, then the name.
    Deleting,
    /// The name was removed.
    Deleted,
}

impl FeedEvent {
    /// The event to emit for this entry. `None` for `Begun`, which the owner emits.
    pub(crate) fn told(&self, name: &Name) -> Option<FleetEvent> {
        let name = name.clone();
        Some(match self.clone() {
            Self::Accepted { prompt } => FleetEvent::Accepted { name, prompt },
            Self::Parked { prompt, question } => FleetEvent::Parked { name, prompt, question },
            Self::Continues { prompt } => FleetEvent::Continues { name, prompt },
            Self::Held { prompt } => FleetEvent::Held { name, prompt },
            Self::Ended { prompt, outcome, .. } => {
                let outcome =
                    ["completed", "interrupted", "failed"].into_iter().find(|word| *word == outcome);
                FleetEvent::Ended { name, prompt, outcome: outcome.unwrap_or("unsent") }
            }
            Self::Asked { prompt, question } => FleetEvent::Asked { name, prompt, question },
            Self::Decided { prompt, question } => FleetEvent::Decided { name, prompt, question },
            Self::Quarantined { kind, why } => FleetEvent::Quarantined { name, kind, why },
            Self::Unquarantined => FleetEvent::Unquarantined { name },
            Self::Deleting => FleetEvent::Deleting { name },
            Self::Deleted => FleetEvent::Deleted { name },
            Self::BegunByCli { prompt } => FleetEvent::BegunByCli { name, prompt },
            // The owner tells it, once it still holds its lease.
            Self::Begun { .. } => return None,
        })
    }
}

/// A place in a feed. The default one is before the oldest entry that is kept.
///
/// As text and in JSON it is short. It names the session of an entry, so a tenant's own code should get cursors of its own feed only.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct FeedCursor {
    /// The epoch in which the next entry is looked for; 0: the first one.
    pub(crate) epoch: u64,
    /// The rest of the key of the last entry that was read in this epoch; empty: none.
    pub(crate) after: Vec<u8>,
}

/// A page of a feed.
#[derive(Clone, Debug, PartialEq)]
pub enum FeedPage {
    /// Entries, in the order in which they happened to each name. Fewer than the limit: no others are complete yet.
    Entries {
        /// The entries.
        entries: Vec<FeedEntry>,
        /// The place of the next page.
        next: FeedCursor,
    },
    /// Entries after the cursor were removed. `next` is the place before the oldest one that is kept.
    Gap {
        /// The place.
        next: FeedCursor,
    },
    /// No feed is kept.
    Off,
}

/// The reason why a feed cannot be read on.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum FeedError {
    /// The reader has fallen behind, and entries that it has not read were removed. Read the records of what you keep again, and go on:
    /// the reader continues with the oldest entry that is kept.
    #[error(
        "entries of the feed that were not read are no longer kept: read the records again and go on, or keep entries for longer with \
         `FleetBuilder::feed`"
    )]
    Gap,
    /// The fleet keeps no feed.
    #[error("the fleet keeps no feed: call `FleetBuilder::feed` on its builder")]
    Off,
    /// The [authoriser](crate::FleetBuilder::authoriser) does not let the person read it.
    #[error(transparent)]
    Denied(#[from] Denied),
    /// The backend failed. Call it again.
    #[error(transparent)]
    Backend(#[from] BackendError),
}

debug_as_report!(FeedError);

impl fmt::Display for FeedCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.epoch)?;
        if !self.after.is_empty() {
            f.write_str(".")?;
        }
        self.after.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for FeedCursor {
    type Err = InvalidCursor;

    fn from_str(text: &str) -> Result<Self, InvalidCursor> {
        let (epoch, digits) = text.split_once('.').unwrap_or((text, ""));
        let epoch = epoch.parse().map_err(|_| InvalidCursor)?;
        let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
        let byte = |pair: &[u8; 2]| {
            let digits = std::str::from_utf8(pair).map_err(|_| InvalidCursor)?;
            u8::from_str_radix(digits, 16).map_err(|_| InvalidCursor)
        };
        let after = pairs.iter().map(byte).collect::<Result<_, _>>()?;
        if rest.is_empty() { Ok(Self { epoch, after }) } else { Err(InvalidCursor) }
    }
}

impl TryFrom<String> for FeedCursor {
    type Error = InvalidCursor;

    fn try_from(text: String) -> Result<Self, InvalidCursor> {
        text.parse()
    }
}

impl From<FeedCursor> for String {
    fn from(place: FeedCursor) -> String {
        place.to_string()
    }
}
