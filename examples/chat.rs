//! A chat in the terminal: text as the model writes it, tool calls with their progress, and Ctrl-C, which interrupts
//! the turn instead of the program.
//!
//! ```text
//! cargo run --example chat -- --cli claude --live  # with the real model, on your account
//! cargo run --example chat                         # with a scripted model: needs only Rust
//! ```
//!
//! `/model NAME` changes the model, `/context` shows how full the context is, `/quit` or the end of the input leaves. A
//! second Ctrl-C while nothing runs leaves as well.

#![allow(clippy::print_stdout, reason = "an example shows what happens")]

mod common;

use std::collections::HashMap;
use std::io::{IsTerminal, Write};
use std::time::Duration;

use common::Failure;
use greenroom::message::ContentBlock;
use greenroom::options::SystemPrompt;
use greenroom::permission::plain_text;
use greenroom::requests::ContextDetail;
use greenroom::testkit::{ModelTurn, Script};
use greenroom::{Message, Outcome, PermissionDecision, Session, ToolContext, ToolDef, ToolServer};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use tokio::sync::mpsc;

#[derive(Deserialize, JsonSchema)]
struct Count {
    /// The last number
    to: u32,
}

/// Progress of a running tool.
struct Progress {
    tool: String,
    done: u32,
    of: u32,
}

/// A slow tool that reports its progress and stops when its call is cancelled.
fn kitchen(show: mpsc::Sender<Progress>) -> ToolServer {
    let count = ToolDef::new("count", "Count slowly", move |args: Count, cx: ToolContext| {
        let show = show.clone();
        async move {
            for n in 1..=args.to {
                tokio::select! {
                    () = cx.cancelled() => return Err(format!("interrupted at {n}")),
                    () = tokio::time::sleep(Duration::from_millis(100)) => {}
                }
                cx.progress(f64::from(n), Some(f64::from(args.to)), None).await;
                // Nobody looks if there is no screen.
                show.send(Progress { tool: cx.tool().to_owned(), done: n, of: args.to }).await.ok();
            }
            Ok(format!("counted to {}", args.to))
        }
    });
    ToolServer::new("kitchen", "1.0.0").add_tool(count.always_load(true))
}

fn script() -> Script {
    Script::new()
        .turn(ModelTurn::new().text("Let me count. ").call("mcp__kitchen__count", json!({ "to": 10 })))
        .turn(ModelTurn::new().text("I have counted to ten, and it was worth the wait."))
        .otherwise(ModelTurn::new().text("I am only a script, and this is all I know."))
}

/// The screen: lines that stay, and a line at the bottom that is drawn again and again. Escape sequences are removed
/// from texts of the CLI, the model and the tools, because they could overwrite earlier lines.
struct Screen {
    terminal: bool,
    /// Whether the cursor stands behind an unfinished line.
    open: bool,
}

impl Screen {
    fn write(&mut self, text: &str) {
        self.draw(&plain_text(text));
    }

    /// A line of this program.
    fn draw(&mut self, text: &str) {
        print!("{text}");
        std::io::stdout().flush().ok();
        self.open = !text.ends_with('\n');
    }

    fn line(&mut self, text: &str) {
        if self.open {
            self.write("\n");
        }
        self.write(&format!("{text}\n"));
    }

    fn progress(&mut self, Progress { tool, done, of }: Progress) {
        if !self.terminal {
            if done == of {
                self.line(&format!("  [{}] {tool} {done}/{of}", "#".repeat(20)));
            }
            return;
        }
        let full = (20 * done / of.max(1)) as usize;
        self.draw(&format!("\r  [{}{}] {tool} {done}/{of}", "#".repeat(full), ".".repeat(20 - full)));
        if done == of {
            self.write("\n");
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let (show, mut shown) = mpsc::channel(16);
    let builder = Session::builder()
        .mcp_server(kitchen(show))
        .allow_server_tools("kitchen")
        .system_prompt(SystemPrompt::ClaudeCode)
        // The example `permissions` shows how to ask for each call.
        .can_use_tool(async |request, _cx| {
            PermissionDecision::deny(format!("{} is not part of this chat", request.tool_name))
        })
        .configure(|options| options.include_partial_messages = true);
    let stage = common::start(builder, script()).await?;
    let session = &stage.session;

    let mut screen = Screen { terminal: std::io::stdout().is_terminal(), open: false };
    let mut lines = common::typed_lines();
    // Asks one question if there is no terminal to type at.
    if !std::io::stdin().is_terminal() {
        turn(session, "Count to ten, please.", &mut screen, &mut shown).await?;
    }
    loop {
        screen.write("\nyou    > ");
        let line = tokio::select! {
            line = lines.recv() => line,
            interrupt = tokio::signal::ctrl_c() => interrupt.map(|()| None)?,
        };
        match line.as_deref().map(str::trim) {
            None | Some("/quit") => break,
            Some("") => {}
            Some("/context") => {
                let usage = session.context_usage(ContextDetail::Summary).await;
                match usage {
                    Ok(usage) => {
                        screen.line(&format!("{:?} of {:?} tokens", usage.total_tokens, usage.max_tokens))
                    }
                    Err(error) => screen.line(&format!("the context is not known: {error}")),
                }
            }
            Some(command) if command.starts_with("/model ") => {
                if let Err(error) = session.set_model(command.strip_prefix("/model ")).await {
                    screen.line(&format!("it stays: {error}"));
                }
            }
            Some(prompt) => turn(session, prompt, &mut screen, &mut shown).await?,
        }
    }
    screen.line("good-bye");
    session.stop().await?;
    Ok(())
}

/// Asks a question and shows the answer. Ctrl-C interrupts the turn; the session goes on.
async fn turn(
    session: &Session,
    prompt: &str,
    screen: &mut Screen,
    shown: &mut mpsc::Receiver<Progress>,
) -> Result<(), Failure> {
    let mut turn = session.prompt(prompt).await?;
    let mut running: HashMap<String, String> = HashMap::new();
    loop {
        tokio::select! {
            message = turn.next() => match message {
                Some(message) => show(&message, &mut running, screen),
                None => break,
            },
            Some(progress) = shown.recv() => screen.progress(progress),
            interrupt = tokio::signal::ctrl_c() => {
                interrupt?;
                screen.line("(interrupting)");
                // The running calls are told, and the turn ends with its outcome.
                session.interrupt().await?;
            }
        }
    }
    match turn.outcome().await? {
        Outcome::Completed { result } => {
            let cost = result.total_cost_usd.map(|cost| format!(", ${cost:.4} so far")).unwrap_or_default();
            screen.line(&format!("({} turn(s){cost})", result.num_turns));
        }
        Outcome::Interrupted { by, .. } => screen.line(&format!("(interrupted by {by})")),
        other => screen.line(&format!("({other:?})")),
    }
    Ok(())
}

fn show(message: &Message, running: &mut HashMap<String, String>, screen: &mut Screen) {
    match message {
        // The pieces were shown already; the whole message repeats them.
        Message::StreamEvent(event) => {
            if let Some(text) = event.text_delta() {
                screen.write(text);
            }
        }
        Message::Assistant(_) | Message::User(_) => {
            for block in message.content() {
                match block {
                    ContentBlock::ToolUse { id, name, input, .. } => {
                        screen.line(&format!("  call   {name} {input}"));
                        running.insert(id.clone(), name.clone());
                    }
                    ContentBlock::ToolResult { tool_use_id, content, is_error, .. } => {
                        let name = running.remove(tool_use_id).unwrap_or_default();
                        let word = if *is_error { "error " } else { "result" };
                        screen.line(&format!("  {word} {name}: {}", content.text()));
                    }
                    _ => {}
                }
            }
        }
        _ => {}
    }
}
