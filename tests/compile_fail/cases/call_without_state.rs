// A test of a server without its state.
// says: `ToolServer<AtomicU64>` has no state yet
// says: write `.state(|| ...)`

use std::sync::atomic::AtomicU64;

use greenroom::{NoArgs, ToolContext, ToolServer};

fn main() {
    let counter =
        ToolServer::new("counter", "1.0.0").tool("next", "The next number", async |_: NoArgs, _: ToolContext<AtomicU64>| 1);
    let _ = counter.call("next", Default::default());
}
