//! Limits of the API, as the real CLI tells them: the prompts of the credential wait, and none fails.

use std::time::{SystemTime, UNIX_EPOCH};

use greenroom_fleet::{Cause, FleetEvents, FleetTurn, Hold, Timestamp};

use super::*;

async fn send(fleet: &Fleet, name: &str, prompt: &str) -> FleetTurn {
    fleet.tenant("default").unwrap().session(name).unwrap().prompt(prompt).await.unwrap()
}

async fn answer(mut turn: FleetTurn) -> String {
    let outcome = in_time("the turn", turn.outcome()).await.unwrap();
    outcome.text().unwrap_or_else(|| panic!("no answer: {outcome:?}")).to_owned()
}

/// Waits until a credential is held.
async fn held(events: &mut FleetEvents) {
    in_time("the hold", async {
        while !matches!(
            events.next().await.unwrap().unwrap(),
            FleetEvent::Degraded { credential: Some(_), .. }
        ) {}
    })
    .await;
}

async fn hold(fleet: &Fleet) -> Option<Hold> {
    in_time("the holds", fleet.operator().admin().unwrap().holds()).await.unwrap().pop()
}

/// One session finds the limit, four others wait for it, and all are answered.
async fn five_sessions(fleet: &Fleet, events: &mut FleetEvents) -> (Hold, Vec<FleetTurn>) {
    let mut turns = vec![send(fleet, "first", "Are you there, first?").await];
    held(events).await;
    for name in ["a", "b", "c", "d"] {
        turns.push(send(fleet, name, &format!("Are you there, {name}?")).await);
    }
    (hold(fleet).await.unwrap(), turns)
}

// Guards: waited-out
#[tokio::test]
async fn a_quota_that_is_used_up_is_waited_out() {
    // The CLI takes a second or so to start.
    let resets_at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() + 12;
    let script = Script::new().turn(ModelTurn::new().used_up_until(resets_at));
    let Some(stage) = Stage::new(script.otherwise(ModelTurn::new().text("Yes."))).await else { return };
    let with_login = |env: &mut BTreeMap<String, String>| {
        env.remove("ANTHROPIC_API_KEY");
        env.insert("CLAUDE_CODE_OAUTH_TOKEN".into(), "made-up-login-of-the-scripted-model".into());
    };
    let (fleet, backend) = stage.open_with(with_login, |_| {}).await;
    let mut events = fleet.operator().events().unwrap();
    let (hold, turns) = five_sessions(&fleet, &mut events).await;
    let reset = Timestamp(resets_at * 1000);
    assert_eq!((hold.cause, hold.resets_at, hold.until), (Cause::RateLimited, Some(reset), reset));
    for turn in turns {
        assert_eq!(answer(turn).await, "Yes.");
        assert!(Timestamp::now() >= reset, "before the reset");
    }
    let asked = stage.requests_with("Are you there").len();
    assert_eq!(asked, 6, "one prompt was sent twice");
    close(fleet, backend).await;
}

// Guards: waited-out
#[tokio::test]
async fn an_overloaded_api_is_waited_out_and_a_rejected_key_until_an_operator_releases_it() {
    let failures: [(ModelTurn, Cause); 3] = [
        (ModelTurn::new().error(529, "overloaded_error", "Overloaded"), Cause::Overloaded),
        (ModelTurn::new().error(401, "authentication_error", "invalid x-api-key"), Cause::KeyRejected),
        (
            ModelTurn::new().error(
                400,
                "invalid_request_error",
                "Your credit balance is too low to access the API.",
            ),
            Cause::NoCredit,
        ),
    ];
    for (failure, cause) in failures {
        let script = Script::new().turn(failure).otherwise(ModelTurn::new().text("Yes."));
        let Some(stage) = Stage::new(script).await else { return };
        let once = |env: &mut BTreeMap<String, String>| {
            env.insert("CLAUDE_CODE_MAX_RETRIES".into(), "0".into());
        };
        let is_waited_out = cause == Cause::Overloaded;
        let pause = Duration::from_secs(if is_waited_out { 2 } else { 3600 });
        let change = |limits: &mut FleetLimits| (limits.backoff, limits.backoff_max) = (pause, pause);
        let (fleet, backend) = stage.open_with(once, change).await;
        let mut events = fleet.operator().events().unwrap();
        let (hold, turns) = five_sessions(&fleet, &mut events).await;
        assert_eq!((hold.cause, hold.resets_at, hold.tries), (cause, None, 1), "{hold:?}");
        if !is_waited_out {
            assert_eq!(stage.requests_with("Are you there").len(), 1);
            let admin = fleet.operator().admin().unwrap();
            assert!(in_time("the release", admin.release(hold.credential)).await.unwrap().is_some());
        }
        for turn in turns {
            assert_eq!(answer(turn).await, "Yes.");
        }
        assert_eq!(stage.requests_with("Are you there").len(), 6, "{cause:?}: one prompt was sent twice");
        assert_eq!(super::limits::hold(&fleet).await, None);
        close(fleet, backend).await;
    }
}
