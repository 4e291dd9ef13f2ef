//! The model: what was asked of the fleet, what it answered, and what follows from that.

mod check;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use greenroom_fleet::backend::{Backend, Requests};
use greenroom_fleet::{PromptId, PromptOutcome, PromptState};

pub(crate) use check::{check, stuck, unfinished};

use super::cli::Turn;
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
    /// The beginnings and the ends of deletions of each name.
    deletions: BTreeMap<u8, u32>,
    /// Deletions of each name that have not returned: a prompt that is accepted meanwhile is deleted, or not.
    deleting: BTreeMap<u8, u32>,
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
    /// Somebody has asked to take it back.
    asked_back: bool,
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
    /// The turns with which a CLI may have begun.
    pub(crate) async fn may_have_begun(&self, backend: &dyn Backend) -> BTreeSet<String> {
        let known: Vec<(PromptId, usize)> =
            self.state().known.iter().map(|(id, known)| (*id, known.content)).collect();
        let mut begun = BTreeSet::new();
        for (id, content) in known {
            let record = backend.prompt_record(id).await.unwrap();
            if record.is_some_and(|record| matches!(record.state, PromptState::Begun { .. })) {
                begun.insert(content);
            }
        }
        let state = self.state();
        let unanswered = (0..state.contents.len()).filter(|number| state.contents[*number].maybe > 0);
        begun
            .into_iter()
            .chain(unanswered)
            .flat_map(|number| [format!("p{number}"), format!("c{number}")])
            .collect()
    }

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
        *self.deleting.entry(name).or_default() += 1;
        self.forgets_keys(name);
    }

    /// A deletion has returned.
    pub(crate) fn deleted(&mut self, name: u8) {
        *self.deleting.entry(name).or_default() -= 1;
        self.forgets_keys(name);
    }

    fn forgets_keys(&mut self, name: u8) {
        *self.deletions.entry(name).or_default() += 1;
        self.keys.retain(|(of, _), _| *of != name);
    }

    /// A prompt is sent, and is not answered yet.
    pub(crate) fn sent(&mut self, content: usize) {
        self.contents[content].maybe += 1;
    }

    /// A prompt was answered. `deletions`: those of its name when it was sent.
    pub(crate) fn answered(&mut self, content: usize, deletions: u32, answer: &Answer) -> Result<(), String> {
        let name = self.contents[content].name;
        let stable = self.deletions_of(name) == deletions
            && self.contents[content].deletions == deletions
            && self.deleting.get(&name).is_none_or(|deleting| *deleting == 0);
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
                    Known { content, accepted: true, withdrawn: false, asked_back: false, outcome: None }
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
                    asked_back: false,
                    outcome: None,
                });
            }
        }
        Ok(())
    }

    /// A prompt is about to be taken back.
    pub(crate) fn asks_back(&mut self, id: PromptId) {
        if let Some(known) = self.known.get_mut(&id) {
            known.asked_back = true;
        }
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
