// A server without the state that its tools use.
// says: `ToolServer<AtomicU64>` has no state yet
// says: write `.state(|| ...)`

use std::sync::atomic::{AtomicU64, Ordering};

use greenroom::{NoArgs, Session, ToolContext, ToolServer};

fn main() {
    let counter = ToolServer::new("counter", "1.0.0")
        .tool("next", "The next number", |_: NoArgs, cx: ToolContext<AtomicU64>| async move {
            cx.state().fetch_add(1, Ordering::Relaxed)
        });
    let _ = Session::builder().mcp_server(counter);
}
