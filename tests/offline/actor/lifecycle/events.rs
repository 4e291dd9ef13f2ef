//! Events and snapshots.

use super::*;

#[tokio::test(start_paused = true)]
async fn events_come_in_the_order_of_what_happened() {
    let (session, mut end, mut listener) = start_by_hand(restarts(5)).await;
    let mut events = session.events();
    exchange(&session, &mut end, "one").await;
    end.exit(killed());
    let mut end = next(&mut listener).await;
    exchange(&session, &mut end, "two").await;
    stop(session, end).await;
    let told = rest(&mut events).await;
    let expected = [
        "session_captured",
        "cli_exited",
        "cli_restarting",
        "cli_started",
        "cli_ready",
        "cli_restarted",
        "stopping",
        "stopped",
    ];
    assert_eq!(names(&told), expected);
    let epochs: Vec<_> =
        told.iter().map(|event| serde_json::to_value(event).unwrap()["epoch"].as_u64()).collect();
    assert_eq!(epochs, [None, Some(1), Some(2), Some(2), Some(2), Some(2), None, None]);
}

#[tokio::test(start_paused = true)]
async fn a_slow_subscriber_to_events_is_told_how_many_it_missed() {
    let (session, mut end, mut listener) =
        start_by_hand(restarts(100).configure(|options| options.limits.events_kept = 4)).await;
    let mut events = session.events();
    for _ in 0..4 {
        end.exit(killed());
        end = next(&mut listener).await;
        exchange(&session, &mut end, "still here").await;
    }
    stop(session, end).await;
    let told = rest(&mut events).await;
    assert!(matches!(told[0], Event::Missed { count } if count > 10), "{told:?}");
    assert_eq!(names(&told[3..]), ["stopping", "stopped"], "the newest are there");
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_shows_the_tree_and_what_is_in_flight() {
    let hang = ToolServer::new("calc", "1")
        .tool("hang", "Hang", async |_: NoArgs, cx: ToolContext| cx.cancelled().await);
    let idle = ToolServer::new("idle", "1").tool("rest", "Rest", async |_: NoArgs| ());
    let (session, mut end, _listener) = start_by_hand(builder().mcp_server(hang).mcp_server(idle)).await;
    exchange(&session, &mut end, "zero").await;
    let _running = prompt(&session, "running").await;
    let _queued = prompt(&session, "queued").await;
    let given = prompted(&mut end, "running").await;
    end.message(json!({ "type": "chatter", "text": "x".repeat(100) }));
    let request_id = end.call_tool("calc", "hang", json!({}));
    settled(&mut end).await;
    sleep(Duration::from_secs(3)).await;

    let snapshot = session.snapshot().await.unwrap();
    assert_eq!((snapshot.phase, snapshot.session_id.as_deref()), (Phase::Ready, Some(end.session_id())));
    assert!((3000..3100).contains(&snapshot.age_ms), "{}", snapshot.age_ms);
    let cli = snapshot.cli.as_ref().unwrap();
    assert_eq!((cli.epoch, cli.pid, cli.ready, cli.lines_queued), (1, None, true, 0));
    assert_eq!(cli.version.as_deref(), Some("999.0.0-scripted"));
    let conversation = snapshot.conversation.as_ref().unwrap();
    assert_eq!((conversation.turn_running, conversation.queued, conversation.idle), (true, 1, false));
    assert!(conversation.unread_bytes > 100, "{conversation:?}");
    let call = snapshot.calls().next().unwrap();
    assert_eq!((call.tool.as_str(), &call.request_id, call.cancelled), ("hang", &request_id, false));
    assert_eq!(call.tool_use_id.as_deref(), Some("toolu_2"));
    assert!((3000..3100).contains(&call.age_ms), "{call:?}");
    let owed = &snapshot.router.as_ref().unwrap().owed;
    assert_eq!(
        (owed.len(), owed[0].kind, &owed[0].request_id, owed[0].epoch),
        (1, "mcp_message", &request_id, 1)
    );
    let servers: Vec<_> =
        snapshot.servers.iter().map(|server| (server.name.as_str(), server.calls.len())).collect();
    assert_eq!(servers, [("calc", 1), ("idle", 0)]);
    assert!(
        snapshot.servers.iter().all(|server| server.status == ServerStatus::Up && server.generation == 1)
    );
    assert_eq!(snapshot.callbacks.as_ref().unwrap().in_flight, 0);
    let json = serde_json::to_value(&snapshot).unwrap();
    assert_eq!((&json["phase"], &json["servers"][0]["calls"][0]["tool"]), (&json!("ready"), &json!("hang")));

    end.cancel_call("calc", end.last_rpc_id());
    end.answer_to(&request_id).await;
    end.finish_turn(&given, "");
    let given = prompted(&mut end, "queued").await;
    end.finish_turn(&given, "");
    within(SOON, session.wait_idle()).await;
    let snapshot = session.snapshot().await.unwrap();
    assert_eq!((snapshot.calls().count(), snapshot.counters.cancelled), (0, 1));
    stop(session, end).await;
}
