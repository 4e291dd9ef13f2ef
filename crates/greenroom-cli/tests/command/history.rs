//! The usage and the feed in pipes.

use greenroom_fleet::backend::Requests;
use greenroom_fleet::{Timestamp, Usage};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use uuid::Uuid;

use crate::stage::{Service, accepted, joined, quarantined, started, used};
use crate::wait::in_time;

const HOUR: u64 = 3_600_000;
const DAY: u64 = 24 * HOUR;

/// A service whose tenants have used something in these hours, and the start of its day.
async fn with_usage(hours: &[(&str, i64)]) -> (Service, u64) {
    let service = Service::start().await;
    let today = Timestamp::now().0 / DAY * DAY;
    for (tenant, hour) in hours {
        let start = today.saturating_add_signed(hour * HOUR as i64);
        let usage = json!({ "turns": 2, "unmetered": 1, "cost": 250_000, "input": 3, "output": 4, "cache_read": 5, "cache_creation": 6 });
        let entry = json!({ "start": start, "tenant": tenant, "usage": usage });
        let taken = Some(vec![serde_json::from_value(entry).unwrap()]);
        let tenant = (*tenant).try_into().unwrap();
        service.backend.take_usage(tenant, Uuid::from_u128(1), taken).await.unwrap();
    }
    (service, today)
}

#[tokio::test]
async fn usage_is_listed_by_day_and_by_hour() {
    let hours = [("acme", -40 * 24), ("acme", -23), ("acme", -22), ("acme", 0), ("beta", 0)];
    let (service, today) = with_usage(&hours).await;
    let day = |moment: u64| {
        humantime::format_rfc3339_seconds(std::time::UNIX_EPOCH + std::time::Duration::from_millis(moment))
            .to_string()
    };
    let (yesterday, now) = (day(today - DAY), day(today));
    let lines = async |arguments: &[&str]| {
        let out = service.run(&[&["usage"], arguments].concat()).await.done();
        out.lines().map(|line| line.split('\t').map(str::to_owned).collect::<Vec<_>>()).collect::<Vec<_>>()
    };
    let all = lines(&[]).await;
    assert_eq!(all[0], [yesterday.as_str(), "acme", "4", "2", "0.500000", "6", "8", "10", "12"]);
    assert_eq!(all[1], [now.as_str(), "acme", "2", "1", "0.250000", "3", "4", "5", "6"]);
    assert_eq!(all[2][..2], [now.as_str(), "beta"]);
    assert_eq!(all.len(), 3);
    assert_eq!(lines(&["--tenant", "beta"]).await, all[2..]);
    assert_eq!(lines(&["--days", "1"]).await, all[1..]);
    assert_eq!(lines(&["--since", &now[..10]]).await, all[1..]);
    assert_eq!(lines(&["--days", "41", "--tenant", "acme"]).await.len(), 3);
    let by_hour = service.run(&["usage", "--by-hour", "--tenant", "acme", "--json"]).await.objects();
    let starts: Vec<_> = by_hour.iter().map(|hour| hour["start"].as_u64().unwrap()).collect();
    assert_eq!(starts, [today - 23 * HOUR, today - 22 * HOUR, today]);
    let hour = json!({
        "start": today, "tenant": "acme", "turns": 2, "unmetered": 1, "cost_usd": 0.25, "input": 3, "output": 4,
        "cache_read": 5, "cache_creation": 6,
    });
    assert_eq!(by_hour[2], hour);
}

#[tokio::test]
async fn usage_of_a_session_is_its_own() {
    let service = Service::start().await;
    let node = joined(&service.backend, "here").await;
    let mut usage = Usage::default();
    (usage.cost, usage.output) = (1_500_000, 9);
    used(&service.backend, "acme/a", node, usage).await;
    used(&service.backend, "acme/b", node, usage).await;
    let own = service.run(&["usage", "--name", "acme/a", "--json"]).await.objects();
    assert_eq!((own.len(), &own[0]["cost_usd"], &own[0]["output"]), (1, &json!(1.5), &json!(9)));
    let of_tenant = service.run(&["usage", "--tenant", "acme", "--json"]).await.objects();
    assert_eq!(
        (of_tenant.len(), &of_tenant[0]["cost_usd"], &of_tenant[0]["turns"]),
        (1, &json!(3.0), &json!(2))
    );
    assert_eq!(service.run(&["usage", "--name", "acme/c"]).await.done(), "");
}

#[tokio::test]
async fn a_feed_is_followed_until_an_interrupt_and_resumed_at_a_cursor() {
    let service = Service::start().await;
    let backend = &service.backend;
    let off = service.run(&["feed"]).await;
    assert!(off.code == 1 && off.error.contains("greenroom feed --keep 7d"), "{off:?}");
    assert_eq!(service.run(&["feed", "--keep", "7d"]).await.done(), "the fleet keeps a feed\n");
    assert_eq!(service.run(&["feed"]).await.done(), "");

    let mut follower = started(&["--socket", service.socket.to_str().unwrap(), "feed", "--follow", "--json"]);
    let mut lines = BufReader::new(follower.stdout.take().unwrap()).lines();
    let mut entries = Vec::<Value>::new();
    let prompt = accepted(backend, "acme/a").await;
    let mut next = async || {
        let line = in_time("an entry", lines.next_line()).await.unwrap().unwrap();
        serde_json::from_str::<Value>(&line).unwrap()
    };
    entries.push(next().await);
    assert_eq!((&entries[0]["event"], &entries[0]["name"]), (&json!("accepted"), &json!("acme/a")));
    assert_eq!(entries[0]["prompt"], prompt.to_string());
    // Entries that come while it follows.
    accepted(backend, "beta/b").await;
    entries.push(next().await);
    quarantined(backend, "beta/b", "it\u{1b}[2J\u{61c} loops").await;
    entries.push(next().await);
    let pid = Pid::from_raw(follower.id().unwrap().try_into().unwrap()).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    assert!(in_time("the end", follower.wait()).await.unwrap().success());
    assert_eq!(in_time("no line", lines.next_line()).await.unwrap(), None);

    let cursor = entries[0]["cursor"].as_str().unwrap();
    assert_eq!(service.run(&["feed", "--json"]).await.objects(), entries);
    assert_eq!(service.run(&["feed", "--after", cursor, "--json"]).await.objects(), entries[1..]);
    let limited =
        service.run(&["feed", "--after", cursor, "--limit", "1", "--follow", "--json"]).await.objects();
    assert_eq!(limited, entries[1..2]);
    let of_tenant = service.run(&["feed", "--tenant", "beta"]).await.done();
    let cells: Vec<Vec<_>> = of_tenant.lines().map(|line| line.split('\t').collect()).collect();
    assert_eq!(cells[0][1..4], ["beta/b", "1", "accepted"]);
    assert_eq!(cells[1][1..], ["beta/b", "2", "quarantined", "-", r"it\u{1b}[2J\u{61c} loops"]);
    assert!(cells.len() == 2 && cells[0][0].ends_with('Z'), "{cells:?}");

    let gap = service.run(&["feed", "--after", "1000"]).await;
    assert!(gap.code == 1 && gap.error.contains("no longer kept"), "{gap:?}");
    let off = service.run(&["feed", "--off", "--json"]).await.objects();
    assert_eq!(off, [json!({ "feed": false })]);
    assert_eq!(service.run(&["feed", "--after", cursor]).await.code, 1);
}

#[tokio::test]
async fn a_follower_ends_with_the_service_it_follows() {
    let service = Service::start().await;
    service.run(&["feed", "--keep", "1h"]).await.done();
    accepted(&service.backend, "acme/a").await;
    let mut follower = started(&["--socket", service.socket.to_str().unwrap(), "feed", "--follow"]);
    let mut lines = BufReader::new(follower.stdout.take().unwrap()).lines();
    let line = in_time("an entry", lines.next_line()).await.unwrap().unwrap();
    assert!(line.contains("\tacme/a\t1\taccepted\t"), "{line}");
    drop(service);
    assert_eq!(in_time("the end", follower.wait()).await.unwrap().code(), Some(3));
}
