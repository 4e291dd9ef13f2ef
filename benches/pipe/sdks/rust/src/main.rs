//! The host of the benchmark on another Rust SDK: answers the calls of the driver, and prints the driver's figures.

use std::collections::HashMap;

use anyhow::Context;
use claude_agent_sdk_rs::types::mcp::{McpServerConfig, McpServers, ToolResult, create_sdk_mcp_server};
use claude_agent_sdk_rs::{ClaudeAgentOptions, ClaudeClient, McpToolResultContent, Message, tool};
use futures::StreamExt;
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

async fn echo(arguments: Value) -> anyhow::Result<ToolResult> {
    let text = arguments["text"].as_str().context("no text")?.to_owned();
    Ok(ToolResult { content: vec![McpToolResultContent::Text { text }], is_error: false })
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let schema = json!({ "type": "object", "properties": { "text": { "type": "string" } } });
    let server = create_sdk_mcp_server("bench0", "1.0.0", vec![tool!("echo", "Say it again", schema, echo)]);
    let servers = HashMap::from([("bench0".to_owned(), McpServerConfig::Sdk(server))]);
    let options = ClaudeAgentOptions::builder()
        .cli_path(std::env::var("GREENROOM_BENCH_CLI")?)
        .mcp_servers(McpServers::Dict(servers))
        // The SDK counts the bytes of the whole session.
        .max_buffer_size(usize::MAX)
        .skip_version_check(true)
        .build();
    let mut client = ClaudeClient::new(options);
    client.connect().await?;
    client.query("go").await?;
    let mut shown = Value::Null;
    {
        let mut messages = client.receive_response();
        while let Some(message) = messages.next().await {
            if let Message::Result(result) = message? {
                shown = serde_json::from_str(&result.result.context("no figures")?)?;
                break;
            }
        }
    }
    client.disconnect().await?;
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let cpu_seconds = time.tv_sec as f64 + time.tv_nsec as f64 / 1e9;
    println!("{}", json!({ "shown": shown, "cpu_seconds": cpu_seconds, "peak_mb": peak_mb() }));
    Ok(())
}

/// Peak memory of this process, in MB; zero where the system does not tell.
fn peak_mb() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse::<f64>().ok());
    kib.unwrap_or_default() * 1024.0 / 1e6
}
