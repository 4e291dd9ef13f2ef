//! The feed over nodes that come and go.

use std::collections::BTreeMap;

use greenroom_fleet::{FeedCursor, FeedEntry, FeedEvent, FeedRetention, PromptId};

use super::*;
use crate::scenes::{outcome, secs, send};

// Guards: told-in-order
#[tokio::test(start_paused = true)]
async fn a_feed_has_what_happened_on_all_nodes_once_and_in_order() {
    let world = World::new();
    let with_feed = |backend| Node::with(&world, backend, |builder| builder.feed(FeedRetention::new()));
    let first = with_feed(FaultedBackend::new(world.backend.clone())).await;
    let second = with_feed(FaultedBackend::new(world.backend.clone())).await;
    let fleets = [&first.fleet, &second.fleet];
    let (mut turns, mut prompts) = (Vec::new(), BTreeMap::<String, Vec<PromptId>>::new());
    for n in 0..60 {
        let name = format!("name-{}", n % 7);
        let turn = send(fleets[n % 2], &name, format!("{n}")).await;
        prompts.entry(name).or_default().push(turn.prompt_id());
        turns.push(turn);
    }
    for turn in turns {
        outcome(turn).await;
    }
    // Lost with its node, and told by the other one.
    let lost = send(&first.fleet, "lost", "hold").await.prompt_id();
    prompts.entry("lost".to_owned()).or_default().push(lost);
    world.clis.read(61).await;
    first.kill(&world).await;
    let mut entries = Vec::<FeedEntry>::new();
    // A reader that is killed again and again, and has kept its last place but one.
    let mut kept = FeedCursor::default();
    while entries.len() < 61 * 3 {
        let mut feed = second.fleet.operator().feed(kept.clone());
        for _ in 0..10 {
            let entry = crate::wait::within(secs(120), feed.next()).await.unwrap().unwrap();
            if entries.iter().all(|known| (&known.name, known.number) != (&entry.name, entry.number)) {
                if let Some(last) = entries.last() {
                    kept = last.cursor.clone();
                }
                entries.push(entry);
            }
            if entries.len() == 61 * 3 {
                break;
            }
        }
    }
    for (name, prompts) in prompts {
        let own: Vec<_> = entries.iter().filter(|entry| entry.name.session() == name).collect();
        assert!(own.windows(2).all(|two| two[0].number + 1 == two[1].number), "{own:?}");
        let of = |event: &FeedEvent| match event {
            FeedEvent::Accepted { prompt } => Some(*prompt),
            _ => None,
        };
        let accepted: Vec<_> = own.iter().filter_map(|entry| of(&entry.event)).collect();
        assert_eq!(accepted, prompts);
        for prompt in prompts {
            let of_prompt = |entry: &&&FeedEntry| match &entry.event {
                FeedEvent::Accepted { prompt: of }
                | FeedEvent::Begun { prompt: of }
                | FeedEvent::Ended { prompt: of, .. } => *of == prompt,
                _ => false,
            };
            let events: Vec<_> = own.iter().filter(of_prompt).map(|entry| &entry.event).collect();
            let ends = |outcome: &str| {
                if prompt == lost { outcome == "interrupted" } else { outcome == "completed" }
            };
            assert!(
                matches!(events[..], [FeedEvent::Accepted { .. }, FeedEvent::Begun { .. }, FeedEvent::Ended { outcome, .. }] if ends(outcome)),
                "{events:?}"
            );
        }
    }
}
