// The arguments of a tool, without any derive.
// says: it does not implement `schemars::JsonSchema`
// says: it does not implement `serde::Deserialize`
// says: write `#[derive(serde::Deserialize, schemars::JsonSchema)]` above `Add`

use greenroom::{ToolContext, ToolServer};

struct Add {
    a: f64,
    b: f64,
}

async fn add(args: Add, _cx: ToolContext) -> f64 {
    args.a + args.b
}

fn main() {
    let _: ToolServer = ToolServer::new("calc", "1.0.0").tool("add", "Add two numbers", add);
}
