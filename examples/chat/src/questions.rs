//! Questions to the person: permissions for tool calls, and the questions of the model (`AskUserQuestion`).
//!
//! The handlers of the session send a question to the chat and wait for its answer. A question whose call is cancelled
//! is withdrawn: the session drops the handler, and with it the receiver of the answer.

use greenroom::permission::{Answers, PermissionUpdate, Question, Unanswered};
use greenroom::{PermissionDecision, PermissionRequest, SessionBuilder};
use tokio::sync::{mpsc, oneshot};

use crate::text::shorten;

/// A question that waits for the person. Without an answer a call is denied.
pub(crate) enum Ask {
    Permission(Box<PermissionRequest>, oneshot::Sender<PermissionDecision>),
    Questions(Vec<Question>, oneshot::Sender<Answers>),
}

/// Sends the questions of a session to the chat.
pub(crate) fn ask_the_person(builder: SessionBuilder, asks: mpsc::Sender<Ask>) -> SessionBuilder {
    let questions = asks.clone();
    builder
        .can_use_tool(move |request, _cx| {
            let asks = asks.clone();
            async move {
                let (reply, answer) = oneshot::channel();
                // The chat that has ended drops the question, which denies the call.
                asks.send(Ask::Permission(Box::new(request), reply)).await.ok();
                answer.await.unwrap_or_else(|_| PermissionDecision::deny("nobody is there to ask"))
            }
        })
        .on_question(move |asked, _cx| {
            let asks = questions.clone();
            async move {
                let (reply, answer) = oneshot::channel();
                asks.send(Ask::Questions(asked, reply)).await.ok();
                answer.await.map_err(|_| "nobody is there to answer".to_owned())
            }
        })
}

/// The question that the person sees.
pub(crate) struct Asked {
    ask: Ask,
    answers: Answers,
    /// The number of the model's question that is shown.
    at: usize,
}

/// The state of a question after a line of the person.
pub(crate) enum After {
    /// Everything is answered.
    Done,
    /// The next question of the model.
    Next(Asked),
    /// The line was no answer.
    Again(Asked),
}

impl Asked {
    pub(crate) fn new(ask: Ask) -> Self {
        Self { ask, answers: Answers::new(), at: 0 }
    }

    /// Nobody waits for the answer any more.
    pub(crate) fn is_withdrawn(&self) -> bool {
        match &self.ask {
            Ask::Permission(_, reply) => reply.is_closed(),
            Ask::Questions(_, reply) => reply.is_closed(),
        }
    }

    /// Denies the call, because the person has interrupted its turn.
    pub(crate) fn interrupt(self) {
        if let Ask::Permission(_, reply) = self.ask {
            // The session may have dropped the handler already.
            drop(reply.send(PermissionDecision::deny_and_interrupt("the user interrupted the turn")));
        }
    }

    /// The text of the question.
    pub(crate) fn text(&self) -> String {
        match &self.ask {
            Ask::Permission(request, _) => about(request),
            Ask::Questions(questions, _) => questions.get(self.at).map(choices).unwrap_or_default(),
        }
    }

    /// The words before the answer.
    pub(crate) fn label(&self) -> &'static str {
        match &self.ask {
            Ask::Permission(request, _) if may_always(request) => "yes, no, always? > ",
            Ask::Permission(..) => "yes or no? > ",
            Ask::Questions(..) => "answer > ",
        }
    }

    /// Takes the line of the person.
    pub(crate) fn answer(mut self, line: &str) -> After {
        let line = line.trim();
        // Whoever asked may have gone meanwhile; then the answer does not matter.
        match self.ask {
            Ask::Permission(request, reply) => {
                let decision = match line.to_lowercase().as_str() {
                    "y" | "yes" => PermissionDecision::allow(),
                    "n" | "no" => PermissionDecision::deny("the user said no"),
                    "a" | "always" if may_always(&request) => PermissionDecision::allow_always(&request),
                    _ => return After::Again(Self { ask: Ask::Permission(request, reply), ..self }),
                };
                drop(reply.send(decision));
                After::Done
            }
            Ask::Questions(questions, reply) => {
                if let Some(question) = questions.get(self.at) {
                    self.answers = add(self.answers, question, line);
                }
                if self.at + 1 < questions.len() {
                    let at = self.at + 1;
                    return After::Next(Self { ask: Ask::Questions(questions, reply), at, ..self });
                }
                drop(reply.send(self.answers));
                After::Done
            }
        }
    }
}

fn may_always(request: &PermissionRequest) -> bool {
    !request.permission_suggestions.is_empty() && !request.suppress_always_allow_rule
}

/// All that the CLI says about the request.
fn about(request: &PermissionRequest) -> String {
    let title = match &request.title {
        Some(title) => title.clone(),
        None => format!("May {} run?", request.display_name.as_ref().unwrap_or(&request.tool_name)),
    };
    let mut lines = vec![title];
    lines.extend(request.description.clone());
    lines.push(shorten(&format!("  {} {}", request.tool_name, request.input), 1, 500));
    lines.extend(request.agent_id.as_ref().map(|agent| format!("  called by the agent {agent}")));
    lines.extend(request.blocked_path.as_ref().map(|path| format!("  needs {path}")));
    lines.extend(request.reason_text().map(|reason| format!("  because: {reason}")));
    if may_always(request) {
        let changes: Vec<_> = request.permission_suggestions.iter().map(change).collect();
        lines.push(format!("  \"always\" also means: {}", changes.join("; ")));
    }
    lines.join("\n")
}

/// A change of the rules in words, with the place where it is stored.
fn change(update: &PermissionUpdate) -> String {
    let rules = update.rules.iter().flatten().map(|rule| match &rule.rule_content {
        Some(content) => format!("{}({content})", rule.tool_name),
        None => rule.tool_name.clone(),
    });
    let what = match (update.kind.as_str(), &update.behavior, &update.mode, &update.directories) {
        ("addRules", Some(behavior), ..) => format!("{behavior} {}", rules.collect::<Vec<_>>().join(", ")),
        ("setMode", _, Some(mode), _) => format!("permission mode {mode}"),
        ("addDirectories", .., Some(directories)) => format!("work in {}", directories.join(", ")),
        _ => return serde_json::to_string(update).unwrap_or_default(),
    };
    match &update.destination {
        Some(destination) => format!("{what} ({destination})"),
        None => what,
    }
}

/// A question of the model with its numbered choices.
fn choices(question: &Question) -> String {
    let mut lines = vec![question.question.clone()];
    for (number, option) in question.options.iter().enumerate() {
        lines.push(format!("  {} {} {}", number + 1, option.label, option.description).trim_end().to_owned());
    }
    lines.push(match question.multi_select {
        true => "Numbers, or words of your own; nothing skips the question.".to_owned(),
        false => "A number, or words of your own; nothing skips the question.".to_owned(),
    });
    lines.join("\n")
}

/// Adds an answer: numbers choose, an empty line skips, and all else is an answer in the person's own words.
fn add(answers: Answers, question: &Question, line: &str) -> Answers {
    let name = question.question.as_str();
    if line.is_empty() {
        return answers.unanswered(name, Unanswered::Skipped);
    }
    let chosen: Option<Vec<&str>> = line
        .split([' ', ','])
        .filter(|word| !word.is_empty())
        .map(|word| Some(question.options.get(word.parse::<usize>().ok()?.checked_sub(1)?)?.label.as_str()))
        .collect();
    match chosen {
        Some(chosen) if chosen.len() == 1 || (question.multi_select && !chosen.is_empty()) => {
            answers.choose(name, chosen)
        }
        _ => answers.answer(name, line),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_choose_and_other_words_are_an_answer() {
        let question = |many: bool| -> Question {
            let options = serde_json::json!([{ "label": "red" }, { "label": "blue" }]);
            serde_json::from_value(
                serde_json::json!({ "question": "Which?", "options": options, "multiSelect": many }),
            )
            .unwrap()
        };
        let answer = |many, line| add(Answers::new(), &question(many), line);
        assert_eq!(answer(false, "2"), Answers::new().answer("Which?", "blue"));
        assert_eq!(answer(true, "1, 2"), Answers::new().choose("Which?", ["red", "blue"]));
        for own in ["1 2", "3", "0", "2 of them"] {
            assert_eq!(answer(false, own), Answers::new().answer("Which?", own));
        }
        assert_eq!(answer(true, ","), Answers::new().answer("Which?", ","));
        assert_eq!(answer(false, ""), Answers::new().unanswered("Which?", Unanswered::Skipped));
    }
}
