//! Random requests to the backend in PostgreSQL and to the one in memory have the same answers.

#![allow(unused_must_use, reason = "the answers are compared, and most are of no further use")]

use std::fmt::Debug;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use greenroom_fleet::backend::{Backend, MemoryBackend};
use greenroom_fleet::{
    Accept, ActivationFailed, Append, Ask, AttemptId, Begin, Change, Claim, Claimed, Clock, CommandId,
    CommandKind, CommandResult, Finish, Join, Name, NodeId, Ownership, Page, PromptContent, PromptId,
    PromptOutcome, PutCommand, QuestionId, QueueBounds, Reserve, TakeCommand, Timestamp, Transition,
    WaitingPage,
};
use serde_json::json;
use tokio::sync::broadcast::Receiver;
use uuid::Uuid;

const HOUR: Duration = Duration::from_secs(3600);

/// Numbers from a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    fn one_in(&mut self, bound: u64) -> bool {
        self.below(bound) == 0
    }

    fn of<T: Clone>(&mut self, items: &[T]) -> Option<T> {
        if items.is_empty() { None } else { items.get(self.below(items.len() as u64) as usize).cloned() }
    }
}

/// Both backends, and the ids that were used so far.
struct Pair {
    random: Random,
    sides: [Arc<dyn Backend>; 2],
    changes: [Receiver<Change>; 2],
    transitions: [Receiver<Transition>; 2],
    nodes: Vec<NodeId>,
    prompts: Vec<PromptId>,
    owners: Vec<Ownership>,
    begun: Vec<(Ownership, PromptId, AttemptId)>,
    questions: Vec<QuestionId>,
    attempts: Vec<AttemptId>,
    puts: Vec<PutCommand>,
    log: Vec<String>,
}

/// The text of an answer, without moments and places: each backend has its own clock and its own order. Only one of them counts
/// what may begin and what was asked.
fn text(answer: &impl Debug) -> String {
    let mut text = format!("{answer:?}");
    for before in ["Timestamp(", "order: ", "ready: ", "asked: "] {
        let mut parts = text.split(before);
        let mut masked = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            masked.push_str(before);
            masked.push('_');
            masked.push_str(part.trim_start_matches(|character: char| character.is_ascii_digit()));
        }
        text = masked;
    }
    text
}

/// A clock that shows no moment twice: in memory, the order of names of a tenant follows it.
fn ticking() -> Clock {
    let last = Mutex::new(0);
    Clock::new(move || {
        let mut last = last.lock().unwrap();
        *last = Timestamp::now().0.max(*last + 1);
        Timestamp(*last)
    })
}

fn told<T: Clone + Debug>(receiver: &mut Receiver<T>) -> Vec<String> {
    let mut told = Vec::new();
    while let Ok(item) = receiver.try_recv() {
        told.push(text(&item));
    }
    told.sort();
    told
}

macro_rules! both {
    ($pair:ident, $method:ident($($arg:expr),*)) => {{
        let request = format!(concat!(stringify!($method), "{:?}"), ($(&$arg,)*));
        $pair.log.push(text(&request));
        let [memory, postgres] = $pair.sides.clone();
        let (a, b) = (memory.$method($($arg.clone()),*).await, postgres.$method($($arg.clone()),*).await);
        let kinds = [&a, &b].map(|answer| answer.as_ref().err().map(|error| error.kind()));
        $pair.check(kinds[0], kinds[1]);
        if let (Ok(a), Ok(b)) = (&a, &b) {
            $pair.check(a, b);
        }
        let [changes_a, changes_b] = &mut $pair.changes;
        let (a_told, b_told) = (told(changes_a), told(changes_b));
        $pair.check(a_told, b_told);
        let [made_a, made_b] = &mut $pair.transitions;
        let (a_made, b_made) = (told(made_a), told(made_b));
        $pair.check(a_made, b_made);
        a
    }};
}

impl Pair {
    async fn new(seed: u64, postgres: Arc<dyn Backend>) -> Self {
        let memory: Arc<dyn Backend> = Arc::new(MemoryBackend::with_clock(ticking()));
        let (changes, transitions) =
            ([memory.changes(), postgres.changes()], [memory.transitions(), postgres.transitions()]);
        let mut pair = Self {
            random: Random(seed),
            sides: [memory, postgres],
            changes,
            transitions,
            nodes: Vec::new(),
            prompts: Vec::new(),
            owners: Vec::new(),
            begun: Vec::new(),
            questions: Vec::new(),
            attempts: Vec::new(),
            puts: Vec::new(),
            log: vec![format!("seed {seed}")],
        };
        pair.join().await;
        pair.join().await;
        pair
    }

    fn check<T: Debug>(&self, memory: T, postgres: T) {
        let (memory, postgres) = (text(&memory), text(&postgres));
        let last = self.log.len().saturating_sub(12);
        let (seed, newest) = (&self.log[0], self.log[last..].join("\n"));
        assert_eq!(memory, postgres, "in memory and in PostgreSQL, {seed}, after\n{newest}");
    }

    async fn join(&mut self) {
        let node = NodeId::new();
        let host = if self.random.one_in(2) { "here" } else { "there" }.to_owned();
        let join = Join { node, host, lease: HOUR, capacity: 8 };
        both!(self, join(join)).unwrap();
        self.nodes.push(node);
    }

    fn name(&mut self) -> Name {
        let names = ["a", "b", "b\0c", "b\u{1}", "ä'\"\\", "../x"];
        Name::new(self.random.of(&names).unwrap()).unwrap()
    }

    fn accept(&mut self) -> Accept {
        let name = self.name();
        let continues = self.random.one_in(3);
        let text = self.random.below(3);
        Accept {
            prompt: PromptId::new(),
            tenant: if self.random.one_in(20) {
                "other".into()
            } else {
                format!("tenant of {}", name.as_str())
            },
            profile: if self.random.one_in(30) { "other".into() } else { "support".into() },
            name,
            conversation: Uuid::from_u128(u128::from(self.random.below(u64::MAX))),
            host: self.random.one_in(8).then(|| "here".to_owned()),
            key: self.random.one_in(2).then(|| format!("key\0{}", self.random.below(8))),
            content: PromptContent {
                prompt: json!({ "text": format!("\0 {text}") }),
                continuation: continues.then(|| json!("go on")),
            },
            continuations: self.random.below(3) as u32,
            not_before: self.random.one_in(5).then(|| Timestamp::now().after(HOUR)),
            wait: if self.random.one_in(8) { Duration::ZERO } else { HOUR },
            bounds: QueueBounds { name: 6, tenant: 7, fleet: 20 },
            budget: None,
        }
    }

    async fn step(&mut self) {
        match self.random.below(34) {
            0..=4 => {
                let accept = self.accept();
                self.prompts.push(accept.prompt);
                both!(self, accept(accept));
                if self.random.one_in(5) {
                    both!(self, accept(accept));
                }
            }
            5 => {
                let Some(prompt) = self.random.of(&self.prompts) else { return };
                if self.random.one_in(3) {
                    let why = format!("why\0{}", self.random.below(2));
                    both!(self, drop_prompt(prompt, why));
                } else {
                    both!(self, withdraw(prompt));
                }
            }
            6..=9 => {
                let (name, node) = (self.name(), self.random.of(&self.nodes).unwrap());
                let claim = Claim { name: name.clone(), node, attempt: AttemptId::new(), losses: 4 };
                if let Ok(Claimed::Won { record, .. }) = both!(self, claim(claim)) {
                    self.owners.push(Ownership { name, node, term: record.term });
                }
            }
            10..=14 => {
                let Some(owner) = self.random.of(&self.owners) else { return };
                let queue = both!(self, queue(owner.name, 3)).unwrap();
                let first = queue.first().map(|prompt| prompt.id);
                let other = self.random.of(&self.prompts);
                let chosen = if self.random.one_in(6) { other } else { first.or(other) };
                let Some(prompt) = chosen else { return };
                let reserve = self.random.one_in(3).then(|| Reserve {
                    period: Timestamp(1000 * self.random.below(3)),
                    budget: 100,
                    amount: 30,
                });
                let begin = Begin { owner: owner.clone(), prompt, attempt: AttemptId::new(), reserve };
                both!(self, begin(begin));
                self.begun.push((owner, prompt, begin.attempt));
                if self.random.one_in(5) {
                    both!(self, begin(begin));
                }
            }
            15..=16 => {
                let Some((owner, prompt, _)) = self.random.of(&self.begun) else { return };
                let message = |at: u64| json!({ "at": at, "nul": "\0" }).to_string();
                let messages: Vec<String> = (0..self.random.below(4)).map(message).collect();
                let append =
                    Append { owner, prompt, first_seq: 1 + self.random.below(6), messages, bound: 80 };
                both!(self, append(append));
                let after = self.random.below(3);
                both!(self, messages(prompt, after, 10));
            }
            17..=19 => {
                let Some((owner, prompt, attempt)) = self.begun.last().cloned() else { return };
                let outcome =
                    PromptOutcome::Completed { result: json!({ "text": "\0done" }), transcript_lost: false };
                let finish =
                    Finish { owner, prompt, attempt, outcome, cost: self.random.below(40), quarantine: None };
                both!(self, finish(finish));
                both!(self, finish(finish));
                both!(self, outcome(prompt));
            }
            20 => {
                let Some(owner) = self.random.of(&self.owners) else { return };
                both!(self, release(owner));
            }
            21 => {
                let Some(owner) = self.random.of(&self.owners) else { return };
                let failed = ActivationFailed { owner, why: "it broke".into(), period: HOUR, intensity: 3 };
                both!(self, activation_failed(failed));
            }
            22 => self.set_aside().await,
            23..=24 => {
                let Some((owner, prompt, _)) = self.begun.last().cloned() else { return };
                let wait = if self.random.one_in(4) { Duration::ZERO } else { HOUR };
                let ask =
                    Ask { owner, question: QuestionId::new(), prompt, wait, body: json!({ "q": "\0" }) };
                self.questions.push(ask.question);
                both!(self, ask(ask));
            }
            25 => {
                let Some(question) = self.random.of(&self.questions) else { return };
                let attempt = self.random.of(&self.attempts).unwrap_or_else(AttemptId::new);
                self.attempts.push(attempt);
                both!(self, answer(question, attempt, json!("yes\0")));
                both!(self, question(question));
            }
            26 => {
                let Some(owner) = self.random.of(&self.owners) else { return };
                let process = (!self.random.one_in(3)).then(|| json!({ "pid": 1 }));
                both!(self, record_process(owner, process));
                both!(self, left_processes(100));
                both!(self, left_processes_of(owner.name));
                both!(self, process_ended(owner.name, owner.term));
            }
            27 if self.random.one_in(3) => {
                let node = self.random.of(&self.nodes).unwrap();
                both!(self, ask_to_drain(node));
                both!(self, nodes(None::<NodeId>, 100));
                let node = self.nodes.remove(0);

                both!(self, leave(node));
                both!(self, ask_to_drain(node));
                self.join().await;
            }
            27 => {
                // The order of names differs: PostgreSQL takes those with the oldest prompts first.
                let [memory, postgres] = self.sides.clone();
                let (mut a, mut b) =
                    (memory.recover(100, 4).await.unwrap(), postgres.recover(100, 4).await.unwrap());
                a.sort();
                b.sort();
                self.log.push("recover".to_owned());
                self.check(a, b);
            }
            28..=31 => self.command().await,
            _ => self.look().await,
        }
    }

    async fn command(&mut self) {
        let Some(owner) = self.owners.last().cloned() else { return };
        if self.random.one_in(3) {
            let Ownership { name, node, term } = owner.clone();
            let deadline = if self.random.one_in(5) { Timestamp(1) } else { Timestamp::now().after(HOUR) };
            let kind = match (self.random.below(3), self.begun.last()) {
                (0, Some((_, prompt, _))) => CommandKind::Interrupt { prompt: *prompt },
                (1, _) => CommandKind::MakeWay,
                _ => CommandKind::Passivate,
            };
            let put = PutCommand { command: CommandId::new(), name, node, term, kind, deadline };
            both!(self, put_command(put));
            self.puts.push(put);
        }
        let Some(put) = self.random.of(&self.puts) else { return };
        let (command, attempt) = (put.command, AttemptId::new());
        let of_put = Ownership { name: put.name.clone(), node: put.node, term: put.term };
        match self.random.below(6) {
            0 => drop(both!(self, put_command(put))),
            1 | 2 => {
                let owner = if self.random.one_in(4) { owner } else { of_put };
                let take = TakeCommand { command, owner, attempt };
                both!(self, take_command(take));
                both!(self, take_command(take));
                if self.random.one_in(2) {
                    let result = CommandResult::Failed { why: "it broke\0".into() };
                    both!(self, finish_command(command, attempt, result));
                    both!(self, finish_command(command, attempt, CommandResult::Done));
                }
            }
            3 => drop(both!(self, withdraw_command(command))),
            4 => drop(both!(self, finish_command(command, attempt, CommandResult::Done))),
            _ if self.random.one_in(4) => drop(both!(self, forget_commands(Timestamp(u64::MAX), 3))),
            _ => drop(both!(self, commands(put.node, 10))),
        }
        both!(self, command(command));
    }

    async fn set_aside(&mut self) {
        let name = self.name();
        match self.random.below(6) {
            0 => drop(both!(self, quarantine(name, "why\0".to_owned()))),
            1 | 2 => drop(both!(self, unquarantine(name))),
            3 => drop(both!(self, delete(name))),
            _ => drop(both!(self, deleted(name))),
        }
    }

    /// Compares a page of names that can run. The places of their prompts differ.
    async fn waiting(&mut self, page: &WaitingPage) {
        self.log.push(text(&page));
        let [memory, postgres] = self.sides.clone();
        let pages =
            [memory.waiting(page.clone()).await.unwrap(), postgres.waiting(page.clone()).await.unwrap()];
        let [a, b] = pages.map(|page| (page.prompts, page.other_profile, page.next.map(|next| next.tenant)));
        self.check(a, b);
    }

    /// Compares everything that can be read.
    async fn look(&mut self) {
        both!(self, expire_prompts(100));
        let [memory, postgres] = self.sides.clone();
        let expired =
            [memory.expire_questions(100).await.unwrap(), postgres.expire_questions(100).await.unwrap()];
        self.check(expired[0].len(), expired[1].len());
        both!(self, names(Page { after: None, limit: 100 }));
        both!(self, nodes(None::<NodeId>, 100));
        both!(self, queued());
        both!(self, deleting(100));
        for node in self.nodes.clone() {
            both!(self, owned_names(node, Page { after: None, limit: 100 }));
            let page =
                WaitingPage { node, of: None, without: Vec::new(), profiles: None, after: None, limit: 100 };
            self.waiting(&page).await;
            let page = WaitingPage { without: vec!["tenant of b".into()], limit: 2, ..page };
            self.waiting(&page).await;
            let profiles = [vec![], vec!["other".to_owned()], vec!["support".to_owned()]];
            let page = WaitingPage { profiles: self.random.of(&profiles), limit: 100, ..page };
            self.waiting(&page).await;
        }
        for prompt in self.prompts.clone() {
            both!(self, prompt_record(prompt));
            both!(self, outcome(prompt));
        }
        for name in ["a", "b", "b\0c"] {
            both!(self, tenant(format!("tenant of {name}")));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn random_requests_have_the_answers_of_the_backend_in_memory() {
    let Some(address) = crate::server::address() else { return };
    for seed in 0..12 {
        let postgres = crate::connect(&address, &crate::schema()).await;
        let mut pair = Pair::new(seed, Arc::new(postgres.clone())).await;
        for _ in 0..150 {
            pair.step().await;
        }
        pair.look().await;
        postgres.close().await;
    }
}
