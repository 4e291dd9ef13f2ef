//! The prompts that the driver has sent, and what it was told of them.

use std::collections::BTreeMap;

use greenroom_fleet::{PromptId, PromptOutcome};

/// How far a prompt has come, as far as the driver knows.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Known {
    /// The prompt was sent, and nobody has said what became of it.
    Sent,
    /// The fleet has accepted it.
    Accepted(PromptId),
    Ended(PromptId, PromptOutcome),
    /// The fleet has refused it.
    Refused,
    /// It was deleted with its session.
    Erased(PromptId),
}

#[derive(Clone, Debug)]
pub(crate) struct Prompt {
    /// The number of the session, and how often it had been deleted before.
    pub(crate) session: usize,
    pub(crate) deletions: u64,
    pub(crate) text: String,
    pub(crate) continuations: u32,
    pub(crate) known: Known,
}

impl Prompt {
    pub(crate) fn id(&self) -> Option<PromptId> {
        match self.known {
            Known::Accepted(id) | Known::Ended(id, _) | Known::Erased(id) => Some(id),
            Known::Sent | Known::Refused => None,
        }
    }

    /// The text of its continuation.
    pub(crate) fn continuation(&self) -> String {
        format!("{} goes on", self.text)
    }

    pub(crate) fn is_open(&self) -> bool {
        matches!(self.known, Known::Sent | Known::Accepted(_))
    }

    /// Returns why the prompt's outcome is wrong, if it is. `told`: how often each text was given to a CLI.
    pub(crate) fn fault(&self, told: &BTreeMap<String, u32>) -> Option<String> {
        let times = |text: &str| told.get(text).copied().unwrap_or(0);
        let (begun, continued) = (times(&self.text), times(&self.continuation()));
        let why = match &self.known {
            Known::Sent => "has no answer",
            Known::Accepted(_) => "has no outcome",
            _ if begun > 1 => "was run twice",
            _ if continued > self.continuations => "was continued too often",
            Known::Refused if begun + continued > 0 => "was refused, and run",
            Known::Ended(_, PromptOutcome::Unsent { .. }) if begun + continued > 0 => {
                "is unsent, and was run"
            }
            Known::Ended(_, PromptOutcome::Completed { result, .. }) => {
                let said = result["result"].as_str().unwrap_or_default();
                if begun + continued == 0 {
                    "is completed, and no CLI was told of it"
                } else if said != self.text && said != self.continuation() {
                    "has the answer to another prompt"
                } else {
                    return None;
                }
            }
            _ => return None,
        };
        Some(format!("{why}: begun {begun} and continued {continued} times: {self:?}"))
    }
}

/// All prompts, by their number, which is also their key.
#[derive(Debug, Default)]
pub(crate) struct Prompts {
    pub(crate) all: Vec<Prompt>,
    by_id: BTreeMap<PromptId, usize>,
    /// Statements of the service that contradict what it has said before.
    pub(crate) contradictions: Vec<String>,
}

impl Prompts {
    pub(crate) fn accepted(&mut self, number: usize, id: PromptId) {
        if let Some(before) = self.by_id.insert(id, number).filter(|before| *before != number) {
            self.contradictions.push(format!("the prompts {before} and {number} have the id {id}"));
        }
        let prompt = &mut self.all[number];
        match prompt.id() {
            None => prompt.known = Known::Accepted(id),
            Some(before) if before == id => {}
            Some(before) => {
                self.contradictions.push(format!("the prompt {number} was {before}, and is {id}"))
            }
        }
    }

    pub(crate) fn ended(&mut self, id: PromptId, outcome: PromptOutcome) {
        let number = self.by_id[&id];
        match &self.all[number].known {
            Known::Ended(_, before) if *before != outcome => {
                let text = format!("the prompt {number} had {before:?}, and has {outcome:?}");
                self.contradictions.push(text);
            }
            _ => self.all[number].known = Known::Ended(id, outcome),
        }
    }

    /// A prompt is not known any more. `deletions` has the number of deletions of a session that have begun.
    pub(crate) fn missing(&mut self, id: PromptId, deletions: impl Fn(usize) -> u64) {
        let prompt = &mut self.all[self.by_id[&id]];
        if deletions(prompt.session) > prompt.deletions {
            prompt.known = Known::Erased(id);
            return;
        }
        self.contradictions.push(format!("an accepted prompt is lost: {prompt:?}"));
    }

    pub(crate) fn open(&self) -> usize {
        self.all.iter().filter(|prompt| prompt.is_open()).count()
    }

    pub(crate) fn count(&self, is: impl Fn(&PromptOutcome) -> bool) -> usize {
        let ended = self.all.iter().filter(|prompt| match &prompt.known {
            Known::Ended(_, outcome) => is(outcome),
            _ => false,
        });
        ended.count()
    }
}
