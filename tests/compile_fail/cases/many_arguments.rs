// A handler with an argument for each value.
// says: this cannot be the handler of a tool
// says: a handler takes its arguments as one struct

use greenroom::ToolServer;

fn main() {
    let _: ToolServer = ToolServer::new("calc", "1.0.0")
        .tool("add", "Add two numbers", async |a: f64, b: f64| a + b);
}
