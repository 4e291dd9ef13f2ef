//! An MCP server on stdio, as small as one can be.

use std::io::{self, BufRead, Write};

use serde_json::{Value, json};

/// Serves until the end of stdin.
pub(crate) fn serve() -> io::Result<()> {
    for line in io::stdin().lock().lines() {
        let message: Value = serde_json::from_str(&line?)?;
        // A message without an id is a notification, and is not answered.
        if let Some(id) = message.get("id") {
            let mut reply = answer(&message);
            reply["jsonrpc"] = json!("2.0");
            reply["id"] = id.clone();
            writeln!(io::stdout(), "{reply}")?;
        }
    }
    Ok(())
}

fn answer(message: &Value) -> Value {
    let params = &message["params"];
    match message["method"].as_str().unwrap_or_default() {
        "initialize" => json!({"result": {"protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}}, "serverInfo": {"name": "shout", "version": "1.0.0"}}}),
        "ping" => json!({"result": {}}),
        "tools/list" => {
            let schema = json!({"type": "object", "properties": {"text": {"type": "string"}}});
            json!({"result": {"tools": [{"name": "shout", "description": "Say it louder",
                "inputSchema": schema, "_meta": {"anthropic/alwaysLoad": true}}]}})
        }
        "tools/call" => {
            let text = params["arguments"]["text"].as_str().unwrap_or_default().to_uppercase();
            json!({"result": {"content": [{"type": "text", "text": text}]}})
        }
        method => json!({"error": {"code": -32601, "message": format!("no method {method}")}}),
    }
}
