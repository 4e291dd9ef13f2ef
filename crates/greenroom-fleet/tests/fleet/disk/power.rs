//! A power cut at any moment of a fleet's life: the next life has all that was told, and sends nothing twice.
//!
//! A first life runs once. Its disk keeps every write and every sync; whatever somebody is told, and whatever a CLI
//! reads, is noted with the moment of the disk. A cut at a moment leaves the disk as it was then, and the facts that
//! were told until then: the process and its CLIs end with the power. A second life on that disk has to agree with
//! those facts.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use greenroom::callback::InquiryAnswer;
use greenroom_fleet::backend::Requests;
use greenroom_fleet::{
    Fleet, FleetEvent, FleetPrompt, InterruptedBy, Name, NameQuery, NameState, PromptId, PromptOutcome,
    PromptState, QuestionQuery,
};
use uuid::Uuid;

use super::*;
use crate::scenes::{drain, in_time, named, outcome, secs, send, start};
use crate::timeline;

/// A fact that somebody has learnt.
#[derive(Clone, Debug)]
enum Fact {
    /// A prompt was accepted.
    Accepted { prompt: PromptId, name: &'static str, text: String, sent: Box<FleetPrompt> },
    /// A CLI has read a prompt of a name.
    Read { name: String, text: String },
    /// A prompt has ended, and its reader has seen so many messages.
    Ended { prompt: PromptId, outcome: PromptOutcome, messages: u64 },
    /// A session is about to be deleted: its prompts may be gone from now on.
    Deleting { name: &'static str },
    /// A session was deleted that had this conversation.
    Deleted { name: &'static str, conversation: Uuid },
}

/// The facts of a life, each with the moment of the disk right after it was learnt.
#[derive(Clone, Default)]
struct Facts(Arc<Mutex<Vec<(usize, Fact)>>>);

impl Facts {
    fn note(&self, disk: &SimulatedDisk, fact: Fact) {
        let mut facts = self.0.lock().unwrap();
        facts.push((disk.moment(), fact));
    }

    /// The facts until a moment.
    fn until(&self, moment: usize) -> Vec<Fact> {
        let facts = self.0.lock().unwrap();
        facts.iter().filter(|(at, _)| *at <= moment).map(|(_, fact)| fact.clone()).collect()
    }
}

/// A fleet on a disk, and what is learnt of it.
#[derive(Clone, Default)]
struct Life {
    disk: SimulatedDisk,
    facts: Facts,
    /// The moment from which on the file is there. A real file gets its name when it is whole.
    created: usize,
}

impl Life {
    fn note(&self, fact: Fact) {
        self.facts.note(&self.disk, fact);
    }

    /// The CLIs of this life.
    fn watch(&self, clis: &Clis) {
        let this = self.clone();
        clis.on_read(move |name, text| {
            this.note(Fact::Read { name: name.to_owned(), text: text.to_owned() })
        });
    }

    /// The moments right after the syncs of this life.
    fn syncs(&self) -> Vec<usize> {
        self.disk.syncs().into_iter().filter(|sync| *sync >= self.created).collect()
    }

    /// How often CLIs have read a text.
    fn reads(&self, name: &str, text: &str) -> usize {
        let is_it =
            |fact: &Fact| matches!(fact, Fact::Read { name: of, text: read } if of == name && read == text);
        self.facts.until(usize::MAX).iter().filter(|fact| is_it(fact)).count()
    }

    /// Sends a prompt, whose key is its text.
    async fn accepts(
        &self,
        fleet: &Fleet,
        name: &'static str,
        text: &str,
        with: impl FnOnce(FleetPrompt) -> FleetPrompt,
    ) -> PromptId {
        let sent = with(FleetPrompt::new(text).key(text));
        let prompt = send(fleet, name, sent.clone()).await.prompt_id();
        self.note(Fact::Accepted { prompt, name, text: text.to_owned(), sent: Box::new(sent) });
        prompt
    }

    async fn ends(&self, fleet: &Fleet, prompt: PromptId) -> PromptOutcome {
        let mut turn = fleet.operator().turn(prompt);
        let mut messages = 0;
        while let Some(item) = in_time("a message", turn.next()).await {
            messages = item.unwrap().seq().unwrap_or(messages);
        }
        let outcome = outcome(turn).await;
        self.note(Fact::Ended { prompt, outcome: outcome.clone(), messages });
        outcome
    }

    async fn runs(&self, fleet: &Fleet, name: &'static str, text: &str) {
        let prompt = self.accepts(fleet, name, text, plain).await;
        assert!(self.ends(fleet, prompt).await.is_completed());
    }
}

/// Runs a life to the moment at which its process is killed.
fn alive<T>(life: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(in_time("a life", life))
}

fn plain(prompt: FleetPrompt) -> FleetPrompt {
    prompt
}

fn tomorrow(prompt: FleetPrompt) -> FleetPrompt {
    prompt.not_before(SystemTime::now() + Duration::from_secs(86_400))
}

/// A life with names that sleep and wake, a queue, an interrupt, a question, reminders, a deletion, and turns that are
/// cut off by the drain at its end.
fn first_life() -> Life {
    let (mut life, folder, clis) = (Life::default(), tempfile::tempdir().unwrap(), Clis::default());
    alive(async { on_disk(&life.disk).await.close().await });
    life.created = life.disk.moment();
    life.watch(&clis);
    alive(async {
        let fleet = start(on(on_disk(&life.disk).await, &clis, folder.path())).await;
        let log = Log::of(&fleet);
        life.runs(&fleet, "a", "one").await;
        life.runs(&fleet, "b", "two").await;

        let holds = life.accepts(&fleet, "a", "hold", plain).await;
        let waits = life.accepts(&fleet, "a", "three", plain).await;
        clis.read(3).await;
        assert!(in_time("the interrupt", named(&fleet, "a").interrupt()).await.unwrap());
        life.ends(&fleet, holds).await;
        life.ends(&fleet, waits).await;

        let asks = life.accepts(&fleet, "c", "ask", plain).await;
        log.wait("the question", |event| matches!(event, FleetEvent::Asked { .. })).await;
        let question = named(&fleet, "c").questions().await.unwrap()[0].id;
        in_time("the answer", fleet.operator().answer(question, InquiryAnswer::allow())).await.unwrap();
        assert_eq!(life.ends(&fleet, asks).await.text(), Some("re: ask allow"));

        life.accepts(&fleet, "d", "remember", tomorrow).await;
        let withdrawn = life.accepts(&fleet, "d", "never mind", tomorrow).await;
        assert!(fleet.operator().withdraw(withdrawn).await.unwrap());
        life.ends(&fleet, withdrawn).await;

        in_time("sleep", named(&fleet, "a").passivate()).await.unwrap();
        life.runs(&fleet, "a", "four").await;

        let b = named(&fleet, "b");
        let conversation = b.record().await.unwrap().conversation;
        let deleted = life.accepts(&fleet, "b", "too late", tomorrow).await;
        life.note(Fact::Deleting { name: "b" });
        in_time("delete", b.delete()).await.unwrap();
        life.note(Fact::Deleted { name: "b", conversation });
        assert_eq!(log.end_of(deleted).await, "unsent");
        life.runs(&fleet, "b", "five").await;

        life.accepts(&fleet, "e", "hold", |prompt| prompt.continue_with("go on", 3)).await;
        life.accepts(&fleet, "f", "hold", plain).await;
        life.accepts(&fleet, "f", "six", plain).await;
        clis.read(9).await;
        drain(&fleet, Duration::from_millis(300)).await;
    });
    life
}

/// A second life after a power cut. Panics if it does not agree with what was told before the cut.
fn second_life(first: &Life, cut: usize, seed: u64) -> Life {
    timeline::note("the power cut", move || format!("at moment {cut}, with seed {seed}\n"));
    let facts = first.facts.until(cut);
    let life = Life {
        disk: first.disk.after_power_cut(cut, seed),
        facts: Facts(Arc::new(Mutex::new(facts.iter().map(|fact| (0, fact.clone())).collect()))),
        created: 0,
    };
    let (folder, clis) = (tempfile::tempdir().unwrap(), Clis::plain());
    life.watch(&clis);
    alive(async {
        let backend = on_disk(&life.disk).await;
        let gone = may_be_gone(&facts);
        for fact in &facts {
            // Before anything runs that could mend it.
            is_kept(&backend, fact, &gone).await;
        }
        let fleet = start(on(backend.clone(), &clis, folder.path())).await;
        // Questions outlive a power cut. These CLIs write no transcripts, so the turn ends once its question is answered.
        for question in fleet.operator().questions(QuestionQuery::new()).await.unwrap() {
            in_time("the answer", fleet.operator().answer(question.id, InquiryAnswer::allow()))
                .await
                .unwrap();
        }
        let mut waiting = 0;
        for fact in &facts {
            if let Fact::Accepted { prompt, name, sent, .. } = fact
                && !gone.contains(prompt)
            {
                waiting += u32::from(!has_ended(&life, &fleet, &backend, fact).await);
                if *name != "b" {
                    // The keys of a deleted session are free again.
                    let again = send(&fleet, name, (**sent).clone()).await;
                    assert!(again.is_duplicate() && again.prompt_id() == *prompt, "the key of {fact:?}");
                }
            }
            is_kept(&backend, fact, &gone).await;
        }
        nothing_was_read_twice(&life);
        in_time("the drain", fleet.drain(secs(5))).await;
        let reminders =
            backend.tenant(greenroom_fleet::Tenant::new("default").unwrap()).await.unwrap().reminders;
        let queued = backend.queued().await.unwrap() + reminders;
        // A prompt may be kept whose accept was not told before the cut.
        assert!((waiting..=waiting + 1).contains(&queued), "{waiting} told, {queued} queued");
        for record in backend.names(NameQuery::new()).await.unwrap().names {
            assert!(record.state == NameState::Free && record.running.is_none(), "{record:?}");
        }
        backend.close().await;
    });
    life
}

/// The prompts of sessions whose deletion has begun.
fn may_be_gone(facts: &[Fact]) -> BTreeSet<PromptId> {
    let mut gone = BTreeSet::new();
    for (at, fact) in facts.iter().enumerate() {
        let Fact::Deleting { name: deleted } = fact else { continue };
        gone.extend(facts[..at].iter().filter_map(|fact| match fact {
            Fact::Accepted { prompt, name, .. } if name == deleted => Some(*prompt),
            _ => None,
        }));
    }
    gone
}

/// A fact that was told is in the registry.
async fn is_kept(backend: &LocalBackend, fact: &Fact, gone: &BTreeSet<PromptId>) {
    match fact {
        Fact::Accepted { prompt, .. } | Fact::Ended { prompt, .. } if gone.contains(prompt) => {}
        Fact::Accepted { prompt, .. } => {
            assert!(backend.prompt_record(*prompt).await.unwrap().is_some(), "lost: {fact:?}");
        }
        Fact::Ended { prompt, outcome, messages } => {
            assert_eq!(backend.outcome(*prompt).await.unwrap().as_ref(), Some(outcome), "{fact:?}");
            let kept = backend.messages(*prompt, 0, 1000).await.unwrap();
            let last = kept.last().map_or(0, |message| message.number);
            assert!(last >= *messages && kept.len() as u64 == last, "messages {last} of {fact:?}");
        }
        Fact::Deleted { name, conversation } => {
            let record =
                backend.name_record(format!("default/{}", *name).parse::<Name>().unwrap()).await.unwrap();
            assert!(record.is_none_or(|record| record.conversation != *conversation), "{fact:?}");
        }
        Fact::Read { .. } | Fact::Deleting { .. } => {}
    }
}

/// Waits for the outcome of a prompt, which has to fit what was read. `false`: a reminder, which waits.
async fn has_ended(life: &Life, fleet: &Fleet, backend: &LocalBackend, fact: &Fact) -> bool {
    let Fact::Accepted { prompt, name, text, .. } = fact else { return true };
    let record = backend.prompt_record(*prompt).await.unwrap().unwrap();
    if record.state == PromptState::Queued && record.due_at.since(record.accepted_at) > secs(3600) {
        return false;
    }
    let outcome = life.ends(fleet, *prompt).await;
    let reads = life.reads(name, text) + if *name == "e" { life.reads(name, "go on") } else { 0 };
    let fits = match &outcome {
        PromptOutcome::Completed { .. } | PromptOutcome::Interrupted { by: InterruptedBy::User, .. } => {
            reads > 0
        }
        PromptOutcome::Interrupted { .. } => true,
        PromptOutcome::Unsent { .. } => reads == 0,
        _ => false,
    };
    assert!(fits, "{name}: {text}: {reads} reads, {outcome:?}");
    true
}

/// Every prompt was read once at most, and its continuation as often as it may be sent.
fn nothing_was_read_twice(life: &Life) {
    for fact in life.facts.until(usize::MAX) {
        if let Fact::Read { name, text } = &fact {
            let most = if text == "go on" { 3 } else { 1 };
            let reads = life.reads(name, text);
            assert!(reads <= most, "{name}: {text} was read {reads} times");
        }
    }
}

// Guards: crash-safe
#[test]
fn a_power_cut_between_any_two_commits_loses_nothing_that_was_told() {
    let life = first_life();
    let syncs = life.syncs();
    assert!(syncs.len() > 50, "{} syncs", syncs.len());
    for cut in syncs {
        second_life(&life, cut, 0);
    }
}

/// Parts of the writes of each commit. More of them find more: set it to 50 after a change of the file.
fn tries() -> u64 {
    std::env::var("GREENROOM_FLEET_POWER_CUTS").map_or(1, |cuts| cuts.parse().unwrap())
}

#[test]
fn a_power_cut_in_the_middle_of_any_commit_loses_nothing_that_was_told() {
    let life = first_life();
    let syncs = life.syncs();
    for (n, two) in (0..).zip(syncs.windows(2)) {
        // Before the sync, a part of its writes is on the disk.
        for seed in 1..=tries() {
            second_life(&life, two[1] - 1, n * 1000 + seed);
        }
    }
}

#[test]
fn a_power_cut_while_a_fleet_recovers_from_one_loses_nothing_either() {
    let life = first_life();
    let syncs = life.syncs();
    // Cuts in the middle of the life and near its end, where turns run and a drain has begun.
    for cut in [syncs[syncs.len() / 2], syncs[syncs.len() - 12]] {
        let second = second_life(&life, cut, 0);
        for (seed, cut) in (0..).zip(second.syncs()).step_by(3) {
            second_life(&second, cut, 0);
            second_life(&second, cut - 1, seed);
        }
    }
}
