//! Operations from outside.

use greenroom_fleet::admin::Admin;
use greenroom_fleet::{
    Access, NameFilter, NamePage, NameQuery, NameState, PromptId, PromptOutcome, Unsent, Withdrawn,
};

use crate::scenes::{World, asks, in_time, named, outcome, secs, send, start};

#[tokio::test(start_paused = true)]
async fn a_prompt_that_an_operator_drops_ends_with_the_reason() {
    let world = World::new();
    let fleet = world.fleet(|_| {}).await;
    let admin = Admin::new(world.backend.clone());
    let runs = send(&fleet, "a", "wait 5").await;
    let waits = send(&fleet, "a", "two").await;
    world.clis.read(1).await;
    let dropped = admin.drop_prompt(waits.prompt_id(), "sent by a loop").await.unwrap();
    assert_eq!(dropped, Withdrawn::Unsent);
    let PromptOutcome::Unsent { why } = outcome(waits).await else { panic!("it was sent") };
    assert_eq!(why, Unsent::Dropped { why: "sent by a loop".to_owned() });
    let late = admin.drop_prompt(runs.prompt_id(), "too late").await.unwrap();
    assert!(matches!(late, Withdrawn::TooLate(_)), "{late:?}");
    assert_eq!(admin.drop_prompt(PromptId::new(), "unknown").await.unwrap(), Withdrawn::Gone);
    assert!(outcome(runs).await.is_completed());
}

#[tokio::test(start_paused = true)]
async fn an_operator_lists_and_frees_quarantined_names() {
    let world = World::new();
    let fleet = world.fleet(|_| {}).await;
    let admin = Admin::new(world.backend.clone());
    for name in ["a", "b", "c", "d", "e"] {
        asks(&fleet, name, "one").await;
    }
    for name in ["b", "c", "e"] {
        in_time("the quarantine", named(&fleet, name).quarantine("looked at")).await.unwrap();
    }
    let (mut seen, mut query) = (Vec::new(), NameQuery::new().only(NameFilter::Stuck).limit(2));
    loop {
        let NamePage { names, next, .. } = admin.names(query.clone()).await.unwrap();
        assert!(names.iter().all(|name| matches!(name.state, NameState::Quarantined { .. })));
        seen.extend(names.iter().map(|name| name.name.session().to_owned()));
        let Some(next) = next else { break };
        query = query.after(next);
    }
    assert_eq!(seen, ["b", "c", "e"]);
    let name = named(&fleet, "c").name().clone();
    assert!(admin.unquarantine(name.clone()).await.unwrap());
    assert!(!admin.unquarantine(name).await.unwrap());
    assert_eq!(asks(&fleet, "c", "two").await, "re: two");
}

#[tokio::test(start_paused = true)]
async fn a_vacuum_removes_old_outcomes_up_to_its_bound() {
    let world = World::new();
    let fleet = world.fleet(|_| {}).await;
    let admin = fleet.operator().admin().unwrap();
    for prompt in 0..7 {
        asks(&fleet, "a", format!("{prompt}").as_str()).await;
    }
    tokio::time::sleep(secs(60)).await;
    let young = send(&fleet, "a", "young").await;
    let id = young.prompt_id();
    outcome(young).await;
    assert_eq!(admin.vacuum(secs(30), 5).await.unwrap(), 5);
    assert_eq!(admin.vacuum(secs(30), 5).await.unwrap(), 2);
    assert_eq!(admin.vacuum(secs(30), 5).await.unwrap(), 0);
    assert!(outcome(fleet.operator().turn(id)).await.is_completed());
}

// Guards: walled
#[tokio::test(start_paused = true)]
async fn the_whole_service_is_denied_to_a_person_whom_the_authoriser_lets_do_everything() {
    let world = World::new();
    let fleet = start(world.builder().authoriser(|_: Access<'_>| Ok(()))).await;
    let person = fleet.operator().on_behalf_of("chief");
    assert!(person.names(NameQuery::new()).await.is_ok());
    for denied in [person.admin().err(), person.events().err()] {
        assert!(denied.is_some_and(|denied| denied.why().contains("only the service")));
    }
    assert!(fleet.operator().admin().is_ok() && fleet.operator().events().is_ok());
}
