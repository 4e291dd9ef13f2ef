//! MCP servers that come and go while a session runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, ThreadId};
use std::time::Duration;

use crate::common::{SOON, call, counters, event, rpc_answer, start_by_hand, stop, text, within};
use greenroom::options::{ExternalServer, Restart};
use greenroom::report::ServerStatus;
use greenroom::session::McpServerSet;
use greenroom::transport::Exit;
use greenroom::{ErrorKind, Event, NoArgs, Session, SessionBuilder, ToolContext, ToolDef, ToolServer};
use greenroom_testkit::{CliEnd, Fault, LeakCheck, ScriptedCli, ScriptedListener};
use ractor::{Actor, ActorProcessingErr, ActorRef};
use serde_json::{Value, json};
use tokio::sync::mpsc;

/// A server that counts how many of its states there are.
struct Counted {
    states: Arc<AtomicUsize>,
    heard: mpsc::UnboundedReceiver<&'static str>,
}

struct State {
    states: Arc<AtomicUsize>,
    say: mpsc::UnboundedSender<&'static str>,
}

impl Drop for State {
    fn drop(&mut self) {
        self.states.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Its tools are `say`, which answers, and `hang`, which goes on for a while after its cancellation.
fn server(name: &str) -> (ToolServer, Counted) {
    let (say, heard) = mpsc::unbounded_channel();
    let states = Arc::new(AtomicUsize::new(0));
    let counted = states.clone();
    let server =
        ToolServer::new(name, "1.0.0")
            .tool("say", "Says its name", |_: NoArgs, cx: ToolContext<State>| async move {
                cx.server().to_owned()
            })
            .tool("hang", "Hangs", |_: NoArgs, cx: ToolContext<State>| async move {
                cx.state().say.send("called").unwrap();
                cx.cancelled().await;
                tokio::time::sleep(Duration::from_millis(100)).await;
                cx.state().say.send("had its time").unwrap();
            })
            .state(move || {
                counted.fetch_add(1, Ordering::SeqCst);
                State { states: counted.clone(), say: say.clone() }
            });
    (server, Counted { states, heard })
}

impl Counted {
    fn states(&self) -> usize {
        self.states.load(Ordering::SeqCst)
    }

    async fn hears(&mut self, expected: &str) {
        assert_eq!(within(SOON, self.heard.recv()).await, Some(expected));
    }
}

fn web() -> ExternalServer {
    ExternalServer::http("http://127.0.0.1:9/mcp")
}

fn builder() -> SessionBuilder {
    Session::builder().mcp_server(server("first").0)
}

/// The next `mcp_set_servers` request and the names of the servers in it.
async fn set(end: &mut CliEnd) -> (Vec<String>, Value) {
    let request = within(SOON, end.expect_request("mcp_set_servers")).await;
    let names = request["request"]["servers"].as_object().unwrap().keys().cloned().collect();
    (names, request)
}

/// Answers as a CLI that has done what it was told.
fn take(end: &mut CliEnd, request: &Value, added: &[&str], removed: &[&str]) {
    end.answer(request, json!({ "added": added, "removed": removed, "errors": {} }));
}

/// As the CLI does with every in-process server after each change.
async fn handshake(end: &mut CliEnd, server: &str) -> Value {
    let params =
        json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "cli" } });
    let id = end.mcp(server, json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params }));
    let answer = rpc_answer(end, &id).await;
    let id = end.mcp(server, json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" }));
    rpc_answer(end, &id).await;
    answer
}

async fn servers(session: &Session) -> Vec<String> {
    let snapshot = within(SOON, session.snapshot()).await.unwrap();
    snapshot.servers.into_iter().map(|server| server.name).collect()
}

/// Adds a server, which the CLI accepts.
async fn add(session: &Session, end: &mut CliEnd, server: ToolServer) -> Vec<String> {
    let name = server.name().to_owned();
    let (added, names) = tokio::join!(session.add_mcp_server(server), async {
        let (names, request) = set(end).await;
        take(end, &request, &[&name], &[]);
        names
    });
    added.unwrap();
    names
}

async fn next(listener: &mut ScriptedListener) -> (CliEnd, Value) {
    let mut end = within(SOON, listener.accept()).await;
    let initialize = within(SOON, end.handshake()).await;
    (end, initialize)
}

/// The in-process servers that an incarnation is told of.
fn announced(initialize: &Value) -> Vec<&str> {
    let names = initialize["request"]["sdkMcpServers"].as_array().unwrap();
    let manifests = initialize["request"]["sdkMcpServerManifests"].as_object().unwrap();
    assert!(names.iter().all(|name| manifests.contains_key(name.as_str().unwrap())));
    names.iter().map(|name| name.as_str().unwrap()).collect()
}

// Guards: all-or-nothing
#[tokio::test(start_paused = true)]
async fn a_call_in_flight_is_not_disturbed_by_servers_that_come_and_go() {
    let leaks = LeakCheck::tasks();
    let (first, mut first_counted) = server("first");
    let first = first.cli_timeout(Duration::from_secs(9));
    let (session, mut end, listener) = start_by_hand(Session::builder().mcp_server(first)).await;
    let hanging = end.call_tool("first", "hang", json!({}));
    let hanging_id = end.last_rpc_id();
    first_counted.hears("called").await;

    let (second, mut counted) = server("second");
    let ((), added) = tokio::join!(
        async {
            let (names, request) = set(&mut end).await;
            assert_eq!(names, ["first", "second"], "the ones that stay are named, too");
            let servers = &request["request"]["servers"];
            assert_eq!(servers["first"], json!({ "type": "sdk", "name": "first", "timeout": 9000 }));
            assert_eq!(servers["second"], json!({ "type": "sdk", "name": "second" }));
            // A server may be asked before the CLI has answered.
            assert_eq!(handshake(&mut end, "second").await["result"]["serverInfo"]["name"], "second");
            take(&mut end, &request, &["second"], &[]);
            handshake(&mut end, "first").await;
        },
        session.add_mcp_server(second)
    );
    added.unwrap();
    assert_eq!(text(&call(&mut end, "second", "say", json!({})).await), "second");
    assert_eq!(servers(&session).await, ["first", "second"]);

    let owed = end.call_tool("second", "hang", json!({}));
    counted.hears("called").await;
    let removing = session.remove_mcp_server("second");
    let ((), removed) = tokio::join!(
        async {
            let (names, request) = set(&mut end).await;
            assert_eq!(names, ["first"]);
            assert_eq!(
                text(&call(&mut end, "second", "say", json!({})).await),
                "second",
                "the CLI knows it still"
            );
            take(&mut end, &request, &[], &["second"]);
            let answer = rpc_answer(&mut end, &owed).await;
            assert_eq!(answer["error"]["message"], "MCP server 'second' was stopped");
            handshake(&mut end, "first").await;
        },
        removing
    );
    removed.unwrap();
    counted.hears("had its time").await;
    assert_eq!(counted.states(), 0, "its state is gone with it");
    let gone = call(&mut end, "second", "say", json!({})).await;
    assert_eq!(gone["error"]["message"], "Server 'second' not found");
    assert_eq!(servers(&session).await, ["first"]);

    // The old call belongs to an older MCP session: its JSON-RPC id finds it no more, its request id does.
    let stale = end.cancel_call("first", hanging_id);
    rpc_answer(&mut end, &stale).await;
    let snapshot = session.snapshot().await.unwrap();
    assert_eq!(snapshot.calls().map(|call| &call.request_id).collect::<Vec<_>>(), [&hanging]);
    end.send(json!({ "type": "control_cancel_request", "request_id": hanging }));
    first_counted.hears("had its time").await;
    assert_eq!((first_counted.states(), counters(&session).await.late_answers), (1, 2));
    stop(session, end).await;
    drop(listener);
    leaks.assert_none(SOON).await;
}

// Guards: all-or-nothing
#[tokio::test(start_paused = true)]
async fn a_server_that_the_cli_does_not_take_leaves_nothing_behind() {
    let leaks = LeakCheck::tasks();
    let (session, mut end, listener) = start_by_hand(builder()).await;

    let (second, counted) = server("second");
    let (refused, ()) = tokio::join!(session.add_mcp_server(second.clone()), async {
        let (_, request) = set(&mut end).await;
        end.refuse(&request, "not today");
    });
    let refused = refused.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Refused);
    assert!(refused.to_string().contains("not today"), "{refused}");
    assert_eq!((counted.states(), servers(&session).await), (0, vec!["first".to_owned()]));
    assert!(end.call("second", "say", json!({})).await["error"].is_object());

    let (failed, ()) = tokio::join!(session.add_mcp_server(second.clone()), async {
        let (_, request) = set(&mut end).await;
        end.answer(&request, json!({ "added": ["second"], "removed": [], "errors": { "second": "no way" } }));
        let (names, request) = set(&mut end).await;
        assert_eq!(names, ["first"], "the CLI is told to forget it");
        take(&mut end, &request, &[], &["second"]);
    });
    assert!(failed.unwrap_err().to_string().contains("no way"));
    assert_eq!((counted.states(), servers(&session).await), (0, vec!["first".to_owned()]));

    let (late, request) = tokio::join!(session.add_mcp_server(second.clone()), async {
        let (_, request) = set(&mut end).await;
        let (names, restored) = set(&mut end).await;
        assert_eq!(names, ["first"]);
        take(&mut end, &restored, &[], &[]);
        request
    });
    assert_eq!(late.unwrap_err().kind(), ErrorKind::Timeout);
    take(&mut end, &request, &["second"], &[]);
    assert_eq!((counted.states(), servers(&session).await), (0, vec!["first".to_owned()]));

    assert_eq!(add(&session, &mut end, second).await, ["first", "second"], "nothing stands in its way");
    assert_eq!(text(&call(&mut end, "second", "say", json!({})).await), "second");
    stop(session, end).await;
    drop(listener);
    leaks.assert_none(SOON).await;
}

// Guards: all-or-nothing
#[tokio::test(start_paused = true)]
async fn a_cli_that_dies_during_a_change_is_followed_by_the_old_servers() {
    let (session, mut end, mut listener) = start_by_hand(builder()).await;
    let (second, counted) = server("second");
    let (added, ()) = tokio::join!(session.add_mcp_server(second.clone()), async {
        set(&mut end).await;
        end.exit(Exit::Signal(9));
    });
    assert_eq!(added.unwrap_err().kind(), ErrorKind::CliExited);
    let not_ready = session.add_mcp_server(second.clone()).await.unwrap_err();
    assert_eq!(not_ready.kind(), ErrorKind::NotReady);
    assert_eq!((counted.states(), servers(&session).await), (0, vec!["first".to_owned()]));

    let mut events = session.events();
    let (mut end, initialize) = next(&mut listener).await;
    assert_eq!(announced(&initialize), ["first"]);
    event(&mut events, |event| matches!(event, Event::CliRestarted { .. }).then_some(())).await;
    add(&session, &mut end, second).await;
    let (added, ()) = tokio::join!(session.add_external_mcp_server("web", web()), async {
        let (names, request) = set(&mut end).await;
        assert_eq!(names, ["first", "second", "web"]);
        take(&mut end, &request, &["web"], &[]);
    });
    added.unwrap();
    let (removed, ()) = tokio::join!(session.remove_mcp_server("first"), async {
        let (_, request) = set(&mut end).await;
        take(&mut end, &request, &[], &["first"]);
    });
    removed.unwrap();
    end.exit(Exit::Signal(9));

    let (mut end, initialize) = next(&mut listener).await;
    assert_eq!(announced(&initialize), ["second"]);
    assert!(
        !end.launch().args.iter().any(|arg| arg.contains("127.0.0.1:9")),
        "one that is launched could not go"
    );
    let (names, request) = set(&mut end).await;
    assert_eq!(names, ["second", "web"]);
    end.answer(&request, json!({ "added": ["web"], "removed": [], "errors": { "web": "it sleeps" } }));
    let lost = event(&mut events, |event| match event {
        Event::SettingLost { subtype, reason, .. } => Some(format!("{subtype}: {reason}")),
        _ => None,
    });
    assert_eq!(lost.await, "mcp_set_servers: MCP server 'web': it sleeps");
    assert_eq!(text(&call(&mut end, "second", "say", json!({})).await), "second");
    stop(session, end).await;
}

// Guards: all-or-nothing
#[tokio::test(start_paused = true)]
async fn changes_happen_one_after_another_and_a_whole_set_in_one_go() {
    let (session, mut end, _listener) = start_by_hand(builder()).await;
    let abandoned = session.clone();
    let (a, a_counted) = server("a");
    let all = tokio::join!(
        session.add_mcp_server(a),
        session.add_mcp_server(server("b").0),
        session.add_mcp_server(server("a").0),
        session.add_external_mcp_server("first", web()),
        session.remove_mcp_server("b"),
        session.remove_mcp_server("nobody"),
        async {
            let mut asked = Vec::new();
            for _ in 0..3 {
                let (names, request) = set(&mut end).await;
                assert!(crate::common::settled(&mut end).await.is_empty(), "one at a time");
                take(&mut end, &request, &[], &[]);
                asked.push(names.join(" "));
            }
            asked
        }
    );
    assert_eq!(all.6, ["a first", "a b first", "a first"]);
    let refused =
        |outcome: greenroom::Result<()>| outcome.is_err_and(|error| error.kind() == ErrorKind::InvalidOption);
    assert!(all.0.is_ok() && all.1.is_ok() && all.4.is_ok());
    assert!(refused(all.2) && refused(all.3) && refused(all.5));

    // A change whose future was dropped is finished before the next change begins.
    {
        let dropped = abandoned.add_mcp_server(server("c").0);
        tokio::pin!(dropped);
        assert!(tokio::time::timeout(Duration::from_millis(1), dropped).await.is_err());
    }
    let whole =
        McpServerSet::new().keep("a").server(server("d").0).server(server("e").0).external("web", web());
    let (result, ()) = tokio::join!(session.set_mcp_servers(whole), async {
        let (names, request) = set(&mut end).await;
        assert_eq!(names, ["a", "c", "first"]);
        take(&mut end, &request, &["c"], &[]);
        let (names, request) = set(&mut end).await;
        assert_eq!(names, ["a", "d", "e", "web"]);
        let (added, removed) = (["d", "e", "web"], ["c", "first"]);
        let errors = json!({ "web": "ECONNREFUSED", "e": "a bad day" });
        end.answer(&request, json!({ "added": added, "removed": removed, "errors": errors, "new": 1 }));
        let (names, request) = set(&mut end).await;
        assert_eq!(names, ["a", "d", "web"], "one in this process that it cannot talk to is taken out");
        take(&mut end, &request, &[], &["e"]);
    });
    let result = result.unwrap();
    assert_eq!(
        (result.added, result.removed),
        (vec!["d".into(), "web".into()], vec!["c".into(), "first".into()])
    );
    assert_eq!((&result.errors["web"], &result.errors["e"]), (&json!("ECONNREFUSED"), &json!("a bad day")));
    assert_eq!(result.extra["new"], 1);
    assert_eq!(servers(&session).await, ["a", "d"]);
    assert_eq!(a_counted.states(), 1, "what is kept is not made anew");
    let snapshot = session.snapshot().await.unwrap();
    assert!(
        snapshot.servers.iter().all(|server| server.generation == 1 && server.status == ServerStatus::Up)
    );
    stop(session, end).await;
}

// Guards: all-or-nothing
#[tokio::test(start_paused = true)]
async fn a_router_that_ends_during_a_change_undoes_it() {
    let (session, mut end, _listener) = start_by_hand(builder()).await;
    let (second, counted) = server("second");
    let (added, ()) = tokio::join!(session.add_mcp_server(second.clone()), async {
        set(&mut end).await;
        session.inject(Fault::PanicRouter);
        let (names, request) = set(&mut end).await;
        assert_eq!(names, ["first"], "it may have taken the change");
        take(&mut end, &request, &[], &[]);
    });
    assert_eq!(added.unwrap_err().kind(), ErrorKind::NotReady);
    assert_eq!((counted.states(), servers(&session).await), (0, vec!["first".to_owned()]));

    add(&session, &mut end, second).await;
    let mut events = session.events();
    session.inject(Fault::PanicRouter);
    event(&mut events, |event| matches!(event, Event::ControlRestarted { .. }).then_some(())).await;
    assert_eq!(text(&call(&mut end, "second", "say", json!({})).await), "second");
    session.inject(Fault::KillServer("second".into()));
    event(&mut events, |event| matches!(event, Event::ServerRestarted { .. }).then_some(())).await;
    assert_eq!(text(&call(&mut end, "second", "say", json!({})).await), "second");
    stop(session, end).await;
}

// Guards: all-or-nothing
#[tokio::test(start_paused = true)]
async fn a_session_that_stops_answers_whoever_changes_its_servers() {
    let leaks = LeakCheck::tasks();
    let (session, mut end, listener) = start_by_hand(builder()).await;
    let (second, mut counted) = server("second");
    add(&session, &mut end, second).await;
    end.call_tool("second", "hang", json!({}));
    counted.hears("called").await;
    let removing = session.clone();
    let adding = session.clone();
    let both = async {
        tokio::join!(removing.remove_mcp_server("second"), adding.add_mcp_server(server("third").0))
    };
    let (_, request) = {
        tokio::pin!(both);
        let asked = tokio::select! {
            _ = &mut both => panic!("nobody has answered"),
            asked = set(&mut end) => asked,
        };
        take(&mut end, &asked.1, &[], &["second"]);
        // The server is stopping now, within its grace time, and nobody waits for it.
        crate::common::settled(&mut end).await;
        asked
    };
    assert_eq!(request["request"]["subtype"], "mcp_set_servers");
    let adding = session.clone();
    let third = async { adding.add_mcp_server(server("third").0).await };
    let (third, ()) = tokio::join!(third, stop(session, end));
    assert!(matches!(third.unwrap_err().kind(), ErrorKind::Stopped | ErrorKind::SessionFailed));
    counted.hears("had its time").await;
    assert_eq!(counted.states(), 0);
    drop((listener, removing, adding));
    leaks.assert_none(SOON).await;
}

struct Desk;

#[cfg_attr(feature = "async-trait", ractor::async_trait)]
impl Actor for Desk {
    type Msg = ();
    type State = ();
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<()>, (): ()) -> Result<(), ActorProcessingErr> {
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_that_is_linked_to_a_parent_takes_and_loses_servers_alone() {
    let (desk, _) = Actor::spawn(None, Desk, ()).await.unwrap();
    let (transport, mut listener) = ScriptedCli::by_hand();
    let starting = builder().transport(transport).spawn_linked(desk.get_cell());
    let (session, (mut end, _)) = within(SOON, async { tokio::join!(starting, next(&mut listener)) }).await;
    let session = session.unwrap();
    add(&session, &mut end, server("second").0).await;
    let (removed, ()) = tokio::join!(session.remove_mcp_server("second"), async {
        let (_, request) = set(&mut end).await;
        take(&mut end, &request, &[], &["second"]);
    });
    removed.unwrap();
    assert_eq!(text(&call(&mut end, "first", "say", json!({})).await), "first");
    assert_eq!(desk.get_status(), ractor::ActorStatus::Running);
    stop(session, end).await;
    desk.stop(None);
}

#[tokio::test(start_paused = true)]
async fn allowing_the_tools_of_a_server_keeps_earlier_permissions() {
    let settings = json!({ "permissions": { "allow": ["Bash(ls:*)"], "deny": ["WebFetch"] }, "model": "x" });
    let (session, mut end, mut listener) =
        start_by_hand(builder().configure(|options| options.settings = Some(settings))).await;
    let (both, rules) = tokio::join!(
        async { tokio::join!(session.allow_server_tools("my calc"), session.allow_server_tools("web")) },
        async {
            let mut rules = Vec::new();
            for _ in 0..2 {
                let request = within(SOON, end.expect_request("apply_flag_settings")).await;
                end.answer(&request, json!({}));
                rules.push(request["request"]["settings"].clone());
            }
            rules
        }
    );
    assert!(both.0.is_ok() && both.1.is_ok());
    let allow = ["Bash(ls:*)", "mcp__my_calc__*", "mcp__web__*"];
    assert_eq!(rules[0], json!({ "permissions": { "allow": &allow[..2], "deny": ["WebFetch"] } }));
    assert_eq!(rules[1], json!({ "permissions": { "allow": &allow, "deny": ["WebFetch"] } }));
    end.exit(Exit::Signal(9));
    let (mut end, _) = next(&mut listener).await;
    let again = within(SOON, end.expect_request("apply_flag_settings")).await;
    assert_eq!(again["request"]["settings"], rules[1]);
    end.answer(&again, json!({}));
    stop(session, end).await;

    let text = r#"{ "permissions": { "deny": ["WebFetch"] } }"#;
    let text = builder().configure(|options| options.settings = Some(json!(text)));
    let (session, mut end, _listener) = start_by_hand(text).await;
    let (allowed, request) = tokio::join!(session.allow_server_tools("web"), async {
        let request = within(SOON, end.expect_request("apply_flag_settings")).await;
        end.answer(&request, json!({}));
        request
    });
    allowed.unwrap();
    let rules = &request["request"]["settings"]["permissions"];
    assert_eq!(*rules, json!({ "allow": ["mcp__web__*"], "deny": ["WebFetch"] }));
    stop(session, end).await;

    let file = builder().configure(|options| options.settings = Some(json!("settings.json")));
    let (session, end, _listener) = start_by_hand(file).await;
    assert_eq!(session.allow_server_tools("web").await.unwrap_err().kind(), ErrorKind::InvalidOption);
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn a_set_for_two_sessions_is_a_server_of_its_own_in_each() {
    let (one, mut end_of_one, _listener_of_one) = start_by_hand(builder()).await;
    let (two, mut end_of_two, _listener_of_two) = start_by_hand(builder()).await;
    let all = McpServerSet::new().keep("first").server(server("second").0);
    for (session, end) in [(&one, &mut end_of_one), (&two, &mut end_of_two)] {
        let (result, ()) = tokio::join!(session.set_mcp_servers(all.clone()), async {
            let (_, request) = set(end).await;
            take(end, &request, &["second"], &[]);
        });
        result.unwrap();
    }
    one.server("second").unwrap().disable_tool("hang").unwrap();
    assert_eq!(one.server("second").unwrap().tools(), ["say"]);
    assert_eq!(two.server("second").unwrap().tools(), ["say", "hang"]);
    stop(one, end_of_one).await;
    stop(two, end_of_two).await;
}

/// Says on which thread it is dropped.
struct Dropped(mpsc::UnboundedSender<ThreadId>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.send(thread::current().id()).ok();
    }
}

#[tokio::test(start_paused = true)]
async fn handlers_that_are_removed_are_dropped_in_no_actor() {
    let (say, mut heard) = mpsc::unbounded_channel();
    let keeps = || {
        let dropped = Dropped(say.clone());
        ToolDef::<()>::new("keeps", "Keeps something", move |_: NoArgs| {
            std::hint::black_box(&dropped);
            async { "kept" }
        })
    };
    let mut elsewhere = async || within(SOON, heard.recv()).await.unwrap() != thread::current().id();
    let (session, mut end, _listener) = start_by_hand(builder()).await;
    let handle = session.server("first").unwrap();
    handle.add_tool(keeps()).unwrap();
    assert_eq!(text(&call(&mut end, "first", "keeps", json!({})).await), "kept");
    assert!(handle.remove_tool("keeps").unwrap());
    assert!(elsewhere().await, "of a tool");

    add(&session, &mut end, ToolServer::new("second", "1.0.0").add_tool(keeps())).await;
    let (removed, ()) = tokio::join!(session.remove_mcp_server("second"), async {
        let (_, request) = set(&mut end).await;
        take(&mut end, &request, &[], &["second"]);
    });
    removed.unwrap();
    assert!(elsewhere().await, "of a server");

    let refused = session.add_mcp_server(ToolServer::new("first", "1.0.0").add_tool(keeps()));
    tokio::select! {
        biased;
        _ = refused => panic!("the supervisor had no time"),
        () = std::future::ready(()) => {}
    }
    assert!(elsewhere().await, "of one that was refused while nobody waited");
    stop(session, end).await;
}

// Guards: all-or-nothing
#[tokio::test(start_paused = true)]
async fn a_server_of_a_set_that_the_cli_cannot_reach_is_announced_to_no_other() {
    let (session, mut end, mut listener) = start_by_hand(builder()).await;
    let whole = McpServerSet::new().keep("first").server(server("good").0).server(server("lost").0);
    let (result, ()) = tokio::join!(session.set_mcp_servers(whole), async {
        let (_, request) = set(&mut end).await;
        end.answer(&request, json!({ "added": ["good"], "removed": [], "errors": { "lost": "no way" } }));
        let (names, request) = set(&mut end).await;
        assert_eq!(names, ["first", "good"]);
        take(&mut end, &request, &[], &["lost"]);
    });
    assert_eq!(result.unwrap().errors["lost"], "no way");
    let mut events = session.events();
    end.exit(Exit::Signal(9));
    let (mut end, initialize) = next(&mut listener).await;
    assert_eq!(announced(&initialize), ["first", "good"]);
    event(&mut events, |event| matches!(event, Event::CliRestarted { .. }).then_some(())).await;
    assert_eq!(
        add(&session, &mut end, server("lost").0).await,
        ["first", "good", "lost"],
        "its name is free"
    );
    stop(session, end).await;
}

// Guards: all-or-nothing
#[tokio::test(start_paused = true)]
async fn a_change_is_undone_by_the_next_router_however_late_it_comes() {
    let pause = Duration::from_secs(1);
    let late = Restart { backoff_min: pause, backoff_max: pause, ..Restart::default() };
    let builder = builder().configure(|options| options.restarts.control = late);
    let (session, mut end, _listener) = start_by_hand(builder).await;
    let (second, counted) = server("second");
    let (added, ()) = tokio::join!(session.add_mcp_server(second), async {
        set(&mut end).await;
        session.inject(Fault::PanicRouter);
        let (names, request) = set(&mut end).await;
        assert_eq!(names, ["first"], "the CLI may have taken the change");
        take(&mut end, &request, &[], &["second"]);
    });
    assert_eq!(added.unwrap_err().kind(), ErrorKind::NotReady);
    assert_eq!((counted.states(), servers(&session).await), (0, vec!["first".to_owned()]));
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn answers_reach_a_router_that_starts_later_than_they_come() {
    let pause = Duration::from_secs(30);
    let late = Restart { backoff_min: pause, backoff_max: pause, ..Restart::default() };
    let builder = builder().configure(|options| options.restarts.control = late);
    let (session, mut end, _listener) = start_by_hand(builder).await;
    let requests = session.requests();
    let (refused, ()) = tokio::join!(requests.control(json!({ "subtype": "mcp_status" })), async {
        let request = end.expect_request("mcp_status").await;
        session.inject(Fault::PanicRouter);
        tokio::time::sleep(pause / 2).await;
        // No router takes it.
        end.answer(&request, json!({}));
        tokio::time::sleep(pause).await;
    });
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::NotReady);
    let (answered, ()) = tokio::join!(requests.control(json!({ "subtype": "mcp_status" })), async {
        let request = end.expect_request("mcp_status").await;
        end.answer(&request, json!({ "mcpServers": [] }));
    });
    answered.unwrap();
    stop(session, end).await;
}
