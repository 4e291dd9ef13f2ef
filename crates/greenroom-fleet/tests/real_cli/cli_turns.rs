//! Turns that the CLI begins by itself.

use greenroom_fleet::{PromptOrigin, PromptQuery, TurnItem, UsageQuery};
use serde_json::json;
use tokio::time::Instant;

use super::*;

// Guards: capped
#[tokio::test]
async fn a_background_agent_that_ends_after_a_quiet_time_has_its_turn_read_and_counted_and_never_cut() {
    let works = ModelTurn::new().call(
        "Task",
        json!({
            "description": "works", "prompt": "Work.", "subagent_type": "general-purpose", "run_in_background": true,
        }),
    );
    // Nothing is heard of the agent for 20 seconds, and then nothing of the model for 8.
    let script = Script::new()
        .turn(works)
        .turn(ModelTurn::new().text("It works."))
        .turn(ModelTurn::new().pause_before(Duration::from_secs(8)).text("The agent has ended."))
        .agent_turn(ModelTurn::new().pause_before(Duration::from_secs(20)).text("Done."))
        .otherwise(ModelTurn::new().text("Noted."));
    let Some(stage) = Stage::new(script).await else { return };
    let change = |limits: &mut FleetLimits| {
        (limits.live, limits.idle_after) = (1, Duration::from_secs(3));
        limits.idle_before_eviction = Duration::from_millis(1);
    };
    let (fleet, backend) = stage.open(change).await;
    let mut events = fleet.operator().events().unwrap();
    let tenant = fleet.tenant("default").unwrap();
    assert_eq!(asks(&fleet, "a", "Go.").await, "It works.");
    let quiet = Instant::now();
    let mut other = tenant.session("b").unwrap().prompt("Hello?").await.unwrap();
    let begun = loop {
        match in_time("the turn", events.next()).await.unwrap().unwrap() {
            FleetEvent::BegunByCli { name, prompt } if name.session() == "a" => break prompt,
            FleetEvent::Passivating { name, why } => panic!("{name} was put to sleep: {why:?}"),
            _ => {}
        }
    };
    assert!(quiet.elapsed() > Duration::from_secs(15), "{:?}", quiet.elapsed());
    let mut turn = tenant.turn(begun);
    let mut said = String::new();
    while let Some(item) = in_time("the message", turn.next()).await {
        if let TurnItem::Message { message: greenroom::Message::Assistant(message), .. } = item.unwrap() {
            said += &message.text();
        }
    }
    assert_eq!(said, "The agent has ended.");
    let outcome = in_time("the outcome", turn.outcome()).await.unwrap();
    assert_eq!(outcome.text(), Some("The agent has ended."), "{outcome:?}");
    assert!(quiet.elapsed() > Duration::from_secs(24), "{:?}", quiet.elapsed());
    // The other session gets the slot afterwards.
    assert_eq!(in_time("the other", other.outcome()).await.unwrap().text(), Some("Noted."));
    let prompts = tenant.session("a").unwrap().prompts(PromptQuery::new()).await.unwrap().prompts;
    let origins: Vec<_> = prompts.iter().map(|entry| entry.record.origin).collect();
    assert_eq!(origins, [PromptOrigin::Cli, PromptOrigin::Application]);
    let (by_cli, by_us) = (prompts[0].record.usage, prompts[1].record.usage);
    assert!(by_cli.cost > 0 && by_us.cost > 0, "{by_cli:?} {by_us:?}");
    let day: u64 = tenant.usage(UsageQuery::new()).await.unwrap().iter().map(|day| day.usage.cost).sum();
    assert!(day >= by_cli.cost + by_us.cost);
    close(fleet, backend).await;
}
