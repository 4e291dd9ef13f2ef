//! Copies the rows of a tenant from one backend to another one. [`crate::registry::moving`] draws the way of a name.

use std::collections::BTreeMap;

use serde::Serialize;
use uuid::Uuid;

use crate::backend::{Backend, Commit, Committed, Lane, Part, Range, Requests, Row, Wanted};
use crate::error::{BackendError, BackendErrorKind, Result, debug_as_report};
use crate::id::{Name, PromptId, Tenant, Timestamp};
use crate::query::lists::NameQuery;
use crate::record::{NameRecord, NameState};
use crate::registry::{
    Key, Table, days_of_name, end_of_prompt, entries_of, files_of, index_of_prompt, last_id, number,
    prompts_of, rows_of_prompt, runs, time_at_start, transcripts_of,
};
use crate::request::{Departure, TranscriptsOf};

/// Rows whose sizes are read at once.
const ROWS: usize = 1024;
/// Bytes that are copied at once. A single row may have more.
const BYTES: usize = 1 << 20;
/// Questions that are copied at once.
const QUESTIONS: usize = 32;

/// A tenant that was moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct MovedTenant {
    /// Sessions that this call has moved, those that an earlier call had begun with included.
    pub names: usize,
    /// Prompts that this call has copied.
    pub prompts: usize,
}

/// A tenant could not be moved.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum MoveError {
    /// A session is not at rest.
    #[error(
        "the session '{0}' is awake, has prompts, has left a process, or is being deleted: have it sleep, and move the tenant again"
    )]
    NotAtRest(Name),
    /// Another session has the name at the other backend, or the same one is on its way from there.
    #[error(
        "the name '{0}' is taken at the other backend: delete the session there, or finish its move from there"
    )]
    Taken(Name),
    /// The session departs for another backend already.
    #[error("the session '{0}' moves to another backend already: finish that move, with the same target")]
    Elsewhere(Name),
    /// Both are one backend.
    #[error("the tenant is at the other backend already: both are the same")]
    SameBackend,
    /// A backend has failed. Call it again.
    #[error(transparent)]
    Backend(#[from] BackendError),
}

debug_as_report!(MoveError);

pub(crate) async fn move_tenant(
    from: &dyn Backend,
    to: &dyn Backend,
    tenant: &Tenant,
) -> Result<MovedTenant, MoveError> {
    let (here, there) = (from.identify(Uuid::new_v4()).await?, to.identify(Uuid::new_v4()).await?);
    if here == there {
        return Err(MoveError::SameBackend);
    }
    // Nothing is marked if one of them cannot go.
    for record in names_of(from, tenant).await? {
        may_go(to, &record).await?;
    }
    let mut departing: BTreeMap<Name, NameRecord> = BTreeMap::new();
    // Until no session is left that was made meanwhile.
    loop {
        let known = departing.len();
        for NameRecord { name, .. } in names_of(from, tenant).await? {
            if departing.contains_key(&name) {
                continue;
            }
            match from.depart(name.clone(), there).await? {
                Departure::Marked(record) => drop(departing.insert(name, record)),
                Departure::NotAtRest => return Err(MoveError::NotAtRest(name)),
                Departure::Elsewhere => return Err(MoveError::Elsewhere(name)),
                Departure::Gone => {}
            }
        }
        if departing.len() == known {
            break;
        }
    }
    // The tenant runs nothing here any more.
    let account = from.tenant(tenant.clone()).await?;
    to.open_account(tenant.clone(), account.period, account.spent).await?;
    if let (Some(quota), None) = (from.quota(tenant.clone()).await?, to.quota(tenant.clone()).await?) {
        to.set_quota(tenant.clone(), Some(quota)).await?;
    }
    move_usage(from, to, tenant, here).await?;
    let mut moved = MovedTenant::default();
    for record in departing.values() {
        moved.prompts += move_name(from, to, record).await?;
        moved.names += 1;
    }
    if !from.close_account(tenant.clone()).await? {
        let message = "a session of the tenant was not moved: its record cannot be read, or it is a new one";
        return Err(BackendError::new(BackendErrorKind::Damaged, message).into());
    }
    Ok(moved)
}

/// Fails for a session that is awake, or whose name is taken at the other backend.
async fn may_go(to: &dyn Backend, here: &NameRecord) -> Result<(), MoveError> {
    let departs = matches!(here.state, NameState::Departing { .. });
    let is_free = matches!(here.state, NameState::Free | NameState::Quarantined { .. });
    let rests = is_free && here.queued == 0 && here.is_between_turns();
    if !departs && !rests {
        return Err(MoveError::NotAtRest(here.name.clone()));
    }
    let Some(there) = to.name_record(here.name.clone()).await? else { return Ok(()) };
    let arrived =
        there.conversation == here.conversation && !matches!(there.state, NameState::Departing { .. });
    if departs && arrived { Ok(()) } else { Err(MoveError::Taken(here.name.clone())) }
}

/// Moves a name that departs. Answers with the number of prompts that were copied.
async fn move_name(from: &dyn Backend, to: &dyn Backend, record: &NameRecord) -> Result<usize, MoveError> {
    let mut prompts = 0;
    if !matches!(record.state, NameState::Departing { arrived: true, .. }) {
        // A session that has arrived may have run since: its rows here are old.
        if to.name_record(record.name.clone()).await?.is_none() {
            prompts = copy_name(from, to, record).await?;
        }
        if !to.arrive(record.clone()).await? {
            return Err(MoveError::Taken(record.name.clone()));
        }
    }
    // Notes the arrival first.
    let mut gone = from.departed(record.name.clone()).await?;
    let transcripts = TranscriptsOf::project(record.conversation.to_string());
    while !from.delete_transcripts(transcripts.clone()).await? {}
    while !gone {
        gone = from.departed(record.name.clone()).await?;
    }
    Ok(prompts)
}

async fn names_of(from: &dyn Backend, tenant: &Tenant) -> Result<Vec<NameRecord>> {
    let (mut names, mut query) = (Vec::new(), NameQuery::new().tenant(tenant.clone()).limit(NameQuery::MOST));
    loop {
        let page = from.names(query.clone()).await?;
        names.extend(page.names);
        match page.next {
            Some(next) => query.after = Some(next),
            None => return Ok(names),
        }
    }
}

/// Moves the sums of a tenant. Those of its names move with the names.
async fn move_usage(from: &dyn Backend, to: &dyn Backend, tenant: &Tenant, here: Uuid) -> Result<()> {
    let mut last = None;
    loop {
        let of = Some(tenant.clone());
        let hours = from.usage(of, Timestamp::default(), Timestamp(u64::MAX), last.clone()).await?;
        let Some(entry) = hours.last() else { break };
        last = Some((entry.start, tenant.clone()));
        to.take_usage(tenant.clone(), here, Some(hours.clone())).await?;
        from.usage_taken(tenant.clone(), hours.into_iter().map(|entry| entry.start).collect()).await?;
    }
    // Another move may bring more of the same hours.
    to.take_usage(tenant.clone(), here, None).await
}

/// Copies the ended prompts and the transcripts of a name. Answers with the number of prompts.
async fn copy_name(from: &dyn Backend, to: &dyn Backend, record: &NameRecord) -> Result<usize> {
    let copy = Copy { from, to, record };
    let mut prompts = 0;
    let mut all = KeysUnder::of(&prompts_of(&record.name));
    while let Some(page) = all.next(from, ROWS).await? {
        for (of_name, _) in &page {
            prompts += usize::from(copy.prompt(of_name).await?);
        }
    }
    // Its files stay on their hosts.
    copy.range(&files_of(&record.name), ROWS, |key| Ok(key.to_vec())).await?;
    let days = days_of_name(oldest_day(from).await?, from.now(), &record.name);
    copy.put(values(from, days.iter().map(|day| day.bytes().to_vec()).collect()).await?).await?;
    let mut all = KeysUnder::of(&transcripts_of(&record.conversation.to_string()));
    while let Some(page) = all.next(from, ROWS).await? {
        for (key, _) in page {
            let Some(row) = values(from, vec![key]).await?.pop() else { continue };
            let Some(prefixes) = readable(entries_of(&row.1)) else { continue };
            for prefix in prefixes {
                copy.range(&prefix, ROWS, |key| Ok(key.to_vec())).await?;
            }
            copy.put(vec![row]).await?;
        }
    }
    Ok(prompts)
}

/// The first day of which a name has usage.
async fn oldest_day(from: &dyn Backend) -> Result<Timestamp> {
    let first = KeysUnder::of(&Key::of(Table::UsageOfName)).next(from, 1).await?;
    let day = first.as_ref().and_then(|rows| rows.first()).map(|(key, _)| time_at_start(&key[1..]));
    day.unwrap_or_else(|| Ok(from.now()))
}

/// Passes over a row that cannot be read: it can be used neither here nor there.
fn readable<T>(row: Result<T>) -> Option<T> {
    row.inspect_err(|error| tracing::error!(%error, "a row does not move with its session")).ok()
}

/// A copy of a name that departs.
struct Copy<'a> {
    from: &'a dyn Backend,
    to: &'a dyn Backend,
    record: &'a NameRecord,
}

impl Copy<'_> {
    /// Copies a prompt. `false`: it was forgotten meanwhile. `of_name` is the key of its place among the name's prompts.
    async fn prompt(&self, of_name: &[u8]) -> Result<bool> {
        let id = PromptId(last_id(of_name)?);
        let place = Key::of(Table::Prompts).prompt(id).bytes().to_vec();
        let mut rows = values(self.from, vec![place.clone(), of_name.to_vec()]).await?;
        let [(_, prompt), (_, listed)] = rows.as_slice() else { return Ok(false) };
        let Some((end, bytes)) = readable(end_of_prompt(prompt)).flatten() else { return Ok(false) };
        let is_there = !values(self.to, vec![place.clone()]).await?.is_empty();
        let Some(index) = readable(index_of_prompt(of_name, listed)) else { return Ok(false) };
        // By its end a prompt is forgotten there, also if this copy goes no further.
        let end = (end.bytes().to_vec(), of_name[1..].to_vec());
        self.put(vec![end.clone()]).await?;
        let question = |key: &[u8]| last_id(key).map(|id| Key::of(Table::Questions).id(id).bytes().to_vec());
        self.range(&Key::of(Table::DecidedOfPrompt).prompt(id), QUESTIONS, question).await?;
        for prefix in rows_of_prompt(id) {
            self.range(&prefix, ROWS, |key| Ok(key.to_vec())).await?;
        }
        // Together, and the end once more: a prompt that is there is whole, and is forgotten in its time.
        rows.extend(values(self.from, index.iter().map(|key| key.bytes().to_vec()).collect()).await?);
        rows.push(end);
        if is_there {
            // An earlier call has copied it as a whole, and its bytes count.
            return self.put(rows).await.map(|()| true);
        }
        let kept = Key::of(Table::KeptBytes).tenant(self.record.name.tenant()).bytes().to_vec();
        self.commit(rows, vec![(place, None)], [(kept, bytes)].into()).await?;
        Ok(true)
    }

    /// Copies the rows to which the keys with a prefix lead, `most` rows and some bytes at a time.
    async fn range(&self, prefix: &Key, most: usize, row: impl Fn(&[u8]) -> Result<Vec<u8>>) -> Result<()> {
        let mut all = KeysUnder::of(prefix);
        while let Some(page) = all.next(self.from, ROWS).await? {
            let size = |(_, size): &Row| number(size).map_or(BYTES, |size| size as usize);
            for rows in runs(&page, most, BYTES, size) {
                let keys = rows.iter().map(|(key, _)| row(key)).collect::<Result<_>>()?;
                self.put(values(self.from, keys).await?).await?;
            }
        }
        Ok(())
    }

    /// Writes rows, as long as the name has not arrived: a write that comes late changes nothing of a session that runs.
    async fn put(&self, rows: Vec<Row>) -> Result<()> {
        self.commit(rows, Vec::new(), BTreeMap::new()).await
    }

    /// Writes rows and adds to counters, if the rows of `absent` are absent as well.
    async fn commit(
        &self,
        rows: Vec<Row>,
        absent: Vec<(Vec<u8>, Option<Vec<u8>>)>,
        additions: BTreeMap<Vec<u8>, i64>,
    ) -> Result<()> {
        let name = Key::of(Table::Names).name(&self.record.name).bytes().to_vec();
        let expected = absent.into_iter().chain([(name, None)]).collect();
        let writes = rows.into_iter().map(|(key, value)| (key, Some(value))).collect();
        let commit = Commit { expected, writes, additions, ..Commit::default() };
        match self.to.commit(Lane::Requests, commit).await? {
            Committed::Done => Ok(()),
            Committed::Conflict => {
                let message = "the session has come to the other backend meanwhile: move the tenant again";
                Err(BackendError::new(BackendErrorKind::Unavailable, message))
            }
        }
    }
}

/// Rows with their values. One that is gone is left out.
async fn values(from: &dyn Backend, keys: Vec<Vec<u8>>) -> Result<Vec<Row>> {
    let wanted = Wanted { keys: keys.into_iter().collect(), ..Wanted::default() };
    let rows = from.read(Lane::Requests, wanted).await?;
    Ok(rows.values.into_iter().filter_map(|(key, value)| value.map(|value| (key, value))).collect())
}

/// The keys that begin with a prefix, page by page.
struct KeysUnder {
    from: Vec<u8>,
    to: Vec<u8>,
}

impl KeysUnder {
    fn of(prefix: &Key) -> Self {
        Self { from: prefix.bytes().to_vec(), to: prefix.end() }
    }

    /// The next keys, with the sizes of their rows.
    async fn next(&mut self, from: &dyn Backend, limit: usize) -> Result<Option<Vec<Row>>> {
        let range = Range { from: self.from.clone(), to: self.to.clone(), limit, part: Part::Sizes };
        let wanted = Wanted { ranges: [range.clone()].into(), ..Wanted::default() };
        let rows = from.read(Lane::Requests, wanted).await?.ranges.remove(&range).unwrap_or_default();
        let Some((last, _)) = rows.last() else { return Ok(None) };
        self.from = [last.as_slice(), &[0]].concat();
        Ok(Some(rows))
    }
}
