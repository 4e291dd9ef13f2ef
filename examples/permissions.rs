//! Permissions: the person at the terminal decides which tool may run.
//!
//! ```text
//! cargo run --example permissions                  # needs nothing but Rust
//! cargo run --example permissions -- --cli claude  # on the real CLI, with a scripted model
//! echo 'n' | cargo run --example permissions       # the end of the input denies
//! ```
//!
//! The model wants to send a letter twice, and then asks a question of its own. `y` allows the call, `a` allows all
//! calls of the tool in this session, `n` denies, and any other text is a denial that the model reads. The end of the
//! input denies.

#![allow(clippy::print_stdout, reason = "an example shows what happens")]

mod common;

use std::sync::Arc;

use common::Failure;
use greenroom::message::ContentBlock;
use greenroom::permission::{Answers, DecisionClassification, PermissionDestination, Question};
use greenroom::{PermissionDecision, PermissionRequest, Session, ToolServer};
use greenroom_testkit::{ModelTurn, Script};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use tokio::sync::{Mutex, mpsc};

#[derive(Deserialize, JsonSchema)]
struct Letter {
    /// The recipient
    to: String,
}

fn post() -> ToolServer {
    ToolServer::new("post", "1.0.0")
        .tool("send", "Send a letter", async |letter: Letter| format!("sent to {}", letter.to))
}

/// The person at the terminal. Requests that come at once are asked one after the other.
struct Person(Mutex<mpsc::Receiver<String>>);

impl Person {
    async fn decide(&self, request: PermissionRequest) -> PermissionDecision {
        let mut lines = self.0.lock().await;
        // The reason may hold escape sequences of a terminal; `reason_text` removes them.
        let reason = request.reason_text().map(|reason| format!(" ({reason})")).unwrap_or_default();
        println!("  may    {} {}{reason} run? [y/a/n/why not]", request.tool_name, request.input);
        match lines.recv().await.as_deref().map(str::trim) {
            Some("y") => PermissionDecision::allow().classified(DecisionClassification::UserTemporary),
            Some("a") => {
                // The CLI suggests a rule for a file of the project; here the rule holds for this session only.
                let mut rules = request.permission_suggestions;
                rules.iter_mut().for_each(|rule| rule.destination = Some(PermissionDestination::Session));
                PermissionDecision::allow().updates(rules)
            }
            Some("n") => {
                PermissionDecision::deny("the person said no").classified(DecisionClassification::UserReject)
            }
            Some(why) => PermissionDecision::deny(why),
            None => PermissionDecision::deny("nobody is at the terminal"),
        }
    }

    async fn answer(&self, questions: Vec<Question>) -> Answers {
        let mut lines = self.0.lock().await;
        let mut answers = Answers::new();
        for question in questions {
            println!("  asked  {}", question.question);
            for (number, option) in question.options.iter().enumerate() {
                println!("         {}: {}", number + 1, option.label);
            }
            let line = lines.recv().await;
            let number = line.as_deref().and_then(|line| line.trim().parse::<usize>().ok());
            let chosen = number.and_then(|number| question.options.get(number.checked_sub(1)?));
            let answer =
                chosen.map(|option| option.label.clone()).or(line).unwrap_or_else(|| "no answer".into());
            answers = answers.answer(question.question, answer);
        }
        answers
    }
}

fn script() -> Script {
    let question = json!({ "questions": [{ "question": "Which paper?", "header": "Paper", "multiSelect": false, "options": [
        { "label": "White", "description": "As always" }, { "label": "Yellow", "description": "For a change" },
    ] }] });
    Script::new()
        .turn(ModelTurn::new().call("mcp__post__send", json!({ "to": "Ada" })))
        .turn(ModelTurn::new().call("mcp__post__send", json!({ "to": "Grace" })))
        .turn(ModelTurn::new().call("AskUserQuestion", question))
        .turn(ModelTurn::new().text("That is all."))
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let person = Arc::new(Person(Mutex::new(common::typed_lines())));
    let answering = person.clone();
    let builder = Session::builder()
        .mcp_server(post())
        // A person has as much time as `timeouts.permission` gives.
        .can_use_tool(move |request, _cx| {
            let person = person.clone();
            async move { person.decide(request).await }
        })
        .on_question(move |questions, _cx| {
            let person = answering.clone();
            async move { person.answer(questions).await }
        });
    let stage = common::start(builder, script()).await?;

    let mut turn = stage.session.prompt("Write to Ada and Grace.").await?;
    while let Some(message) = turn.next().await {
        for block in message.content() {
            match block {
                ContentBlock::Text { text, .. } => println!("model  > {text}"),
                ContentBlock::ToolResult { content, .. } => println!("  result {}", content.text()),
                _ => {}
            }
        }
    }
    println!("outcome: {:?}", turn.outcome().await?.text());
    stage.session.stop().await?;
    Ok(())
}
