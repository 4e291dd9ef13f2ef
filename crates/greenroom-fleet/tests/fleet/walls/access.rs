//! Two tenants with equal names, and people with their rights.

use futures_util::future::{BoxFuture, ready};
use greenroom::callback::InquiryAnswer;
use greenroom_fleet::{
    Access, Action, AnswerError, Authoriser, Denied, FeedError, FleetError, PromptError, QuestionAnswer,
    QuestionQuery, Quota, SnapshotQuery, UsageQuery,
};

use super::*;

#[tokio::test(start_paused = true)]
async fn two_tenants_use_one_name_for_two_sessions() {
    let scene = Scene::with_victim().await;
    let theirs = scene.theirs.unwrap();
    let mine = scene.evil().session("41").unwrap();
    // The key of the victim, for another content.
    let mut turn = in_time("the accept", mine.prompt(FleetPrompt::new("mine").key(KEY))).await.unwrap();
    assert!(!turn.is_duplicate());
    assert_eq!(in_time("the outcome", turn.outcome()).await.unwrap().text(), Some("re: mine"));
    for name in ["41", "42", "43"] {
        in_time("the deletion", scene.evil().session(name).unwrap().delete()).await.unwrap();
    }
    assert_eq!(scene.evil().names(NameQuery::new()).await.unwrap().names, []);
    let [running, asking] = ["42", "43"].map(|name| scene.victim().session(name).unwrap());
    let record = running.record().await.unwrap();
    assert_eq!((record.queued, record.running), (1, Some(theirs.runs)));
    assert_eq!(asking.questions().await.unwrap().len(), 1);
}

/// People of the desk: a name that begins with `agent` may do everything but delete, and `guest` may read.
pub(super) struct Desk;

impl Authoriser for Desk {
    fn authorise<'a>(&'a self, access: Access<'a>) -> BoxFuture<'a, Result<(), Denied>> {
        let Access { person, action, tenant, .. } = access;
        let may = match person {
            "agent" => action != Action::Delete,
            "guest" => action == Action::Read && tenant.is_some_and(|tenant| tenant.as_str() == "acme"),
            _ => false,
        };
        Box::pin(ready(if may { Ok(()) } else { Err(Denied::new("ask your team lead")) }))
    }
}

// Guards: walled
#[tokio::test(start_paused = true)]
async fn the_authoriser_decides_on_each_call_for_a_person() {
    let scene = Scene::with_victim().await;
    let (ids, before) = (scene.theirs.unwrap(), all_rows(&scene.world.backend).await);
    let guest = scene.victim().on_behalf_of("guest");
    let session = guest.session("42").unwrap();
    let operator = scene.fleet.operator().on_behalf_of("guest");
    let (acme, evil) = (Tenant::new(VICTIM).unwrap(), Tenant::new(ATTACKER).unwrap());
    let denied = |error: &FleetError| matches!(error, FleetError::Denied(denied) if denied.why() == "ask your team lead");
    let results = [
        ("withdraw", guest.withdraw(ids.waits).await.map(drop)),
        ("warm", session.warm().await),
        ("interrupt", session.interrupt().await.map(drop)),
        ("interrupt_turn", session.interrupt_turn(ids.runs).await.map(drop)),
        ("steer", session.steer("no").await),
        ("passivate", session.passivate().await),
        ("quarantine", session.quarantine("no").await),
        ("unquarantine", session.unquarantine().await.map(drop)),
        ("set_labels", session.set_labels(Labels::new().with("mine", "mine")).await),
        ("delete", session.delete().await.map(drop)),
        ("names of all", operator.names(NameQuery::new()).await.map(drop)),
        ("usage of all", operator.usage(UsageQuery::new()).await.map(drop)),
        ("questions of all", operator.questions(QuestionQuery::new()).await.map(drop)),
        ("snapshot", operator.snapshot(SnapshotQuery::active()).await.map(drop)),
        (
            "snapshot of a tenant",
            operator.snapshot(SnapshotQuery::active().tenant(acme.clone())).await.map(drop),
        ),
        ("quota of another tenant", operator.quota(evil).await.map(drop)),
        ("set_quota", operator.set_quota(acme.clone(), Quota::default().live(1)).await),
        ("set_quota to none", operator.set_quota(acme.clone(), None).await),
    ];
    for (call, result) in results {
        assert!(result.as_ref().is_err_and(denied), "{call}: {result:?}");
    }
    assert!(matches!(session.prompt("no").await, Err(PromptError::Denied(_))));
    let answered = guest.answer(ids.question, InquiryAnswer::allow()).await;
    assert!(matches!(answered, Err(AnswerError::Denied(_))), "{answered:?}");
    let after = all_rows(&scene.world.backend).await;
    assert!(after == before, "a denied call has changed a row");
    // The guest may read.
    assert_eq!(guest.session("43").unwrap().questions().await.unwrap().len(), 1);
    assert_eq!(session.prompts(PromptQuery::new()).await.unwrap().prompts.len(), 2);
    assert_eq!(guest.names(NameQuery::new()).await.unwrap().names.len(), 4);
    assert!(session.record().await.is_ok());
    assert_eq!(operator.quota(acme.clone()).await.unwrap(), Quota::default());
    let feed = operator.feed(FeedCursor::default()).next().await;
    assert!(matches!(feed, Err(FeedError::Denied(_))), "{feed:?}");
    assert_eq!(outcome(guest.turn(ids.ended)).await.text(), Some("re: cost 0.5"));
    // The agent may do what the guest may not.
    let agent = scene.fleet.operator().on_behalf_of("agent");
    let quota = Quota::default().live(7);
    agent.set_quota(acme.clone(), quota.clone()).await.unwrap();
    assert_eq!(operator.quota(acme).await.unwrap(), quota);
    assert_eq!(agent.snapshot(SnapshotQuery::active()).await.unwrap().names.len(), 8);
}

#[tokio::test(start_paused = true)]
async fn an_answer_carries_the_person_for_whom_the_handle_acts() {
    let scene = Scene::with_victim().await;
    let (agent, question) = (scene.victim().on_behalf_of("agent"), scene.theirs.unwrap().question);
    let pretends = QuestionAnswer::new(InquiryAnswer::allow()).by("the chief");
    agent.answer(question, pretends).await.unwrap();
    let late = agent.answer(question, InquiryAnswer::allow()).await.unwrap_err();
    let AnswerError::TooLate { decision, .. } = &late else { panic!("{late:?}") };
    assert_eq!(decision.answer().unwrap().by.as_deref(), Some("agent"));
}

// Guards: walled
#[tokio::test(start_paused = true)]
async fn people_may_do_nothing_without_an_authoriser() {
    let world = World::new();
    let fleet = world.fleet(|_| {}).await;
    let sent = send(&fleet, "a", "one").await;
    let ended = sent.prompt_id();
    outcome(sent).await;
    let anna = fleet.tenant("default").unwrap().on_behalf_of("anna");
    let denied = anna.turn(ended).next().await;
    assert!(matches!(denied, Some(Err(FleetError::Denied(_)))), "{denied:?}");
    let denied = anna.session("a").unwrap().prompt("two").await.unwrap_err();
    assert!(denied.to_string().contains("`FleetBuilder::authoriser`"), "{denied}");
}
