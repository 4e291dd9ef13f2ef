//! The line that the person types, with its history.
//!
//! `reedline` holds the text and knows the keys; the chat draws it, because the line stays on the screen while answers
//! come in above it. History lives in memory and ends with the chat: nothing is written to a file.

use crossterm::event::{Event, KeyCode, KeyEventKind, KeyModifiers};
use reedline::{EditCommand, EditMode, Emacs, Reedline, ReedlineEvent, ReedlineRawEvent};

/// The number of lines in the history.
const REMEMBERED: usize = 500;

/// A key, as far as it is not about the text itself.
#[derive(Debug, PartialEq)]
pub(crate) enum Typed {
    /// The text or its cursor may have changed.
    Text,
    /// Enter: the line is complete.
    Line(String),
    /// Ctrl-C. The text stays.
    Interrupt,
    /// Ctrl-D on an empty line.
    End,
}

pub(crate) struct Input {
    editor: Reedline,
    keys: Emacs,
    history: Vec<String>,
    /// The entry of the history that is shown; its length stands for the new line.
    shown: usize,
    /// The new line, while an entry of the history is shown.
    draft: String,
}

impl Input {
    pub(crate) fn new() -> Self {
        let (editor, keys) = (Reedline::create(), Emacs::default());
        Self { editor, keys, history: Vec::new(), shown: 0, draft: String::new() }
    }

    pub(crate) fn text(&self) -> &str {
        self.editor.current_buffer_contents()
    }

    /// The byte of the text at which the cursor stands.
    pub(crate) fn cursor(&self) -> usize {
        self.editor.current_insertion_point()
    }

    pub(crate) fn take(&mut self, event: Event) -> Typed {
        if let Event::Key(key) = &event {
            let control = key.modifiers.contains(KeyModifiers::CONTROL);
            match key.code {
                _ if key.kind == KeyEventKind::Release => return Typed::Text,
                KeyCode::Char('c') if control => return Typed::Interrupt,
                KeyCode::Char('d') if control && self.text().is_empty() => return Typed::End,
                KeyCode::Char('d') if control => {
                    self.edit(EditCommand::Delete);
                    return Typed::Text;
                }
                // A terminal sends Ctrl-J for a line break that is typed with Ctrl-Enter or Shift-Enter.
                KeyCode::Char('j') if control => {
                    self.edit(EditCommand::InsertNewline);
                    return Typed::Text;
                }
                KeyCode::Enter if key.modifiers.is_empty() => return Typed::Line(self.submit()),
                _ => {}
            }
        }
        if let Ok(event) = ReedlineRawEvent::try_from(event) {
            let event = self.keys.parse_event(event);
            self.run(event);
        }
        Typed::Text
    }

    /// Empties the line, and remembers it.
    pub(crate) fn submit(&mut self) -> String {
        let line = self.text().to_owned();
        self.edit(EditCommand::Clear);
        if !line.trim().is_empty() && self.history.last() != Some(&line) {
            self.history.push(line.clone());
        }
        let forgotten = self.history.len().saturating_sub(REMEMBERED);
        self.history.drain(..forgotten);
        (self.shown, self.draft) = (self.history.len(), String::new());
        line
    }

    fn edit(&mut self, command: EditCommand) {
        self.editor.run_edit_commands(&[command]);
    }

    /// Does what the key is bound to. True if the key could do something: menus and hints, which this chat does not
    /// have, come first in the list of a key.
    fn run(&mut self, event: ReedlineEvent) -> bool {
        match event {
            ReedlineEvent::Edit(commands) => self.editor.run_edit_commands(&commands),
            ReedlineEvent::Left => self.edit(EditCommand::MoveLeft { select: false }),
            ReedlineEvent::Right => self.edit(EditCommand::MoveRight { select: false }),
            ReedlineEvent::Up | ReedlineEvent::PreviousHistory => self.up(),
            ReedlineEvent::Down | ReedlineEvent::NextHistory => self.down(),
            ReedlineEvent::ToStart => self.edit(EditCommand::MoveToStart { select: false }),
            ReedlineEvent::ToEnd => self.edit(EditCommand::MoveToEnd { select: false }),
            ReedlineEvent::UntilFound(events) => return events.into_iter().any(|event| self.run(event)),
            ReedlineEvent::Multiple(events) => {
                return events.into_iter().fold(false, |any, event| self.run(event) | any);
            }
            _ => return false,
        }
        true
    }

    /// The line above, or the entry before if the cursor stands in the first line.
    fn up(&mut self) {
        if self.text()[..self.cursor()].contains('\n') {
            self.edit(EditCommand::MoveLineUp { select: false });
        } else if self.shown > 0 {
            if self.shown == self.history.len() {
                self.draft = self.text().to_owned();
            }
            self.show(self.shown - 1);
        }
    }

    /// The line below, or the entry after if the cursor stands in the last line.
    fn down(&mut self) {
        if self.text()[self.cursor()..].contains('\n') {
            self.edit(EditCommand::MoveLineDown { select: false });
        } else if self.shown < self.history.len() {
            self.show(self.shown + 1);
        }
    }

    fn show(&mut self, entry: usize) {
        self.shown = entry;
        let text = self.history.get(entry).unwrap_or(&self.draft).clone();
        self.editor.run_edit_commands(&[EditCommand::Clear, EditCommand::InsertString(text)]);
    }
}

#[cfg(test)]
mod tests {
    use crossterm::event::KeyEvent;

    use super::*;

    fn key(input: &mut Input, code: KeyCode) -> Typed {
        input.take(Event::Key(KeyEvent::new(code, KeyModifiers::NONE)))
    }

    #[test]
    fn arrows_leave_the_new_line_and_come_back_to_it() {
        let mut input = Input::new();
        for line in ["one", "two\nlines"] {
            input.take(Event::Paste(line.into()));
            assert_eq!(key(&mut input, KeyCode::Enter), Typed::Line(line.into()));
        }
        input.take(Event::Paste("half".into()));
        key(&mut input, KeyCode::Up);
        assert_eq!(input.text(), "two\nlines");
        // Up to the first line of the entry, and then to the entry before.
        key(&mut input, KeyCode::Up);
        key(&mut input, KeyCode::Up);
        assert_eq!(input.text(), "one");
        key(&mut input, KeyCode::Down);
        key(&mut input, KeyCode::Down);
        key(&mut input, KeyCode::Down);
        assert_eq!(input.text(), "half");
    }
}
