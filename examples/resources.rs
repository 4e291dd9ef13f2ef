//! Offer resources besides tools.
//!
//! ```text
//! cargo run --example resources                  # needs nothing but Rust
//! cargo run --example resources -- --cli claude  # on the real CLI, with a scripted model
//! ```
//!
//! The model lists the resources of a library and reads two of them, one by a template. A third one is not there.

#![allow(clippy::print_stdout, reason = "an example shows what happens")]

mod common;

use common::Failure;
use greenroom::mcp::{ReadResource, ResourceDef, ResourceTemplateDef, RpcError};
use greenroom::{Session, ToolContext, ToolServer};
use greenroom_testkit::{ModelTurn, Script};
use serde_json::json;

const BOOKS: [(&str, &str); 2] =
    [("dune", "A desert, a spice, a boy."), ("emma", "Handsome, clever, and rich, with a comfortable home.")];

fn library() -> ToolServer {
    // A resource with a fixed text.
    let rules = ResourceDef::text("library://rules", "rules", "Whisper.").mime_type("text/plain");
    // A resource that is made at each read.
    let index = ResourceDef::new("library://index", "index", async |_: ReadResource, _: ToolContext| {
        BOOKS.map(|(title, _)| title).join(", ")
    });
    // A template, which stands for many resources.
    let book = ResourceTemplateDef::new(
        "library://books/{title}",
        "book",
        async |read: ReadResource, _: ToolContext| {
            let title = read.variable("title").unwrap_or_default();
            let found = BOOKS.iter().find(|(name, _)| *name == title);
            found.map(|(_, text)| *text).ok_or_else(|| RpcError::resource_not_found(&read.uri))
        },
    );
    ToolServer::new("library", "1.0.0").resource(rules).resource(index).resource_template(book)
}

fn script() -> Script {
    let read =
        |uri: &str| ModelTurn::new().call("ReadMcpResourceTool", json!({ "server": "library", "uri": uri }));
    Script::new()
        .turn(ModelTurn::new().call("ListMcpResourcesTool", json!({ "server": "library" })))
        .turn(read("library://index"))
        .turn(read("library://books/emma"))
        .turn(read("library://books/ulysses"))
        .turn(ModelTurn::new().text("There are two books; Emma is about a comfortable home."))
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let builder = Session::builder()
        .mcp_server(library())
        .allow_tool("ListMcpResourcesTool")
        .allow_tool("ReadMcpResourceTool");
    let stage = common::start(builder, script()).await?;

    let question = "What is in the library?";
    println!("you    > {question}");
    let mut turn = stage.session.prompt(question).await?;
    while let Some(message) = turn.next().await {
        for result in message.tool_results() {
            println!("  result {}", result.content.text());
        }
    }
    println!("model  > {}", turn.outcome().await?.text().unwrap_or_default());
    stage.session.stop().await?;
    Ok(())
}
