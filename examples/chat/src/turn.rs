//! One turn: the prompt, the answer as the model writes it, tool calls with their results, and the cost.

use std::collections::HashMap;

use futures_util::future::OptionFuture;
use greenroom::message::{Assembler, ContentBlock, DeltaKind, SystemDetail, TurnUsage, UsageTracker};
use greenroom::{Message, Session};

use crate::screen::Voice;
use crate::sentences::{ending, sentence};
use crate::text::{count, shorten};
use crate::ui::{Ui, Wish};

/// What the chat knows of its turns so far.
#[derive(Default)]
pub(crate) struct Turns {
    pub(crate) usage: UsageTracker,
    /// The model of the last turn.
    pub(crate) model: Option<String>,
    /// The person left during a turn.
    pub(crate) left: bool,
}

/// State of the running turn.
#[derive(Default)]
struct Reader {
    assembler: Assembler,
    /// Names of the open calls, by id.
    calls: HashMap<String, String>,
    usage: Option<TurnUsage>,
    /// The turn has shown some text of the model or of the CLI.
    shown: bool,
}

impl Turns {
    /// Sends a prompt and shows its turn. Ctrl-C interrupts the turn; the session goes on.
    pub(crate) async fn run(&mut self, session: &Session, prompt: &str, ui: &mut Ui) {
        let mut turn = match session.prompt(prompt).await {
            Ok(turn) => turn,
            Err(error) => return ui.say(Voice::Error, &sentence(&error)),
        };
        let mut reader = Reader::default();
        let mut missed = 0;
        // The interrupt runs beside the turn: the CLI may take a while to acknowledge it.
        let mut interrupt: OptionFuture<_> = None.into();
        ui.begin("thinking");
        loop {
            tokio::select! {
                message = turn.next() => {
                    let Some(message) = message else { break };
                    if std::mem::replace(&mut missed, turn.missed_partials()) != turn.missed_partials() {
                        reader.assembler.missed();
                    }
                    self.feed(&message);
                    if let Some(usage) = self.usage.feed(&message) {
                        reader.usage = Some(usage);
                    }
                    reader.show(&message, ui);
                }
                Some(done) = &mut interrupt => {
                    interrupt = None.into();
                    if let Err(error) = done {
                        ui.say(Voice::Error, &format!("The interrupt failed: {}", sentence(&error)));
                    }
                }
                wish = ui.next() => if wish != Wish::Nothing {
                    self.left |= wish == Wish::Leave;
                    ui.interrupt_question();
                    ui.say(Voice::Chat, "(interrupting)");
                    interrupt = Some(Box::pin(session.interrupt())).into();
                }
            }
        }
        ui.end();
        match turn.outcome().await {
            Ok(outcome) => {
                match (outcome.text(), ending(&outcome)) {
                    (Some(text), _) if !reader.shown => ui.say(Voice::Model, text),
                    (_, Some(ending)) => ui.say(Voice::Error, &ending),
                    _ => {}
                }
                // A command of the CLI costs nothing.
                if let (Some(usage), Some(result)) = (reader.usage, outcome.result())
                    && result.num_turns > 0
                {
                    let (cost, total) = (usage.cost_usd, self.usage.total_cost_usd());
                    let steps = count(result.num_turns, "step");
                    ui.say(Voice::Chat, &format!("({steps}, ${cost:.4}; ${total:.4} so far)"));
                }
            }
            Err(error) => ui.say(Voice::Error, &sentence(&error)),
        }
    }

    fn feed(&mut self, message: &Message) {
        if let Message::System(system) = message
            && let Some(init) = system.init()
        {
            self.model.clone_from(&init.model);
        }
    }
}

impl Reader {
    fn show(&mut self, message: &Message, ui: &mut Ui) {
        // Pieces of a text, or the whole text if the CLI has sent no pieces, as for its own commands.
        for delta in self.assembler.feed(message).into_iter().filter(|delta| delta.is_main_thread()) {
            match &delta.kind {
                DeltaKind::Text { text, .. } => {
                    self.shown = true;
                    ui.model_says(text);
                }
                DeltaKind::BlockReplaced { block: ContentBlock::Text { text, .. }, .. } => {
                    ui.say(Voice::Chat, "(the model said something else instead)");
                    ui.model_says(text);
                }
                DeltaKind::MessageAborted => ui.say(Voice::Chat, "(the answer broke off)"),
                DeltaKind::BlockComplete { .. } | DeltaKind::MessageComplete { .. } => ui.model_ends(),
                _ => {}
            }
        }
        match message {
            Message::Assistant(_) | Message::User(_) => {
                message.content().iter().for_each(|block| self.block(block, ui));
            }
            Message::System(system) => self.notice(system.detail(), ui),
            _ => {}
        }
    }

    fn block(&mut self, block: &ContentBlock, ui: &mut Ui) {
        match block {
            ContentBlock::ToolUse { id, name, input, .. } => {
                ui.say(Voice::Tool, &shorten(&format!("  call   {name} {input}"), 1, 500));
                self.calls.insert(id.clone(), name.clone());
            }
            ContentBlock::ToolResult { tool_use_id, content, is_error, .. } => {
                let name = self.calls.remove(tool_use_id).unwrap_or_default();
                let word = if *is_error { "error " } else { "result" };
                ui.call_ended(tool_use_id);
                ui.say(Voice::Tool, &shorten(&format!("  {word} {name}: {}", content.text()), 5, 500));
            }
            // Some commands of the CLI, such as `/compact`, put their output into a message of the user.
            ContentBlock::Text { text, .. } => {
                let output = text.strip_prefix("<local-command-stdout>");
                if let Some(output) = output.and_then(|text| text.strip_suffix("</local-command-stdout>")) {
                    self.shown = true;
                    ui.say(Voice::Model, output);
                }
            }
            _ => {}
        }
    }

    fn notice(&mut self, notice: &SystemDetail, ui: &mut Ui) {
        match notice {
            SystemDetail::LocalCommandOutput(output) => {
                self.shown = true;
                ui.say(Voice::Model, &output.content);
            }
            SystemDetail::Informational(notice) => ui.say(Voice::Chat, &format!("({})", notice.content)),
            SystemDetail::ApiRetry(retry) => {
                let (attempt, most) = (retry.attempt, retry.max_retries);
                let seconds = retry.retry_delay_ms.div_ceil(1000);
                let text =
                    format!("(the API failed, {attempt} of {most}: the next attempt is in {seconds} s)");
                ui.say(Voice::Chat, &text);
            }
            _ => {}
        }
    }
}
