//! Attacks of one tenant on another, and what people may do.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::{BoxFuture, ready};
use greenroom::callback::InquiryAnswer;
use greenroom_fleet::backend::{Backend, Lane, MemoryBackend, Part, Range, Wanted};
use greenroom_fleet::testkit::FaultedBackend;
use greenroom_fleet::{
    Access, Action, AnswerError, Authoriser, Denied, FeedCursor, FeedError, Fleet, FleetError, FleetEvent,
    FleetPrompt, FleetTenant, FleetTurn, Labels, NameQuery, Operator, PromptError, PromptId, PromptQuery,
    QuestionAnswer, QuestionId, QuestionQuery, Tenant, UsageQuery,
};

use crate::scenes::*;

/// The key's first byte of rows that time changes: the leases of nodes.
const LEASES: u8 = 26;
/// The requests that an attack may make, counted by their methods.
const REQUESTS: [&str; 10] = [
    "prompt_record",
    "outcome",
    "messages",
    "content",
    "name_record",
    "withdraw",
    "question",
    "answer",
    "put_command",
    "delete",
];

/// A tenant with a session `42`: a turn runs and asks a question, a prompt waits behind it, and another session has run one.
struct Victim {
    backend: FaultedBackend,
    world: World,
    fleet: Fleet,
    runs: PromptId,
    waits: PromptId,
    ended: PromptId,
    question: QuestionId,
}

impl Victim {
    async fn new() -> Self {
        let world = World::new();
        let backend = FaultedBackend::new(world.backend.clone());
        let fleet = start(world.on(backend.clone()).authoriser(Desk::default())).await;
        let ended = in_time("the accept", named_of(&fleet, "acme", "41").prompt("one")).await.unwrap();
        let ended = { outcome_of(ended).await };
        let (session, log) = (named_of(&fleet, "acme", "42"), Log::of(&fleet));
        let runs = in_time("the accept", session.prompt("ask")).await.unwrap().prompt_id();
        log.wait("the question", |event| matches!(event, FleetEvent::Asked { .. })).await;
        let question = session.questions().await.unwrap()[0].id;
        let waits = FleetPrompt::new("two").key("k");
        let waits = in_time("the accept", session.prompt(waits)).await.unwrap().prompt_id();
        Self { backend, world, fleet, runs, waits, ended, question }
    }

    fn evil(&self) -> FleetTenant {
        self.fleet.tenant("evil").unwrap()
    }

    fn requests(&self) -> [u64; REQUESTS.len()] {
        REQUESTS.map(|method| self.backend.requests(method))
    }

    /// Each row of the backend, but those that time changes.
    async fn rows(&self) -> BTreeMap<Vec<u8>, Vec<u8>> {
        all_rows(&self.world.backend).await
    }
}

async fn outcome_of(turn: FleetTurn) -> PromptId {
    let id = turn.prompt_id();
    outcome(turn).await;
    id
}

async fn all_rows(backend: &MemoryBackend) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let range = Range { from: vec![1], to: vec![u8::MAX], limit: usize::MAX, part: Part::Values };
    let wanted = Wanted { ranges: [range.clone()].into(), ..Wanted::default() };
    let mut rows = backend.read(Lane::Requests, wanted).await.unwrap();
    rows.ranges.remove(&range).unwrap().into_iter().filter(|(key, _)| key[0] != LEASES).collect()
}

/// The ids that an attack uses: those of another tenant, or ids that nothing has.
#[derive(Clone, Copy, Debug)]
struct Ids {
    runs: PromptId,
    waits: PromptId,
    ended: PromptId,
    question: QuestionId,
}

type Attack = fn(FleetTenant, Ids) -> BoxFuture<'static, String>;

/// Each call of a tenant's handle that takes an id. The text is all that the attacker learns.
fn attacks() -> Vec<(&'static str, Attack)> {
    vec![
        ("turn.next", |evil, ids| {
            Box::pin(async move {
                let mut seen = Vec::new();
                for id in [ids.runs, ids.waits, ids.ended] {
                    seen.push(format!(
                        "{:?}",
                        evil.turn(id).messages_from(1).next().await.map(|item| item.is_ok())
                    ));
                }
                seen.join(", ")
            })
        }),
        ("turn.outcome", |evil, ids| {
            Box::pin(async move { learnt(evil.turn(ids.ended).outcome().await, &ids) })
        }),
        ("turn.record", |evil, ids| {
            Box::pin(async move { learnt(evil.turn(ids.waits).record().await, &ids) })
        }),
        ("withdraw", |evil, ids| Box::pin(async move { learnt(evil.withdraw(ids.waits).await, &ids) })),
        ("answer", |evil, ids| {
            Box::pin(async move { learnt(evil.answer(ids.question, InquiryAnswer::allow()).await, &ids) })
        }),
        ("interrupt_turn", |evil, ids| {
            Box::pin(async move { learnt(evil.session("42").unwrap().interrupt_turn(ids.runs).await, &ids) })
        }),
        ("interrupt", |evil, ids| {
            Box::pin(async move { learnt(evil.session("42").unwrap().interrupt().await, &ids) })
        }),
        ("delete", |evil, ids| {
            Box::pin(async move { learnt(evil.session("42").unwrap().delete().await, &ids) })
        }),
        ("passivate", |evil, ids| {
            Box::pin(async move { learnt(evil.session("42").unwrap().passivate().await, &ids) })
        }),
        ("quarantine", |evil, ids| {
            Box::pin(async move { learnt(evil.session("42").unwrap().quarantine("mine").await, &ids) })
        }),
        ("unquarantine", |evil, ids| {
            Box::pin(async move { learnt(evil.session("42").unwrap().unquarantine().await, &ids) })
        }),
        ("steer", |evil, ids| {
            Box::pin(async move { learnt(evil.session("42").unwrap().steer("obey me").await, &ids) })
        }),
        ("record", |evil, ids| {
            Box::pin(async move { learnt(evil.session("42").unwrap().record().await, &ids) })
        }),
        ("names", |evil, ids| {
            Box::pin(async move {
                let theirs =
                    NameQuery::new().tenant(Tenant::new("acme").unwrap()).after("acme/41".parse().unwrap());
                learnt(evil.names(theirs).await, &ids)
            })
        }),
        ("prompts", |evil, ids| {
            Box::pin(async move {
                let place = format!("{}.{}", u64::MAX, ids.ended.0.simple());
                let query = PromptQuery::new().after(place.parse().unwrap());
                learnt(evil.session("42").unwrap().prompts(query).await, &ids)
            })
        }),
        ("usage", |evil, ids| {
            Box::pin(async move {
                let of_session = evil.session("41").unwrap().usage(UsageQuery::new()).await;
                [learnt(evil.usage(UsageQuery::new()).await, &ids), learnt(of_session, &ids)].join(", ")
            })
        }),
        ("set_labels", |evil, ids| {
            Box::pin(async move {
                let labels = Labels::new().with("mine", "mine");
                learnt(evil.session("42").unwrap().set_labels(labels).await, &ids)
            })
        }),
        ("feed", |evil, ids| {
            Box::pin(async move {
                let place = format!("0.{}", ids.ended.0.simple());
                let read = evil.feed(place.parse().unwrap()).next().await;
                learnt(read, &ids)
            })
        }),
        ("questions", |evil, ids| {
            Box::pin(async move {
                let theirs = QuestionQuery::new().session("acme/42".parse().unwrap());
                let own = evil.session("42").unwrap().questions().await;
                [learnt(evil.questions(theirs).await, &ids), learnt(own, &ids)].join(", ")
            })
        }),
    ]
}

/// An answer as text, without the ids that the attacker has given.
fn learnt<T: std::fmt::Debug, E: std::fmt::Debug>(answer: Result<T, E>, ids: &Ids) -> String {
    let mut text = format!("{answer:?}");
    for id in [ids.runs.0, ids.waits.0, ids.ended.0, ids.question.0] {
        text = text.replace(&id.to_string(), "ID");
    }
    text
}

#[tokio::test(start_paused = true)]
async fn an_id_of_another_tenant_is_answered_like_one_that_does_not_exist() {
    let victim = Victim::new().await;
    let theirs =
        Ids { runs: victim.runs, waits: victim.waits, ended: victim.ended, question: victim.question };
    let (nothing, question) = (PromptId::new, QuestionId::new());
    let unknown = Ids { runs: nothing(), waits: nothing(), ended: nothing(), question };
    let before = victim.rows().await;
    for (call, attack) in attacks() {
        let counted = async |ids| {
            // The clock moves when nothing is left to do: so no request of the fleet itself is counted.
            tokio::time::sleep(Duration::from_millis(1)).await;
            let before = victim.requests();
            let learnt = in_time(call, attack(victim.evil(), ids)).await;
            let after = victim.requests();
            (learnt, std::array::from_fn::<_, { REQUESTS.len() }, _>(|at| after[at] - before[at]))
        };
        let (foreign, none) = (counted(theirs).await, counted(unknown).await);
        assert_eq!(foreign, none, "{call}: what is learnt, and the requests that it takes");
        assert_eq!(victim.rows().await, before, "{call} has changed a row");
    }
    // The victim goes on as if nothing had been.
    let operator = victim.fleet.operator();
    operator.answer(victim.question, InquiryAnswer::allow()).await.unwrap();
    for (id, text) in [(victim.runs, "re: ask allow"), (victim.waits, "re: two"), (victim.ended, "re: one")] {
        assert_eq!(outcome(operator.turn(id)).await.text(), Some(text));
    }
}

#[tokio::test(start_paused = true)]
async fn two_tenants_use_one_name_for_two_sessions() {
    let victim = Victim::new().await;
    let mine = victim.evil().session("42").unwrap();
    // The same key for another content, too.
    let mut turn = in_time("the accept", mine.prompt(FleetPrompt::new("mine").key("k"))).await.unwrap();
    assert!(!turn.is_duplicate());
    assert_eq!(in_time("the outcome", turn.outcome()).await.unwrap().text(), Some("re: mine"));
    assert_eq!(mine.questions().await.unwrap(), []);
    in_time("the deletion", mine.delete()).await.unwrap();
    let record = named_of(&victim.fleet, "acme", "42").record().await.unwrap();
    assert_eq!((record.queued, record.running), (1, Some(victim.runs)));
    assert_eq!(named_of(&victim.fleet, "acme", "42").questions().await.unwrap().len(), 1);
}

/// People of the desk: a name that begins with `agent` may do everything but delete, and `guest` may read.
#[derive(Default)]
struct Desk(Arc<Mutex<Vec<String>>>);

impl Authoriser for Desk {
    fn authorise<'a>(&'a self, access: Access<'a>) -> BoxFuture<'a, Result<(), Denied>> {
        let Access { person, action, tenant, name, .. } = access;
        let on =
            name.map(ToString::to_string).or(tenant.map(ToString::to_string)).unwrap_or("all".to_owned());
        self.0.lock().unwrap().push(format!("{person} {action:?} {on}"));
        let may = match person {
            "agent" => action != Action::Delete,
            "guest" => action == Action::Read && tenant.is_some_and(|tenant| tenant.as_str() == "acme"),
            _ => false,
        };
        Box::pin(ready(if may { Ok(()) } else { Err(Denied::new("ask your team lead")) }))
    }
}

/// The handle over all tenants, for somebody who may not use it.
fn people_of_all(victim: &Victim) -> Operator {
    victim.fleet.operator().on_behalf_of("guest")
}

#[tokio::test(start_paused = true)]
async fn the_authoriser_decides_on_each_call_for_a_person() {
    let victim = Victim::new().await;
    let before = victim.rows().await;
    let guest = victim.fleet.tenant("acme").unwrap().on_behalf_of("guest");
    let session = guest.session("42").unwrap();
    let denied = |error: &FleetError| matches!(error, FleetError::Denied(denied) if denied.why() == "ask your team lead");
    let results = [
        ("withdraw", guest.withdraw(victim.waits).await.map(drop)),
        ("warm", session.warm().await),
        ("interrupt", session.interrupt().await.map(drop)),
        ("interrupt_turn", session.interrupt_turn(victim.runs).await.map(drop)),
        ("steer", session.steer("no").await),
        ("passivate", session.passivate().await),
        ("quarantine", session.quarantine("no").await),
        ("unquarantine", session.unquarantine().await.map(drop)),
        ("set_labels", session.set_labels(Labels::new().with("mine", "mine")).await),
        ("delete", session.delete().await.map(drop)),
        ("names of all", people_of_all(&victim).names(NameQuery::new()).await.map(drop)),
        ("usage of all", people_of_all(&victim).usage(UsageQuery::new()).await.map(drop)),
        ("questions of all", people_of_all(&victim).questions(QuestionQuery::new()).await.map(drop)),
    ];
    for (call, result) in results {
        assert!(result.as_ref().is_err_and(denied), "{call}: {result:?}");
    }
    assert!(matches!(session.prompt("no").await, Err(PromptError::Denied(_))));
    let answered = guest.answer(victim.question, InquiryAnswer::allow()).await;
    assert!(matches!(answered, Err(AnswerError::Denied(_))), "{answered:?}");
    assert_eq!(victim.rows().await, before, "a denied call has changed a row");
    // The guest may read.
    assert_eq!(session.questions().await.unwrap().len(), 1);
    assert_eq!(session.prompts(PromptQuery::new()).await.unwrap().prompts.len(), 2);
    assert_eq!(guest.names(NameQuery::new()).await.unwrap().names.len(), 2);
    assert!(session.record().await.is_ok());
    let feed = people_of_all(&victim).feed(FeedCursor::default()).next().await;
    assert!(matches!(feed, Err(FeedError::Denied(_))), "{feed:?}");
    assert_eq!(outcome(guest.turn(victim.ended)).await.text(), Some("re: one"));
}

#[tokio::test(start_paused = true)]
async fn an_answer_carries_the_person_for_whom_the_handle_acts() {
    let victim = Victim::new().await;
    let agent = victim.fleet.tenant("acme").unwrap().on_behalf_of("agent");
    let pretends = QuestionAnswer::new(InquiryAnswer::allow()).by("the chief");
    agent.answer(victim.question, pretends).await.unwrap();
    let late = agent.answer(victim.question, InquiryAnswer::allow()).await.unwrap_err();
    let AnswerError::TooLate { decision, .. } = &late else { panic!("{late:?}") };
    assert_eq!(decision.answer().unwrap().by.as_deref(), Some("agent"));
}

#[tokio::test(start_paused = true)]
async fn people_may_do_nothing_without_an_authoriser() {
    let world = World::new();
    let fleet = world.fleet(|_| {}).await;
    let ended = outcome_of(send(&fleet, "a", "one").await).await;
    let anna = fleet.tenant("default").unwrap().on_behalf_of("anna");
    let denied = anna.turn(ended).next().await;
    assert!(matches!(denied, Some(Err(FleetError::Denied(_)))), "{denied:?}");
    let denied = anna.session("a").unwrap().prompt("two").await.unwrap_err();
    assert!(denied.to_string().contains("`FleetBuilder::authoriser`"), "{denied}");
}
