// A handler that is not async.
// says: `&str` is not a future

use greenroom::{NoArgs, ToolServer};

fn main() {
    let _: ToolServer = ToolServer::new("clock", "1.0.0").tool("now", "The time", |_: NoArgs| "noon");
}
