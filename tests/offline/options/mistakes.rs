//! Mistakes of a first program, each with the whole text of its error. The text says what is wrong, where it was given,
//! and what to do. `tests/processes/mistakes.rs` has those that need a process, and `tests/compile_fail` those that do
//! not compile.

use greenroom::options::{ExternalServer, Sandbox};
use greenroom::{ErrorKind, NoArgs, Session, SessionBuilder, ToolContext, ToolDef, ToolServer};
use greenroom_testkit::{Script, ScriptedCli};
use serde_json::{Value, json};

use crate::common::{SOON, within};
use crate::timeline;

/// The text of a start that is refused before a CLI is started.
async fn refused(builder: SessionBuilder) -> String {
    let (transport, listener) = ScriptedCli::by_hand();
    drop(listener);
    let error = within(SOON, builder.transport(transport).start()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidOption, "{error}");
    error.to_string()
}

fn builder() -> SessionBuilder {
    Session::builder()
}

fn server(name: &str) -> ToolServer {
    ToolServer::new(name, "1.0.0").tool("add", "Add", async |_: NoArgs| 3)
}

fn web() -> ExternalServer {
    ExternalServer::http("http://127.0.0.1:9/mcp")
}

fn raw(schema: Value) -> ToolServer {
    let roll = ToolDef::raw("roll", "Roll dice", schema, async |_: Value, _: ToolContext| "4");
    ToolServer::new("game", "1.0.0").add_tool(roll)
}

#[tokio::test]
async fn a_name_with_a_space() {
    assert_eq!(
        refused(builder().mcp_server(server("my calc"))).await,
        "the MCP server 'my calc': a name is 1 to 128 characters of A-Z a-z 0-9 _ . - (the rule of \
         MCP for names of tools), and the model sees a tool as `mcp__SERVER__TOOL`; call it \
         'my_calc', for example"
    );
    assert_eq!(
        refused(builder().external_mcp_server("my web", web())).await,
        "the MCP server 'my web': a name is 1 to 128 characters of A-Z a-z 0-9 _ . - (the rule of MCP \
         for names of tools), and the model sees a tool as `mcp__SERVER__TOOL`; call it 'my_web', for \
         example"
    );
    let tool = ToolServer::new("calc", "1.0.0").tool("add numbers", "Add", async |_: NoArgs| 3);
    assert_eq!(
        refused(builder().mcp_server(tool)).await,
        "tool 'add numbers' of server 'calc': a name is 1 to 128 characters of A-Z a-z 0-9 _ . - (the \
         rule of MCP for names of tools); call it 'add_numbers', for example"
    );
}

#[tokio::test]
async fn two_tools_of_one_name() {
    let twice = server("calc").tool("add", "Add more", async |_: NoArgs| 4);
    assert_eq!(
        refused(builder().mcp_server(twice)).await,
        "server 'calc' has two tools 'add'; rename one of them, or remove it: a second definition \
         does not replace the first"
    );
}

#[tokio::test]
async fn two_servers_of_one_name() {
    assert_eq!(
        refused(builder().mcp_server(server("calc")).mcp_server(server("calc"))).await,
        "two MCP servers have the name 'calc', both from `mcp_server`; give one of them another name"
    );
    let both = builder().mcp_server(server("calc")).external_mcp_server("calc", web());
    assert_eq!(
        refused(both).await,
        "two MCP servers have the name 'calc': one is from `external_mcp_server` or \
         `Options::mcp_servers`, the other from `mcp_server`; give one of them another name"
    );
    let alike = builder().mcp_server(server("my.calc")).external_mcp_server("my_calc", web());
    assert_eq!(
        refused(alike).await,
        "two MCP servers have names that the CLI cannot tell apart: 'my_calc' is from \
         `external_mcp_server` or `Options::mcp_servers`, 'my.calc' is from `mcp_server`, and the \
         tools of both are `mcp__my_calc__...` to the model; give one of them another name"
    );

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("servers.json");
    std::fs::write(&file, json!({ "mcpServers": { "calc": web() } }).to_string()).unwrap();
    let text = refused(
        builder().mcp_server(server("calc")).configure(|options| options.mcp_config_files.push(file.clone())),
    )
    .await;
    assert_eq!(
        text.replace(file.to_str().unwrap(), "FILE"),
        "two MCP servers have the name 'calc': one is from `mcp_server`, the other from the file \
         'FILE' of `Options::mcp_config_files`; give one of them another name"
    );
}

#[tokio::test]
async fn a_server_that_is_added_under_a_name_in_use() {
    let cli = ScriptedCli::play(Script::new());
    let builder = builder().mcp_server(server("calc"));
    let session = timeline::watched(builder, cli.transport()).start().await.unwrap();
    let error = session.add_mcp_server(server("calc")).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "two MCP servers have the name 'calc': one is from the running session, the other from this \
         change of its servers; give one of them another name"
    );
    session.stop().await.unwrap();
}

#[tokio::test]
async fn tools_of_a_server_that_the_session_has_not() {
    assert_eq!(
        refused(builder().allow_server_tools("calc")).await,
        "`allow_server_tools` names 'calc', but this session has no MCP server; correct the name, or \
         give the server to the session; call `Session::allow_server_tools` for a server that is \
         added later, and `allow_tool(\"mcp__calc__*\")` for a server that only the CLI knows \
         (`.mcp.json`, settings, plugins)"
    );
    let wrong = builder().mcp_server(server("calc")).external_mcp_server("web", web());
    assert_eq!(
        refused(wrong.allow_server_tools("clac")).await,
        "`allow_server_tools` names 'clac', but the MCP servers of this session are 'calc', 'web'; \
         correct the name, or give the server to the session; call `Session::allow_server_tools` for \
         a server that is added later, and `allow_tool(\"mcp__clac__*\")` for a server that only the \
         CLI knows (`.mcp.json`, settings, plugins)"
    );
}

#[tokio::test]
async fn a_schema_that_is_none() {
    let wrong = json!({ "type": "object", "properties": { "n": { "type": "integr" } } });
    assert_eq!(
        refused(builder().mcp_server(raw(wrong))).await,
        "tool 'roll' of server 'game': its input schema is not a valid JSON Schema: at \
         `/properties/n/type`: \"integr\" is not valid under any of the schemas listed in the 'anyOf' \
         keyword; correct the schema that is given to `ToolDef::raw`, or the `#[schemars(...)]` attributes of \
         the arguments' type"
    );
    assert_eq!(
        refused(builder().mcp_server(raw(json!({ "properties": {} })))).await,
        "tool 'roll' of server 'game': its arguments must be an object; write `\"type\": \"object\"` \
         at the top of the schema"
    );
    let output = ToolDef::new("add", "Add", async |_: NoArgs| 3);
    let output = output.output_schema(json!({ "type": "object", "required": "sum" }));
    assert_eq!(
        refused(builder().mcp_server(ToolServer::new("calc", "1.0.0").add_tool(output))).await,
        "tool 'add' of server 'calc': its output schema is not a valid JSON Schema: at `/required`: \
         \"sum\" is not of type \"array\"; correct the schema that is given to \
         `ToolDef::output_schema`"
    );
    let list = ToolServer::new("calc", "1.0.0").tool("add", "Add", async |_: Vec<f64>| 3);
    assert_eq!(
        refused(builder().mcp_server(list)).await,
        "tool 'add' of server 'calc': its arguments must be an object; use a struct with named fields"
    );
}

#[tokio::test]
async fn settings_that_are_no_json() {
    let broken = builder().configure(|options| options.settings = Some(json!("{\n  \"model\": haiku\n}")));
    assert_eq!(
        refused(broken).await,
        "option `settings` is not valid JSON: expected value at line 2 column 12; give a JSON object, \
         or the path of a file"
    );
    let list = builder().configure(|options| options.settings = Some(json!(["model"])));
    assert_eq!(
        refused(list).await,
        "option `settings` is neither a JSON object nor a path; give a JSON object, or the path of a \
         file"
    );

    let sandboxed = builder().configure(|options| {
        options.settings = Some(json!("/etc/settings.json"));
        options.sandbox = Some(Sandbox::enabled());
    });
    assert_eq!(
        refused(sandboxed).await,
        "option `sandbox` cannot be merged into the file that `settings` names; give the settings inline"
    );
}

#[tokio::test]
async fn a_state_of_a_tool_that_is_added_later() {
    let cli = ScriptedCli::play(Script::new());
    let builder = builder().mcp_server(server("calc"));
    let session = timeline::watched(builder, cli.transport()).start().await.unwrap();
    let tool = ToolDef::new("next", "Next", async |_: NoArgs, _: ToolContext<String>| 3);
    let error = session.server("calc").unwrap().add_tool(tool).unwrap_err();
    assert_eq!(
        error.to_string(),
        "server 'calc' has no state of the type alloc::string::String; give it one with \
         `ToolServer::state`"
    );
    session.stop().await.unwrap();
}

#[tokio::test]
async fn a_scripted_cli_that_is_dropped_before_the_start() {
    let transport = ScriptedCli::play(Script::new()).transport();
    let error = builder().transport(transport).start().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Spawn);
    assert_eq!(
        error.to_string(),
        "the listener of the in-memory transport was dropped; keep the `MemoryListener`, or the `ScriptedCli` \
         that plays it, in a variable until the session has stopped"
    );
}

#[tokio::test(start_paused = true)]
async fn a_scripted_cli_that_is_dropped_before_the_session_ended() {
    let cli = ScriptedCli::play(Script::new());
    let session = timeline::watched(builder(), cli.transport()).start().await.unwrap();
    drop(cli);
    within(SOON, session.wait()).await;
    assert_eq!(
        session.failure().unwrap().to_string(),
        "the CLI died more than 5 times within 60s, the last time because: the listener of \
         the in-memory transport was dropped; keep the `MemoryListener`, or the `ScriptedCli` that plays it, in \
         a variable until the session has stopped"
    );
}
