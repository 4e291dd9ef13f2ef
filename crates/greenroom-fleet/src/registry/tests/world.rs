//! A fleet in a map, with requests by chance and checks of its records.

mod check;
mod commands;
mod feed;
mod parked;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::time::Duration;

use serde_json::json;
use uuid::Uuid;

use super::super::lists::place_of;
use super::super::*;
use super::counted;
use crate::id::{AttemptId, CommandId, NodeId, QuestionId, Term};
use crate::limits::{Budget, Quota, Rate};
use crate::record::{
    NodeState, ProcessRecord, PromptContent, PromptOutcome, PromptState, QuestionRecord, Unsent,
};
use crate::request::*;
use feed::Feeds;

const TENANTS: [&str; 2] = ["a", "b"];
const NAMES: [&str; 3] = ["a", "a\0", "a\0\u{1}"];
pub(super) const WAIT: Duration = Duration::from_millis(40);

/// A fleet in a map, a clock that the test moves, and all ids that were used.
pub(super) struct World {
    pub(super) map: MemoryMap,
    /// Requests overlap with others: another request is carried out between the read and the commit of every third one.
    pub(super) overlapping: bool,
    /// Commits that found a row changed.
    pub(super) conflicts: usize,
    pub(super) now: Timestamp,
    random: u64,
    nodes: Vec<NodeId>,
    prompts: Vec<PromptId>,
    questions: Vec<QuestionId>,
    owners: Vec<Ownership>,
    /// Begins that were answered with `Send`.
    begun: Vec<(Ownership, PromptId, AttemptId)>,
    commands: Vec<CommandId>,
    taken: BTreeSet<CommandId>,
    pub(super) sent: BTreeMap<(PromptId, String), AttemptId>,
    pub(super) outcomes: BTreeMap<PromptId, PromptOutcome>,
    /// The owners whose CLIs got the decisions on questions.
    handed: BTreeMap<QuestionId, Ownership>,
    /// Turns that were parked.
    pub(super) parked: usize,
    /// Transitions that were told while there was a feed.
    told: Vec<FleetEvent>,
    feeds: Feeds,
}

impl World {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            map: MemoryMap::default(),
            overlapping: false,
            conflicts: 0,
            now: Timestamp(1_000),
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            nodes: Vec::new(),
            prompts: vec![PromptId::new()],
            questions: vec![QuestionId::new()],
            owners: Vec::new(),
            begun: Vec::new(),
            commands: Vec::new(),
            taken: BTreeSet::new(),
            sent: BTreeMap::new(),
            outcomes: BTreeMap::new(),
            handed: BTreeMap::new(),
            parked: 0,
            told: Vec::new(),
            feeds: Feeds::default(),
        }
    }

    fn below(&mut self, bound: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        usize::try_from(self.random >> 33).unwrap() % bound
    }

    /// Picks one of the latest four.
    fn one<T: Clone>(&mut self, of: impl Fn(&Self) -> &Vec<T>) -> Option<T> {
        let length = of(self).len();
        let from = length.saturating_sub(4);
        (length > 0).then(|| self.below(length - from) + from).map(|at| of(self)[at].clone())
    }

    pub(super) fn step<T>(&mut self, request: impl Fn(&mut Step<'_>) -> Result<T>) -> T {
        self.try_step(request).unwrap().0
    }

    pub(super) fn try_step<T>(&mut self, request: impl Fn(&mut Step<'_>) -> Result<T>) -> Result<(T, Told)> {
        let (answer, told) = if !self.overlapping || self.below(3) > 0 {
            run_alone(&mut self.map, self.now, request)?
        } else {
            self.overlap(request, |world| {
                world.overlapping = false;
                world.random_request();
                world.overlapping = true;
            })?
        };
        self.told.extend(told.transitions.iter().cloned());
        Ok((answer, told))
    }

    /// Carries out a request, with `between` between each of its reads and its commit.
    pub(super) fn overlap<T>(
        &mut self,
        request: impl Fn(&mut Step<'_>) -> Result<T>,
        between: impl Fn(&mut Self),
    ) -> Result<(T, Told)> {
        let mut rows = Rows::default();
        loop {
            let Attempt { answer, commit, lacking, all, .. } = try_on(&rows, self.now, &request);
            if lacking != Wanted::default() {
                rows = read_rows(&self.map, all).unwrap();
                continue;
            }
            let answer = answer?;
            let Some(made) = commit else { return Ok((answer, Told::default())) };
            between(self);
            match commit_rows(&mut self.map, &made).unwrap() {
                Committed::Done => return Ok((answer, made.told)),
                Committed::Conflict => self.conflicts += 1,
            }
            rows = Rows::default();
        }
    }

    /// A quota that is small at times.
    fn quota(&mut self) -> Quota {
        let prompts = (self.below(4) == 0).then_some(Rate { per_minute: 6_000, burst: 2 });
        let live = if self.below(3) == 0 { 1 } else { usize::MAX };
        Quota { live, prompts, reminders: 3, ..Quota::default() }
    }

    /// A request that can be repeated.
    pub(super) fn twice<T: Debug>(&mut self, request: impl Fn(&mut Step<'_>) -> Result<T>) -> T {
        if self.overlapping {
            return self.step(request);
        }
        let before = self.map.clone();
        let answer = self.step(&request);
        let text = format!("{answer:?}");
        let refused = ["Fenced", "Refused(", "Done(None", "Some(Fenced", "Some(Done(None", "Gone"];
        let refused = refused.iter().any(|refused| text.starts_with(refused));
        assert!(!refused || self.map == before, "a refused request has written: {text}");
        let after = self.map.clone();
        assert_eq!(format!("{:?}", self.step(&request)), text, "the repeated answer");
        assert!(self.map == after, "the repeated request has written: {text}");
        answer
    }

    pub(super) fn random_request(&mut self) {
        let (tenant, session) = (TENANTS[self.below(4) / 3], NAMES[self.below(NAMES.len())]);
        let name: Name = format!("{tenant}/{session}").parse().unwrap();
        let attempt = AttemptId::new();
        match self.below(25) {
            0 => {
                let node = NodeId::new();
                let join = Join { node, host: "here".to_owned(), lease: Duration::ZERO, capacity: 8 };
                self.twice(|step| step.join(join.clone()));
                self.nodes.push(node);
            }
            1 => {
                let Some(node) = self.one(|world| &world.nodes) else { return };
                match self.below(4) {
                    0 => drop(self.step(|step| step.recover(2, 3))),
                    3 => self.step(|step| step.leave(node)),
                    1 => drop(self.step(|step| step.declare_dead(node, 0))),
                    _ => drop(self.step(|step| step.renew(node, Duration::ZERO, false))),
                }
            }
            2..=5 => {
                let prompt = PromptId::new();
                let continuation = (self.below(2) == 0).then(|| json!("go on"));
                let content = PromptContent { prompt: json!(prompt), continuation };
                let accept = Accept {
                    prompt,
                    name,
                    profile: "support".to_owned(),
                    conversation: Uuid::new_v4(),
                    host: None,
                    key: (self.below(2) == 0).then(|| self.below(3).to_string()),
                    labels: self.labels(),
                    content,
                    continuations: 1,
                    not_before: (self.below(3) == 0).then(|| self.now.after(WAIT / 2)),
                    wait: WAIT,
                    quota: self.quota(),
                    bounds: QueueBounds { name: 4, tenant: 8, fleet: 10, ..Default::default() },
                };
                if let Accepted::New(_) = self.twice(|step| step.accept(accept.clone())) {
                    self.prompts.push(prompt);
                }
            }
            6..=8 => {
                let Some(node) = self.one(|world| &world.nodes) else { return };
                let claim = Claim { name: name.clone(), node, attempt, losses: 3, quota: self.quota() };
                if let Claimed::Won(record) = self.twice(|step| step.claim(claim.clone())) {
                    self.owners.push(Ownership { name, node, term: record.term });
                }
            }
            9..=11 => {
                let last = self.owners.iter().rfind(|owner| owner.name == name).cloned();
                let Some(owner) = last.or_else(|| self.one(|world| &world.owners)) else { return };
                let waiting = match self.below(4) {
                    0 => None,
                    _ => self.step(|step| step.next_prompt(owner.name.clone())).map(|prompt| prompt.id),
                };
                let Some(prompt) = waiting.or_else(|| self.one(|world| &world.prompts)) else { return };
                let budget = Budget { amount: 50, period: WAIT * 2, reserve: 10 };
                let budget = (self.below(2) == 0).then_some(budget);
                let quota = Quota { budget, ..Quota::default() };
                let begin = Begin { owner: owner.clone(), prompt, attempt, quota, credential: None };
                // None: the prompt has expired.
                let begun = self.twice(|step| {
                    let begun = step.begin(begin.clone())?;
                    let outcome = step.outcome(prompt)?;
                    let is_expired = |outcome: PromptOutcome| {
                        matches!(outcome, PromptOutcome::Unsent { why: Unsent::Expired { .. } })
                    };
                    Ok((!outcome.is_some_and(is_expired)).then_some(begun))
                });
                if let Some(Owned::Done(Some(content))) = begun {
                    // A turn that goes on with its call is sent nothing.
                    if !content.is_null() {
                        let first = self.sent.insert((prompt, content.to_string()), attempt);
                        assert_eq!(first, None, "sent twice");
                    }
                    self.begun.push((owner, prompt, attempt));
                }
            }
            12 => {
                let Some((owner, prompt, _)) = self.one(|world| &world.begun) else { return };
                let append =
                    Append { owner, prompt, first_seq: 1, messages: vec!["1".to_owned(); 3], bound: 2 };
                let _: Owned<Option<u64>> = self.twice(|step| step.append(append.clone()));
            }
            13 => {
                let Some((owner, prompt, attempt)) = self.one(|world| &world.begun) else { return };
                let outcome = PromptOutcome::Completed {
                    result: json!({ "cost": 0.1 + self.below(9) as f64 }),
                    transcript_lost: false,
                };
                let finish = Finish {
                    owner,
                    prompt,
                    attempt,
                    outcome,
                    cost: (self.below(3) > 0).then_some(3),
                    usage: self.usage(),
                    quarantine: None,
                };
                let _: Owned<bool> = self.twice(|step| step.finish(finish.clone()));
            }
            14 => {
                let Some(owner) = self.one(|world| &world.owners) else { return };
                let process = (self.below(3) > 0).then(|| json!({ "pid": 7 }));
                let _: Owned<()> = self.twice(|step| step.record_process(owner.clone(), process.clone()));
                if self.below(2) == 0 {
                    let _: Owned<bool> = self.twice(|step| step.release(owner.clone()));
                } else {
                    let failed = ActivationFailed { owner, why: String::new(), counted: counted(WAIT, 3) };
                    // None: the name is quarantined.
                    let _: Option<Owned<Option<u32>>> = self.twice(|step| {
                        let after = step.activation_failed(failed.clone())?;
                        Ok(Some(after).filter(|after| *after != Owned::Done(None)))
                    });
                }
            }
            15 => {
                let Some((owner, prompt, _)) = self.one(|world| &world.begun) else { return };
                let question = QuestionId::new();
                let call = (self.below(3) > 0).then(|| "call".to_owned());
                let ask = Ask { owner, question, prompt, wait: WAIT / 2, call, body: json!({}) };
                let _: Owned<Option<QuestionRecord>> = self.twice(|step| step.ask(ask.clone()));
                self.questions.push(question);
                if let Some(question) = self.one(|world| &world.questions) {
                    let _: Answered = self.twice(|step| step.answer(question, attempt, json!("yes")));
                }
            }
            16 => {
                let Some(prompt) = self.one(|world| &world.prompts) else { return };
                let _: Withdrawn = self.twice(|step| step.withdraw(prompt));
            }
            17 => match self.below(6) {
                4 => {
                    let quota = (self.below(3) == 0).then(|| self.quota());
                    self.step(|step| step.set_quota(name.tenant().clone(), quota.clone()));
                }
                0 => drop(self.twice(|step| step.quarantine(name.clone(), "by hand".into()))),
                1 => drop(self.step(|step| step.unquarantine(name.clone()))),
                2 => drop(self.twice(|step| step.delete(name.clone()))),
                3 => {
                    for files in self.step(|step| step.files_left(None, 1)) {
                        self.twice(|step| step.files_removed(files.clone()));
                    }
                }
                _ => {
                    let deleted = |step: &mut Step<'_>| {
                        let record = step.name(&name)?;
                        step.deleted(
                            name.clone(),
                            record.map(|record| record.conversation).unwrap_or_default(),
                        )
                    };
                    while !self.step(deleted) {}
                }
            },
            18..=19 => self.random_command(),
            20 => {
                let labels = self.labels();
                self.twice(|step| step.set_labels(name.clone(), labels.clone()));
            }
            21 => self.read_feeds(),
            22..=23 => self.park_or_hand_over(),
            _ => {
                // The clock goes back at times.
                let (forth, back) = (self.below(30) as u64, if self.below(5) == 0 { 20 } else { 0 });
                self.now = Timestamp(self.now.0 + forth - back);
                let limit = self.below(3) + 1;
                self.step(|step| step.expire_prompts(limit));
                self.step(|step| step.expire_questions(limit));
                let before = Timestamp(self.now.0 - 200);
                self.step(|step| step.forget(before, limit));
                let Some(node) = self.one(|world| &world.nodes) else { return };
                let without = TENANTS[self.below(2)];
                self.check_waiting(node, without, limit);
            }
        }
    }

    pub(super) fn rows(&self, table: Table) -> BTreeMap<Vec<u8>, Vec<u8>> {
        self.rows_of(table as u8)
    }

    fn rows_of(&self, table: u8) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let rows = self.map.0.iter().filter(|(key, _)| key.first() == Some(&table));
        rows.map(|(key, value)| (key.clone(), value.clone())).collect()
    }

    pub(super) fn records<T: serde::de::DeserializeOwned>(&self, table: Table) -> Vec<T> {
        self.rows(table).values().map(|row| serde_json::from_slice(row).unwrap()).collect()
    }
}
