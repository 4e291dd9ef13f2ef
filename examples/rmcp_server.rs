//! Serve an `rmcp` server in a session, with the promises of a tool server.
//!
//! ```text
//! cargo run --example rmcp_server                  # needs nothing but Rust
//! cargo run --example rmcp_server -- --cli claude  # on the real CLI, with a scripted model
//! ```
//!
//! The counter has a bug: it panics at three. `rmcp` alone would never answer that call. Here the call is answered, and
//! later calls find the counter as it was.

#![allow(clippy::print_stdout, reason = "an example shows what happens")]

mod common;

use std::sync::atomic::{AtomicU64, Ordering};

use common::Failure;
use greenroom::Session;
use greenroom_testkit::{ModelTurn, Script};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, JsonObject, ListToolsResult,
    MetaObject, PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde_json::json;

/// A `ServerHandler` written by hand; `rmcp`'s macros work as well.
#[derive(Default)]
struct Counter(AtomicU64);

impl ServerHandler for Counter {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        // Shows the tool to the model from the start; otherwise the CLI defers it behind its tool search.
        let shown = MetaObject(object(json!({ "anthropic/alwaysLoad": true })));
        let next = Tool::new("next", "Counts on", object(json!({ "type": "object" }))).with_meta(shown);
        Ok(ListToolsResult::with_all_items(vec![next]))
    }

    async fn call_tool(
        &self,
        _: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let number = self.0.fetch_add(1, Ordering::Relaxed) + 1;
        assert!(number != 3, "three is too much");
        Ok(CallToolResult::success(vec![ContentBlock::text(number.to_string())]).into())
    }
}

fn object(json: serde_json::Value) -> JsonObject {
    match json {
        serde_json::Value::Object(object) => object,
        _ => JsonObject::new(),
    }
}

fn script() -> Script {
    Script::new()
        .repeat(4, ModelTurn::new().call("mcp__counter__next", json!({})))
        .turn(ModelTurn::new().text("One, two, an accident, four."))
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    // The default panic hook would print the panic, which is part of the lesson, in the middle of the conversation.
    std::panic::set_hook(Box::new(|_| {}));
    // A factory makes the counter, so that a restart can make a new one.
    let counter = greenroom::rmcp::mount("counter", Counter::default);
    let builder = Session::builder().mcp_server(counter).allow_server_tools("counter");
    let stage = common::start(builder, script()).await?;

    let mut turn = stage.session.prompt("Count to four.").await?;
    while let Some(message) = turn.next().await {
        for result in message.tool_results() {
            println!("  {} {}", if result.is_error { "error " } else { "result" }, result.content.text());
        }
    }
    println!("model  > {}", turn.outcome().await?.text().unwrap_or_default());
    let snapshot = stage.session.snapshot().await?;
    println!(
        "{} requests, {} answered, {} panic",
        snapshot.counters.requests, snapshot.counters.answered, snapshot.counters.panics
    );
    stage.session.stop().await?;
    Ok(())
}
