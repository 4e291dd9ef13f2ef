// A tool whose error has no text.
// says: `Broken` doesn't implement `std::fmt::Display`
// says: required for `std::result::Result<String, Broken>` to implement `IntoToolResult`

use greenroom::{NoArgs, ToolServer};

#[derive(Debug)]
struct Broken;

fn main() {
    let _: ToolServer = ToolServer::new("sky", "1.0.0")
        .tool("weather", "The weather", async |_: NoArgs| Err::<String, _>(Broken));
}
