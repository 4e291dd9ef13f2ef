//! Hooks: run your code at points of the CLI's loop.
//!
//! ```text
//! cargo run --example hooks                  # needs nothing but Rust
//! cargo run --example hooks -- --cli claude  # on the real CLI, with a scripted model
//! ```
//!
//! The hooks forbid a call, rewrite the arguments of another call, hide a secret in a result before the model reads it,
//! note every prompt, and keep the turn from ending before the model has given a summary.

#![allow(clippy::print_stdout, reason = "an example shows what happens")]

mod common;

use common::Failure;
use greenroom::hook::{PostToolUseOutput, PreToolUseOutput, StopOutput};
use greenroom::message::ContentBlock;
use greenroom::{Hook, Session, ToolServer, hook};
use greenroom_testkit::{ModelTurn, Script};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

#[derive(Deserialize, JsonSchema)]
struct Path {
    /// The file
    path: String,
}

fn files() -> ToolServer {
    ToolServer::new("files", "1.0.0")
        .tool("read", "Read a file", async |file: Path| {
            format!("contents of {}: password=hunter2", file.path)
        })
        .tool("delete", "Delete a file", async |file: Path| format!("{} is gone", file.path))
}

fn hooks() -> [Hook; 5] {
    // A hook that forbids something should forbid it as well when the hook itself fails.
    let keep_files = Hook::on(hook::PreToolUse, async |input, _cx| {
        println!("  hook   PreToolUse {} {}", input.tool_name, input.tool_input);
        PreToolUseOutput::deny("nothing is deleted on Fridays")
    })
    .matcher("mcp__files__delete");

    let stay_home = Hook::on(hook::PreToolUse, async |input, _cx| {
        println!("  hook   PreToolUse {} {}", input.tool_name, input.tool_input);
        let mut output = PreToolUseOutput::allow();
        if let Some(path) = input.tool_input["path"].as_str().and_then(|path| path.strip_prefix("/etc/")) {
            output = output.field("updatedInput", json!({ "path": format!("/home/ada/{path}") }));
        }
        output
    })
    .matcher("mcp__files__read");

    let no_secrets = Hook::on(hook::PostToolUse, async |input, _cx| {
        let told = input.tool_response.to_string();
        if !told.contains("password=") {
            return PostToolUseOutput::pass();
        }
        println!("  hook   PostToolUse hides a password");
        let text = "contents of the file, without its secrets";
        PostToolUseOutput::pass().field("updatedMCPToolOutput", json!([{ "type": "text", "text": text }]))
    });

    let note = Hook::on(hook::UserPromptSubmit, async |input, _cx| {
        println!("  hook   UserPromptSubmit: {}", input.prompt);
        hook::UserPromptSubmitOutput::pass()
    });

    let summary = Hook::on(hook::Stop, async |input, _cx| match input.stop_hook_active {
        true => StopOutput::pass(),
        false => {
            println!("  hook   Stop: not before there is a summary");
            StopOutput::block("Sum up what you did.")
        }
    });
    [keep_files, stay_home, no_secrets, note, summary]
}

fn script() -> Script {
    Script::new()
        .turn(ModelTurn::new().call("mcp__files__delete", json!({ "path": "/home/ada/diary" })))
        .turn(ModelTurn::new().call("mcp__files__read", json!({ "path": "/etc/diary" })))
        .turn(ModelTurn::new().text("I have looked at your diary."))
        .turn(ModelTurn::new().text("In short: one file was read, and none was deleted."))
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let builder = Session::builder().mcp_server(files()).allow_server_tools("files");
    let builder = hooks().into_iter().fold(builder, greenroom::SessionBuilder::hook);
    let stage = common::start(builder, script()).await?;

    let question = "Tidy up my diary.";
    println!("you    > {question}");
    let mut turn = stage.session.prompt(question).await?;
    while let Some(message) = turn.next().await {
        for block in message.content() {
            match block {
                // The CLI sends the feedback of a hook to the model as a user message.
                ContentBlock::Text { text, .. } if message.kind() == "user" => println!("  told   {text}"),
                ContentBlock::Text { text, .. } => println!("model  > {text}"),
                ContentBlock::ToolUse { name, input, .. } => println!("  call   {name} {input}"),
                ContentBlock::ToolResult { content, .. } => println!("  result {}", content.text()),
                _ => {}
            }
        }
    }
    println!("outcome: {:?}", turn.outcome().await?.text());
    stage.session.stop().await?;
    Ok(())
}
