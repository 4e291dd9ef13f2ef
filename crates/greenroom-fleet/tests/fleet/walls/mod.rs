//! The walls between tenants, and what people may do.

mod access;
mod attacks;
mod compared;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use greenroom_fleet::backend::{Backend, Lane, MemoryBackend, Part, Range, Requests, Wanted};
use greenroom_fleet::testkit::{Fault, FaultedBackend};
use greenroom_fleet::{
    Clock, FeedCursor, FeedRetention, Fleet, FleetEvent, FleetPrompt, FleetTenant, FleetTurn, Labels,
    NameQuery, PromptId, PromptQuery, QuestionId, QuestionsOf, Tenant, Timestamp,
};
use tokio::time::{Instant, sleep_until};
use uuid::Uuid;

use self::access::Desk;
use crate::scenes::*;

/// The backend's moment at which each scene starts, so that two scenes have equal moments.
const START: Timestamp = Timestamp(1_900_000_000_000);
/// The offsets at which the attacker's sessions and its attack begin. The set-up before each takes less time.
const COMES: Duration = secs(10);
const ATTACKS: Duration = secs(20);

const VICTIM: &str = "acme";
const ATTACKER: &str = "evil";
/// The key of the victim's prompt that waits.
const KEY: &str = "their-key";

/// The ids of a tenant's prompts and of its question.
#[derive(Clone, Copy, Debug)]
struct Ids {
    /// Runs in session `42`.
    runs: PromptId,
    /// Waits behind it.
    waits: PromptId,
    /// Has ended in session `41`.
    ended: PromptId,
    /// Runs in session `43`, and has asked the question.
    asks: PromptId,
    question: QuestionId,
}

impl Ids {
    /// Ids that nothing has.
    fn unknown() -> Self {
        let id = PromptId::new;
        Self { runs: id(), waits: id(), ended: id(), asks: id(), question: QuestionId::new() }
    }

    fn prompts(&self) -> [PromptId; 4] {
        [self.runs, self.waits, self.ended, self.asks]
    }

    fn named(&self) -> [(&'static str, Uuid); 5] {
        let question = ("question", self.question.0);
        [
            ("runs", self.runs.0),
            ("waits", self.waits.0),
            ("ended", self.ended.0),
            ("asks", self.asks.0),
            question,
        ]
    }
}

/// A fleet with an attacker, and with or without a victim. The sessions of both have the same names.
struct Scene {
    world: World,
    fleet: Fleet,
    log: Log,
    start: Instant,
    theirs: Option<Ids>,
    own: Ids,
    /// The requests so far, by their methods.
    requests: Arc<Mutex<BTreeMap<&'static str, i64>>>,
}

impl Scene {
    async fn with_victim() -> Self {
        Self::new(true).await
    }

    async fn new(has_victim: bool) -> Self {
        let start = Instant::now();
        let clock = Clock::new(move || START.after(start.elapsed()));
        let world = World { backend: MemoryBackend::with_clock(clock), clis: Clis::default() };
        let (backend, clis) = (FaultedBackend::new(world.backend.clone()), world.clis.clone());
        let requests = Arc::<Mutex<BTreeMap<_, _>>>::default();
        let counted = requests.clone();
        backend.plan(move |request| {
            *counted.lock().unwrap().entry(request.method).or_default() += 1;
            Fault::Pass
        });
        let builder = world
            .on(backend)
            // A CLI for each name: both tenants have a session `42`.
            .profile("default", move |cx| session(&clis, &cx.name.to_string()))
            .authoriser(Desk)
            .feed(FeedRetention::new())
            .configure(|limits| limits.live = 40);
        let log = Log::new(builder.events());
        let fleet = crate::scenes::start(builder).await;
        let comes = async |tenant| settle(&world, &fleet, &log, tenant).await;
        // A third tenant: the node owns a session in each scene, also after the attacker has deleted its own.
        outcome(accepted(&fleet, "third", "40", "one").await).await;
        let theirs = if has_victim {
            outcome(accepted(&fleet, VICTIM, "39", "one").await).await;
            fleet.tenant(VICTIM).unwrap().session("39").unwrap().delete().await.unwrap();
            // The attacker has no session of this name.
            outcome(accepted(&fleet, VICTIM, "40", "mine alone").await).await;
            Some(comes(VICTIM).await)
        } else {
            None
        };
        assert!(start.elapsed() < COMES);
        sleep_until(start + COMES).await;
        let own = comes(ATTACKER).await;
        assert!(start.elapsed() < ATTACKS);
        // The set-up has no effects any more.
        sleep_until(start + ATTACKS).await;
        while world.backend.seal_feed().await.unwrap() {}
        Self { world, fleet, log, start, theirs, own, requests }
    }

    fn victim(&self) -> FleetTenant {
        self.fleet.tenant(VICTIM).unwrap()
    }

    fn evil(&self) -> FleetTenant {
        self.fleet.tenant(ATTACKER).unwrap()
    }

    /// Each row of the backend that names the victim or one of its ids.
    async fn rows_of_victim(&self) -> BTreeMap<Vec<u8>, Vec<u8>> {
        // As text with a char for each byte, because the search of texts is fast.
        let text = |bytes: &[u8]| bytes.iter().map(|byte| char::from(*byte)).collect::<String>();
        let mut marks = vec![VICTIM.to_owned()];
        for (_, id) in self.theirs.iter().flat_map(Ids::named) {
            marks.extend([text(id.as_bytes()), id.to_string()]);
        }
        let is_theirs = |bytes: &[u8]| {
            let bytes = text(bytes);
            marks.iter().any(|mark| bytes.contains(mark))
        };
        let rows = all_rows(&self.world.backend).await;
        rows.into_iter().filter(|(key, value)| is_theirs(key) || is_theirs(value)).collect()
    }

    /// The tenant's records, counters, usage, feed, events, and the prompts that its CLIs have read.
    async fn account(&self, tenant: &str) -> String {
        let (backend, tenant) = (&self.world.backend, Tenant::new(tenant).unwrap());
        let (mut text, all) = (String::new(), (Timestamp(0), Timestamp(u64::MAX)));
        let names = backend.names(NameQuery::new().tenant(tenant.clone())).await.unwrap().names;
        for record in names {
            let name = record.name.clone();
            let prompts = backend.prompts(name.clone(), PromptQuery::new()).await.unwrap();
            let usage = backend.usage_of_name(name, all.0, all.1).await.unwrap();
            writeln!(text, "{record:?}\n{prompts:?}\n{usage:?}").unwrap();
        }
        let counters = backend.tenant(tenant.clone()).await.unwrap();
        let questions = backend.open_questions(QuestionsOf::Tenant(tenant.clone()), 100).await.unwrap();
        let usage = backend.usage(Some(tenant.clone()), all.0, all.1, None).await.unwrap();
        let feed = backend.feed(Some(tenant.clone()), FeedCursor::default(), 1_000).await.unwrap();
        let quota = backend.quota(tenant.clone()).await.unwrap();
        writeln!(text, "{counters:?}\n{questions:?}\n{usage:?}\n{feed:?}\n{quota:?}").unwrap();
        // In the order of each session. The order between sessions is not determined.
        let (prompts, steered) = (self.world.clis.prompts(), self.world.clis.steered());
        let mut read: Vec<_> = prompts.into_iter().chain(steered).collect();
        read.retain(|(name, _)| name.starts_with(&format!("{tenant}/")));
        read.sort_by(|(one, _), (other, _)| one.cmp(other));
        let events = self.log.all().into_iter().map(|(at, event)| format!("{:?} {event:?}", at - self.start));
        let mut events: Vec<_> = events.filter(|event| event.contains(tenant.as_str())).collect();
        let session = |event: &String| event.split("session: ").nth(1)?.split(' ').next().map(str::to_owned);
        events.sort_by_key(session);
        writeln!(text, "{read:?}\n{}", events.join("\n")).unwrap();
        text
    }
}

/// Creates a tenant's sessions: idle, running with a prompt behind the turn, and asking.
async fn settle(world: &World, fleet: &Fleet, log: &Log, tenant: &str) -> Ids {
    let begins = async |name: &str, text: &str| {
        let read = world.clis.prompts().len();
        let id = accepted(fleet, tenant, name, text).await.prompt_id();
        world.clis.read(read + 1).await;
        id
    };
    let labelled = FleetPrompt::new("cost 0.5").label("topic", "lamps");
    let turn = accepted(fleet, tenant, "41", labelled).await;
    let ended = turn.prompt_id();
    outcome(turn).await;
    let labels = Labels::new().with("plan", "pro");
    named_of(fleet, tenant, "41").set_labels(labels).await.unwrap();
    let runs = begins("42", "listen").await;
    let waits = FleetPrompt::new("two").key(if tenant == VICTIM { KEY } else { "own-key" });
    let waits = accepted(fleet, tenant, "42", waits).await.prompt_id();
    let asks = begins("43", "ask").await;
    let is_asked = |event: &FleetEvent| matches!(event, FleetEvent::Asked { prompt, .. } if *prompt == asks);
    log.wait("the question", is_asked).await;
    let question = named_of(fleet, tenant, "43").questions().await.unwrap()[0].id;
    Ids { runs, waits, ended, asks, question }
}

async fn accepted(fleet: &Fleet, tenant: &str, name: &str, prompt: impl Into<FleetPrompt>) -> FleetTurn {
    in_time("the accept", named_of(fleet, tenant, name).prompt(prompt)).await.unwrap()
}

async fn all_rows(backend: &MemoryBackend) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let range = Range { from: vec![1], to: vec![u8::MAX], limit: usize::MAX, part: Part::Values };
    let wanted = Wanted { ranges: [range.clone()].into(), ..Wanted::default() };
    let mut rows = backend.read(Lane::Requests, wanted).await.unwrap();
    rows.ranges.remove(&range).unwrap().into_iter().collect()
}
