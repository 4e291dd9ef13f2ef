//! Who is calling: the session's id and the application's data, in every handler and in the factories of states.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::common::*;
use ::rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ServerCapabilities, ServerConfig,
};
use ::rmcp::service::RequestContext;
use ::rmcp::{ErrorData, RoleServer, ServerHandler};
use greenroom::callback::{CallbackContext, DialogAnswer, ElicitationAnswer};
use greenroom::mcp::{ReadResource, ResourceDef};
use greenroom::permission::Answers;
use greenroom::session::TestSession;
use greenroom::tool::StateContext;
use greenroom::{
    Error, ErrorKind, Event, Hook, NoArgs, PermissionDecision, Session, ToolContext, ToolDef, ToolServer,
    hook,
};
use greenroom_testkit::{CliEnd, Fault};
use serde_json::{Value, json};

struct User(&'static str);

/// The user of a tool's session.
fn user<S>(cx: &ToolContext<S>) -> Result<String, Error> {
    Ok(cx.data::<User>()?.0.to_owned())
}

/// Names the session as a test can compare it.
fn id<S>(cx: &ToolContext<S>) -> String {
    cx.session_id().unwrap_or_else(|| "not known yet".into())
}

/// A server whose every handler says who is calling.
fn account() -> ToolServer {
    ToolServer::new("account", "1.0.0")
        .tool("user", "Who is asking", async |_: NoArgs, cx: ToolContext<String>| user(&cx))
        .tool("home", "Made for", async |_: NoArgs, cx: ToolContext<String>| cx.state().clone())
        .tool("session", "Which session", async |_: NoArgs, cx: ToolContext<String>| id(&cx))
        .add_tool(ToolDef::blocking("blocking", "", |_: NoArgs, cx: ToolContext<String>| user(&cx)))
        .tool("panic", "Panics", async |_: NoArgs, _: ToolContext<String>| -> () { panic!("kaboom") })
        .resource(ResourceDef::new(
            "account://user",
            "user",
            async |_: ReadResource, cx: ToolContext<String>| user(&cx),
        ))
        .state_with(async |cx: StateContext| Ok::<_, Error>(format!("the home of {}", cx.data::<User>()?.0)))
}

async fn asked(end: &mut CliEnd, method: &str, params: Value) -> Value {
    let request =
        end.mcp("account", json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }));
    rpc_answer(end, &request).await["result"].take()
}

#[tokio::test(start_paused = true)]
async fn sessions_of_one_definition_side_by_side_see_their_own_data() {
    let everybody = Session::builder().mcp_server(account());
    let mut sessions = Vec::new();
    for name in ["ada", "bob"] {
        let (session, end, _) = start_by_hand(everybody.clone().data(User(name))).await;
        sessions.push((name, session, end));
    }
    for _ in 0..2 {
        for (name, _, end) in &mut sessions {
            for tool in ["user", "blocking"] {
                assert_eq!(text(&call(end, "account", tool, json!({})).await), *name, "{tool}");
            }
            let home = call(end, "account", "home", json!({})).await;
            assert_eq!(text(&home), format!("the home of {name}"));
            let read = asked(end, "resources/read", json!({ "uri": "account://user" })).await;
            assert_eq!(read["contents"][0]["text"], *name);
        }
    }
    for (_, session, end) in sessions {
        stop(session, end).await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_session_id_in_a_handler_is_that_of_the_moment() {
    const CLEARED: &str = "0b2e5f1a-6a3d-4c7b-9d58-3f1c2a9e7b64";
    let held: Arc<Mutex<Vec<ToolContext>>> = Arc::default();
    let hold = held.clone();
    let server = account().tool("hold", "Keeps its context", move |_: NoArgs, cx: ToolContext| {
        hold.lock().unwrap().push(cx);
        std::future::ready(())
    });
    let builder = Session::builder().mcp_server(server).data(User("ada")).can_use_tool(
        async |_, cx: CallbackContext| {
            PermissionDecision::deny(cx.session_id().unwrap_or_else(|| "not known yet".into()))
        },
    );
    let (session, mut end, _listener) = start_by_hand(builder).await;
    let named = end.session_id().to_owned();
    call(&mut end, "account", "hold", json!({})).await;
    for (id, expected) in [(None, "not known yet"), (Some(&*named), &*named), (Some(CLEARED), CLEARED)] {
        if let Some(id) = id {
            end.message(json!({ "type": "system", "subtype": "init", "session_id": id }));
            settled(&mut end).await;
        }
        assert_eq!(session.session_id().as_deref(), id);
        assert_eq!(text(&call(&mut end, "account", "session", json!({})).await), expected);
        let held = held.lock().unwrap()[0].clone();
        assert_eq!(held.session_id().as_deref(), id, "a context that was made before");
        let request = end.request(json!({ "subtype": "can_use_tool", "tool_name": "Bash", "input": {} }));
        assert_eq!(within(SOON, end.answer_to(&request)).await["message"], expected);
    }
    held.lock().unwrap().clear();
    stop(session, end).await;
}

/// Starts of a server: the generation, the cause of the restart, the session id and the user.
type Starts = Arc<Mutex<Vec<(u32, Option<String>, Option<String>, &'static str)>>>;

/// A server whose state is made at the third attempt, and which tells every attempt.
fn slow(starts: &Starts) -> ToolServer {
    let (starts, attempts) = (starts.clone(), AtomicUsize::new(0));
    ToolServer::new("slow", "1.0.0")
        .tool("panic", "Panics", async |_: NoArgs, _: ToolContext<u32>| -> () { panic!("kaboom") })
        .tool("ping", "Answers", async |_: NoArgs, cx: ToolContext<u32>| *cx.state())
        .state_with(move |cx: StateContext| {
            assert_eq!(cx.server(), "slow");
            let user = cx.data::<User>().map_or("nobody", |user| user.0);
            let cause = cx.restart_cause().map(str::to_owned);
            starts.lock().unwrap().push((cx.generation(), cause, cx.session_id(), user));
            let attempt = attempts.fetch_add(1, Ordering::Relaxed);
            std::future::ready(if attempt == 0 { Err("no database") } else { Ok(cx.generation()) })
        })
}

#[tokio::test(start_paused = true)]
async fn a_state_that_is_made_again_knows_the_session_and_the_reason() {
    let starts = Starts::default();
    let builder = Session::builder().mcp_server(slow(&starts)).data(User("ada"));
    let (session, mut end, _listener) = start_by_hand(builder).await;
    let mut events = session.events();
    assert_eq!(text(&call(&mut end, "slow", "ping", json!({})).await), "2");
    end.begin_turn();
    settled(&mut end).await;
    for _ in 0..4 {
        call(&mut end, "slow", "panic", json!({})).await;
    }
    assert_eq!(text(&call(&mut end, "slow", "ping", json!({})).await), "3");
    let told = event(&mut events, |event| match event {
        Event::ServerRestarted { cause, generation: 3, .. } => Some(cause.clone()),
        _ => None,
    });
    let told = told.await;
    session.inject(Fault::KillServer("slow".into()));
    event(&mut events, |event| matches!(event, Event::ServerRestarted { generation: 4, .. }).then_some(()))
        .await;
    assert_eq!(text(&call(&mut end, "slow", "ping", json!({})).await), "4");

    let known = Some(end.session_id().to_owned());
    let starts = std::mem::take(&mut *starts.lock().unwrap());
    let [first, second, third, fourth] = <[_; 4]>::try_from(starts).unwrap();
    assert_eq!(first, (1, None, None, "ada"));
    assert_eq!((second.0, &second.2, second.3), (2, &None, "ada"));
    assert!(second.1.unwrap().contains("no database"));
    assert_eq!(third, (3, Some(told), known.clone(), "ada"));
    assert_eq!((fourth.0, fourth.2, fourth.3), (4, known, "ada"));
    assert!(fourth.1.is_some());
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn every_callback_finds_the_data_of_its_session() {
    fn user(cx: &CallbackContext) -> Result<&'static str, Error> {
        Ok(cx.data::<User>()?.0)
    }
    let builder = Session::builder()
        .can_use_tool(async |_, cx| user(&cx).map(PermissionDecision::deny))
        .on_question(async |asked, cx| user(&cx).map(|user| Answers::new().answer(&asked[0].question, user)))
        .on_elicitation(async |_, cx| {
            user(&cx).map(|user| ElicitationAnswer::Accept(json!({ "user": user })))
        })
        .on_dialog(["retry"], async |_, cx| user(&cx).map(|user| DialogAnswer::Completed(json!(user))))
        .hook(Hook::on(hook::Stop, async |_, cx| user(&cx).map(hook::StopOutput::block)))
        .data(User("eve"))
        .data(User("ada"));
    let (session, mut end, _listener) = start_by_hand(builder).await;
    let question = json!({ "questions": [{ "question": "Who?", "header": "Who", "options": [], "multiSelect": false }] });
    let stops = json!({ "hook_event_name": "Stop", "session_id": "s", "transcript_path": "", "cwd": "/", "stop_hook_active": false });
    for (body, path) in [
        (json!({ "subtype": "can_use_tool", "tool_name": "Bash", "input": {} }), "/message"),
        (
            json!({ "subtype": "can_use_tool", "tool_name": "AskUserQuestion", "input": question }),
            "/updatedInput/answers/Who?",
        ),
        (json!({ "subtype": "elicitation", "mcp_server_name": "files", "message": "?" }), "/content/user"),
        (json!({ "subtype": "request_user_dialog", "dialog_kind": "retry", "payload": {} }), "/result"),
        (json!({ "subtype": "hook_callback", "callback_id": "hook_0", "input": stops }), "/reason"),
    ] {
        let request = end.request(body);
        let answer = within(SOON, end.answer_to(&request)).await;
        assert_eq!(answer.pointer(path), Some(&json!("ada")), "{answer}");
    }
    stop(session, end).await;
}

#[tokio::test(start_paused = true)]
async fn data_that_a_session_lacks_is_named_with_what_it_has() {
    let builder = Session::builder().mcp_server(account()).data(Arc::new(User("ada")));
    let (session, mut end, _listener) = start_by_hand(builder).await;
    let without =
        ToolServer::new("bare", "1.0.0").tool("user", "", async |_: NoArgs, cx: ToolContext| user(&cx));
    let (added, ()) = tokio::join!(session.add_mcp_server(without), async {
        let request = end.expect_request("mcp_set_servers").await;
        end.answer(&request, json!({ "added": ["bare"], "removed": [], "errors": {} }));
    });
    added.unwrap();
    let answer = call(&mut end, "bare", "user", json!({})).await;
    let said = error_text(&answer);
    let type_name = std::any::type_name::<User>();
    assert!(said.contains(&format!("the session has no data of the type `{type_name}`")), "{said}");
    assert!(said.contains(&format!("`alloc::sync::Arc<{type_name}>`")), "{said}");
    assert!(said.contains("SessionBuilder::data"), "{said}");
    stop(session, end).await;

    let none = ToolContext::detached(()).data::<User>().map(|user| user.0).unwrap_err();
    assert_eq!(
        (none.kind(), none.help().unwrap().contains("so far: none")),
        (ErrorKind::InvalidOption, true)
    );
}

#[tokio::test(start_paused = true)]
async fn data_goes_with_the_session_though_a_context_is_kept() {
    // The data is a sender, whose drop is heard.
    let (data, mut gone) = tokio::sync::oneshot::channel::<()>();
    let server: ToolServer = ToolServer::new("pool", "1.0.0")
        .tool("made", "", async |_: NoArgs, cx: ToolContext<StateContext>| cx.state().generation())
        // The state keeps the context of its own factory.
        .state_with(async |cx: StateContext| Ok::<_, Error>(cx));
    let (session, mut end, _listener) = start_by_hand(Session::builder().mcp_server(server).data(data)).await;
    assert_eq!(text(&call(&mut end, "pool", "made", json!({})).await), "1");
    assert_eq!(gone.try_recv(), Err(tokio::sync::oneshot::error::TryRecvError::Empty));
    stop(session, end).await;
    within(SOON, gone).await.unwrap_err();
}

#[tokio::test]
async fn a_unit_test_gives_the_session_that_it_needs() {
    let ada = TestSession::new().data(User("ada")).session_id("s1");
    let server = account().test_session(ada.clone());
    let bob = server.clone().test_session(TestSession::new().data(User("bob")));
    for (server, user, id) in
        [(&server, "ada", "s1"), (&server.clone(), "ada", "s1"), (&bob, "bob", "not known yet")]
    {
        assert_eq!(server.call("user", json!({})).await.text(), user);
        assert_eq!(server.call("home", json!({})).await.text(), format!("the home of {user}"));
        assert_eq!(server.call("session", json!({})).await.text(), id);
        let read = json!({ "jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": { "uri": "account://user" } });
        assert_eq!(server.handle(read).await.unwrap()["result"]["contents"][0]["text"], user);
    }
    let cx = ToolContext::detached_in((), ada.clone());
    assert_eq!((user(&cx).unwrap().as_str(), id(&cx).as_str()), ("ada", "s1"));
    let cx = CallbackContext::detached_in(ada);
    assert_eq!((cx.data::<User>().unwrap().0, cx.session_id().as_deref()), ("ada", Some("s1")));
    assert_eq!(CallbackContext::detached().session_id(), None);
}

/// An `rmcp` handler that says whom it was made for, and who calls.
struct Desk(&'static str);

impl ServerHandler for Desk {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn call_tool(
        &self,
        _: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let cx = context.extensions.get::<ToolContext>().expect("every request has one");
        let user = user(cx).map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
        let said = format!("{}: {user} calls {} in {}", self.0, cx.tool(), id(cx));
        Ok(CallToolResult::success(vec![ContentBlock::text(said)]).into())
    }
}

#[tokio::test(start_paused = true)]
async fn an_rmcp_handler_and_its_factory_know_the_session() {
    let desk = greenroom::rmcp::mount_with("desk", async |cx: StateContext| {
        Ok::<_, Error>(Desk(cx.data::<User>()?.0))
    });
    let isolated = desk.clone().test_session(TestSession::new().data(User("eve")).session_id("s1"));
    assert_eq!(isolated.call("ring", json!({})).await.text(), "eve: eve calls ring in s1");
    for name in ["ada", "bob"] {
        let builder = Session::builder().mcp_server(desk.clone()).data(User(name));
        let (session, mut end, _listener) = start_by_hand(builder).await;
        end.begin_turn();
        settled(&mut end).await;
        let expected = format!("{name}: {name} calls ring in {}", end.session_id());
        assert_eq!(text(&call(&mut end, "desk", "ring", json!({})).await), expected);
        stop(session, end).await;
    }
}
