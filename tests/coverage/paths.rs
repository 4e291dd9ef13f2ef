//! Every path of the table is known to the compiler.
//!
//! Types, traits, variants and functions are imported by `uses.rs`, which is made of the table and does not compile
//! when one of them is not there. What belongs to a type and cannot be imported is named here.

use std::collections::BTreeSet;
use std::fmt::Write;

use greenroom::callback::{DialogAnswer, ElicitationAnswer};
use greenroom::hook::HookEvent;
use greenroom::mcp::{ResourceDef, ResourceTemplateDef};
use greenroom::options::{Limits, StoreOptions};
use greenroom::report::Counters;
use greenroom::session::Requests;
use greenroom::sessions::LocalSessions;
use greenroom::store::{SessionSummary, StoredSessions};
use greenroom::tool::{CallToolResult, LogLevel, ServerHandle, ToolAnnotations};
use greenroom::transport::ChildProcess;
use greenroom::{
    Hook, NoArgs, PermissionDecision, Prompt, Session, SessionBuilder, ToolContext, ToolDef, ToolServer,
    Turn, hook,
};

use crate::bless::check_or_bless;
use crate::table::rows;

/// Paths that can be named without their types.
macro_rules! named {
    ($($type:ident::$name:ident),* $(,)?) => {
        [$({ let _ = $type::$name; concat!(stringify!($type), "::", stringify!($name)) }),*]
    };
}

macro_rules! fields {
    ($($type:ident::$field:ident),* $(,)?) => {
        [$({
            let _ = |value: $type| value.$field;
            concat!(stringify!($type), "::", stringify!($field))
        }),*]
    };
}

/// Methods that take what may be of several types, in calls that are never made.
macro_rules! called {
    ($($type:ident::$method:ident => $call:expr,)*) => {
        [$({ let _ = $call; concat!(stringify!($type), "::", stringify!($method)) }),*]
    };
}

fn of_types() -> BTreeSet<&'static str> {
    let mut known = BTreeSet::new();
    known.extend(named![
        HookEvent::ALL,
        LocalSessions::info,
        LocalSessions::list,
        LocalSessions::messages,
        LocalSessions::rename,
        LocalSessions::tag,
        LocalSessions::delete,
        LocalSessions::fork,
        LocalSessions::archive,
        LocalSessions::unarchive,
        LocalSessions::subagents,
        LocalSessions::subagent_messages,
        StoredSessions::info,
        StoredSessions::list,
        StoredSessions::messages,
        StoredSessions::rename,
        StoredSessions::tag,
        StoredSessions::delete,
        StoredSessions::fork,
        StoredSessions::import,
        StoredSessions::subagents,
        StoredSessions::subagent_messages,
        SessionSummary::fold,
        PermissionDecision::allow,
        Requests::control,
        Session::messages,
        Session::server_info,
        Session::stop,
        SessionBuilder::session_store,
        SessionBuilder::hook,
        SessionBuilder::start,
        Turn::next,
        Turn::prompt_uuid,
        CallToolResult::end_turn,
    ]);
    known.extend(fields![
        Counters::malformed_lines,
        Limits::line_bytes,
        Prompt::inline_pastes,
        Prompt::origin,
        Prompt::parent_tool_use_id,
        Prompt::pasted_content,
        Prompt::priority,
        Prompt::should_query,
        Prompt::synthetic,
        Prompt::timestamp,
        Prompt::verbatim,
        StoreOptions::flush,
        StoreOptions::load,
        ToolAnnotations::destructive_hint,
        ToolAnnotations::idempotent_hint,
        ToolAnnotations::open_world_hint,
        ToolAnnotations::title
    ]);
    known.extend(called![
        Hook::on => || Hook::on(hook::Stop, async |_, _| hook::StopOutput::pass()),
        Hook::matcher => |hook: Hook| hook.matcher("Bash"),
        SessionBuilder::mcp_server => |builder: SessionBuilder, server: ToolServer| builder.mcp_server(server),
        Prompt::blocks => || Prompt::blocks([serde_json::json!({})]),
        ResourceDef::text => || ResourceDef::<()>::text("page:a", "a", "a page"),
        ServerHandle::add_tool => |desk: &ServerHandle, tool: ToolDef| drop(desk.add_tool(tool)),
        ServerHandle::add_resource => |desk: &ServerHandle, page: ResourceDef| drop(desk.add_resource(page)),
        PermissionDecision::deny => || PermissionDecision::deny("no"),
        Session::prompt => |session: &Session| drop(session.prompt("Hello")),
        Session::steer => |session: &Session| drop(session.steer("Faster.")),
        SessionBuilder::can_use_tool => |builder: SessionBuilder| {
            builder.can_use_tool(async |_, _| PermissionDecision::allow())
        },
        SessionBuilder::on_dialog => |builder: SessionBuilder| {
            builder.on_dialog(["any"], async |_, _| DialogAnswer::Cancelled)
        },
        SessionBuilder::on_elicitation => |builder: SessionBuilder| {
            builder.on_elicitation(async |_, _| ElicitationAnswer::Decline)
        },
        SessionBuilder::on_stderr => |builder: SessionBuilder| builder.on_stderr(|_| {}),
        SessionBuilder::transport => |builder: SessionBuilder| builder.transport(ChildProcess::new()),
        ToolContext::progress => |cx: &ToolContext| drop(cx.progress(1.0, None, None)),
        ToolContext::log => |cx: &ToolContext| drop(cx.log(LogLevel::Info, "a word")),
        ToolContext::cancelled => |cx: &ToolContext| drop(cx.cancelled()),
        ToolContext::tool_use_id => |cx: &ToolContext| cx.tool_use_id().is_some(),
        ToolDef::read_only_hint => |tool: ToolDef| tool.read_only_hint(true),
        ToolDef::always_load => |tool: ToolDef| tool.always_load(true),
        ToolDef::meta => |tool: ToolDef| tool.meta("anthropic/searchHint", "numbers"),
        ToolDef::output => |tool: ToolDef| tool.output::<serde_json::Value>(),
        ToolServer::add_tool => |server: ToolServer, tool: ToolDef| server.add_tool(tool),
        ToolServer::resource => |server: ToolServer, page: ResourceDef| server.resource(page),
        ToolServer::resource_template => |server: ToolServer, pages: ResourceTemplateDef| {
            server.resource_template(pages)
        },
        ToolDef::new => || ToolDef::<()>::new("now", "Tell the time", async |_: NoArgs| "now"),
        ToolServer::new => || ToolServer::<()>::new("clock", "1"),
        ToolServer::cli_timeout => |server: ToolServer| server.cli_timeout(crate::common::SOON),
    ]);
    known
}

/// Whether it can be imported: it is no part of a type, or a variant.
fn is_importable(path: &str) -> bool {
    let upper = |step: &str| step.starts_with(char::is_uppercase);
    let steps: Vec<&str> = path.split("::").collect();
    match steps.as_slice() {
        [.., owner, name] if upper(owner) => upper(name) && name.contains(char::is_lowercase),
        _ => true,
    }
}

#[test]
fn every_path_is_known_to_the_compiler() {
    let ours: BTreeSet<String> = rows().into_iter().flat_map(|row| row.ours).collect();
    let (importable, others): (Vec<&String>, Vec<&String>) =
        ours.iter().partition(|ours| is_importable(ours));

    let known = of_types();
    let methods: BTreeSet<&str> = crate::requests::calls().into_iter().map(|(method, _)| method).collect();
    for path in &others {
        // The fields of the options have a test of their own.
        let found =
            path.starts_with("Options::") || known.contains(path.as_str()) || methods.contains(path.as_str());
        assert!(found, "`{path}` is not named in {}", file!());
    }
    let idle: Vec<&&str> = known.iter().filter(|known| !others.iter().any(|path| path == *known)).collect();
    assert!(idle.is_empty(), "named in {} and not in the table: {idle:?}", file!());

    let mut uses = "//! Made by paths.rs: GREENROOM_BLESS=1 cargo test --test coverage\n\n".to_owned();
    uses += "#![allow(unused_imports, reason = \"that they can be imported is all\")]\n\n";
    for path in importable {
        writeln!(uses, "use greenroom::{path} as _;").unwrap();
    }
    check_or_bless("tests/coverage/uses.rs", &uses, "coverage");
}
