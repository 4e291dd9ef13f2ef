//! A chat in the terminal.
//!
//! ```text
//! cargo run -p chat -- --cli claude --live  # with the real model, on your account
//! cargo run -p chat                         # with a scripted model: needs only Rust
//! cargo run -p chat -- --script FILE        # with a script of yours: the JSON of `greenroom_testkit::Script`
//! ```
//!
//! `/help` lists the commands and the keys. You can type while the model works: your line waits for the answer. The
//! chat asks before a tool runs. Without a terminal the chat asks the model one question, from its stdin, and writes
//! plain text.
//!
//! | file | holds |
//! |---|---|
//! | `ui.rs` | the window: events come in, live rows are drawn |
//! | `turn.rs` | one turn, from the prompt to its cost |
//! | `questions.rs` | permissions, and questions of the model |
//! | `commands.rs` | `/help`, `/model` |
//! | `sentences.rs` | errors in words |
//! | `input.rs` | the typed line and its history |
//! | `screen.rs`, `text.rs` | rows that stay, live rows, wrapping, escape sequences |
//! | `kitchen.rs` | the tools, and the model's script |

mod commands;
#[path = "../../common/mod.rs"]
mod common;
mod input;
mod kitchen;
mod questions;
mod screen;
mod sentences;
mod text;
mod turn;
mod ui;

use std::io::Read;

use greenroom::Session;
use greenroom::options::SystemPrompt;
use greenroom_testkit::Script;
use tokio::sync::mpsc;

use crate::commands::Command;
use crate::common::Failure;
use crate::screen::{PERSON, Voice};
use crate::turn::Turns;
use crate::ui::Ui;

#[tokio::main]
async fn main() -> std::process::ExitCode {
    match chat().await {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            // The text of the library is plain already; a path of the person may be anything.
            eprintln!("chat: {}", greenroom::permission::plain_text(&error.to_string()));
            std::process::ExitCode::FAILURE
        }
    }
}

async fn chat() -> Result<(), Failure> {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let script = match arguments.iter().position(|argument| argument == "--script") {
        Some(at) if at + 1 < arguments.len() => {
            let file = arguments.drain(at..at + 2).nth(1).unwrap_or_default();
            let text = std::fs::read_to_string(&file).map_err(|error| format!("{file}: {error}"))?;
            serde_json::from_str::<Script>(&text).map_err(|error| format!("{file} is no script: {error}"))?
        }
        _ => kitchen::script(),
    };

    let (show, progress) = mpsc::channel(16);
    let (asks, asked) = mpsc::channel(16);
    let builder = Session::builder()
        .mcp_server(kitchen::server(show))
        .allow_tool(kitchen::ALLOWED)
        .system_prompt(SystemPrompt::ClaudeCode)
        .configure(|options| options.include_partial_messages = true);
    let builder = questions::ask_the_person(builder, asks);

    let mut ui = Ui::open(progress, asked)?;
    let starting = common::start_with(builder, script, &arguments);
    let Some(stage) = ui.wait("starting the CLI", starting).await else { return Ok(()) };
    let stage = stage?;
    let session = &stage.session;

    let mut turns = Turns::default();
    if ui.screen.is_terminal() {
        ui.say(Voice::Chat, "/help lists commands and keys.");
        lines(session, &mut turns, &mut ui).await;
    } else {
        let question = piped_question()?;
        ui.say(Voice::Person, &format!("{PERSON}{question}"));
        turns.run(session, &question, &mut ui).await;
    }
    let answers = text::count(turns.usage.turns(), "answer");
    let cost = turns.usage.total_cost_usd();
    ui.say(Voice::Chat, &format!("good-bye: {answers} for ${cost:.4}"));
    match ui.wait("stopping the CLI", session.stop()).await {
        Some(stopped) => Ok(stopped?),
        None => Ok(()),
    }
}

/// Takes lines of the person until the person leaves, or the session has failed.
async fn lines(session: &Session, turns: &mut Turns, ui: &mut Ui) {
    while let Some(line) = ui.line().await {
        match Command::of(&line) {
            Command::Help => commands::help(session, ui),
            Command::Models => commands::models(session, ui, turns.model.as_deref()),
            Command::Model(name) => commands::model(session, ui, name).await,
            Command::Quit => return,
            Command::Prompt(prompt) => turns.run(session, prompt, ui).await,
        }
        if turns.left || session.failure().is_some() {
            return;
        }
    }
}

/// The question without a terminal: all of stdin.
fn piped_question() -> Result<String, Failure> {
    let mut question = String::new();
    std::io::stdin().read_to_string(&mut question)?;
    let question = question.trim();
    Ok(if question.is_empty() { "Count to ten, please." } else { question }.to_owned())
}
