//! Queries for lists of rows, and their pages: names, and the prompts of a name.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::id::{Name, PromptId, Tenant};
use crate::record::{NameRecord, NameState, PromptContent, PromptOutcome, PromptRecord, PromptState};

/// Chooses the names of a list: by default the first 100.
///
/// A label, [`NameFilter::Stuck`], [`NameFilter::Quarantined`], and a prefix within a tenant have an index. With another filter a page looks
/// at 1,024 names at most, and may be shorter than its limit before the end of the list.
///
/// ```
/// use greenroom_fleet::{NameFilter, NameQuery};
///
/// let query = NameQuery::new().prefix("customer-").label("plan", "pro").only(NameFilter::Running).limit(50);
/// # let _ = query;
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameQuery {
    pub(crate) tenant: Option<Tenant>,
    pub(crate) prefix: String,
    pub(crate) label: Option<(String, String)>,
    pub(crate) only: Option<NameFilter>,
    pub(crate) after: Option<Name>,
    pub(crate) limit: usize,
}

/// The names of a [`NameQuery`], by their state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NameFilter {
    /// A turn of the name runs.
    Running,
    /// A turn of the name is parked: it waits for a person.
    Parked,
    /// Prompts wait for the name.
    Waiting,
    /// A node owns the name: its session is live, starts or ends.
    Owned,
    /// The name is quarantined.
    Quarantined,
    /// [Somebody has to look at](NameRecord::is_stuck) the name.
    Stuck,
}

/// A page of names.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct NamePage {
    /// The names, in the order of their bytes. Names whose records cannot be read are passed over.
    pub names: Vec<NameRecord>,
    /// The name after which the next page begins: pass it to [`NameQuery::after`]. `None`: this is the last page.
    pub next: Option<Name>,
}

impl NameQuery {
    /// The most names of a page.
    pub const MOST: usize = 1024;

    /// The first 100 names.
    pub fn new() -> Self {
        Self::default()
    }

    /// Lists names of this tenant only. A tenant's own handle lists no others in any case.
    #[must_use]
    pub fn tenant(mut self, tenant: Tenant) -> Self {
        self.tenant = Some(tenant);
        self
    }

    /// Lists names whose part [after the tenant](Name::session) begins with this text.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Lists names with this [label](crate::Labels).
    #[must_use]
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.label = Some((key.into(), value.into()));
        self
    }

    /// Lists names in this state only.
    #[must_use]
    pub fn only(mut self, filter: NameFilter) -> Self {
        self.only = Some(filter);
        self
    }

    /// Lists names after this one: the next page.
    #[must_use]
    pub fn after(mut self, name: Name) -> Self {
        self.after = Some(name);
        self
    }

    /// Sets the length of the page, at most [`MOST`](Self::MOST). Default: 100.
    #[must_use]
    pub fn limit(mut self, limit: usize) -> Self {
        self.limit = limit;
        self
    }

    pub(crate) fn takes(&self, record: &NameRecord) -> bool {
        let name = &record.name;
        let label = |(key, value): &(String, String)| record.labels.get(key) == Some(value);
        self.tenant.as_ref().is_none_or(|tenant| tenant == name.tenant())
            && name.session().starts_with(&self.prefix)
            && self.label.as_ref().is_none_or(label)
            && self.only.is_none_or(|filter| filter.takes(record))
    }
}

impl Default for NameQuery {
    fn default() -> Self {
        Self { tenant: None, prefix: String::new(), label: None, only: None, after: None, limit: 100 }
    }
}

impl NameFilter {
    fn takes(self, record: &NameRecord) -> bool {
        match self {
            Self::Running => record.turns().next().is_some(),
            Self::Parked => record.parked.is_some(),
            Self::Waiting => record.queued > 0,
            Self::Owned => matches!(record.state, NameState::Owned { .. }),
            Self::Quarantined => matches!(record.state, NameState::Quarantined { .. }),
            Self::Stuck => record.is_stuck(),
        }
    }
}

/// Chooses the prompts of a list: by default the newest 20.
///
/// ```
/// use greenroom_fleet::{PromptFilter, PromptQuery};
///
/// let query = PromptQuery::new().only(PromptFilter::Ended).label("ticket", "881").limit(50);
/// # let _ = query;
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PromptQuery {
    pub(crate) label: Option<(String, String)>,
    pub(crate) only: Option<PromptFilter>,
    pub(crate) after: Option<PromptCursor>,
    pub(crate) limit: usize,
}

/// The prompts of a [`PromptQuery`], by their state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PromptFilter {
    /// The prompt waits.
    Waiting,
    /// The turn of the prompt runs.
    Running,
    /// The turn of the prompt is parked: it waits for a person.
    Parked,
    /// The prompt has its outcome.
    Ended,
}

/// A page of prompts.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct PromptPage {
    /// The prompts, the newest first. Prompts whose records cannot be read are passed over.
    pub prompts: Vec<PromptEntry>,
    /// The place of the next page: pass it to [`PromptQuery::after`]. `None`: this is the last page.
    pub next: Option<PromptCursor>,
}

/// A prompt in a list: all that a page of a conversation shows of it besides its [messages](crate::FleetTenant::turn).
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct PromptEntry {
    /// Its state, its moments, its labels and what it has used.
    pub record: PromptRecord,
    /// The content of the prompt. `None`: it is no longer kept, or cannot be read.
    pub content: Option<PromptContent>,
    /// The outcome, once the prompt has ended.
    pub outcome: Option<PromptOutcome>,
}

/// A place in the list of a session's prompts. As text and in JSON it is short and fits into an address of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PromptCursor {
    pub(crate) order: u64,
    pub(crate) prompt: PromptId,
}

/// A text that is no place in a list or in a feed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this text is no place in a list or feed of the fleet: begin without one")]
pub struct InvalidCursor;

impl PromptQuery {
    /// The most prompts of a page.
    pub const MOST: usize = 200;

    /// The newest 20 prompts.
    pub fn new() -> Self {
        Self::default()
    }

    /// Lists prompts with this [label](crate::FleetPrompt::label).
    #[must_use]
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.label = Some((key.into(), value.into()));
        self
    }

    /// Lists prompts in this state only. A page looks at 1,024 prompts at most, so it may be shorter than its limit before the end.
    #[must_use]
    pub fn only(mut self, filter: PromptFilter) -> Self {
        self.only = Some(filter);
        self
    }

    /// Lists older prompts than a page before: the next page.
    #[must_use]
    pub fn after(mut self, place: PromptCursor) -> Self {
        self.after = Some(place);
        self
    }

    /// Sets the length of the page, at most [`MOST`](Self::MOST). Default: 20. A page also ends once its contents and outcomes reach
    /// 1 MiB.
    #[must_use]
    pub fn limit(mut self, limit: usize) -> Self {
        self.limit = limit;
        self
    }

    pub(crate) fn takes(&self, record: &PromptRecord) -> bool {
        match self.only {
            None => true,
            Some(PromptFilter::Waiting) => record.state == PromptState::Queued,
            Some(PromptFilter::Running) => matches!(record.state, PromptState::Begun { .. }),
            Some(PromptFilter::Parked) => matches!(record.state, PromptState::Parked { .. }),
            Some(PromptFilter::Ended) => matches!(record.state, PromptState::Ended { .. }),
        }
    }
}

impl Default for PromptQuery {
    fn default() -> Self {
        Self { label: None, only: None, after: None, limit: 20 }
    }
}

impl PromptEntry {
    /// The place of the prompt in the list. Pass it to [`PromptQuery::after`] to list older prompts.
    pub fn cursor(&self) -> PromptCursor {
        PromptCursor { order: self.record.order, prompt: self.record.id }
    }

    /// The content as a prompt of a session. `None`: it is no longer kept, or another version has kept it and this one cannot read it.
    pub fn prompt(&self) -> Option<greenroom::Prompt> {
        serde_json::from_value(self.content.as_ref()?.prompt.clone()).ok()
    }

    /// The text blocks of the prompt, joined.
    pub fn text(&self) -> Option<String> {
        let content = self.prompt()?.content;
        let texts: Vec<_> = content.iter().filter_map(|block| block.get("text")?.as_str()).collect();
        (!texts.is_empty()).then(|| texts.join("\n"))
    }
}

impl fmt::Display for PromptCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.order, self.prompt.0.simple())
    }
}

impl FromStr for PromptCursor {
    type Err = InvalidCursor;

    fn from_str(text: &str) -> Result<Self, InvalidCursor> {
        let (order, prompt) = text.split_once('.').ok_or(InvalidCursor)?;
        let prompt = prompt.parse().map_err(|_| InvalidCursor)?;
        Ok(Self { order: order.parse().map_err(|_| InvalidCursor)?, prompt: PromptId(prompt) })
    }
}

impl TryFrom<String> for PromptCursor {
    type Error = InvalidCursor;

    fn try_from(text: String) -> Result<Self, InvalidCursor> {
        text.parse()
    }
}

impl From<PromptCursor> for String {
    fn from(place: PromptCursor) -> String {
        place.to_string()
    }
}
