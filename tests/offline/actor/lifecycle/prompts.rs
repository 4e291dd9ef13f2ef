//! Prompts and their outcomes.

use super::*;

#[tokio::test(start_paused = true)]
async fn prompts_are_written_one_at_a_time_and_in_order() {
    let (session, mut end, _listener) = start_by_hand(builder()).await;
    let mut turns = Vec::new();
    for text in ["one", "two", "three"] {
        turns.push(prompt(&session, text).await);
    }
    for (index, text) in ["one", "two", "three"].into_iter().enumerate() {
        let given = prompted(&mut end, text).await;
        assert_eq!(given["uuid"], turns[index].prompt_uuid());
        let written = settled(&mut end).await;
        assert!(!written.iter().any(|frame| frame["type"] == "user"), "more than one at a time: {written:?}");
        let conversation = session.snapshot().await.unwrap().conversation.unwrap();
        assert_eq!((conversation.turn_running, conversation.queued), (true, 2 - index));
        end.finish_turn(&given, text);
        assert_eq!(outcome(&mut turns[index]).await.text(), Some(text));
    }
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn a_prompt_over_the_bound_is_refused_and_the_others_are_answered() {
    let (session, mut end, _listener) =
        start_by_hand(builder().configure(|options| options.limits.prompts_queued = 1)).await;
    let mut running = prompt(&session, "running").await;
    let mut queued = prompt(&session, "queued").await;
    let refused = session.prompt("refused").await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::AtCapacity);
    assert!(refused.to_string().contains("prompts_queued"), "{refused}");

    for (turn, text) in [(&mut running, "running"), (&mut queued, "queued")] {
        let given = prompted(&mut end, text).await;
        end.finish_turn(&given, text);
        assert_eq!(outcome(turn).await.text(), Some(text));
    }
    exchange(&session, &mut end, "there is room again").await;
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn a_turn_gives_each_message_and_then_its_outcome() {
    let (session, mut end, _listener) = start_by_hand(builder()).await;
    let mut turn = prompt(&session, "count").await;
    let given = prompted(&mut end, "count").await;
    end.begin_turn();
    end.message(json!({ "type": "a_type_of_tomorrow", "payload": [1, { "two": null }] }));
    end.finish_turn(&given, "done");
    let mut kinds = Vec::new();
    while let Some(message) = within(SOON, turn.next()).await {
        if message.kind() == "a_type_of_tomorrow" {
            assert_eq!(message.field("payload"), Some(json!([1, { "two": null }])));
        }
        kinds.push(message.kind().to_owned());
    }
    assert_eq!(kinds, ["system", "a_type_of_tomorrow", "result"]);
    assert_eq!(outcome(&mut turn).await.text(), Some("done"));
    assert_eq!(session.session_id().as_deref(), Some(end.session_id()));
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_was_dropped_is_waited_for_all_the_same() {
    let (session, mut end, _listener) = start_by_hand(builder()).await;
    drop(prompt(&session, "dropped").await);
    let mut second = prompt(&session, "second").await;
    let given = prompted(&mut end, "dropped").await;
    let written = settled(&mut end).await;
    assert!(!written.iter().any(|frame| frame["type"] == "user"), "{written:?}");
    end.finish_turn(&given, "unheard");
    let given = prompted(&mut end, "second").await;
    end.finish_turn(&given, "heard");
    assert_eq!(outcome(&mut second).await.text(), Some("heard"));
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn an_interrupted_turn_says_by_whom() {
    let (session, mut end, _listener) = start_by_hand(builder()).await;
    let mut turn = prompt(&session, "long").await;
    let given = prompted(&mut end, "long").await;
    end.begin_turn();
    let (interrupted, ()) = within(SOON, async {
        tokio::join!(session.interrupt(), async {
            let request = end.expect_request("interrupt").await;
            end.answer(&request, json!({ "still_queued": [] }));
            end.fail_turn(&given, "aborted_tools", "interrupted");
        })
    })
    .await;
    interrupted.unwrap();
    match outcome(&mut turn).await {
        Outcome::Interrupted { by: InterruptedBy::User, result: Some(result), .. } => {
            assert_eq!(result.terminal_reason, Some(TerminalReason::AbortedTools));
        }
        other => panic!("{other:?}"),
    }
    exchange(&session, &mut end, "next").await;
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_the_cli_gave_up_fails_with_what_it_said() {
    let (session, mut end, _listener) = start_by_hand(builder()).await;
    let mut turn = prompt(&session, "hard").await;
    let given = prompted(&mut end, "hard").await;
    end.fail_turn(&given, "max_turns", "too many steps");
    match outcome(&mut turn).await {
        Outcome::Failed { error, result: Some(_), .. } => {
            assert_eq!(error.kind(), ErrorKind::TurnFailed);
            assert!(error.to_string().contains("too many steps"), "{error}");
        }
        other => panic!("{other:?}"),
    }
    exchange(&session, &mut end, "next").await;
    stop(session, end).await;
}

// Guards: control-first
#[tokio::test(start_paused = true)]
async fn unread_messages_end_the_turn_at_their_bound_and_nothing_else() {
    let builder = builder().configure(|options| {
        options.limits.unread_bytes = 10_000;
    });
    let (session, mut end, _listener) = start_by_hand(builder).await;
    let mut turn = prompt(&session, "talk").await;
    let mut after = prompt(&session, "after").await;
    let given = prompted(&mut end, "talk").await;
    for _ in 0..20 {
        end.message(json!({ "type": "chatter", "text": "x".repeat(1000) }));
    }
    match outcome(&mut turn).await {
        Outcome::Failed { error, result: None, .. } => {
            assert_eq!(error.kind(), ErrorKind::Overflow);
            assert!(error.to_string().contains("10000 bytes"), "{error}");
        }
        other => panic!("{other:?}"),
    }
    // The CLI still works at the turn, so the next prompt waits.
    let written = settled(&mut end).await;
    assert!(!written.iter().any(|frame| frame["type"] == "user"), "{written:?}");
    end.finish_turn(&given, "too late");
    let given = prompted(&mut end, "after").await;
    end.finish_turn(&given, "well");
    assert_eq!(outcome(&mut after).await.text(), Some("well"));
    stop(session, end).await;
}

// Guards: control-first
#[tokio::test(start_paused = true)]
async fn a_slow_reader_holds_up_no_call_and_loses_nothing() {
    let server = ToolServer::new("calc", "1").tool("ping", "Answer", async |_: NoArgs| "pong");
    let slow = builder().mcp_server(server).configure(|options| {
        options.limits.messages_kept = 4;
        options.limits.unread_bytes = 32 << 20;
    });
    let (session, mut end, _listener) = start_by_hand(slow).await;
    let mut all = session.messages();
    let mut turn = prompt(&session, "talk").await;
    let given = prompted(&mut end, "talk").await;
    for number in 0..2000 {
        end.message(json!({ "type": "chatter", "number": number, "text": "x".repeat(10_000) }));
    }
    // Nobody has read a single one of these 20 MB.
    let answer = timeout(Duration::from_secs(1), end.call("calc", "ping", json!({}))).await;
    assert_eq!(text(&answer.expect("at once")), "pong");
    end.finish_turn(&given, "over");
    within(SOON, session.wait_idle()).await;

    for number in 0..2000 {
        assert_eq!(turn.next().await.unwrap().field("number"), Some(json!(number)));
    }
    assert_eq!(outcome(&mut turn).await.text(), Some("over"));
    // A subscriber is told what it lost: 2001 messages, of which four were kept.
    match within(SOON, all.next()).await {
        Some(MessageOrGap::Missed(1997)) => {}
        other => panic!("{other:?}"),
    }
    stop(session, end).await;
}
