//! The life of a request to the CLI: limits, withdrawals, refusals, capabilities, and what is set again.

use std::time::Duration;

use crate::common::{SOON, counters, event, settled, start_by_hand, stop, within};
use greenroom::options::{OLDEST_CLI, ThinkingDisplay};
use greenroom::requests::{ContextDetail, McpPermissionMode, ReloadPlugins};
use greenroom::transport::Exit;
use greenroom::{Error, ErrorKind, Event, Outcome, PermissionMode, Result, Session, SessionBuilder, Turn};
use greenroom_testkit::{CliEnd, Fault, ScriptedCli, ScriptedListener};
use serde_json::{Value, json};

async fn begun() -> (Session, CliEnd, ScriptedListener) {
    start_by_hand(Session::builder()).await
}

/// A session on a CLI that answers `initialize` with this.
async fn begun_with(mut answer: Value) -> (Session, CliEnd, ScriptedListener) {
    let (transport, mut listener) = ScriptedCli::by_hand();
    let (session, end) = tokio::join!(Session::builder().transport(transport).start(), async {
        let mut end = listener.accept().await;
        let initialize = end.expect_request("initialize").await;
        if answer["claude_code_version"].is_null() {
            answer["claude_code_version"] = json!(OLDEST_CLI);
        }
        end.answer(&initialize, answer);
        end
    });
    (session.unwrap(), end, listener)
}

/// Asks, and answers as the CLI does.
async fn done<T>(end: &mut CliEnd, asking: impl Future<Output = Result<T>>, answer: Value) -> T {
    let answering = async {
        let request = end.expect("control_request").await;
        end.answer(&request, answer);
    };
    within(SOON, async { tokio::join!(asking, answering).0 }).await.unwrap()
}

/// The next incarnation, before anything is set again.
async fn next(listener: &mut ScriptedListener) -> CliEnd {
    let mut end = within(SOON, listener.accept()).await;
    within(SOON, end.handshake()).await;
    end
}

fn kind<T>(result: Result<T>) -> ErrorKind {
    result.err().unwrap().kind()
}

async fn outcome(turn: &mut Turn) -> Outcome {
    within(SOON, turn.outcome()).await.unwrap()
}

/// Polls a request until the CLI has it, then drops its future. Returns the request.
async fn given_up<T>(end: &mut CliEnd, asking: impl Future<Output = T>) -> Value {
    let asking = std::pin::pin!(asking);
    tokio::select! {
        _ = asking => panic!("it was not answered"),
        request = end.expect("control_request") => request,
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_whose_time_is_over_is_withdrawn_and_a_late_answer_ignored() {
    let limit = Duration::from_secs(7);
    let (session, mut end, _listener) =
        start_by_hand(Session::builder().configure(|options| options.timeouts.control_request = limit)).await;
    let began = tokio::time::Instant::now();
    let (status, request) = tokio::join!(session.mcp_status(), end.expect_request("mcp_status"));
    let error = status.unwrap_err();
    assert_eq!((error.kind(), began.elapsed()), (ErrorKind::Timeout, limit));
    assert!(error.to_string().contains("'mcp_status'") && error.help().is_some(), "{error}");
    let withdrawn = within(SOON, end.expect("control_cancel_request")).await;
    assert_eq!(withdrawn["request_id"], request["request_id"]);
    end.answer(&request, json!({"mcpServers": []}));
    settled(&mut end).await;
    assert_eq!(counters(&session).await.unmatched_responses, 1);
    assert!(done(&mut end, session.mcp_status(), json!({"mcpServers": []})).await.servers.is_empty());
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn a_request_whose_future_is_dropped_is_withdrawn() {
    let (session, mut end, _listener) = begun().await;
    let request = given_up(&mut end, session.mcp_status()).await;
    let withdrawn = within(SOON, end.expect("control_cancel_request")).await;
    assert_eq!(withdrawn["request_id"], request["request_id"]);
    assert_eq!(session.snapshot().await.unwrap().router.unwrap().awaited, 0);
    // An answered request is not withdrawn.
    done(&mut end, session.mcp_status(), json!({})).await;
    let rest = settled(&mut end).await;
    assert!(rest.is_empty(), "{rest:?}");
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn a_withdrawal_is_not_written_to_the_next_incarnation() {
    let (session, mut end, mut listener) = begun().await;
    let mut asking = Box::pin(session.mcp_status());
    tokio::select! {
        _ = &mut asking => panic!("it was not answered"),
        _ = end.expect_request("mcp_status") => {}
    }
    end.exit(Exit::Signal(9));
    let mut end = next(&mut listener).await;
    settled(&mut end).await;
    drop(asking);
    let rest = settled(&mut end).await;
    assert!(rest.is_empty(), "{rest:?}");
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn the_limit_is_that_of_the_handle_of_the_request_or_of_the_options() {
    let (session, mut end, _listener) = begun().await;
    async fn lasts<T>(end: &mut CliEnd, asking: impl Future<Output = Result<T>>) -> u64 {
        let began = tokio::time::Instant::now();
        assert_eq!(kind(asking.await), ErrorKind::Timeout);
        let lasted = began.elapsed().as_secs();
        let request = end.expect("control_request").await;
        let withdrawn = end.expect("control_cancel_request").await;
        assert_eq!(withdrawn["request_id"], request["request_id"]);
        lasted
    }
    assert_eq!(lasts(&mut end, session.context_usage(ContextDetail::Summary)).await, 60);
    assert_eq!(lasts(&mut end, session.context_usage(ContextDetail::Full)).await, 180);
    let quick = session.with_request_timeout(Duration::from_secs(2));
    assert_eq!(lasts(&mut end, quick.context_usage(ContextDetail::Full)).await, 2);
    assert_eq!(lasts(&mut end, quick.requests().control(json!({"subtype": "get_plan"}))).await, 2);
    assert_eq!(lasts(&mut end, quick.interrupt()).await, 2);
    assert_eq!(lasts(&mut end, session.interrupt()).await, 60);
    let patient = session.with_request_timeout(Duration::MAX);
    assert!(done(&mut end, patient.mcp_status(), json!({})).await.servers.is_empty());
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn a_refusal_keeps_its_code_and_an_unknown_request_is_told_apart() {
    let (session, mut end, _listener) = begun().await;
    async fn refused(end: &mut CliEnd, asking: impl Future<Output = Result<()>>, refusal: Value) -> Error {
        let answering = async {
            let request = end.expect("control_request").await;
            let mut response = refusal;
            response["subtype"] = json!("error");
            response["request_id"] = request["request_id"].clone();
            end.send(json!({"type": "control_response", "response": response}));
        };
        tokio::join!(asking, answering).0.unwrap_err()
    }
    let refusal = json!({"error": "not launched so", "error_code": "bypass_not_launched"});
    let mode = async { session.set_permission_mode(PermissionMode::Plan).await.map(drop) };
    let error = refused(&mut end, mode, refusal).await;
    assert_eq!((error.kind(), error.code()), (ErrorKind::Refused, Some("bypass_not_launched")));
    assert!(
        error.to_string().ends_with("'set_permission_mode': not launched so (bypass_not_launched)"),
        "{error}"
    );
    let unknown = "Unsupported control request subtype: set_color";
    for refusal in [json!({"error": "What?", "error_code": "unsupported_request"}), json!({"error": unknown})]
    {
        let color = async { session.requests().control(json!({"subtype": "set_color"})).await.map(drop) };
        let error = refused(&mut end, color, refusal.clone()).await;
        assert_eq!((error.kind(), error.code()), (ErrorKind::Unsupported, refusal["error_code"].as_str()));
        assert!(error.to_string().contains("'set_color'"), "{error}");
    }
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_right_is_not_sent() {
    let (session, mut end, _listener) = begun().await;
    let relative = ReloadPlugins { add_plugins: vec![("relative".into(), false)], ..Default::default() };
    for wrong in [
        kind(session.requests().apply_flag_settings(json!(["model"])).await),
        kind(session.requests().update_settings(greenroom::requests::SettingsFile::User, json!(3)).await),
        kind(session.requests().reload_plugins(relative).await),
    ] {
        assert_eq!(wrong, ErrorKind::InvalidOption);
    }
    #[cfg(unix)]
    {
        use std::os::unix::ffi::OsStrExt;
        let path = std::ffi::OsStr::from_bytes(b"/\xff");
        assert_eq!(kind(session.requests().seed_read_state(path, 1).await), ErrorKind::InvalidOption);
    }
    let rest = settled(&mut end).await;
    assert!(rest.is_empty(), "{rest:?}");
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn a_capability_that_is_missing_is_named_and_nothing_is_sent() {
    let (session, mut end, _listener) = begun_with(json!({"capabilities": ["a_v1"]})).await;
    assert_eq!((session.has_capability("a_v1"), session.has_capability("b_v1")), (Some(true), None));
    // Before the first turn the capabilities are unknown, so the CLI is asked.
    assert!(
        done(&mut end, session.requests().mcp_read_resource("x", "ui://a"), json!({}))
            .await
            .contents
            .is_empty()
    );

    end.message(json!({"type": "system", "subtype": "init", "capabilities": ["b_v1"]}));
    settled(&mut end).await;
    session.snapshot().await.unwrap();
    let known = ["a_v1", "b_v1", "c_v1"].map(|name| session.has_capability(name));
    assert_eq!(known, [Some(true), Some(true), Some(false)]);
    let unless_busy = ReloadPlugins { refuse_if_busy: true, ..Default::default() };
    for (missing, result) in [
        ("interrupt_cancel_queued_v1", session.interrupt_cancel_queued().await.map(drop)),
        ("mcp_read_resource_v1", session.requests().mcp_read_resource("x", "ui://a").await.map(drop)),
        ("reload_plugins_refuse_if_busy_v1", session.requests().reload_plugins(unless_busy).await.map(drop)),
    ] {
        let error = result.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains(&format!("lacks the capability `{missing}`")), "{error}");
    }
    let rest = settled(&mut end).await;
    assert!(rest.is_empty(), "{rest:?}");
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn cli_info_belongs_to_the_incarnation_and_follows_command_changes() {
    let (session, mut end, mut listener) = begun_with(json!({
        "commands": [{"name": "a", "description": "d", "argumentHint": "<x>"}], "claude_code_version": "2.1.1000",
        "models": [{"value": "m", "displayName": "M", "description": ""}], "account": {"apiProvider": "firstParty"},
        "agents": [{"name": "Explore", "description": ""}], "output_style": "default", "pid": 7,
        "capabilities": ["a_v1"], "of_tomorrow": 1,
    }))
    .await;
    let info = session.server_info();
    assert_eq!(
        (info.commands[0].name.as_str(), info.models[0].value.as_str(), info.pid),
        ("a", "m", Some(7))
    );
    assert_eq!(
        (info.account.api_provider.as_deref(), &info.extra["of_tomorrow"]),
        (Some("firstParty"), &json!(1))
    );
    assert!(info.raw().get().contains("of_tomorrow"));
    end.message(json!({"type": "system", "subtype": "init", "capabilities": ["b_v1"]}));
    end.message(json!({"type": "system", "subtype": "commands_changed", "commands": [
        {"name": "b", "description": "", "argumentHint": ""}, {"name": "c", "description": "", "argumentHint": ""},
    ]}));
    settled(&mut end).await;
    session.snapshot().await.unwrap();
    let names: Vec<_> = session.server_info().commands.iter().map(|command| command.name.clone()).collect();
    assert_eq!(names, ["b", "c"]);
    assert_eq!(session.server_info().claude_code_version.as_deref(), Some("2.1.1000"));

    let mut events = session.events();
    end.exit(Exit::Signal(9));
    let mut end = next(&mut listener).await;
    event(&mut events, |event| matches!(event, Event::CliReady { epoch: 2, .. }).then_some(())).await;
    assert_eq!(session.server_info().claude_code_version.as_deref(), Some("999.0.0-scripted"));
    assert_eq!((session.has_capability("a_v1"), session.has_capability("b_v1")), (None, None));
    settled(&mut end).await;
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn an_interrupt_tells_what_waits_and_ends_that_too_if_it_is_told_to() {
    let (session, mut end, _listener) = begun().await;
    let mut first = session.prompt("first").await.unwrap();
    let prompt = within(SOON, end.expect("user")).await;
    end.begin_turn();
    let mut second = session.prompt("second").await.unwrap();
    let mut third = session.prompt("third").await.unwrap();
    let receipt = done(&mut end, session.interrupt(), json!({"still_queued": ["u"]})).await;
    assert_eq!(receipt.still_queued, ["u", second.prompt_uuid(), third.prompt_uuid()]);

    let taken = session.cancel_async_message(second.prompt_uuid()).await.unwrap();
    assert!(taken.cancelled, "the CLI does not know it and is not asked");
    assert!(
        matches!(outcome(&mut second).await, Outcome::NotStarted { prompt } if prompt == "second".into())
    );

    let answer = json!({"still_queued": [], "cancelled": ["u"]});
    let receipt = done(&mut end, session.interrupt_cancel_queued(), answer).await;
    assert_eq!(
        (receipt.still_queued.len(), receipt.cancelled.as_slice()),
        (0, &["u".to_owned(), third.prompt_uuid().to_owned()][..])
    );
    assert!(matches!(outcome(&mut third).await, Outcome::NotStarted { .. }));
    end.fail_turn(&prompt, "aborted_streaming", "interrupted");
    assert!(matches!(outcome(&mut first).await, Outcome::Interrupted { .. }));
    settled(&mut end).await;
    assert!(!end.transcript().contains("third") && !end.transcript().contains("second"));
    // Prompts after the interrupt run.
    let mut fourth = session.prompt("fourth").await.unwrap();
    let prompt = within(SOON, end.expect("user")).await;
    end.finish_turn(&prompt, "fine");
    assert_eq!(outcome(&mut fourth).await.text(), Some("fine"));
    stop(session, end).await;
}

/// Everything that is set, in the order in which it is to be set again.
async fn all_set(session: &Session, end: &mut CliEnd) -> Vec<Value> {
    let ok = || json!({});
    let control = |body: Value| session.requests().control(body);
    let trusted =
        json!({"subtype": "set_cwd", "path": "a", "trust_accepted": true, "trusted_directory": "/a"});
    done(end, session.set_model(Some("a")), ok()).await;
    done(end, session.set_max_thinking_tokens(Some(5)), ok()).await;
    done(end, control(trusted), json!({"status": "ok", "cwd": "/a"})).await;
    let root = json!({"subtype": "register_repo_root", "directory": "x"});
    done(end, control(root), json!({"directory": "/a/x"})).await;
    let elsewhere = json!({"subtype": "set_cwd", "path": "/b"});
    done(end, control(elsewhere), json!({"status": "rejected", "reason": "busy"})).await;
    done(end, session.requests().set_thinking_display(Some(ThinkingDisplay::Omitted)), ok()).await;
    done(end, control(json!({"subtype": "set_has_subscribers", "has_subscribers": false})), ok()).await;
    done(end, session.requests().apply_flag_settings(json!({"model": "b", "effortLevel": "low"})), ok())
        .await;
    done(end, session.requests().set_mcp_permission_mode_override("s", Some(McpPermissionMode::Auto)), ok())
        .await;
    done(end, session.requests().set_mcp_permission_mode_override("t", Some(McpPermissionMode::Auto)), ok())
        .await;
    done(end, session.requests().set_mcp_permission_mode_override("t", None), ok()).await;
    done(end, control(json!({"subtype": "rename_session", "title": "title"})), ok()).await;
    done(end, session.mcp_toggle("s", false), ok()).await;
    done(end, session.requests().seed_read_state("/a", 1), ok()).await;
    vec![
        json!({"subtype": "set_cwd", "path": "/a", "trust_accepted": true, "trusted_directory": "/a"}),
        json!({"subtype": "register_repo_root", "directory": "/a/x"}),
        json!({"subtype": "set_max_thinking_tokens", "max_thinking_tokens": 5, "thinking_display": "omitted"}),
        json!({"subtype": "set_has_subscribers", "has_subscribers": false}),
        json!({"subtype": "apply_flag_settings", "settings": {"model": "b", "effortLevel": "low"}}),
        json!({"subtype": "set_mcp_permission_mode_override", "serverName": "s", "mode": "auto"}),
    ]
}

#[tokio::test(start_paused = true)]
async fn what_is_state_of_the_process_is_set_again_in_order_and_nothing_else() {
    let (session, mut end, mut listener) = begun().await;
    let expected = all_set(&session, &mut end).await;
    // Twice, because restoring the settings must not change which settings are known.
    for _ in 0..2 {
        end.exit(Exit::Signal(9));
        end = next(&mut listener).await;
        let mut again = Vec::new();
        for _ in 0..expected.len() {
            let request = within(SOON, end.expect("control_request")).await;
            again.push(request["request"].clone());
            end.answer(&request, json!({}));
        }
        assert_eq!(again, expected);
        let rest = settled(&mut end).await;
        assert!(rest.is_empty(), "{rest:?}");
    }
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn a_setting_that_was_withdrawn_and_is_in_force_all_the_same_is_set_again() {
    let (session, mut end, mut listener) = begun().await;
    let model = given_up(&mut end, session.set_model(Some("a"))).await;
    within(SOON, end.expect("control_cancel_request")).await;
    end.answer(&model, json!({"model": "a"}));
    let (late, mode) = tokio::join!(
        session.set_permission_mode(PermissionMode::Plan),
        end.expect_request("set_permission_mode")
    );
    assert_eq!(kind(late), ErrorKind::Timeout);
    end.refuse(&mode, "cancelled");
    settled(&mut end).await;
    assert_eq!(counters(&session).await.unmatched_responses, 0, "both were asked");
    end.exit(Exit::Signal(9));
    let mut end = next(&mut listener).await;
    let again = within(SOON, end.expect("control_request")).await;
    assert_eq!(again["request"], json!({"subtype": "set_model", "model": "a"}));
    end.answer(&again, json!({}));
    let rest = settled(&mut end).await;
    assert!(rest.is_empty(), "what was refused is not in force: {rest:?}");
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn a_working_directory_that_cannot_be_entered_again_is_not_gone_without() {
    let builder: SessionBuilder = Session::builder().configure(|options| options.restarts.cli.intensity = 1);
    let (session, mut end, mut listener) = start_by_hand(builder).await;
    let gone = session.requests().control(json!({"subtype": "set_cwd", "path": "/gone"}));
    done(&mut end, gone, json!({"status": "ok", "cwd": "/gone"})).await;
    let mut events = session.events();
    end.exit(Exit::Signal(9));
    let mut end = next(&mut listener).await;
    let again = within(SOON, end.expect_request("set_cwd")).await;
    end.answer(&again, json!({"status": "rejected", "reason": "not_found", "message": "no /gone here"}));
    let cause = event(&mut events, |event| match event {
        Event::Failed { cause } => Some(cause.clone()),
        _ => None,
    });
    let cause = cause.await;
    assert!(cause.contains("the working directory could not be set again: no /gone here"), "{cause}");
    within(SOON, session.wait()).await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_asked_of_a_cli_before_all_that_was_set_is_in_force_again() {
    let (session, mut end, mut listener) = begun().await;
    done(&mut end, session.set_permission_mode(PermissionMode::AcceptEdits), json!({})).await;
    let mut events = session.events();
    end.exit(Exit::Signal(9));
    let mut end = within(SOON, listener.accept()).await;
    let initialize = within(SOON, end.expect_request("initialize")).await;
    let early = within(SOON, session.set_permission_mode(PermissionMode::Plan)).await;
    assert_eq!(kind(early), ErrorKind::NotReady, "before the handshake");
    end.answer(&initialize, json!({ "claude_code_version": OLDEST_CLI }));
    let again = within(SOON, end.expect("control_request")).await;
    assert_eq!(again["request"]["mode"], "acceptEdits");
    let early = within(SOON, session.set_permission_mode(PermissionMode::Plan)).await;
    assert_eq!(kind(early), ErrorKind::NotReady, "the older mode might be the last");
    end.answer(&again, json!({}));
    event(&mut events, |event| matches!(event, Event::CliReady { .. }).then_some(())).await;
    done(&mut end, session.set_permission_mode(PermissionMode::Plan), json!({})).await;
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn a_setting_in_force_whose_router_ended_is_set_again() {
    let (session, mut end, mut listener) = begun().await;
    let mut events = session.events();
    let (asked, model) = tokio::join!(session.set_model(Some("a")), async {
        let model = end.expect_request("set_model").await;
        session.inject(Fault::PanicRouter);
        model
    });
    assert_eq!(kind(asked), ErrorKind::NotReady);
    event(&mut events, |event| matches!(event, Event::ControlRestarted { .. }).then_some(())).await;
    end.answer(&model, json!({}));
    settled(&mut end).await;
    assert_eq!(counters(&session).await.unmatched_responses, 0, "it was asked");
    end.exit(Exit::Signal(9));
    let mut end = next(&mut listener).await;
    let again = within(SOON, end.expect("control_request")).await;
    assert_eq!(again["request"], json!({"subtype": "set_model", "model": "a"}));
    end.answer(&again, json!({}));
    stop(session, end).await;
}
