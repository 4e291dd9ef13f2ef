//! Lines that begin with a slash. The chat answers some of them; the CLI gets all others, and answers its own commands
//! without the model, such as `/cost` and `/context`.

use greenroom::Session;

use crate::screen::Voice;
use crate::sentences::sentence;
use crate::ui::Ui;

/// A line of the person.
#[derive(Debug, PartialEq)]
pub(crate) enum Command<'a> {
    Help,
    Models,
    Model(&'a str),
    Quit,
    /// For the CLI: a prompt, or a command of its own.
    Prompt(&'a str),
}

impl<'a> Command<'a> {
    pub(crate) fn of(line: &'a str) -> Self {
        let line = line.trim();
        let (command, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        match (command, rest.trim()) {
            ("/help", "") => Self::Help,
            ("/model", "") => Self::Models,
            ("/model", name) => Self::Model(name),
            ("/quit" | "/exit", "") => Self::Quit,
            _ => Self::Prompt(line),
        }
    }
}

const HELP: &str = "\
/model          the models; /model NAME changes the model
/context        how full the context is
/cost           the cost so far
/quit           leaves, as Ctrl-D does
Alt-Enter       a line break; several lines can be pasted as well
Up, Down        earlier lines
Ctrl-C          interrupts the model; twice while nothing runs: leaves
Commands of the CLI:";

pub(crate) fn help(session: &Session, ui: &mut Ui) {
    ui.say(Voice::Chat, HELP);
    let info = session.server_info();
    if info.commands.is_empty() {
        ui.say(Voice::Chat, "  (this CLI names none)");
    }
    for command in &info.commands {
        // The first sentence is enough for a list.
        let about = command.description.split(['.', '\n']).next().unwrap_or_default();
        let name = format!("/{} {}", command.name, command.argument_hint);
        ui.say(Voice::Chat, format!("  {} {about}", name.trim_end()).trim_end());
    }
}

/// Lists the models that the CLI offers.
pub(crate) fn models(session: &Session, ui: &mut Ui, now: Option<&str>) {
    let info = session.server_info();
    for model in &info.models {
        let text = format!("  {}: {} {}", model.value, model.display_name, model.description);
        ui.say(Voice::Chat, text.trim_end());
    }
    if info.models.is_empty() {
        ui.say(Voice::Chat, "This CLI names no models; /model NAME takes any name.");
    }
    if let Some(now) = now {
        ui.say(Voice::Chat, &format!("The last answer was by {now}."));
    }
}

/// Changes the model. The CLI accepts any name, so a name that it does not offer gets a warning.
pub(crate) async fn model(session: &Session, ui: &mut Ui, name: &str) {
    let info = session.server_info();
    let offered =
        info.models.iter().any(|model| model.value == name || model.resolved_model.as_deref() == Some(name));
    let chosen = (name != "default").then_some(name);
    match ui.wait("changing the model", session.set_model(chosen)).await {
        Some(Ok(set)) => {
            let model = set.model.as_deref().unwrap_or(name);
            ui.say(Voice::Chat, &format!("From now on: {model}."));
            if chosen.is_some() && !offered && !info.models.is_empty() {
                ui.say(
                    Voice::Error,
                    &format!("The CLI does not offer {name}: if it does not exist, the next turn fails."),
                );
            }
        }
        Some(Err(error)) => ui.say(Voice::Error, &format!("The model stays: {}", sentence(&error))),
        None => ui.say(Voice::Chat, "(the model may have changed)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_command_only_as_a_whole() {
        assert_eq!(Command::of(" /model  opus "), Command::Model("opus"));
        assert_eq!(Command::of("/model"), Command::Models);
        assert_eq!(Command::of("/quit"), Command::Quit);
        for prompt in ["/cost", "/modelling is fun", "/quit smoking, how?", "what is /help?"] {
            assert_eq!(Command::of(prompt), Command::Prompt(prompt));
        }
    }
}
