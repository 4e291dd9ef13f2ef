//! Add and remove tools and servers while a session runs.
//!
//! ```text
//! cargo run --example dynamic_tools                  # needs nothing but Rust
//! cargo run --example dynamic_tools -- --cli claude  # on the real CLI, with a scripted model
//! ```
//!
//! A shop opens with one tool. This tool adds another tool, which the model calls in the same turn. Then a tool is
//! disabled, and at last a whole server joins.

#![allow(clippy::print_stdout, reason = "an example shows what happens")]

mod common;

use std::sync::{Arc, OnceLock};

use common::Failure;
use greenroom::tool::ServerHandle;
use greenroom::{NoArgs, Session, ToolDef, ToolServer};
use greenroom_testkit::{ModelTurn, Script};
use serde_json::json;

/// The handle to the shop's own tools, once the session runs.
type Shop = Arc<OnceLock<ServerHandle>>;

fn shop(own: Shop) -> ToolServer {
    let hire = ToolDef::new("hire", "Hire a baker", move |_: NoArgs| {
        let own = own.clone();
        async move {
            let shop = own.get().ok_or_else(|| "the shop is not open yet".to_owned())?;
            let bake = ToolDef::<()>::new("bake", "Bake a loaf", async |_: NoArgs| "a warm loaf");
            // When this returns, the next call finds the tool, and the CLI has been told to list the tools again.
            shop.add_tool(bake.always_load(true)).map_err(|error| error.to_string())?;
            Ok::<_, String>("a baker is here")
        }
    });
    ToolServer::new("shop", "1.0.0").add_tool(hire.always_load(true))
}

fn script() -> Script {
    let call = |tool: &str| ModelTurn::new().call(format!("mcp__{tool}"), json!({}));
    Script::new()
        .turn(call("shop__hire"))
        .turn(call("shop__bake"))
        .turn(ModelTurn::new().text("We have bread."))
        .turn(call("shop__bake"))
        .turn(ModelTurn::new().text("The baker has gone home."))
        .turn(call("cafe__brew"))
        .turn(ModelTurn::new().text("And now there is coffee."))
}

async fn ask(session: &Session, question: &str) -> Result<(), Failure> {
    println!("you    > {question}");
    let mut turn = session.prompt(question).await?;
    while let Some(message) = turn.next().await {
        for result in message.tool_results() {
            println!("  result {}", result.content.text());
        }
    }
    println!("model  > {}", turn.outcome().await?.text().unwrap_or_default());
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let own = Shop::default();
    let builder = Session::builder().mcp_server(shop(own.clone())).allow_server_tools("shop");
    let stage = common::start(builder, script()).await?;
    let session = &stage.session;
    let shop = session.server("shop").ok_or("the shop was defined above")?;
    own.set(shop.clone()).map_err(|_| "it is set once")?;

    ask(session, "Is there bread?").await?;
    println!("tools  : {:?}", shop.tools());

    shop.disable_tool("bake")?;
    ask(session, "More bread?").await?;

    // A server that joins is supervised like the servers of the start. Calls of other servers go on meanwhile.
    let brew = ToolDef::new("brew", "Brew coffee", async |_: NoArgs| "a cup of coffee");
    session.allow_server_tools("cafe").await?;
    session.add_mcp_server(ToolServer::new("cafe", "1.0.0").add_tool(brew.always_load(true))).await?;
    ask(session, "Coffee?").await?;

    session.remove_mcp_server("cafe").await?;
    let left: Vec<String> = session.snapshot().await?.servers.into_iter().map(|server| server.name).collect();
    println!("servers: {left:?}");
    session.stop().await?;
    Ok(())
}
