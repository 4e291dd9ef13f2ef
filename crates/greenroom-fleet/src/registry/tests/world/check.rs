//! Checks of the records, the indexes and the counters.

use super::*;

impl World {
    pub(in crate::registry::tests) fn check(&mut self) {
        let names: Vec<NameRecord> = self.records(Table::Names);
        let prompts: Vec<PromptRecord> = self.records(Table::Prompts);
        let questions: Vec<QuestionRecord> = self.records(Table::Questions);
        let nodes = self.step(|step| step.nodes(None, usize::MAX));
        assert_eq!(nodes.len(), self.rows(Table::Nodes).len());
        assert_eq!(nodes.len(), self.rows(Table::Leases).len());
        let mut keys: BTreeMap<u8, BTreeSet<Vec<u8>>> = BTreeMap::new();
        // Tables of records and counters, and those that are checked by themselves. All others are indexes.
        let apart = [
            Table::Queued,
            Table::Names,
            Table::Prompts,
            Table::Messages,
            Table::Keys,
            Table::Tenants,
            Table::Nodes,
            Table::Questions,
            Table::Processes,
            Table::Commands,
            Table::CommandsOfNode,
            Table::CommandDeadlines,
            Table::Leases,
            Table::OwnedBy,
            Table::QueuedOf,
            Table::Spent,
            Table::Reserved,
            Table::DeletedTerm,
            Table::RemindersWaiting,
            Table::RemindersOf,
            Table::NamesOf,
            Table::LiveOf,
            Table::WaitingBytes,
            Table::KeptBytes,
            Table::Taken,
            Table::Buckets,
            Table::Quotas,
            Table::QuotasSet,
            Table::Files,
            Table::FilesLeft,
            Table::CommandsOf,
            Table::UsageOfName,
            Table::UsageHours,
            Table::UsageOf,
            Table::FeedEpoch,
            Table::FeedNumbers,
            Table::FeedDeleted,
            Table::Feed,
            Table::FeedOfTenant,
            Table::FeedGone,
            Table::FeedLength,
            Table::ParkedOf,
        ]
        .map(|table| table as u8);
        let mut expect =
            |table: Table, key: Key| keys.entry(table as u8).or_default().insert(key.bytes().to_vec());
        let waits: BTreeSet<_> = self.rows(Table::Due).into_keys().collect();
        let mut ready = BTreeMap::new();
        for prompt in &prompts {
            let outcome =
                self.rows(Table::Outcomes).remove(Key::of(Table::Outcomes).prompt(prompt.id).bytes());
            let outcome = outcome.map(|row| serde_json::from_slice(&row).unwrap());
            let is_taken_back = matches!(&outcome, Some(PromptOutcome::Unsent { why }) if !matches!(why, Unsent::Expired { .. }));
            if !is_taken_back {
                expect(Table::Contents, Key::of(Table::Contents).prompt(prompt.id));
            }
            expect(Table::PromptsOf, place_of(prompt));
            let labelled = |(key, value)| Key::of(Table::PromptLabels).text(key).text(value);
            for place in prompt.labels.iter().map(labelled) {
                expect(Table::PromptLabels, place.followed_by(place_of(prompt).rest()));
            }
            match prompt.state {
                PromptState::Queued => {
                    let place = |table| Key::of(table).name(&prompt.name).number(prompt.order);
                    let due = Key::of(Table::Due).time(prompt.due_at).prompt(prompt.id);
                    let is_reminder = prompt.due_at > prompt.accepted_at && prompt.begins == 0;
                    // A reminder whose moment has come is ready from the next look on.
                    if is_reminder && waits.contains(due.bytes()) {
                        expect(Table::Due, due);
                        expect(Table::Reminders, place(Table::Reminders));
                    } else {
                        expect(Table::Queue, place(Table::Queue));
                        let first = ready.entry(prompt.name.clone()).or_insert(prompt.order);
                        *first = prompt.order.min(*first);
                    }
                    if prompt.begins == 0 {
                        let key = Key::of(Table::Expiries).time(prompt.expires_at).prompt(prompt.id);
                        expect(Table::Expiries, key);
                    }
                }
                PromptState::Begun { term, .. } => {
                    let owner = names.iter().find(|name| name.name == prompt.name).unwrap();
                    assert_eq!((owner.running, owner.term), (Some(prompt.id), term));
                }
                PromptState::Parked { question, .. } => {
                    let name = names.iter().find(|name| name.name == prompt.name).unwrap();
                    assert_eq!((name.parked, prompt.calls.as_slice()), (Some(prompt.id), &[question][..]));
                    let question = questions.iter().find(|of| of.id == question).unwrap();
                    assert!(question.parked && question.decision.is_none());
                }
                PromptState::Ended { at, .. } => {
                    expect(Table::Outcomes, Key::of(Table::Outcomes).prompt(prompt.id));
                    expect(Table::Ended, Key::of(Table::Ended).time(at).prompt(prompt.id));
                    let outcome = outcome.unwrap();
                    let sent = prompt.begins > 0;
                    assert_eq!(
                        !sent,
                        matches!(outcome, PromptOutcome::Unsent { .. }),
                        "{prompt:?}: {outcome:?}"
                    );
                    let known = self.outcomes.entry(prompt.id).or_insert_with(|| outcome.clone());
                    assert_eq!(*known, outcome, "ended twice");
                }
            }
        }
        for question in &questions {
            let key = |table| Key::of(table).prompt(question.prompt).question(question.id);
            assert!(prompts.iter().any(|prompt| prompt.id == question.prompt));
            if question.decision.is_some() {
                expect(Table::DecidedOfPrompt, key(Table::DecidedOfPrompt));
            } else {
                expect(Table::QuestionsOfPrompt, key(Table::QuestionsOfPrompt));
                assert!(prompts.iter().any(|prompt| prompt.id == question.prompt
                    && match prompt.state {
                        PromptState::Begun { term, .. } => term == question.term && !question.parked,
                        PromptState::Parked { question: of, .. } => of == question.id,
                        _ => false,
                    }));
                expect(
                    Table::Deadlines,
                    Key::of(Table::Deadlines).time(question.deadline).question(question.id),
                );
                let of_tenant = Key::of(Table::QuestionsOfTenant).tenant(question.name.tenant());
                expect(Table::QuestionsOfTenant, of_tenant.time(question.deadline).question(question.id));
            }
        }
        let waiting = |of: &dyn Fn(&PromptRecord) -> bool| {
            prompts.iter().filter(|prompt| prompt.state == PromptState::Queued && of(prompt)).count() as u32
        };
        for name in &names {
            if name.is_stuck() {
                expect(Table::Stuck, Key::of(Table::Stuck).name(&name.name));
            }
            for (key, value) in name.labels.iter() {
                expect(Table::NameLabels, Key::of(Table::NameLabels).text(key).text(value).name(&name.name));
            }
            assert_eq!(name.queued, waiting(&|prompt| prompt.name == name.name));
            assert_eq!(name.reminders, waiting(&|prompt| prompt.name == name.name && is_reminder(prompt)));
            let running = prompts
                .iter()
                .find(|prompt| prompt.name == name.name && matches!(prompt.state, PromptState::Begun { .. }));
            assert_eq!(name.running, running.map(|prompt| prompt.id));
            let parked = prompts.iter().find(|prompt| {
                prompt.name == name.name && matches!(prompt.state, PromptState::Parked { .. })
            });
            assert_eq!(name.parked, parked.map(|prompt| prompt.id));
            assert!(name.parked.is_none() || (name.running.is_none() && name.continues.is_none()));
            if let Some(continues) = name.continues {
                let prompt = prompts.iter().find(|prompt| prompt.id == continues).unwrap();
                assert!(prompt.state == PromptState::Queued && prompt.begins > 0);
            } else {
                assert_eq!(waiting(&|prompt| prompt.name == name.name && prompt.begins > 0), 0);
            }
            let can_run = matches!(name.state, NameState::Free | NameState::Owned { .. });
            if let Some(first) = ready.get(&name.name).filter(|_| can_run && name.is_between_turns()) {
                let place = Key::of(Table::Waiting).tenant(name.name.tenant()).number(*first);
                expect(Table::Waiting, place.text(name.name.session()));
            }
            match &name.state {
                NameState::Owned { node, .. } => {
                    expect(Table::Owned, Key::of(Table::Owned).node(*node).name(&name.name));
                }
                NameState::Deleting { .. } => {
                    expect(Table::Deleting, Key::of(Table::Deleting).name(&name.name));
                }
                _ => {}
            }
            assert!(name.term <= self.owners.iter().map(|owner| owner.term).max().unwrap_or(Term(0)));
        }
        for node in &nodes {
            let owns = |name: &&NameRecord| matches!(name.state, NameState::Owned { node: owner, .. } if owner == node.id);
            assert_eq!(node.owns as usize, names.iter().filter(owns).count());
            assert!(node.state != NodeState::Dead || node.owns > 0);
        }
        for tenant in TENANTS {
            let account = self.step(|step| step.tenant(crate::stage::tenant(tenant)));
            let of_tenant = |prompt: &PromptRecord| prompt.name.tenant().as_str() == tenant;
            assert_eq!(account.queued, waiting(&|prompt| of_tenant(prompt) && !is_reminder(prompt)));
            assert_eq!(account.reminders, waiting(&|prompt| of_tenant(prompt) && is_reminder(prompt)));
            let sum = |of: &dyn Fn(&PromptRecord) -> u64| {
                prompts.iter().filter(|prompt| of_tenant(prompt)).map(of).sum::<u64>()
            };
            assert_eq!(account.reserved, sum(&|prompt| prompt.reserved));
            let waits = |prompt: &PromptRecord| prompt.state == PromptState::Queued;
            assert_eq!(account.waiting_bytes, sum(&|prompt| if waits(prompt) { prompt.bytes } else { 0 }));
            let parked = sum(&|prompt| u64::from(matches!(prompt.state, PromptState::Parked { .. })));
            assert_eq!(u64::from(account.parked), parked);
            assert_eq!(account.kept_bytes, sum(&|prompt| prompt.bytes + prompt.kept_bytes + 1024));
            let names = || names.iter().filter(|name| name.name.tenant().as_str() == tenant);
            assert_eq!(account.names, names().count() as u64);
            let owned = names().filter(|name| matches!(name.state, NameState::Owned { .. })).count();
            assert_eq!(account.live as usize, owned);
        }
        self.check_commands();
        assert_eq!(self.step(|step| step.queued()), waiting(&|prompt| !is_reminder(prompt)));
        for table in (Table::Queued as u8..=Table::LAST).filter(|table| !apart.contains(table)) {
            let rows: BTreeSet<_> = self.rows_of(table).into_keys().collect();
            assert_eq!(rows, keys.remove(&table).unwrap_or_default(), "rows of table {table}");
        }
        for id in self.records::<PromptId>(Table::Keys) {
            assert!(prompts.iter().any(|prompt| prompt.id == id && prompt.key.is_some()));
        }
        let left = self.step(|step| step.left_processes(usize::MAX));
        for process in self.records::<ProcessRecord>(Table::Processes) {
            let owned = self.step(|step| step.name(&process.name)).is_some_and(|name| {
                let owner = matches!(name.state, NameState::Owned { node, .. } if node == process.node);
                owner && name.term == process.term
            });
            let alive = nodes.iter().any(|node| node.id == process.node && node.state != NodeState::Dead);
            assert_eq!(left.contains(&process), !(owned && alive), "{process:?}");
        }
        for key in self.rows(Table::Files).into_keys() {
            let of = key::name_at_start(&key[1..]).unwrap();
            let name = names.iter().find(|name| name.name == of).unwrap();
            assert!(!matches!(name.state, NameState::Deleting { .. }), "files of {name:?} are left nowhere");
        }
        for name in names.iter().filter(|name| matches!(name.state, NameState::Owned { .. })) {
            let rows = self.rows(Table::Files);
            let has_files = rows.keys().any(|key| key.starts_with(files_of(&name.name).bytes()));
            assert!(has_files, "no host has files of {name:?}");
        }
        let kept: BTreeSet<_> = prompts.iter().map(|prompt| prompt.id).collect();
        for key in self.rows(Table::Messages).into_keys() {
            let id = Uuid::from_slice(&key[1..17]).unwrap();
            assert!(kept.contains(&PromptId(id)), "messages of a forgotten prompt");
        }
    }
}

/// True for a reminder that no CLI has begun with.
fn is_reminder(prompt: &PromptRecord) -> bool {
    prompt.is_reminder() && prompt.begins == 0
}
