// Returned types that no model could read.
// says: `Weather` is no result of a tool
// says: the trait `IntoToolResult` is missing for `Weather`
// says: return a struct as `greenroom::Json(value)`
// says: `std::option::Option<&str>` is no result of a tool

use greenroom::{NoArgs, ToolServer};

#[derive(serde::Serialize, schemars::JsonSchema)]
struct Weather {
    celsius: f64,
}

fn main() {
    let _: ToolServer = ToolServer::new("sky", "1.0.0")
        .tool("weather", "The weather", async |_: NoArgs| Weather { celsius: 17.5 })
        .tool("rain", "Whether it rains", async |_: NoArgs| Some("yes"));
}
