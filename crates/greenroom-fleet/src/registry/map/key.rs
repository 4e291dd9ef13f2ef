//! Keys of the map: a byte for the table, then parts that sort as their values do.

use crate::error::BackendError;
use crate::id::{CommandId, Name, NodeId, PromptId, QuestionId, Tenant, Timestamp};
use crate::registry::Result;

/// The parts of the map. The byte is the first one of the part's keys and part of the file format.
#[derive(Clone, Copy)]
#[repr(u8)]
pub(crate) enum Table {
    /// A single: the counter of the prompts that wait
    Queued = 1,
    /// name → `NameRecord`
    Names = 2,
    /// name, order → prompt, while the prompt waits and may begin
    Queue = 3,
    /// prompt → `PromptRecord`
    Prompts = 4,
    /// prompt → `PromptContent`
    Contents = 5,
    /// prompt → `PromptOutcome`
    Outcomes = 6,
    /// prompt, number of the last message in the row → messages
    Messages = 7,
    /// name, key → prompt
    Keys = 8,
    /// due, prompt → prompt, while the prompt waits for its moment
    Due = 9,
    /// expiry, prompt → nothing, while the prompt waits
    Expiries = 10,
    /// end, prompt → the rest of its key in `PromptsOf`
    Ended = 11,
    /// tenant → `Account`: its budget period
    Tenants = 12,
    /// node → `NodeRow`
    Nodes = 13,
    /// node, name → nothing
    Owned = 14,
    /// question → `QuestionRecord`
    Questions = 15,
    /// prompt, question → nothing, while the question is open
    QuestionsOfPrompt = 16,
    /// deadline, question → the rest of its key in `QuestionsOfTenant`, while the question is open
    Deadlines = 17,
    /// name → the hosts that had files of it, while it is being deleted
    Deleting = 18,
    /// name, term → `ProcessRecord`
    Processes = 19,
    /// prompt, question → nothing, once the question is decided
    DecidedOfPrompt = 20,
    /// name, order → prompt, while the prompt waits for its moment
    Reminders = 21,
    /// tenant, order of its first prompt that may begin, session → nothing, while the name can run
    Waiting = 22,
    /// command → `CommandRecord`
    Commands = 23,
    /// node, name, command → nothing, until the command has ended
    CommandsOfNode = 24,
    /// deadline, command → nothing
    CommandDeadlines = 25,
    /// node → `Lease`
    Leases = 26,
    /// node → counter of the names that it owns
    OwnedBy = 27,
    /// tenant → counter of its prompts that wait
    QueuedOf = 28,
    /// tenant → counter of the money spent in its period, in micro-dollars
    Spent = 29,
    /// tenant → counter of the money reserved in its period, in micro-dollars
    Reserved = 30,
    /// project, session, part → the transcript without its entries
    Transcripts = 31,
    /// transcript, number of the last entry in the row → entries
    Entries = 32,
    /// transcript, uuid of an entry → nothing
    EntryIds = 33,
    /// tenant → the highest term of its names that were deleted
    DeletedTerm = 34,
    /// project, session, part, transcript → nothing, until its entries are removed
    RemovedTranscripts = 35,
    /// name, order backwards, prompt → `PromptPlace`, from the prompt's accept until it is forgotten
    PromptsOf = 36,
    /// A single: the id of the backend, once a tenant has moved from it or to it
    BackendId = 37,
    /// name → nothing, while somebody has to look at it
    Stuck = 38,
    /// A single: the counter of the reminders that wait
    RemindersWaiting = 51,
    /// tenant → counter of its reminders that wait
    RemindersOf = 52,
    /// tenant → counter of its names
    NamesOf = 53,
    /// tenant → counter of its names that have an owner
    LiveOf = 54,
    /// tenant → counter of the bytes of its prompts that wait
    WaitingBytes = 55,
    /// tenant → counter of the bytes that are kept of its prompts
    KeptBytes = 56,
    /// tenant → counter of its prompts that were accepted since its bucket was full
    Taken = 57,
    /// tenant → `Bucket`
    Buckets = 58,
    /// tenant → `Quota`, if it was set
    Quotas = 59,
    /// A single: the counter of the quotas that were set
    QuotasSet = 60,
    /// credential → `Hold`, while the API rejects it
    Holds = 61,
    /// A single: the counter of the credentials that are held
    HoldsHeld = 62,
    /// label's key, label's value, name → nothing
    NameLabels = 64,
    /// label's key, label's value, name, order backwards, prompt → nothing
    PromptLabels = 65,
    /// tenant, deadline, question → nothing, while the question is open
    QuestionsOfTenant = 66,
    /// day, name → `Usage`
    UsageOfName = 67,
    /// hour, tenant → nothing, if the tenant has used something
    UsageHours = 68,
    /// hour, tenant, kind → counter of what the tenant has used
    UsageOf = 69,
    /// backend, tenant → the last hour of the usage that was taken over from there
    UsageTaken = 70,
    /// part → the open `Epoch` of the feed
    FeedEpoch = 71,
    /// name → the number of its last entry in the feed
    FeedNumbers = 72,
    /// tenant → the greatest such number of its names that were deleted
    FeedDeleted = 73,
    /// epoch, name, number → an entry of the feed
    Feed = 74,
    /// tenant, epoch, session, number → nothing, while the entry is kept
    FeedOfTenant = 75,
    /// tenant, or nothing for all → the last epoch of which entries were removed
    FeedGone = 76,
    /// A single: the counter of the entries in the feed
    FeedLength = 77,
    /// name, host → nothing, once a node of the host has claimed the name: its files may be there
    Files = 78,
    /// host, conversation → the name, from the deletion of the name until the host has removed its files
    FilesLeft = 79,
    /// name, command → nothing
    CommandsOf = 80,
    /// tenant → counter of its turns that are parked
    ParkedOf = 81,
}

impl Table {
    /// The byte of the last table.
    pub(crate) const LAST: u8 = Self::ParkedOf as u8;
    /// The tables whose rows are counters: rows that are added to. A backend may keep them apart.
    #[cfg(feature = "postgres")]
    const COUNTERS: [Self; 17] = [
        Self::Queued,
        Self::OwnedBy,
        Self::QueuedOf,
        Self::Spent,
        Self::Reserved,
        Self::RemindersWaiting,
        Self::RemindersOf,
        Self::NamesOf,
        Self::LiveOf,
        Self::WaitingBytes,
        Self::KeptBytes,
        Self::Taken,
        Self::QuotasSet,
        Self::HoldsHeld,
        Self::UsageOf,
        Self::FeedLength,
        Self::ParkedOf,
    ];
}

/// True for keys of counters.
#[cfg(feature = "postgres")]
pub(crate) fn is_counter(key: &[u8]) -> bool {
    let table = key.first();
    table.is_some_and(|table| Table::COUNTERS.iter().any(|counter| *counter as u8 == *table))
}

/// True for keys of a [`Table`]. An import refuses all others.
pub(crate) fn is_key(key: &[u8]) -> bool {
    key.first().is_some_and(|table| (Table::Queued as u8..=Table::LAST).contains(table))
}

/// A key: the table's byte, then parts that sort as their values do.
#[derive(Clone)]
pub(crate) struct Key(Vec<u8>);

impl Key {
    pub(crate) fn of(table: Table) -> Self {
        Self(vec![table as u8])
    }

    /// A text and an end mark. NUL bytes in it are escaped, so that no text is the beginning of another one's key.
    pub(crate) fn text(self, text: &str) -> Self {
        let mut key = self.text_beginning(text);
        key.0.extend([0, 0]);
        key
    }

    /// The beginning of the keys with texts that begin with this one.
    pub(crate) fn text_beginning(mut self, text: &str) -> Self {
        for byte in text.bytes() {
            self.0.push(byte);
            if byte == 0 {
                self.0.push(0xff);
            }
        }
        self
    }

    pub(crate) fn tenant(self, tenant: &Tenant) -> Self {
        self.text(tenant.as_str())
    }

    pub(crate) fn name(self, name: &Name) -> Self {
        self.tenant(name.tenant()).text(name.session())
    }

    pub(crate) fn number(mut self, number: u64) -> Self {
        self.0.extend(number.to_be_bytes());
        self
    }

    pub(crate) fn time(self, time: Timestamp) -> Self {
        self.number(time.0)
    }

    pub(crate) fn id(mut self, id: uuid::Uuid) -> Self {
        self.0.extend(id.as_bytes());
        self
    }

    pub(crate) fn prompt(self, id: PromptId) -> Self {
        self.id(id.0)
    }

    pub(crate) fn question(self, id: QuestionId) -> Self {
        self.id(id.0)
    }

    pub(crate) fn command(self, id: CommandId) -> Self {
        self.id(id.0)
    }

    pub(crate) fn node(self, id: NodeId) -> Self {
        self.id(id.0)
    }

    /// The rest of a key, as a range gives it.
    pub(crate) fn followed_by(mut self, rest: &[u8]) -> Self {
        self.0.extend(rest);
        self
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// The key without the table's byte.
    pub(crate) fn rest(&self) -> &[u8] {
        &self.0[1..]
    }

    /// The first key behind all keys that begin with this one.
    pub(crate) fn end(&self) -> Vec<u8> {
        let mut end = self.0.clone();
        while let Some(last) = end.pop() {
            if last < 0xff {
                end.push(last + 1);
                return end;
            }
        }
        end
    }
}

/// The id at the end of a key.
pub(crate) fn last_id(key: &[u8]) -> Result<uuid::Uuid> {
    let bytes = key.len().checked_sub(16).map(|start| &key[start..]).unwrap_or_default();
    uuid::Uuid::from_slice(bytes).map_err(BackendError::damaged)
}

/// The text at the beginning of a key, written by [`Key::text`], and what follows it.
pub(crate) fn text_and_rest(key: &[u8]) -> Result<(String, &[u8])> {
    let mut bytes = Vec::with_capacity(key.len());
    let mut rest = key.iter();
    while let Some(byte) = rest.next() {
        match *byte {
            // NUL is followed by 0xff in the text, and by NUL at its end.
            0 if rest.next() == Some(&0) => break,
            byte => bytes.push(byte),
        }
    }
    Ok((String::from_utf8(bytes).map_err(BackendError::damaged)?, rest.as_slice()))
}

/// The name at the beginning of a key, written by [`Key::name`].
pub(crate) fn name_at_start(key: &[u8]) -> Result<Name> {
    let (tenant, rest) = tenant_and_rest(key)?;
    Name::new(tenant, text_and_rest(rest)?.0).map_err(BackendError::damaged)
}

/// The tenant at the beginning of a key, written by [`Key::tenant`], and what follows it.
pub(crate) fn tenant_and_rest(key: &[u8]) -> Result<(Tenant, &[u8])> {
    let (tenant, rest) = text_and_rest(key)?;
    Ok((Tenant::new(tenant).map_err(BackendError::damaged)?, rest))
}

/// The moment at the beginning of a key, written by [`Key::time`].
pub(crate) fn time_at_start(key: &[u8]) -> Result<Timestamp> {
    number(key.get(..8).unwrap_or_default()).map(Timestamp)
}

/// A key's last part, written by [`Key::number`].
pub(crate) fn number(part: &[u8]) -> Result<u64> {
    part.try_into().map(u64::from_be_bytes).map_err(BackendError::damaged)
}
