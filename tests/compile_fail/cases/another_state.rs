// Two tools with different states before one `.state(...)`.
// says: this cannot be the handler of a tool
// says: `(Args, ToolContext<AtomicU64>)`
// says: a tool with another state is added after it

use std::sync::atomic::AtomicU64;

use greenroom::{NoArgs, ToolContext, ToolServer};

async fn next(_: NoArgs, _cx: ToolContext<AtomicU64>) -> u64 {
    1
}

async fn name(_: NoArgs, _cx: ToolContext<String>) -> u64 {
    1
}

fn main() {
    let _: ToolServer = ToolServer::new("counter", "1.0.0")
        .tool("next", "The next number", next)
        .tool("name", "The name", name)
        .state(|| AtomicU64::new(1));
}
