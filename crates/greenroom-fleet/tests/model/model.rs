//! The model: what was asked of the fleet, what it answered, and what follows from that.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use greenroom_fleet::backend::Backend;
use greenroom_fleet::{
    InterruptedBy, Name, NameState, PromptId, PromptOutcome, PromptRecord, PromptState, Timestamp, Unsent,
};

use super::cli::{Journal, Turn};
use super::ops::Ask;

/// The model of a case, shared with the tasks that wait for answers.
#[derive(Clone, Default)]
pub(crate) struct Model(Arc<Mutex<ModelState>>);

#[derive(Default)]
pub(crate) struct ModelState {
    /// By the number in their texts.
    pub(crate) contents: Vec<Content>,
    /// Prompts that were accepted, in the order of the answers.
    pub(crate) accepted: Vec<PromptId>,
    pub(crate) known: BTreeMap<PromptId, Known>,
    /// The content that was sent first with a key of a name, since the last deletion.
    keys: BTreeMap<(u8, u8), usize>,
    /// Deletions of each name that have begun.
    deletions: BTreeMap<u8, u32>,
    /// The words of `Ended` events.
    ended: BTreeMap<PromptId, &'static str>,
    pub(crate) answers: Answers,
}

/// Counts of answers, to see what a run has tried.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Answers {
    pub(crate) accepted: u64,
    pub(crate) duplicates: u64,
    pub(crate) refused: u64,
    pub(crate) unknown: u64,
    pub(crate) withdrawn: u64,
    pub(crate) interrupted: u64,
    pub(crate) restarts: u64,
    pub(crate) fenced: u64,
    pub(crate) completed: u64,
}

impl std::ops::AddAssign for Answers {
    fn add_assign(&mut self, other: Self) {
        self.accepted += other.accepted;
        self.duplicates += other.duplicates;
        self.refused += other.refused;
        self.unknown += other.unknown;
        self.withdrawn += other.withdrawn;
        self.interrupted += other.interrupted;
        self.restarts += other.restarts;
        self.fenced += other.fenced;
        self.completed += other.completed;
    }
}

/// What a prompt says.
pub(crate) struct Content {
    pub(crate) name: u8,
    pub(crate) prompt: Turn,
    pub(crate) continuation: Option<Turn>,
    pub(crate) continuations: u8,
    key: Option<u8>,
    /// Deletions of its name before it was sent first.
    deletions: u32,
    /// Prompts that were accepted with this content.
    ids: BTreeSet<PromptId>,
    /// Prompts that may have been accepted besides.
    maybe: usize,
}

/// A prompt that was accepted, or may have been.
pub(crate) struct Known {
    pub(crate) content: usize,
    accepted: bool,
    withdrawn: bool,
    /// The outcome that somebody has read.
    outcome: Option<PromptOutcome>,
}

/// The end of a prompt's request, as the driver saw it.
pub(crate) enum Answer {
    Accepted { id: PromptId, duplicate: bool },
    KeyReused,
    Refused,
    Unknown(PromptId),
}

impl Model {
    pub(crate) fn state(&self) -> MutexGuard<'_, ModelState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ModelState {
    /// The content of a prompt that is about to be sent.
    pub(crate) fn content(&mut self, ask: &Ask) -> usize {
        let number = self.contents.len();
        if let Some((key, same)) = ask.key {
            let first = *self.keys.entry((ask.name, key)).or_insert(number);
            if same && first != number {
                return first;
            }
        }
        let millis = u64::from(ask.millis);
        let prompt = Turn { id: format!("p{number}"), millis, kind: ask.kind };
        let continuation = Turn { id: format!("c{number}"), ..prompt.clone() };
        self.contents.push(Content {
            name: ask.name,
            prompt,
            continuation: (ask.continuations > 0).then_some(continuation),
            continuations: ask.continuations,
            key: ask.key.map(|(key, _)| key),
            deletions: self.deletions_of(ask.name),
            ids: BTreeSet::new(),
            maybe: 0,
        });
        number
    }

    pub(crate) fn deletions_of(&self, name: u8) -> u32 {
        self.deletions.get(&name).copied().unwrap_or(0)
    }

    /// A deletion begins: keys are forgotten at some moment from now on.
    pub(crate) fn deletes(&mut self, name: u8) {
        *self.deletions.entry(name).or_default() += 1;
        self.keys.retain(|(of, _), _| *of != name);
    }

    /// A prompt is sent, and is not answered yet.
    pub(crate) fn sent(&mut self, content: usize) {
        self.contents[content].maybe += 1;
    }

    /// A prompt was answered. `deletions`: those of its name when it was sent.
    pub(crate) fn answered(&mut self, content: usize, deletions: u32, answer: &Answer) -> Result<(), String> {
        let stable = self.deletions_of(self.contents[content].name) == deletions
            && self.contents[content].deletions == deletions;
        let of_content = &mut self.contents[content];
        match answer {
            Answer::Accepted { id, duplicate } => {
                of_content.maybe -= 1;
                let (before, new) = (of_content.ids.clone(), of_content.ids.insert(*id));
                if of_content.key.is_none() && *duplicate {
                    return Err(format!(
                        "a prompt without a key is a duplicate: {}",
                        of_content.prompt.text()
                    ));
                }
                if new && !before.is_empty() && stable {
                    let text = of_content.prompt.text();
                    return Err(format!("never-run-twice: '{text}' with its key is {before:?} and {id}"));
                }
                if *duplicate {
                    self.answers.duplicates += 1
                } else {
                    self.answers.accepted += 1
                }
                let known = self.known.entry(*id).or_insert_with(|| {
                    self.accepted.push(*id);
                    Known { content, accepted: true, withdrawn: false, outcome: None }
                });
                known.accepted = true;
                if known.content != content {
                    return Err(format!("the prompt {id} has two contents"));
                }
            }
            Answer::KeyReused => {
                of_content.maybe -= 1;
                self.answers.refused += 1;
                let key = of_content.key.map(|key| (of_content.name, key));
                if stable
                    && key.and_then(|key| self.keys.get(&key)) == Some(&content)
                    && of_content.maybe == 0
                {
                    // Another content was accepted in its place only if that one was accepted first.
                    let other = key.is_some_and(|(name, key)| {
                        self.contents.iter().any(|other| {
                            other.name == name
                                && other.key == Some(key)
                                && (other.maybe > 0 || !other.ids.is_empty())
                        })
                    });
                    if !other {
                        return Err("a key that nobody has used is refused as reused".to_owned());
                    }
                }
            }
            Answer::Refused => {
                of_content.maybe -= 1;
                self.answers.refused += 1;
            }
            Answer::Unknown(id) => {
                self.answers.unknown += 1;
                self.known.entry(*id).or_insert(Known {
                    content,
                    accepted: false,
                    withdrawn: false,
                    outcome: None,
                });
            }
        }
        Ok(())
    }

    pub(crate) fn withdrawn(&mut self, id: PromptId) {
        self.answers.withdrawn += 1;
        if let Some(known) = self.known.get_mut(&id) {
            known.withdrawn = true;
        }
    }

    /// Somebody has read an outcome.
    pub(crate) fn read(&mut self, id: PromptId, outcome: PromptOutcome) -> Result<(), String> {
        let Some(known) = self.known.get_mut(&id) else { return Ok(()) };
        match &known.outcome {
            Some(before) if *before != outcome => {
                Err(format!("accepted-is-kept: the outcome of {id} was {before:?} and is {outcome:?}"))
            }
            _ => {
                known.outcome = Some(outcome);
                Ok(())
            }
        }
    }

    /// An event told the end of a prompt.
    pub(crate) fn told_end(&mut self, id: PromptId, word: &'static str) -> Result<(), String> {
        match self.ended.insert(id, word) {
            None => Ok(()),
            Some(before) => Err(format!("accepted-is-kept: the end of {id} is told twice: {before}, {word}")),
        }
    }
}

/// Those of the prompts that have not ended, besides those of a quarantined session.
pub(crate) async fn unfinished(backend: &dyn Backend, ids: &[PromptId]) -> Vec<PromptId> {
    let mut unfinished = Vec::new();
    for id in ids {
        let Some(record) = backend.prompt_record(*id).await.unwrap() else { continue };
        let waits = match record.state {
            PromptState::Ended { .. } => false,
            PromptState::Queued => !is_quarantined(backend, &record.name).await,
            _ => true,
        };
        if waits {
            unfinished.push(*id);
        }
    }
    unfinished
}

/// Those of the prompts that should have ended by now.
pub(crate) async fn stuck(backend: &dyn Backend, ids: &[PromptId]) -> Vec<PromptId> {
    let (mut stuck, now) = (Vec::new(), backend.now());
    for id in unfinished(backend, ids).await {
        let record = backend.prompt_record(id).await.unwrap().unwrap();
        if record.state != PromptState::Queued || record.due_at <= now {
            stuck.push(id);
        }
    }
    stuck
}

async fn is_quarantined(backend: &dyn Backend, name: &Name) -> bool {
    let record = backend.name_record(name.clone()).await.unwrap();
    record.is_some_and(|record| matches!(record.state, NameState::Quarantined { .. }))
}

/// Compares all that is kept with the model and with what the CLIs have seen.
pub(crate) async fn check(backend: &dyn Backend, model: &Model, journal: &Journal) -> Vec<String> {
    let ids: Vec<PromptId> = model.state().known.keys().copied().collect();
    let mut kept = BTreeMap::new();
    for id in ids {
        let record = backend.prompt_record(id).await.unwrap();
        let outcome = backend.outcome(id).await.unwrap();
        kept.insert(id, record.map(|record| (record, outcome)));
    }
    let (mut wrong, mut completed) = (Vec::new(), 0);
    let state = model.state();
    let seen = journal.state();
    for (id, kept) in &kept {
        let known = &state.known[id];
        let content = &state.contents[known.content];
        let Some((record, outcome)) = kept else {
            if known.accepted {
                wrong.push(format!("accepted-is-kept: {} ({id}) is gone", content.prompt.text()));
            }
            continue;
        };
        completed += u64::from(matches!(outcome, Some(PromptOutcome::Completed { .. })));
        let now = backend.now();
        let told = state.ended.get(id).copied();
        if let Err(what) = of_prompt(content, known, record, outcome.as_ref(), told, now) {
            wrong.push(format!("{what}: {} {record:?} {outcome:?}", content.prompt.text()));
        }
        let reached = |turn: &str| seen.reached.get(turn).map_or(0, Vec::len);
        let unsent = matches!(outcome, Some(PromptOutcome::Unsent { .. }));
        if unsent && content.ids.len() == 1 && content.maybe == 0 && reached(&content.prompt.id) > 0 {
            wrong.push(format!("never-run-twice: {} is unsent, and a CLI got it", content.prompt.text()));
        }
        let finished = |turn: &str| seen.finished.get(turn).copied().unwrap_or(0);
        let done =
            finished(&content.prompt.id) + content.continuation.as_ref().map_or(0, |c| finished(&c.id));
        if matches!(outcome, Some(PromptOutcome::Completed { .. })) && done == 0 {
            wrong.push(format!("{} is completed, and no CLI has finished it", content.prompt.text()));
        }
    }
    for (number, content) in state.contents.iter().enumerate() {
        let reached = seen.reached.get(&content.prompt.id).map_or(0, Vec::len);
        let most = content.ids.len() + content.maybe;
        if reached > most {
            wrong.push(format!(
                "never-run-twice: '{}' reached a CLI {reached} times, and was accepted {most} times",
                content.prompt.text()
            ));
        }
        let continued = seen.reached.get(&format!("c{number}")).map_or(0, Vec::len);
        let most = most * usize::from(content.continuations);
        if continued > most {
            wrong.push(format!(
                "never-run-twice: the continuation of '{}' reached a CLI {continued} times of {most}",
                content.prompt.text()
            ));
        }
        let name = super::driver::name_of(content.name);
        let all = [format!("p{number}"), format!("c{number}")];
        for other in all.iter().filter_map(|turn| seen.reached.get(turn)).flatten() {
            if *other != name {
                wrong.push(format!("'{}' of {name} reached the CLI of {other}", content.prompt.text()));
            }
        }
    }
    drop((state, seen));
    model.state().answers.completed = completed;
    wrong
}

fn of_prompt(
    content: &Content,
    known: &Known,
    record: &PromptRecord,
    outcome: Option<&PromptOutcome>,
    told: Option<&str>,
    now: Timestamp,
) -> Result<(), &'static str> {
    let ensure = |holds: bool, what| if holds { Ok(()) } else { Err(what) };
    let PromptState::Ended { at, .. } = record.state else {
        ensure(outcome.is_none(), "accepted-is-kept: a prompt that has not ended has an outcome")?;
        ensure(!known.withdrawn, "a withdrawn prompt has not ended")?;
        ensure(known.outcome.is_none(), "accepted-is-kept: an outcome that was read is gone")?;
        return ensure(told.is_none(), "accepted-is-kept: a prompt whose end was told has not ended");
    };
    let outcome = outcome.ok_or("accepted-is-kept: a prompt that has ended has no outcome")?;
    ensure(at <= now, "a prompt has ended in the future")?;
    if let Some(read) = &known.outcome {
        ensure(read == outcome, "accepted-is-kept: the outcome has changed since it was read")?;
    }
    let word = match outcome {
        PromptOutcome::Completed { .. } => "completed",
        PromptOutcome::Interrupted { .. } => "interrupted",
        PromptOutcome::Failed { .. } => "failed",
        PromptOutcome::Unsent { .. } => "unsent",
        _ => "?",
    };
    ensure(told.is_none_or(|told| told == word), "accepted-is-kept: an event told another end")?;
    let by_user = PromptOutcome::Interrupted { by: InterruptedBy::User, result: None };
    let withdrawn = *outcome == PromptOutcome::Unsent { why: Unsent::Withdrawn };
    if known.withdrawn {
        ensure(withdrawn || *outcome == by_user, "a withdrawn prompt has another outcome")?;
    }
    match outcome {
        PromptOutcome::Completed { result } => {
            let text = result["result"].as_str().unwrap_or_default();
            let own = text == content.prompt.id
                || content.continuation.as_ref().is_some_and(|continuation| text == continuation.id);
            ensure(own, "the outcome is that of another prompt")
        }
        PromptOutcome::Unsent { why: Unsent::Expired } => {
            ensure(at >= record.expires_at, "a prompt has expired before its time")
        }
        PromptOutcome::Interrupted { by: InterruptedBy::OwnerLost { .. }, .. } => {
            ensure(record.begins > 0, "a prompt that did not begin is interrupted")
        }
        _ => Ok(()),
    }
}
