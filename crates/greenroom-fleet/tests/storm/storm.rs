//! The driver: sends prompts, kills CLIs and services, and writes down what it is told.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use greenroom_fleet::{Name, PromptId};
use tempfile::TempDir;
use tokio::time::{Instant, timeout_at};

use crate::checks::wait_for_processes;
use crate::journal::{Journal, guardian_of};
use crate::life::Life;
use crate::moment::Moment;
use crate::prompts::{Known, Prompt, Prompts};
use crate::protocol::{Dice, Line, Reply, Seen, Wish};
use crate::wait::{SOON, in_time};

const NAMES: usize = 200;

/// Names that get a third of all prompts, so that some have queues.
const BUSY: u64 = 10;

/// Prompts that wait or run at a time, so that the calm after the storm is short.
const OPEN: usize = 60;

/// Prompts in one look.
const LOOK: usize = 20;

/// A session, as the driver knows it.
#[derive(Clone, Debug)]
struct Session {
    name: Name,
    /// The session is being deleted: no prompt is sent to it until that is done.
    deleting: bool,
    /// How often it was deleted. The keys of a deleted session may be used again.
    deletions: u64,
}

/// A request that waits for its reply.
#[derive(Debug)]
enum Waiting {
    Prompt(usize),
    Delete(usize),
    Look(Vec<PromptId>),
    Outcome(PromptId),
    Other,
}

#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) cli_kills: u64,
    pub(crate) service_kills: u64,
    pub(crate) guardian_kills: u64,
    pub(crate) deletions: u64,
    /// Prompts that were sent again and found.
    pub(crate) found: u64,
    pub(crate) refused: u64,
    pub(crate) events: BTreeMap<String, u64>,
}

pub(crate) struct Storm {
    pub(crate) seed: u64,
    pub(crate) length: Duration,
    pub(crate) scratch: PathBuf,
    pub(crate) folder: TempDir,
    pub(crate) journal: Journal,
    pub(crate) prompts: Prompts,
    pub(crate) counts: Counts,
    dice: Dice,
    sessions: Vec<Session>,
    lives: u64,
    /// Requests of this life.
    waiting: BTreeMap<u64, Waiting>,
    /// Replies that must not come.
    pub(crate) failures: Vec<String>,
}

impl Storm {
    pub(crate) fn new(seed: u64, length: Duration) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let scratch = folder.path().canonicalize().unwrap();
        for part in ["slots", "names", "tmp"] {
            std::fs::create_dir(scratch.join(part)).unwrap();
        }
        let session = |number: usize| Session {
            name: format!("tenant-{}/customer-{number}", number % 5).parse().unwrap(),
            deleting: false,
            deletions: 0,
        };
        Self {
            seed,
            length,
            journal: Journal::new(&scratch),
            scratch,
            folder,
            prompts: Prompts::default(),
            counts: Counts::default(),
            dice: Dice::new(seed),
            sessions: (0..NAMES).map(session).collect(),
            lives: 0,
            waiting: BTreeMap::new(),
            failures: Vec::new(),
        }
    }

    /// Lives and kills, one after another, until the time is over and enough has happened: a busy machine takes longer.
    pub(crate) async fn rage(&mut self) {
        let end = Instant::now() + self.length;
        while Instant::now() < end || (self.lacks().is_some() && Instant::now() < end + SOON) {
            let moment = Moment::throw(&mut self.dice);
            let mut life = self.begin();
            if let Moment::Opening(after) = moment {
                let end = Instant::now() + after;
                while let Ok(line) = timeout_at(end, life.next()).await {
                    self.take(line.unwrap_or_else(|| panic!("the service has ended: {}", self.stderr())));
                }
            } else {
                self.open(&mut life).await;
                self.act_until(moment, &mut life).await;
            }
            self.kill(life).await;
        }
    }

    /// Waits for the outcome of all prompts, and reads the outcomes again in another life.
    pub(crate) async fn calm(&mut self) {
        let mut life = self.begin();
        self.open(&mut life).await;
        let mut asked = 0;
        while self.prompts.open() > 0 || !self.waiting.is_empty() {
            // Prompts are accepted one after another, and the replies of the look come meanwhile.
            if asked < self.prompts.all.len() {
                if let Known::Sent = self.prompts.all[asked].known {
                    self.hear(&mut life).await;
                    continue;
                }
                if let Known::Accepted(id) = self.prompts.all[asked].known {
                    self.ask(&mut life, Wish::Outcome(id), Waiting::Outcome(id)).await;
                }
                asked += 1;
            } else {
                self.hear(&mut life).await;
            }
        }
        self.kill(life).await;
        let mut life = self.begin();
        self.open(&mut life).await;
        let ids: Vec<_> = self.prompts.all.iter().filter_map(Prompt::id).collect();
        for ids in ids.chunks(LOOK) {
            self.look(&mut life, ids.to_vec()).await;
            self.hear_all(&mut life).await;
        }
        self.kill(life).await;
    }

    /// Deletes all names, and ends the service in order.
    pub(crate) async fn clear(&mut self) {
        let mut life = self.begin();
        self.open(&mut life).await;
        for number in 0..NAMES {
            self.delete(&mut life, number).await;
            self.hear_all(&mut life).await;
        }
        self.ask(&mut life, Wish::Drain, Waiting::Other).await;
        self.hear_all(&mut life).await;
        assert!(life.end().await, "the service has not ended well: {}", self.stderr());
        self.read_journal();
        wait_for_processes(&self.scratch, &self.journal.processes).await;
    }

    fn begin(&mut self) -> Life {
        self.lives += 1;
        Life::begin(&self.scratch, self.lives, self.seed, &[])
    }

    /// Waits until the fleet is open, and sends again what was without an answer when the service was killed.
    async fn open(&mut self, life: &mut Life) {
        let opened = async {
            loop {
                match life.next().await {
                    Some(Line::Ready) => return true,
                    Some(line) => self.take(line),
                    None => return false,
                }
            }
        };
        let opened = in_time("the opening of the fleet", opened).await;
        assert!(opened, "the service has not opened the fleet: {}", self.stderr());
        for number in 0..NAMES {
            if self.sessions[number].deleting {
                self.delete(life, number).await;
            }
        }
        for number in 0..self.prompts.all.len() {
            if self.prompts.all[number].known == Known::Sent {
                self.send(life, number).await;
            }
        }
        let open = self.prompts.all.iter().filter(|prompt| prompt.is_open()).filter_map(Prompt::id);
        let open: Vec<_> = open.collect();
        for ids in open.chunks(LOOK) {
            self.look(life, ids.to_vec()).await;
        }
        self.look_at_some(life).await;
    }

    /// Prompts, kills of CLIs, deletions and more, until the moment comes.
    async fn act_until(&mut self, moment: Moment, life: &mut Life) {
        let armed = Instant::now() + moment.after();
        // On a busy machine little has happened by then, and a service that is killed so early does nothing.
        let (least, mut heard) = (20 + self.dice.below(60), 0);
        let mut next = Instant::now();
        while heard < least || !moment.is_over(armed) {
            match timeout_at(next, life.next()).await {
                Ok(line) => {
                    let line = line.unwrap_or_else(|| panic!("the service has ended: {}", self.stderr()));
                    let is_met = moment.is_met(armed, &line);
                    self.take(line);
                    heard += 1;
                    if is_met && heard >= least {
                        return;
                    }
                }
                Err(_) => {
                    self.act(life).await;
                    next = Instant::now() + Duration::from_millis(2 + self.dice.below(30));
                }
            }
        }
    }

    async fn act(&mut self, life: &mut Life) {
        let number = self.session();
        let name = self.sessions[number].name.clone();
        match self.dice.below(100) {
            0..62 => self.prompt(life, number).await,
            62..70 => self.send_again(life).await,
            70..80 => self.counts.cli_kills += u64::from(self.journal.kill_one(&mut self.dice)),
            80..84 => self.delete(life, number).await,
            84..90 => self.ask(life, Wish::Passivate(name), Waiting::Other).await,
            90..95 => self.ask(life, Wish::Interrupt(name), Waiting::Other).await,
            _ => self.look_at_some(life).await,
        }
    }

    fn session(&mut self) -> usize {
        let among = if self.dice.percent(30) { BUSY } else { NAMES as u64 };
        self.dice.below(among) as usize
    }

    async fn prompt(&mut self, life: &mut Life, session: usize) {
        if self.sessions[session].deleting || self.prompts.open() >= OPEN {
            return;
        }
        let number = self.prompts.all.len();
        let continuations = if self.dice.percent(30) { 1 + self.dice.below(2) as u32 } else { 0 };
        let text = format!("prompt {number}.");
        let deletions = self.sessions[session].deletions;
        self.prompts.all.push(Prompt { session, deletions, text, continuations, known: Known::Sent });
        self.send(life, number).await;
    }

    /// Sends a prompt that the fleet should have, with its key.
    async fn send_again(&mut self, life: &mut Life) {
        let Some(newest) = self.prompts.all.len().checked_sub(1) else { return };
        let number = newest - (self.dice.below(200) as usize).min(newest);
        let prompt = &self.prompts.all[number];
        let session = &self.sessions[prompt.session];
        if prompt.id().is_some() && !session.deleting && session.deletions == prompt.deletions {
            self.send(life, number).await;
        }
    }

    async fn send(&mut self, life: &mut Life, number: usize) {
        let prompt = &self.prompts.all[number];
        let session = &self.sessions[prompt.session];
        let wish = Wish::Prompt {
            name: session.name.clone(),
            key: number.to_string(),
            text: prompt.text.clone(),
            continuations: prompt.continuations,
        };
        self.ask(life, wish, Waiting::Prompt(number)).await;
    }

    async fn delete(&mut self, life: &mut Life, session: usize) {
        // A prompt whose answer is missing may be sent again after the deletion, and would be another prompt then.
        let of = |number: usize| self.prompts.all[number].session;
        let is_sent =
            |waiting: &Waiting| matches!(waiting, Waiting::Prompt(number) if of(*number) == session);
        if self.waiting.values().any(is_sent) {
            return;
        }
        self.sessions[session].deleting = true;
        let name = self.sessions[session].name.clone();
        self.ask(life, Wish::Delete(name), Waiting::Delete(session)).await;
    }

    /// Looks at some prompts, ended ones among them.
    async fn look_at_some(&mut self, life: &mut Life) {
        let all = self.prompts.all.len() as u64;
        let some = (0..LOOK.min(self.prompts.all.len())).map(|_| self.dice.below(all) as usize);
        let some: Vec<_> =
            some.collect::<Vec<_>>().iter().filter_map(|at| self.prompts.all[*at].id()).collect();
        self.look(life, some).await;
    }

    async fn look(&mut self, life: &mut Life, prompts: Vec<PromptId>) {
        self.ask(life, Wish::Look(prompts.clone()), Waiting::Look(prompts)).await;
    }

    async fn ask(&mut self, life: &mut Life, wish: Wish, waiting: Waiting) {
        let id = life.ask(wish).await;
        self.waiting.insert(id, waiting);
    }

    /// Reads one line of a service that is not killed.
    async fn hear(&mut self, life: &mut Life) {
        let waiting = format!("a line, and {:?} wait", self.waiting);
        let line = in_time(waiting, life.next()).await;
        let line = line.unwrap_or_else(|| panic!("the service has ended: {}", self.stderr()));
        self.take(line);
        self.read_journal();
    }

    async fn hear_all(&mut self, life: &mut Life) {
        while !self.waiting.is_empty() {
            self.hear(life).await;
        }
    }

    /// Kills the service. What it has said before that counts.
    async fn kill(&mut self, mut life: Life) {
        let guardian = if self.dice.percent(15) { guardian_of(life.pid()) } else { None };
        life.kill();
        if let Some(guardian) = guardian {
            // What it does not kill is left to the next life.
            self.counts.guardian_kills += u64::from(guardian.kill());
        }
        self.counts.service_kills += 1;
        while let Some(line) = in_time("the end of the output", life.next()).await {
            self.take(line);
        }
        life.end().await;
        self.waiting.clear();
        self.read_journal();
    }

    /// Reads the journal, and ends the storm at the first fault: what follows may never end.
    fn read_journal(&mut self) {
        self.journal.read();
        let faults = self.faults();
        assert!(faults.is_empty(), "{}:\n{}\n{}", self.told(), faults.join("\n"), self.stderr());
    }

    fn take(&mut self, line: Line) {
        let (id, reply) = match line {
            Line::Ready | Line::Joined(_) | Line::Lost(_) => return,
            Line::Event(kind) => return *self.counts.events.entry(kind).or_default() += 1,
            Line::Reply { id, reply } => (id, reply),
        };
        match (self.waiting.remove(&id), reply) {
            (Some(Waiting::Prompt(number)), Reply::Accepted { prompt, is_duplicate }) => {
                self.counts.found += u64::from(is_duplicate);
                self.prompts.accepted(number, prompt);
            }
            (Some(Waiting::Prompt(number)), Reply::Refused(_)) if self.prompts.all[number].id().is_none() => {
                self.counts.refused += 1;
                self.prompts.all[number].known = Known::Refused;
            }
            (Some(Waiting::Delete(session)), Reply::Done) => {
                self.counts.deletions += 1;
                let session = &mut self.sessions[session];
                (session.deleting, session.deletions) = (false, session.deletions + 1);
            }
            (Some(Waiting::Look(prompts)), Reply::Seen(seen)) => {
                for (id, seen) in prompts.into_iter().zip(seen) {
                    match seen {
                        Seen::Missing => self.missing(id),
                        // The answer may have been too slow to tell the outcome.
                        Seen::Open => {}
                        Seen::Ended(outcome) => self.prompts.ended(id, outcome),
                    }
                }
            }
            (Some(Waiting::Outcome(id)), Reply::Ended(outcome)) => self.prompts.ended(id, outcome),
            (Some(Waiting::Outcome(id)), Reply::Seen(_)) => self.missing(id),
            (Some(Waiting::Other), Reply::Done) => {}
            (waited, reply) => self.failures.push(format!("the reply to {waited:?} was {reply:?}")),
        }
    }

    /// A prompt is not known any more: it was deleted with its session, or it is lost.
    fn missing(&mut self, id: PromptId) {
        let sessions = &self.sessions;
        let begun = |session: usize| sessions[session].deletions + u64::from(sessions[session].deleting);
        self.prompts.missing(id, begun);
    }
}
