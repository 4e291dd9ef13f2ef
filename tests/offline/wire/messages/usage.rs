//! Money and tokens of a recorded conversation, and of transcripts.

use greenroom::Message;
use greenroom::message::{TokenUsage, TurnUsage, UsageTracker};
use serde_json::{Value, json};

use super::session;

fn micro_dollars(cost: f64) -> u64 {
    (cost * 1e6).round() as u64
}

fn sum(tracker: &UsageTracker) -> TokenUsage {
    tracker.models().values().copied().sum()
}

/// Three subagents, one of them cut off; `/clear`; an orderly end and a resume; SIGKILL in a turn and a resume (CLI 2.1.330).
#[test]
fn usage_adds_up_over_subagents_a_clear_a_resume_and_a_crash() {
    let messages = session("subagents_and_crash");
    let is_cut_off = |message: &Message| message.is_main_thread() && message.raw().get().contains("tail -f");
    let crash = messages.iter().rposition(is_cut_off).unwrap();
    let mut tracker = UsageTracker::new();
    let mut turns: Vec<TurnUsage> = Vec::new();
    for (at, message) in messages.iter().enumerate() {
        turns.extend(tracker.feed(message));
        if at == crash {
            turns.push(tracker.end());
        }
    }
    let costs: Vec<_> = turns.iter().map(|turn| micro_dollars(turn.cost_usd)).collect();
    // The totals of the CLI were 790, 25447, 26371; 0, 991; 2049; after the crash 24423, which is 991 and the turn's 23432; 25682.
    let of_crash = costs[6];
    assert_eq!(costs, [790, 24_657, 924, 0, 991, 1058, of_crash, 23_432, 1259]);
    // 150 input tokens, one of output so far, 250 from the cache, 35 into the cache: at list prices 855.
    assert!((600..1000).contains(&of_crash), "{of_crash}");
    assert_eq!(micro_dollars(tracker.total_cost_usd()), 26_371 + 2049 + 25_682 - 991 + of_crash);
    let accounted: Vec<_> = turns.iter().map(|turn| turn.accounted).collect();
    assert_eq!(accounted, [true, true, true, true, true, true, false, true, true]);
    assert_eq!(
        (turns[6].total().all_input(), turns[6].main),
        (435, {
            let mut main = turns[6].total();
            main.cost_usd = 0.0;
            main
        })
    );

    // What each subagent has read; the stream does not say what they have written.
    let mut agents: Vec<_> = turns[1].agents.iter().map(|agent| agent.total().input).collect();
    agents.sort_unstable();
    assert_eq!(agents, [600, 1100, 2100]);
    assert!(turns[1].agents.iter().all(|agent| agent.agent_type.as_deref() == Some("general-purpose")));
    let calls: Vec<_> = messages.iter().flat_map(Message::tool_uses).map(|call| call.id).collect();
    assert!(turns[1].agents.iter().all(|agent| calls.contains(&agent.tool_use_id.as_deref().unwrap())));
    assert_eq!((turns[1].main.input, turns[1].total().input), (110, 3910));
    assert!(turns.iter().enumerate().all(|(at, turn)| at == 1 || turn.agents.is_empty()));
    assert_eq!(tracker.agents().len(), 3);
}

fn answer(id: &str, input: u64, output: u64) -> String {
    let usage = json!({ "input_tokens": input, "output_tokens": output });
    json!({ "type": "assistant", "message": { "id": id, "model": "m", "usage": usage } }).to_string()
}

fn noted(began: u64, cost: f64, input: u64, output: u64) -> String {
    let model = json!({ "inputTokens": input, "outputTokens": output, "costUSD": cost });
    json!({ "type": "cost-state", "startTime": began, "totalCostUSD": cost, "modelUsage": { "m": model } })
        .to_string()
}

fn read(entries: &[(Option<&str>, String)]) -> (UsageTracker, TurnUsage) {
    let mut tracker = UsageTracker::new();
    entries.iter().for_each(|(agent, entry)| tracker.feed_entry(*agent, entry));
    let all = tracker.end();
    (tracker, all)
}

#[test]
fn a_message_of_a_transcript_counts_once_for_its_thread() {
    let name = json!({ "type": "agent_metadata", "agentType": "Explore", "toolUseId": "t1" }).to_string();
    let (tracker, all) = read(&[
        (None, answer("a", 10, 1)),
        (None, answer("a", 10, 7)),
        (None, answer("a", 10, 7)),
        (Some("x"), answer("b", 5, 2)),
        (Some("x"), name),
        (None, "no entry".to_owned()),
        (None, json!({ "type": "assistant", "message": "hello" }).to_string()),
    ]);
    let used = sum(&tracker);
    assert_eq!((used.input, used.output, used.cost_usd, all.accounted), (15, 9, 0.0, false));
    assert_eq!((all.main.input, all.main.output), (10, 7));
    let [agent] = tracker.agents() else { panic!("{:?}", tracker.agents()) };
    let names = [&agent.agent_id, &agent.agent_type, &agent.tool_use_id].map(|name| name.as_deref().unwrap());
    assert_eq!((names, agent.total().output), (["x", "Explore", "t1"], 2));
}

#[test]
fn notes_of_a_cli_count_with_messages_of_one_that_was_killed() {
    let money = |entries: &[String]| {
        let entries: Vec<_> = entries.iter().map(|entry| (None, entry.clone())).collect();
        let (tracker, all) = read(&entries);
        let used = sum(&tracker);
        ([micro_dollars(tracker.total_cost_usd()), used.input, used.output], all.accounted)
    };
    // A side call is in the note alone.
    assert_eq!(money(&[answer("a", 10, 2), noted(1, 0.5, 12, 3)]), ([500_000, 12, 3], true));
    // An orderly resume goes on counting.
    let resumed = [answer("a", 10, 2), noted(1, 0.5, 10, 2), answer("b", 10, 2), noted(1, 1.0, 20, 4)];
    assert_eq!(money(&resumed), ([1_000_000, 20, 4], true));
    // The first CLI was killed: the note of the second says nothing of it.
    let killed = [answer("a", 10, 2), answer("b", 10, 2), noted(2, 0.5, 10, 2)];
    assert_eq!(money(&killed), ([1_000_000, 20, 4], false));
    // The second was killed, and the third went on counting where the first had ended.
    let between = [
        answer("a", 10, 2),
        noted(1, 0.5, 10, 2),
        answer("b", 10, 2),
        answer("c", 10, 2),
        noted(1, 1.0, 20, 4),
    ];
    assert_eq!(money(&between), ([1_500_000, 30, 6], false));
    // `/clear` counts from nothing.
    assert_eq!(money(&[noted(1, 0.5, 10, 2), noted(2, 0.25, 5, 1)]), ([750_000, 15, 3], true));
}

#[test]
fn many_subagents_are_added_up_by_their_type() {
    let mut tracker = UsageTracker::new();
    let agents = 1500_u64;
    for number in 0..agents {
        let entry: Value = serde_json::from_str(&answer(&format!("m{number}"), 1, 1)).unwrap();
        let mut entry = entry.as_object().unwrap().clone();
        entry.insert("attributionAgent".into(), ["Explore", "Plan"][number as usize % 2].into());
        tracker.feed_entry(Some(&format!("a{number}")), &Value::Object(entry).to_string());
        tracker.end();
    }
    let listed = tracker.agents();
    assert_eq!(listed.len(), 1024 + 2);
    assert_eq!(listed.iter().map(|agent| agent.total().input).sum::<u64>(), agents);
    assert_eq!(listed.last().unwrap().agent_id, None);
}
