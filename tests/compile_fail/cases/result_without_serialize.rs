// `Json` of a struct without derives.
// says: `#[derive(serde::Serialize)]`
// says: required for `Json<Weather>` to implement `IntoToolResult`

use greenroom::{Json, NoArgs, ToolServer};

struct Weather {
    celsius: f64,
}

fn main() {
    let _: ToolServer = ToolServer::new("sky", "1.0.0")
        .tool("weather", "The weather", async |_: NoArgs| Json(Weather { celsius: 17.5 }));
}
