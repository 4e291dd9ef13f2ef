//! Every request to the CLI is sent by the method that the table names.

use std::collections::BTreeSet;

use futures_util::future::BoxFuture;
use greenroom::requests::{ContextDetail, ReadFile, ReloadPlugins, SettingsFile};
use greenroom::session::McpServerSet;
use greenroom::{PermissionMode, Session, ToolContext, ToolServer};
use serde_json::json;

use crate::common::{SOON, settled, start_by_hand, stop, within};
use crate::table::{file, mapped};

/// A method of a session, by its path, and a call of it.
pub(crate) type Call = (&'static str, fn(Session) -> BoxFuture<'static, ()>);

macro_rules! calls {
    ($session:ident, $type:literal, $handle:expr; $($method:ident($($argument:expr),*);)*) => {
        [$((
            concat!($type, "::", stringify!($method)),
            (|$session: Session| -> BoxFuture<'static, ()> {
                // The outcome does not matter: the CLI of this test never answers.
                Box::pin(async move { drop($handle.$method($($argument),*).await) })
            }) as fn(Session) -> BoxFuture<'static, ()>,
        )),*]
    };
}

pub(crate) fn calls() -> Vec<Call> {
    let mut calls = calls!(session, "Session", session;
        interrupt();
        cancel_async_message("u1");
        set_permission_mode(PermissionMode::Plan);
        set_model(Some("haiku"));
        set_max_thinking_tokens(Some(1024));
        stop_task("t1");
        rewind_files("u1");
        context_usage(ContextDetail::Summary);
        mcp_status();
        set_mcp_servers(McpServerSet::new());
        mcp_reconnect("outside");
        mcp_toggle("outside", true);
    )
    .to_vec();
    calls.extend(calls!(session, "Requests", session.requests();
        set_mcp_permission_mode_override("desk", None);
        apply_flag_settings(json!({}));
        update_settings(SettingsFile::Local, json!({}));
        background_tasks();
        seed_read_state("/a", 1);
        usage(true);
        read_file("/a", ReadFile::default());
        reload_plugins(ReloadPlugins::default());
        reload_skills();
        reload_output_styles();
        mcp_read_resource("outside", "ui://a");
    ));
    calls
}

#[tokio::test(start_paused = true)]
async fn every_request_is_sent_by_its_method() {
    let step = async |_: greenroom::NoArgs, cx: ToolContext| cx.progress(1.0, None, None).await;
    let server = ToolServer::new("desk", "1").tool("step", "Make a step", step);
    let (session, mut end, _listener) = start_by_hand(Session::builder().mcp_server(server)).await;
    let calls = calls();
    let mut unused: BTreeSet<&str> = calls.iter().map(|(method, _)| *method).collect();
    for row in mapped("request") {
        let subtype = row.wire.clone().unwrap();
        let [method] = row.ours.as_slice() else { panic!("one method: {}", row.name()) };
        match (subtype.as_str(), method.as_str()) {
            // The first of all; the handshake of this session is over, and is what this returns.
            ("initialize", "Session::server_info") => drop(session.server_info()),
            ("mcp_message", "ToolContext::progress") => {
                end.call_tool("desk", "step", json!({}));
                within(SOON, end.expect_request("mcp_message")).await;
            }
            _ => {
                let call = calls.iter().find(|(name, _)| name == method);
                let (name, call) = call.unwrap_or_else(|| panic!("no call of {method}: {}", row.name()));
                unused.remove(name);
                let answered = async {
                    let request = end.expect_request(&subtype).await;
                    end.refuse(&request, "not today");
                };
                within(SOON, async { tokio::join!(call(session.clone()), answered) }).await;
            }
        }
    }
    assert!(unused.is_empty(), "without a row: {unused:?}");
    settled(&mut end).await;
    stop(session, end).await;
}

#[test]
fn every_request_is_in_the_table_of_its_module() {
    let docs = std::fs::read_to_string(file("src/requests/mod.rs")).unwrap();
    for row in mapped("request") {
        // Handlers of tools send this request, not the session.
        let Some(subtype) = row.wire.as_deref().filter(|subtype| *subtype != "mcp_message") else { continue };
        let line = docs.lines().find(|line| line.contains(&format!("| `{subtype}` |")));
        let line = line.unwrap_or_else(|| panic!("no row in src/requests/mod.rs: {}", row.name()));
        for method in &row.ours {
            assert!(line.contains(&format!("::{method})")), "src/requests/mod.rs lacks {method}: {line}");
        }
    }
}
