//! The list of names that can run.

use super::*;
use crate::record::{NodeState, PromptState};

impl World {
    /// The pages of names that a node can run hold each of these names once, in their order.
    pub(super) fn check_waiting(&mut self, node: NodeId, without: &str, limit: usize) {
        let without_one = vec![crate::stage::tenant(without)];
        let all = WaitingPage { node, of: None, without: without_one, profiles: None, after: None, limit };
        // A look that overlaps with other requests may answer with names as they were before these.
        self.step(|step| step.waiting(all.clone()));
        let overlapping = std::mem::replace(&mut self.overlapping, false);
        let (mut seen, mut after) = (Vec::new(), None);
        loop {
            let page = WaitingPage { after, ..all.clone() };
            let WaitingNames { prompts, next, .. } = self.step(|step| step.waiting(page.clone()));
            assert!(prompts.len() <= limit);
            seen.extend(prompts.into_iter().map(|prompt| prompt.id));
            let Some(next) = next else { break };
            after = Some(next);
        }
        self.overlapping = overlapping;
        let nodes = self.step(|step| step.nodes(None, usize::MAX));
        let alive = |id| nodes.iter().any(|node| node.id == id && node.state != NodeState::Dead);
        let prompts: Vec<PromptRecord> = self.records(Table::Prompts);
        let mut expected = Vec::new();
        for name in self.records::<NameRecord>(Table::Names) {
            let free = match name.state {
                NameState::Free => true,
                NameState::Owned { node: owner, .. } => owner == node || !alive(owner),
                _ => false,
            };
            let mut waiting: Vec<_> = prompts
                .iter()
                .filter(|prompt| prompt.name == name.name && prompt.state == PromptState::Queued)
                .collect();
            waiting.sort_by_key(|prompt| prompt.order);
            let ready = |prompt: &&PromptRecord| prompt.is_due(self.now) && self.now < prompt.expires_at;
            let first = match name.continues {
                Some(id) => waiting.iter().find(|prompt| prompt.id == id),
                None => waiting.iter().find(|prompt| ready(prompt)),
            };
            let Some(first) =
                first.filter(|_| free && name.is_between_turns() && name.name.tenant().as_str() != without)
            else {
                continue;
            };
            expected.push(first.id);
        }
        seen.sort_unstable();
        expected.sort_unstable();
        assert_eq!(seen, expected, "names that can run");
    }
}

/// A map that counts the rows that are read from it.
struct Counting<'a>(&'a MemoryMap, std::cell::Cell<usize>);

impl Map for Counting<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.1.set(self.1.get() + 1);
        self.0.get(key)
    }

    fn scan(&self, range: &Range) -> Result<Vec<Row>> {
        let rows = self.0.scan(range)?;
        self.1.set(self.1.get() + rows.len());
        Ok(rows)
    }
}

impl MapMut for Counting<'_> {
    fn put(&mut self, _: &[u8], _: &[u8]) -> Result<()> {
        panic!("a look has written")
    }

    fn delete(&mut self, _: &[u8]) -> Result<()> {
        panic!("a look has written")
    }
}

#[test]
fn a_look_reads_no_rows_of_names_that_cannot_run() {
    let mut world = World::new(1);
    let node = NodeId::new();
    world.step(|step| step.join(Join { node, host: String::new(), lease: WAIT, capacity: 8 }));
    for number in 0..1_000 {
        let mut ask = |to: &str, tenant: &str, not_before| {
            let accept = Accept { not_before, ..accept(&format!("{tenant}/{to} {number}"), 1, WAIT) };
            assert!(matches!(world.step(|step| step.accept(accept.clone())), Accepted::New(_)));
            accept.prompt
        };
        let passive = ask("passive", "acme", None);
        ask("quarantined", "acme", None);
        ask("of a tenant without money", "poor", None);
        ask("a reminder", "acme", Some(Timestamp(9_999_999)));
        let _: Withdrawn = world.step(|step| step.withdraw(passive));
        let quarantined = format!("acme/quarantined {number}").parse::<Name>().unwrap();
        let _: Marked = world.step(|step| step.quarantine(quarantined.clone(), "why".into()));
    }
    let runs = accept("runs", 1, WAIT);
    assert!(matches!(world.step(|step| step.accept(runs.clone())), Accepted::New(_)));
    let page = WaitingPage {
        node,
        of: None,
        without: vec![crate::stage::tenant("poor")],
        profiles: None,
        after: None,
        limit: 256,
    };
    let mut rows = Counting(&world.map, std::cell::Cell::new(0));
    let (names, _) = run_alone(&mut rows, world.now, |step| step.waiting(page.clone())).unwrap();
    assert_eq!(names.prompts.iter().map(|prompt| prompt.name.session()).collect::<Vec<_>>(), ["runs"]);
    assert_eq!(names.next, None);
    let read = rows.1.get();
    // It runs again for the rows that it lacks, and reads all its rows at one moment then.
    assert!(read < 300, "{read} rows of {}", world.map.0.len());
}

/// Nobody looks for the moment of a reminder again once it is over, so a page of other names tells of it.
#[test]
fn a_reminder_that_is_due_is_told_whatever_names_a_page_has() {
    let mut world = World::new(1);
    let node = NodeId::new();
    world.step(|step| step.join(Join { node, host: String::new(), lease: WAIT, capacity: 8 }));
    let due = Some(Timestamp(world.now.0 + 1));
    let reminder = Accept { not_before: due, ..accept("reminded", 1, WAIT) };
    for accept in [reminder, accept("other", 1, WAIT)] {
        assert!(matches!(world.step(|step| step.accept(accept.clone())), Accepted::New(_)));
    }
    world.now = Timestamp(world.now.0 + 1);
    let of = Some(vec!["acme/other".parse::<Name>().unwrap()]);
    let page = WaitingPage { node, of, without: Vec::new(), profiles: None, after: None, limit: 1 };
    let (names, told) = world.try_step(|step| step.waiting(page.clone())).unwrap();
    assert_eq!(names.prompts.len(), 1);
    assert_eq!(told.changes, [Change::Queued("acme/reminded".parse::<Name>().unwrap())]);
}
