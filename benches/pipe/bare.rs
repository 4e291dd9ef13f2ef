//! The hosts that greenroom is compared with: loops that answer the same calls and do nothing else. They promise
//! nothing: no second server, no tool that takes its time, no panic, no limit, no cancelling.

use std::io::{self, BufRead, Read, Write};
use std::process::{Command, Stdio};

use memchr::memmem;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, BufWriter};

use super::driver::{Plan, Shown};

const INITIALIZE: &[u8] = b"{\"type\":\"control_request\",\"request_id\":\"init\",\"request\":\
{\"subtype\":\"initialize\",\"sdkMcpServers\":[]}}\n";

const PROMPT: &[u8] =
    b"{\"type\":\"user\",\"uuid\":\"p\",\"session_id\":\"\",\"parent_tool_use_id\":null,\"message\":\
{\"role\":\"user\",\"content\":\"go\"}}\n";

/// The part of a line between `before` and `after`.
fn between<'a>(line: &'a [u8], before: &[u8], after: u8) -> Option<&'a [u8]> {
    let from = memmem::find(line, before)? + before.len();
    let length = memchr::memchr(after, &line[from..])?;
    Some(&line[from..from + length])
}

fn result(line: &[u8]) -> io::Result<Shown> {
    #[derive(Deserialize)]
    struct Frame {
        result: String,
    }
    let frame: Frame = serde_json::from_slice(line)?;
    Ok(serde_json::from_str(&frame.result)?)
}

/// The host `limit`: blocks, scans for the fields that it needs, and writes its answers when nothing is left to read.
pub(crate) fn scan(mut driver: Command) -> io::Result<Shown> {
    let mut child = driver.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let (mut stdin, mut stdout) =
        (child.stdin.take().ok_or_else(missing)?, child.stdout.take().ok_or_else(missing)?);
    stdin.write_all(INITIALIZE)?;
    stdin.write_all(PROMPT)?;
    let (mut input, mut out) = (Vec::with_capacity(1 << 18), Vec::with_capacity(1 << 18));
    let mut chunk = vec![0; 1 << 18];
    // Number of bytes that were looked at and hold no end of a line.
    let mut seen = 0;
    let shown = 'run: loop {
        let bytes = stdout.read(&mut chunk)?;
        if bytes == 0 {
            return Err(ended());
        }
        input.extend_from_slice(&chunk[..bytes]);
        let mut from = 0;
        while let Some(length) = memchr::memchr(b'\n', &input[seen.max(from)..]) {
            let end = seen.max(from) + length;
            let line = &input[from..end];
            if line.starts_with(b"{\"type\":\"control_request\"") {
                let id = between(line, b"\"request_id\":\"", b'"').ok_or_else(missing)?;
                let rpc = between(line, b"\"id\":", b',').ok_or_else(missing)?;
                let text = between(line, b"\"text\":\"", b'"').ok_or_else(missing)?;
                out.extend_from_slice(
                    b"{\"type\":\"control_response\",\"response\":{\"subtype\":\"success\",\"request_id\":\"",
                );
                out.extend_from_slice(id);
                out.extend_from_slice(b"\",\"response\":{\"mcp_response\":{\"jsonrpc\":\"2.0\",\"id\":");
                out.extend_from_slice(rpc);
                out.extend_from_slice(b",\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"");
                out.extend_from_slice(text);
                out.extend_from_slice(b"\"}]}}}}}\n");
            } else if memmem::find(&line[..line.len().min(512)], b"\"type\":\"result\"").is_some() {
                break 'run result(line)?;
            }
            from = end + 1;
        }
        input.drain(..from);
        seen = input.len();
        stdin.write_all(&out)?;
        out.clear();
    };
    drop(stdin);
    child.wait()?;
    Ok(shown)
}

#[derive(Deserialize)]
struct Frame<'a> {
    #[serde(rename = "type", borrow)]
    kind: &'a str,
    #[serde(borrow)]
    request_id: Option<&'a str>,
    #[serde(borrow)]
    request: Option<Request<'a>>,
}

#[derive(Deserialize)]
struct Request<'a> {
    #[serde(borrow)]
    message: Rpc<'a>,
}

#[derive(Deserialize)]
struct Rpc<'a> {
    #[serde(borrow)]
    id: &'a RawValue,
    #[serde(borrow)]
    params: Params<'a>,
}

#[derive(Deserialize)]
struct Params<'a> {
    #[serde(borrow)]
    arguments: &'a RawValue,
}

#[derive(Deserialize)]
struct Echo {
    text: String,
}

#[derive(Serialize)]
struct Answer<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    response: Success<'a>,
}

#[derive(Serialize)]
struct Success<'a> {
    subtype: &'static str,
    request_id: &'a str,
    response: Mcp<'a>,
}

#[derive(Serialize)]
struct Mcp<'a> {
    mcp_response: RpcAnswer<'a>,
}

#[derive(Serialize)]
struct RpcAnswer<'a> {
    jsonrpc: &'static str,
    id: &'a RawValue,
    result: Content<'a>,
}

#[derive(Serialize)]
struct Content<'a> {
    content: [Text<'a>; 1],
}

#[derive(Serialize)]
struct Text<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    text: &'a str,
}

/// The request of one line.
enum Asked {
    /// The line asks for this answer, a line with its end.
    Answer(Vec<u8>),
    End(Shown),
    Nothing,
}

fn typed(line: &[u8]) -> io::Result<Asked> {
    let frame: Frame<'_> = serde_json::from_slice(line)?;
    Ok(match (frame.kind, frame.request_id, frame.request) {
        ("control_request", Some(request_id), Some(Request { message })) => {
            let echo: Echo = serde_json::from_str(message.params.arguments.get())?;
            let result = Content { content: [Text { kind: "text", text: &echo.text }] };
            let mcp_response = RpcAnswer { jsonrpc: "2.0", id: message.id, result };
            let response = Success { subtype: "success", request_id, response: Mcp { mcp_response } };
            let mut answer = serde_json::to_vec(&Answer { kind: "control_response", response })?;
            answer.push(b'\n');
            Asked::Answer(answer)
        }
        ("result", ..) => Asked::End(result(line)?),
        _ => Asked::Nothing,
    })
}

/// Like [`typed`], without types.
fn untyped(line: &[u8]) -> io::Result<Asked> {
    let frame: Value = serde_json::from_slice(line)?;
    Ok(match frame["type"].as_str() {
        Some("control_request") => {
            let message = &frame["request"]["message"];
            let content = json!([{ "type": "text", "text": message["params"]["arguments"]["text"] }]);
            let answer = json!({ "type": "control_response", "response": { "subtype": "success",
                "request_id": frame["request_id"], "response": { "mcp_response":
                    { "jsonrpc": "2.0", "id": message["id"], "result": { "content": content } } } } });
            let mut answer = serde_json::to_vec(&answer)?;
            answer.push(b'\n');
            Asked::Answer(answer)
        }
        Some("result") => Asked::End(result(line)?),
        _ => Asked::Nothing,
    })
}

fn missing() -> io::Error {
    io::Error::other("a pipe is missing")
}

fn ended() -> io::Error {
    io::Error::other("the driver ended without a result")
}

/// The host `value`, the loop that people write first: blocking, JSON without types, a line and then its answer.
pub(crate) fn value(mut driver: Command) -> io::Result<Shown> {
    let mut child = driver.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut stdin = child.stdin.take().ok_or_else(missing)?;
    let mut stdout = io::BufReader::new(child.stdout.take().ok_or_else(missing)?);
    stdin.write_all(INITIALIZE)?;
    stdin.write_all(PROMPT)?;
    let mut line = Vec::new();
    let shown = loop {
        line.clear();
        if stdout.read_until(b'\n', &mut line)? == 0 {
            return Err(ended());
        }
        match untyped(&line)? {
            Asked::Answer(answer) => stdin.write_all(&answer)?,
            Asked::End(shown) => break shown,
            Asked::Nothing => {}
        }
    };
    drop(stdin);
    child.wait()?;
    Ok(shown)
}

/// The host `tokio`, the loop that people write on tokio: typed JSON, a line and then its answer.
pub(crate) async fn on_tokio(driver: Command) -> io::Result<Shown> {
    #[allow(clippy::disallowed_methods, reason = "a host that is no part of the library")]
    let mut command = tokio::process::Command::from(driver);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut stdin = child.stdin.take().ok_or_else(missing)?;
    let mut stdout = BufReader::new(child.stdout.take().ok_or_else(missing)?);
    stdin.write_all(INITIALIZE).await?;
    stdin.write_all(PROMPT).await?;
    let mut line = Vec::new();
    let shown = loop {
        line.clear();
        if stdout.read_until(b'\n', &mut line).await? == 0 {
            return Err(ended());
        }
        match typed(&line)? {
            Asked::Answer(answer) => {
                stdin.write_all(&answer).await?;
                stdin.flush().await?;
            }
            Asked::End(shown) => break shown,
            Asked::Nothing => {}
        }
    };
    drop(stdin);
    child.wait().await?;
    Ok(shown)
}

/// The host `tokio batched`: large buffers, and answers that are written when no whole line is left to read.
pub(crate) async fn on_tokio_batched(driver: Command) -> io::Result<Shown> {
    #[allow(clippy::disallowed_methods, reason = "a host that is no part of the library")]
    let mut command = tokio::process::Command::from(driver);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut stdin = BufWriter::with_capacity(1 << 16, child.stdin.take().ok_or_else(missing)?);
    let mut stdout = BufReader::with_capacity(1 << 16, child.stdout.take().ok_or_else(missing)?);
    stdin.write_all(INITIALIZE).await?;
    stdin.write_all(PROMPT).await?;
    let mut line = Vec::new();
    let shown = loop {
        if memchr::memchr(b'\n', stdout.buffer()).is_none() {
            stdin.flush().await?;
        }
        line.clear();
        if stdout.read_until(b'\n', &mut line).await? == 0 {
            return Err(ended());
        }
        match typed(&line)? {
            Asked::Answer(answer) => stdin.write_all(&answer).await?,
            Asked::End(shown) => break shown,
            Asked::Nothing => {}
        }
    };
    drop(stdin);
    child.wait().await?;
    Ok(shown)
}

/// The command that starts the driver.
pub(crate) fn driver_command(plan: &Plan) -> io::Result<Command> {
    #[allow(clippy::disallowed_methods, reason = "a host that is no part of the library")]
    let mut command = Command::new(std::env::current_exe()?);
    command.env(super::ROLE, "driver").env(super::PLAN, serde_json::to_string(plan)?);
    Ok(command)
}
