//! The window of the terminal, which is given back at every end: of the command, by a failure, a panic or a signal.

use std::io::{self, Stdout, Write, stdout};
use std::panic;

use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::style::Print;
use crossterm::terminal::{
    self, Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use crossterm::{execute, queue};

/// The window, until it is dropped.
pub(super) struct Screen(Stdout);

impl Screen {
    pub(super) fn open() -> io::Result<Self> {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            // The text of the panic is to be read afterwards.
            give_back();
            before(panic);
        }));
        enable_raw_mode()?;
        // From here on, a failure gives the window back.
        let mut screen = Self(stdout());
        execute!(screen.0, EnterAlternateScreen, Hide)?;
        Ok(screen)
    }

    /// Columns and rows.
    pub(super) fn size(&self) -> (usize, usize) {
        let (columns, rows) = terminal::size().unwrap_or((80, 24));
        (columns.into(), rows.into())
    }

    pub(super) fn show(&mut self, lines: &[String]) -> io::Result<()> {
        for (row, line) in (0..).zip(lines) {
            queue!(self.0, MoveTo(0, row), Print(line), Clear(ClearType::UntilNewLine))?;
        }
        self.0.flush()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

fn give_back() {
    // Errors: the terminal is gone.
    execute!(stdout(), Show, LeaveAlternateScreen).ok();
    disable_raw_mode().ok();
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;

    const CHILD: &str = "GREENROOM_TEST_PANICS";

    #[tokio::test]
    async fn a_panic_gives_the_window_back_before_its_text() {
        if std::env::var_os(CHILD).is_some() {
            let _screen = Screen::open().unwrap();
            panic!("a bug");
        }
        let (mut terminal, other_end) = pty_process::open().unwrap();
        let name = "top::screen::tests::a_panic_gives_the_window_back_before_its_text";
        let mut child = pty_process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .env(CHILD, "1")
            .spawn(other_end)
            .unwrap();
        let (mut written, mut bytes) = (Vec::new(), [0; 4096]);
        // On Linux, reading fails when the last process has closed its end.
        while let Ok(count @ 1..) = terminal.read(&mut bytes).await {
            written.extend_from_slice(&bytes[..count]);
        }
        assert!(!child.wait().await.unwrap().success());
        let written = String::from_utf8_lossy(&written);
        let [taken, given_back] =
            ["\u{1b}[?1049h", "\u{1b}[?1049l"].map(|sequence| written.find(sequence).unwrap());
        let text = written.find("a bug").unwrap();
        assert!(taken < given_back && given_back < text, "{written:?}");
        let modes = rustix::termios::tcgetattr(&terminal).unwrap().local_modes;
        assert!(modes.contains(rustix::termios::LocalModes::ICANON | rustix::termios::LocalModes::ECHO));
    }
}
