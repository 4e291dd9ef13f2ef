// An `async move` closure that captures a value.
// says: this cannot be the handler of a tool
// says: write a plain closure with clones: `move |args: Args| { let pool = pool.clone(); async move { ... } }`

use std::sync::Arc;

use greenroom::{NoArgs, ToolServer};

fn main() {
    let pool = Arc::new(String::from("a pool"));
    let _: ToolServer = ToolServer::new("db", "1.0.0")
        .tool("ask", "Ask the database", async move |_: NoArgs| pool.to_string());
}
