//! The tools of the chat: one that reports its progress, and one that the person has to allow.

use std::time::Duration;

use greenroom::{ToolContext, ToolDef, ToolServer};
use greenroom_testkit::{ModelTurn, Script};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use tokio::sync::mpsc;

#[derive(Deserialize, JsonSchema)]
struct Count {
    /// The last number
    to: u32,
}

#[derive(Deserialize, JsonSchema)]
struct Bake {
    /// The name of the cake
    cake: String,
}

/// Progress of a running call.
pub(crate) struct Progress {
    pub(crate) call: String,
    pub(crate) tool: String,
    pub(crate) done: u32,
    pub(crate) of: u32,
}

/// Tools that a chat may call without asking.
pub(crate) const ALLOWED: &str = "mcp__kitchen__count";

/// `count` is slow, tells its progress, and stops when its call is cancelled. Several calls run at once, because the
/// tool only reads.
pub(crate) fn server(show: mpsc::Sender<Progress>) -> ToolServer {
    let count = ToolDef::new("count", "Count slowly", move |args: Count, cx: ToolContext| {
        let show = show.clone();
        async move {
            let call = cx.tool_use_id().unwrap_or(cx.request_id()).to_owned();
            for done in 1..=args.to {
                tokio::select! {
                    () = cx.cancelled() => return Err(format!("interrupted at {done}")),
                    () = tokio::time::sleep(Duration::from_millis(100)) => {}
                }
                cx.progress(f64::from(done), Some(f64::from(args.to)), None).await;
                let progress = Progress { call: call.clone(), tool: cx.tool().to_owned(), done, of: args.to };
                // Nobody looks when the chat has ended.
                show.send(progress).await.ok();
            }
            Ok(format!("counted to {}", args.to))
        }
    });
    ToolServer::new("kitchen", "1.0.0").add_tool(count.read_only_hint(true).always_load(true)).add_tool(
        ToolDef::new("bake", "Bake a cake", async |args: Bake| format!("a {}, still warm", args.cake))
            .always_load(true),
    )
}

/// The model's part without `--live` and without a script of yours.
pub(crate) fn script() -> Script {
    Script::new()
        .turn(
            ModelTurn::new()
                .text("Let me count, on both hands. ")
                .call("mcp__kitchen__count", json!({ "to": 10 }))
                .call("mcp__kitchen__count", json!({ "to": 5 })),
        )
        .turn(ModelTurn::new().text("I have counted to ten, and it was worth the wait."))
        .turn(ModelTurn::new().call("mcp__kitchen__bake", json!({ "cake": "carrot cake" })))
        .turn(ModelTurn::new().text("That is all I can do in the kitchen."))
        .otherwise(ModelTurn::new().text("I am only a script, and this is all I know."))
        .local_command("cost", "The script costs nothing.")
        .local_command("context", "The script has read nothing.")
}
