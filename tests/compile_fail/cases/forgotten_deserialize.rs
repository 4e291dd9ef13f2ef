// The arguments of a tool, without `Deserialize`.
// says: `Add` cannot be the arguments of a tool: it does not implement `serde::Deserialize`
// says: write `#[derive(serde::Deserialize, schemars::JsonSchema)]` above `Add`

use greenroom::ToolServer;

#[derive(schemars::JsonSchema)]
struct Add {
    a: f64,
    b: f64,
}

fn main() {
    let _: ToolServer =
        ToolServer::new("calc", "1.0.0").tool("add", "Add two numbers", async |args: Add| args.a + args.b);
}
