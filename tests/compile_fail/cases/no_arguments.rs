// A handler without an argument.
// says: this cannot be the handler of a tool
// says: or as `greenroom::NoArgs`: `async |args: Args| ...`

use greenroom::ToolServer;

fn main() {
    let _: ToolServer = ToolServer::new("clock", "1.0.0").tool("now", "The time", async || "noon");
}
