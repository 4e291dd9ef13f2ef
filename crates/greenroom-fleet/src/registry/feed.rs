//! The feed: what happened to names, in rows that are written by the commits that make it happen.
//!
//! ```text
//!  a transition: expects the epoch E ──► an entry of E ────────────┐
//!  a seal: E becomes E+1 ──► nothing is added to E any more        ▼
//!  readers: entries of epochs before the one that is open ◄── E, tenant, session, number
//!  retention: notes how far entries are removed ──► removes whole epochs, the oldest first
//! ```
//!
//! # Order, without a global sequence
//!
//! A sequence over all names would be a row that every commit changes. A key by time would be visible out of order: a commit with an earlier
//! moment may be carried out after a reader has passed that moment, by a node that was stopped in between even hours later. So entries lie in
//! **epochs**, and a commit expects the epoch of its entries to be open still. A seal changes the epoch in one commit; whoever was about to
//! add to the old one is in conflict and runs again. From then on the sealed epoch is complete, whatever clocks and networks do, and a reader
//! sees sealed epochs only: it misses nothing, and no entry comes before one that it has read. Within an epoch, entries sort by name and by
//! **number**. The number of a name's entries is a row of the name, which each of its transitions reads and changes, so it has the order of
//! the commits. A name that is made anew goes on after the greatest number of its tenant's names that were deleted.
//!
//! Commits only *expect* the epoch, so they do not conflict with each other. A backend that locks rows delays a seal until no commit holds
//! the row. So the epoch is kept in [`PARTS`] rows: each name expects one of them, and a seal changes all of them. Readers and keepers
//! seal, twice a second at most and only if there are entries, so a feed that nobody reads costs no seals but those of retention.
//!
//! # Bounds
//!
//! Without a retention there is no feed, and a transition reads one row for it. A removal notes the epoch in the same commit, for the tenant
//! and for all: a reader whose cursor is not behind it has a gap. An epoch may be half removed. A reader
//! that finished an epoch therefore gets a cursor to the start of the next one.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::key::{Key, Table, name_at_start, number, tenant_and_rest};
use super::{BATCH, Part, Result, Step, parsed};
use crate::id::{Name, Tenant, Timestamp};
use crate::query::feed::{FeedCursor, FeedEntry, FeedEvent, FeedPage, FeedRetention};

/// The rows that have the open epoch.
const PARTS: u64 = 16;
/// The time between two seals.
const SEAL: Duration = Duration::from_millis(500);
/// An epoch is sealed after this time at the latest, by the keepers.
const LONGEST: Duration = Duration::from_secs(120);

/// The row of the open epoch.
#[derive(Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Epoch {
    number: u64,
    /// When it was opened.
    since: Timestamp,
    /// `None`: no feed is kept.
    retention: Option<FeedRetention>,
}

/// The value of an entry.
#[derive(Serialize, Deserialize)]
struct Stored {
    name: Name,
    at: Timestamp,
    #[serde(flatten)]
    event: FeedEvent,
}

impl Step<'_> {
    /// Requests the feed rows of a transition ahead of time, which saves a read.
    pub(super) fn want_feed(&self, name: &Name) {
        self.txn.want(&part_of(name));
        self.txn.want(&Key::of(Table::FeedNumbers).name(name));
    }

    /// Tells a transition of a name, and enters it in the feed.
    pub(super) fn happened(&mut self, name: &Name, event: FeedEvent) -> Result<()> {
        self.told.transitions.extend(event.told(name));
        let part = part_of(name);
        let open = self.looking(|step| step.txn.read::<Epoch>(&part))?;
        let Some(Epoch { number: epoch, retention: Some(_), .. }) = open else { return Ok(()) };
        // The commit fails if the epoch was sealed meanwhile.
        self.txn.get(part.bytes());
        let numbers = Key::of(Table::FeedNumbers).name(name);
        let last: u64 = match self.txn.read(&numbers)? {
            Some(last) => last,
            None => self.deleted_number(name.tenant())?,
        };
        let number = last + 1;
        self.txn.write(&numbers, &number)?;
        let place = Key::of(Table::Feed).number(epoch).name(name).number(number);
        self.txn.write(&place, &Stored { name: name.clone(), at: self.now, event })?;
        self.txn.mark(
            &Key::of(Table::FeedOfTenant)
                .tenant(name.tenant())
                .number(epoch)
                .text(name.session())
                .number(number),
        );
        self.txn.add(&Key::of(Table::FeedLength), 1);
        Ok(())
    }

    /// The greatest number of a tenant's names that were deleted. Makes the row: new names that expect a row run side by side.
    fn deleted_number(&mut self, tenant: &Tenant) -> Result<u64> {
        let deleted = Key::of(Table::FeedDeleted).tenant(tenant);
        if let Some(last) = self.txn.read(&deleted)? {
            return Ok(last);
        }
        self.txn.write(&deleted, &0_u64)?;
        Ok(0)
    }

    /// Removes the last number of a removed name. A new name of that kind starts after it.
    pub(super) fn end_numbers(&mut self, name: &Name) -> Result<()> {
        let numbers = Key::of(Table::FeedNumbers).name(name);
        let Some(last) = self.txn.read::<u64>(&numbers)? else { return Ok(()) };
        let deleted = Key::of(Table::FeedDeleted).tenant(name.tenant());
        if last > self.txn.read::<u64>(&deleted)?.unwrap_or_default() {
            self.txn.write(&deleted, &last)?;
        }
        self.txn.remove(&numbers);
        Ok(())
    }

    /// Turns the feed on. `None`: turns it off, and its entries are removed.
    pub(crate) fn set_feed(&mut self, retention: Option<FeedRetention>) -> Result<()> {
        let open = self.open_epoch()?;
        if open.is_none_or(|open| open.retention != retention) {
            let number = open.map_or(1, |open| open.number + 1);
            self.open(Epoch { number, since: self.now, retention })?;
        }
        Ok(())
    }

    /// Seals the open epoch if it has entries and was not opened just now. `true`: it is sealed, and its entries can be read.
    pub(crate) fn seal_feed(&mut self) -> Result<bool> {
        let Some(open) = self.open_epoch()? else { return Ok(false) };
        let is_new = self.now >= open.since && self.now.since(open.since) < SEAL;
        if is_new || self.txn.under(&Key::of(Table::Feed).number(open.number), 1).is_empty() {
            return Ok(false);
        }
        self.open(Epoch { number: open.number + 1, since: self.now, ..open })?;
        Ok(true)
    }

    /// A page of entries of sealed epochs after a place, of all tenants or of one.
    pub(crate) fn feed(&self, of: Option<Tenant>, after: FeedCursor, limit: usize) -> Result<FeedPage> {
        let gone =
            of.as_ref().map_or(Key::of(Table::FeedGone), |tenant| Key::of(Table::FeedGone).tenant(tenant));
        let (open, gone) = (self.open_epoch()?, self.txn.read::<u64>(&gone)?.unwrap_or_default());
        let Some(Epoch { number: open, retention: Some(_), .. }) = open else { return Ok(FeedPage::Off) };
        // A cursor of the future belongs to another backend, or to what a backup has taken back.
        if after.epoch > open || (1..=gone).contains(&after.epoch) {
            return Ok(FeedPage::Gap { next: FeedCursor { epoch: gone + 1, after: Vec::new() } });
        }
        let prefix =
            of.as_ref().map_or(Key::of(Table::Feed), |tenant| Key::of(Table::FeedOfTenant).tenant(tenant));
        let from = first_after(&prefix, of.as_ref(), &after);
        let limit = limit.clamp(1, BATCH);
        let rows = self.txn.scan(Part::Values, &from, prefix.clone().number(open).bytes(), limit);
        let (mut entries, mut next) =
            (Vec::with_capacity(rows.len()), FeedCursor { epoch: open, after: Vec::new() });
        for (key, _) in &rows {
            let (epoch, rest) = key[prefix.bytes().len()..].split_at_checked(8).unwrap_or_default();
            let tenant = of.as_ref().map(|tenant| Key::of(Table::Feed).tenant(tenant).rest().to_vec());
            let cursor =
                FeedCursor { epoch: number(epoch)?, after: [&tenant.unwrap_or_default(), rest].concat() };
            let place = Key::of(Table::Feed).number(cursor.epoch).followed_by(&cursor.after);
            if rows.len() == limit {
                next = cursor.clone();
            }
            let stored = self.readable(self.txn.read::<Stored>(&place))?;
            let number = number(cursor.after.last_chunk::<8>().map_or(&[], |last| last))?;
            entries.extend(stored.map(|Stored { name, at, event }| FeedEntry {
                cursor,
                name,
                number,
                at,
                event,
            }));
        }
        Ok(FeedPage::Entries { entries, next })
    }

    /// Removes entries that are over the retention, some at a time. `0`: nothing is left.
    pub(crate) fn forget_feed(&mut self) -> Result<usize> {
        let Some(open) = self.open_epoch()? else { return Ok(0) };
        let sealed = Key::of(Table::Feed).number(open.number);
        let rows = self.txn.scan(Part::Values, Key::of(Table::Feed).bytes(), sealed.bytes(), BATCH);
        let Some((first, row)) = rows.first() else { return Ok(0) };
        let (epoch, _) = epoch_of(first)?;
        let at = parsed::<Stored>(row).map_or(Timestamp::default(), |first| first.at);
        let gone = Key::of(Table::FeedGone);
        let is_begun = epoch <= self.txn.read::<u64>(&gone)?.unwrap_or_default();
        let is_over = open.retention.is_none_or(|kept| {
            self.now.since(at) > kept.time.saturating_add(LONGEST)
                || self.txn.count(&Key::of(Table::FeedLength)).is_ok_and(|length| length > kept.entries)
        });
        if !is_begun && !is_over {
            return Ok(0);
        }
        // Of two calls at once, one finds it gone and runs again: their entries count once.
        self.txn.get(first);
        let mut removed = 0;
        for (key, _) in &rows {
            let (of, name) = epoch_of(key)?;
            if of != epoch {
                break;
            }
            removed += 1;
            self.txn.delete(key);
            let (tenant, rest) = tenant_and_rest(name)?;
            self.txn.remove(&Key::of(Table::FeedOfTenant).tenant(&tenant).number(epoch).followed_by(rest));
            self.txn.write(&Key::of(Table::FeedGone).tenant(&tenant), &epoch)?;
        }
        self.txn.write(&gone, &epoch)?;
        self.txn.add(&Key::of(Table::FeedLength), -i64::try_from(removed).unwrap_or(i64::MAX));
        Ok(removed)
    }

    /// The open epoch. All of its rows have the same value.
    fn open_epoch(&self) -> Result<Option<Epoch>> {
        self.txn.read(&part(0))
    }

    fn open(&mut self, epoch: Epoch) -> Result<()> {
        for number in 0..PARTS {
            let part = part(number);
            self.txn.get(part.bytes());
            self.txn.write(&part, &epoch)?;
        }
        Ok(())
    }
}

/// The first key after a place.
fn first_after(prefix: &Key, of: Option<&Tenant>, after: &FeedCursor) -> Vec<u8> {
    let epoch = prefix.clone().number(after.epoch);
    let rest = match of {
        None => Some(after.after.as_slice()),
        Some(tenant) => {
            let own = Key::of(Table::Feed).tenant(tenant);
            match after.after.strip_prefix(own.rest()) {
                Some(rest) => Some(rest),
                // Another tenant's entry, which comes before all of this one's in the epoch, or after them.
                None if after.after.as_slice() < own.rest() => Some(&[][..]),
                None => None,
            }
        }
    };
    match rest {
        None => epoch.end(),
        Some([]) => epoch.bytes().to_vec(),
        // No key is the beginning of another one.
        Some(rest) => epoch.followed_by(rest).followed_by(&[0]).bytes().to_vec(),
    }
}

/// The epoch of an entry, and the rest of its key.
fn epoch_of(key: &[u8]) -> Result<(u64, &[u8])> {
    let (epoch, rest) = key.get(1..).unwrap_or_default().split_at_checked(8).unwrap_or_default();
    name_at_start(rest)?;
    Ok((number(epoch)?, rest))
}

/// The row of the open epoch that a name expects.
fn part_of(name: &Name) -> Key {
    let bytes = name.tenant().as_str().bytes().chain(name.session().bytes());
    part(bytes.fold(0_u64, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into())) % PARTS)
}

fn part(number: u64) -> Key {
    Key::of(Table::FeedEpoch).number(number)
}
