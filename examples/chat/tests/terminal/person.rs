//! A person at a terminal: types at the chat in a pseudo-terminal, and reads what a terminal shows.

use std::num::NonZeroU16;
use std::process::ExitStatus;

use greenroom_testkit::Script;
use pty_process::{Command, Pty, Size};
use tempfile::NamedTempFile;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::Child;
use tokio::time::Instant;

use crate::wait::{SOON, in_time};

pub(crate) const ENTER: &str = "\r";
pub(crate) const UP: &str = "\u{1b}[A";
pub(crate) const LEFT: &str = "\u{1b}[D";
pub(crate) const CTRL_C: &str = "\u{3}";
pub(crate) const CTRL_D: &str = "\u{4}";
/// Empties the line.
pub(crate) const CTRL_U: &str = "\u{15}";

pub(crate) struct Person {
    terminal: Pty,
    chat: Child,
    shown: vt100::Parser,
    /// Every byte that the chat has written.
    pub(crate) written: Vec<u8>,
    _script: Option<NamedTempFile>,
}

impl Person {
    /// Starts the chat on a script, in a window of 80 columns and 24 rows, and waits until its CLI has started.
    pub(crate) async fn with(script: &Script) -> Self {
        Self::with_window(script, 80, 24, &[]).await
    }

    pub(crate) async fn with_window(script: &Script, columns: u16, rows: u16, env: &[(&str, &str)]) -> Self {
        let file = NamedTempFile::new().unwrap();
        std::fs::write(file.path(), serde_json::to_string(script).unwrap()).unwrap();
        let arguments = ["--script", file.path().to_str().unwrap()];
        let mut person = Self::start(&arguments, columns, rows, env);
        person._script = Some(file);
        person.until("/help lists").await;
        person
    }

    pub(crate) fn start(arguments: &[&str], columns: u16, rows: u16, env: &[(&str, &str)]) -> Self {
        let (terminal, other_end) = pty_process::open().unwrap();
        terminal.resize(Size::new(rows, columns)).unwrap();
        let chat = Command::new(env!("CARGO_BIN_EXE_chat"))
            .args(arguments)
            .env("TERM", "xterm-256color")
            .env_remove("NO_COLOR")
            .env_remove("RUST_LOG")
            .envs(env.iter().copied())
            .kill_on_drop(true)
            .spawn(other_end)
            .unwrap();
        let [rows, columns] = [rows, columns].map(|size| NonZeroU16::new(size).unwrap());
        let shown = vt100::Parser::new(rows, columns, 1000);
        Self { terminal, chat, shown, written: Vec::new(), _script: None }
    }

    pub(crate) async fn types(&mut self, keys: &str) {
        self.terminal.write_all(keys.as_bytes()).await.unwrap();
    }

    pub(crate) async fn pastes(&mut self, text: &str) {
        self.types(&format!("\u{1b}[200~{text}\u{1b}[201~")).await;
    }

    pub(crate) fn resizes(&mut self, columns: u16, rows: u16) {
        let [height, width] = [rows, columns].map(|size| NonZeroU16::new(size).unwrap());
        self.shown.set_size(height, width);
        self.terminal.resize(Size::new(rows, columns)).unwrap();
    }

    /// The rows of the window, without the space at their ends and without empty rows at the bottom.
    pub(crate) fn rows(&self) -> Vec<String> {
        let screen = self.shown.screen();
        let mut rows: Vec<String> =
            screen.rows(0, screen.size().1.get()).map(|row| row.trim_end().to_owned()).collect();
        while rows.last().is_some_and(String::is_empty) {
            rows.pop();
        }
        rows
    }

    pub(crate) fn screen(&self) -> &vt100::Screen {
        self.shown.screen()
    }

    /// Waits until the window shows this text.
    pub(crate) async fn until(&mut self, text: &str) {
        self.until_rows(text, |rows| rows.join("\n").contains(text)).await;
    }

    /// Waits until a row is this text.
    pub(crate) async fn until_row(&mut self, text: &str) {
        self.until_rows(text, |rows| rows.iter().any(|row| row == text)).await;
    }

    /// Waits until the window shows this text and an empty line for the answer.
    pub(crate) async fn until_question(&mut self, text: &str, label: &str) {
        self.until_rows(text, |rows| {
            rows.join("\n").contains(text) && rows.last().is_some_and(|row| row == label)
        })
        .await;
    }

    pub(crate) async fn until_rows(&mut self, what: &str, fits: impl Fn(&[String]) -> bool) {
        let deadline = Instant::now() + SOON;
        while !fits(&self.rows()) {
            let mut bytes = [0; 4096];
            let read = tokio::time::timeout_at(deadline, self.terminal.read(&mut bytes)).await;
            let Ok(Ok(count @ 1..)) = read else {
                panic!("no {what:?} came ({read:?}); the window:\n{}", self.rows().join("\n"));
            };
            self.take(&bytes[..count]);
        }
    }

    /// Reads until the chat has ended.
    pub(crate) async fn until_end(&mut self) -> ExitStatus {
        let mut bytes = [0; 4096];
        // On Linux, reading fails when the last process has closed its end.
        while let Ok(count @ 1..) = in_time("the end of the chat", self.terminal.read(&mut bytes)).await {
            self.take(&bytes[..count]);
        }
        in_time("the end of the chat", self.chat.wait()).await.unwrap()
    }

    fn take(&mut self, bytes: &[u8]) {
        self.written.extend_from_slice(bytes);
        self.shown.process(bytes);
    }
}
