//! Offer resources and prompts besides tools.
//!
//! ```text
//! cargo run --example resources_and_prompts                  # needs nothing but Rust
//! cargo run --example resources_and_prompts -- --cli claude  # on the real CLI, with a scripted model
//! ```
//!
//! The model lists the resources of a library and reads two of them, one by a template. Then the person uses a prompt
//! of the library as a command. CLI 2.1.328 takes no prompts from in-process servers, so there the command reaches the
//! model as typed.

#![allow(clippy::print_stdout, reason = "an example shows what happens")]

mod common;

use common::Failure;
use greenroom::mcp::{
    CompletionRequest, PromptDef, ReadResource, ResourceDef, ResourceTemplateDef, RpcError,
};
use greenroom::testkit::{ModelTurn, Script};
use greenroom::{Session, ToolContext, ToolServer};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

const BOOKS: [(&str, &str); 2] =
    [("dune", "A desert, a spice, a boy."), ("emma", "Handsome, clever, and rich, with a comfortable home.")];

#[derive(Deserialize, JsonSchema)]
struct Review {
    /// The book
    book: String,
    /// Number of words
    words: Option<u32>,
}

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
    )
    .complete("title", async |_: CompletionRequest, _: ToolContext| BOOKS.map(|(title, _)| title));
    // A prompt, which a person types as a command.
    let review = PromptDef::new("review", "Review a book", async |args: Review, _: ToolContext| {
        println!("  prompt review of {}", args.book);
        format!("Review {} in {} words.", args.book, args.words.unwrap_or(20))
    });
    ToolServer::new("library", "1.0.0").resource(rules).resource(index).resource_template(book).prompt(review)
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
        .turn(ModelTurn::new().text("Dune: sand, spice, and a great deal of destiny."))
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let builder = Session::builder()
        .mcp_server(library())
        .allow_tool("ListMcpResourcesTool")
        .allow_tool("ReadMcpResourceTool");
    let stage = common::start(builder, script()).await?;

    for question in ["What is in the library?", "/mcp__library__review dune 8"] {
        println!("you    > {question}");
        let mut turn = stage.session.prompt(question).await?;
        while let Some(message) = turn.next().await {
            for result in message.tool_results() {
                println!("  result {}", result.content.text());
            }
        }
        println!("model  > {}", turn.outcome().await?.text().unwrap_or_default());
    }
    stage.session.stop().await?;
    Ok(())
}
