//! The screen: rows that stay and scroll away, and below them the live rows, which are drawn again and again.
//!
//! Every text passes [`plain_text`] on its way, because a sequence of the model, of a tool or of the CLI could
//! overwrite earlier rows or drive the terminal. Only this file writes escape sequences.

use std::io::{IsTerminal, Write};

use crossterm::style::Stylize;
use crossterm::{cursor, event, execute, terminal};
use greenroom::permission::plain_text;

use crate::text::wrap;

/// The one who speaks in a row.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Voice {
    Person,
    Model,
    /// Calls of tools and their results.
    Tool,
    /// The chat itself.
    Chat,
    Error,
}

pub(crate) const PERSON: &str = "you > ";
pub(crate) const MODEL: &str = "model > ";

/// The live rows: the row that the model is writing, bars, and the line that the person types.
#[derive(Default)]
pub(crate) struct Live {
    pub(crate) rows: Vec<(Voice, String)>,
    /// Row and column of the cursor.
    pub(crate) cursor: (usize, usize),
}

pub(crate) struct Screen {
    terminal: bool,
    colour: bool,
    live: Live,
    /// The row of the live rows in which the cursor stands.
    cursor_row: usize,
}

impl Screen {
    /// Takes the terminal over, if there is one. Dropping the screen gives it back.
    pub(crate) fn open() -> std::io::Result<Self> {
        let terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
        if terminal {
            terminal::enable_raw_mode()?;
            execute!(std::io::stdout(), event::EnableBracketedPaste)?;
        }
        // https://no-color.org: any text but an empty one.
        let colour = terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        Ok(Self { terminal, colour, live: Live::default(), cursor_row: 0 })
    }

    pub(crate) fn is_terminal(&self) -> bool {
        self.terminal
    }

    /// The columns that rows may fill; `None` if the output is no terminal. The last column stays empty, because
    /// terminals differ in when they wrap a row that fills it.
    pub(crate) fn width(&self) -> Option<usize> {
        self.terminal.then(|| usize::from(size().0).saturating_sub(1).max(1))
    }

    /// Shows a text for good, wrapped at the width of the window.
    pub(crate) fn say(&mut self, voice: Voice, text: &str) {
        let rows = wrap(&plain_text(text), self.width());
        self.rows(voice, &rows);
    }

    /// Shows rows for good.
    pub(crate) fn rows(&mut self, voice: Voice, rows: &[String]) {
        if rows.is_empty() {
            return;
        }
        let mut out = self.erased();
        for row in rows {
            out.push_str(&self.painted(voice, &plain_text(row)));
            out.push_str(if self.terminal { "\r\n" } else { "\n" });
        }
        self.cursor_row = 0;
        out.push_str(&self.live_rows());
        self.write(&out);
    }

    /// Draws the live rows anew. Without a terminal there are none.
    pub(crate) fn draw(&mut self, live: Live) {
        if self.terminal {
            let mut out = self.erased();
            self.live = live;
            out.push_str(&self.live_rows());
            self.write(&out);
        }
    }

    /// Clears the window, and leaves the rows that scrolled away.
    pub(crate) fn clear(&mut self) {
        self.cursor_row = 0;
        let live = self.live_rows();
        let clear = terminal::Clear(terminal::ClearType::FromCursorDown);
        self.write(&format!("{}{clear}{live}", cursor::MoveTo(0, 0)));
    }

    /// Moves to the start of the live rows, and erases them. After the window became narrower, rows of the terminal's
    /// own wrapping may be left over: erasing more could erase rows that stay.
    fn erased(&self) -> String {
        if !self.terminal {
            return String::new();
        }
        let up = match self.cursor_row {
            0 => String::new(),
            rows => cursor::MoveUp(rows.try_into().unwrap_or(u16::MAX)).to_string(),
        };
        format!("{}{up}\r{}", cursor::Hide, terminal::Clear(terminal::ClearType::FromCursorDown))
    }

    /// The live rows, as many as fit, and the cursor at its place.
    fn live_rows(&mut self) -> String {
        if !self.terminal || self.live.rows.is_empty() {
            return if self.terminal { cursor::Show.to_string() } else { String::new() };
        }
        let (cursor_row, cursor_column) = self.live.cursor;
        let fits = usize::from(size().1).saturating_sub(1).max(1);
        // The last rows, unless the cursor stands above them.
        let first = self.live.rows.len().saturating_sub(fits).min(cursor_row);
        let shown: Vec<String> = (self.live.rows.iter().skip(first).take(fits))
            .map(|(voice, row)| self.painted(*voice, &plain_text(row)))
            .collect();
        self.cursor_row = cursor_row - first;
        let up = match shown.len() - 1 - self.cursor_row {
            0 => String::new(),
            rows => cursor::MoveUp(rows.try_into().unwrap_or(u16::MAX)).to_string(),
        };
        let right = match cursor_column.try_into().unwrap_or(u16::MAX) {
            0 => String::new(),
            columns => cursor::MoveRight(columns).to_string(),
        };
        format!("{}{up}\r{right}{}", shown.join("\r\n"), cursor::Show)
    }

    fn painted(&self, voice: Voice, row: &str) -> String {
        if !self.colour {
            return row.to_owned();
        }
        match voice {
            Voice::Person => match row.strip_prefix(PERSON) {
                Some(text) => format!("{}{text}", PERSON.green().bold()),
                None => row.to_owned(),
            },
            Voice::Model => match row.strip_prefix(MODEL) {
                Some(text) => format!("{}{text}", MODEL.cyan().bold()),
                None => row.to_owned(),
            },
            Voice::Tool => row.yellow().to_string(),
            Voice::Chat => row.dim().to_string(),
            Voice::Error => row.red().to_string(),
        }
    }

    fn write(&self, text: &str) {
        // Nobody looks if the terminal or the pipe is closed; then the input ends as well.
        let mut out = std::io::stdout().lock();
        out.write_all(text.as_bytes()).and_then(|()| out.flush()).ok();
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        if self.terminal {
            let erased = self.erased();
            self.write(&format!("{erased}{}", cursor::Show));
            execute!(std::io::stdout(), event::DisableBracketedPaste).ok();
            terminal::disable_raw_mode().ok();
        }
    }
}

/// Columns and rows of the window. Some terminals do not tell them, or tell zero.
fn size() -> (u16, u16) {
    terminal::size().ok().filter(|(columns, rows)| *columns > 0 && *rows > 0).unwrap_or((80, 24))
}
