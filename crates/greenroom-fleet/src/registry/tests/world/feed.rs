//! Labels, usage and the feed of a world.

use super::*;
use crate::id::Tenant;
use crate::query::feed::{FeedCursor, FeedEntry, FeedEvent, FeedPage, FeedRetention};
use crate::record::label::Labels;
use crate::record::usage::{Usage, UsageEntry};

/// Readers of the feed of all tenants, and of each of them, with what they have read.
#[derive(Default)]
pub(super) struct Feeds {
    is_kept: bool,
    cursors: [FeedCursor; 1 + TENANTS.len()],
    read: [Vec<FeedEntry>; 1 + TENANTS.len()],
}

impl World {
    pub(super) fn labels(&mut self) -> Labels {
        let labels = Labels::new();
        match self.below(3) {
            0 => labels,
            1 => labels.with("a", "1"),
            _ => labels.with("a", self.below(2).to_string()).with("a\0", "\0"),
        }
    }

    pub(super) fn usage(&mut self) -> Option<Usage> {
        let cost = self.below(9) as u64;
        (cost > 2).then(|| Usage { cost, input: cost * 2, ..Usage::default() })
    }

    /// Keeps a feed of all that happens from now on.
    pub(in crate::registry::tests) fn keep_feed(&mut self) {
        let retention = FeedRetention::new().entries(1 << 40).time(Duration::from_secs(1 << 30));
        self.twice(|step| step.set_feed(Some(retention)));
        self.feeds.is_kept = true;
    }

    /// Each reader reads some pages. At times, what was written so far becomes readable.
    pub(super) fn read_feeds(&mut self) {
        self.check_usage();
        if self.below(2) == 0 {
            self.step(|step| step.seal_feed());
        }
        for reader in 0..self.feeds.cursors.len() {
            let pages = self.below(3);
            (0..pages).for_each(|_| self.read_page(reader));
        }
    }

    fn read_page(&mut self, reader: usize) {
        let of = reader.checked_sub(1).map(|at| Tenant::new(TENANTS[at]).unwrap());
        let (after, limit) = (self.feeds.cursors[reader].clone(), self.below(4) + 1);
        let after: FeedCursor = after.to_string().parse().unwrap();
        match self.step(|step| step.feed(of.clone(), after.clone(), limit)) {
            FeedPage::Entries { entries, next } => {
                assert!(entries.len() <= limit);
                assert!(entries.iter().all(|entry| of.as_ref().is_none_or(|of| of == entry.name.tenant())));
                self.feeds.read[reader].extend(entries);
                self.feeds.cursors[reader] = next;
            }
            page => assert!(page == FeedPage::Off && !self.feeds.is_kept, "{page:?}"),
        }
    }

    /// Reads all feeds to their ends: each reader has got each transition once, and those of a name in the order of the commits.
    pub(in crate::registry::tests) fn check_feeds(&mut self) -> usize {
        self.now = self.now.after(Duration::from_secs(1));
        self.step(|step| step.seal_feed());
        for reader in 0..self.feeds.cursors.len() {
            let mut at = None;
            while at.as_ref() != Some(&self.feeds.cursors[reader]) {
                at = Some(self.feeds.cursors[reader].clone());
                self.read_page(reader);
            }
        }
        let name_of = |event: &FleetEvent| {
            let event = serde_json::to_value(event).unwrap();
            serde_json::from_value::<Name>(event["name"].clone()).ok()
        };
        let mut told = BTreeMap::<Name, Vec<FleetEvent>>::new();
        for event in self.told.iter().filter(|event| !matches!(event, FleetEvent::Recovered { .. })) {
            let Some(name) = name_of(event) else { continue };
            told.entry(name).or_default().push(event.clone());
        }
        for reader in 0..self.feeds.read.len() {
            let mut read = BTreeMap::<Name, Vec<FleetEvent>>::new();
            let mut numbers = BTreeMap::<Name, u64>::new();
            for entry in &self.feeds.read[reader] {
                let last = numbers.insert(entry.name.clone(), entry.number);
                assert!(last.is_none_or(|last| last < entry.number), "{entry:?} after {last:?}");
                read.entry(entry.name.clone()).or_default().extend(entry.event.told(&entry.name));
            }
            read.retain(|_, events| !events.is_empty());
            let of = reader.checked_sub(1).map(|at| TENANTS[at]);
            let expected = told.iter().filter(|(name, _)| of.is_none_or(|of| of == name.tenant().as_str()));
            assert_eq!(read, expected.map(|(name, events)| (name.clone(), events.clone())).collect());
        }
        let begun = |entry: &&FeedEntry| matches!(entry.event, FeedEvent::Begun { .. });
        assert_eq!(self.feeds.read[0].iter().filter(begun).count(), self.begun.len());
        self.feeds.read[0].len()
    }

    /// The usage of prompts, of names and of tenants is the same.
    fn check_usage(&mut self) {
        let all = |entries: Vec<UsageEntry>| entries.into_iter().map(|entry| entry.usage).sum::<Usage>();
        let end = Timestamp(u64::MAX);
        let mut page = self.step(|step| step.usage(None, Timestamp(0), end, None));
        let whole = all(std::mem::take(&mut page));
        let mut sum = Usage::default();
        for tenant in TENANTS {
            let tenant = Tenant::new(tenant).unwrap();
            let of_tenant = all(self.step(|step| step.usage(Some(tenant.clone()), Timestamp(0), end, None)));
            let mut of_names = Usage::default();
            for name in NAMES {
                let name = Name::new(tenant.clone(), name).unwrap();
                of_names += all(self.step(|step| step.usage_of_name(name.clone(), Timestamp(0), end)));
            }
            assert_eq!(of_tenant, of_names);
            sum += of_tenant;
        }
        assert_eq!(whole, sum);
        let prompts: Vec<PromptRecord> = self.records(Table::Prompts);
        let kept: Usage = prompts.iter().map(|prompt| prompt.usage).sum();
        // Some are forgotten already.
        assert!(kept.cost <= sum.cost && kept.turns <= sum.turns && kept.unmetered <= sum.unmetered);
    }
}
