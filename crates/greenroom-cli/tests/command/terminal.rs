//! The command in a terminal: keys go into a pseudo-terminal, and a terminal emulator shows the window.

use std::process::ExitStatus;
use std::sync::atomic::Ordering;

use pty_process::{Command, Pty, Size};
use rustix::process::{Pid, Signal, kill_process};
use rustix::termios::{LocalModes, tcgetattr};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::Child;

use crate::stage::{Service, accepted, joined, quarantined};
use crate::wait::in_time;

const COLUMNS: u16 = 130;
const ROWS: u16 = 24;

struct Person {
    terminal: Pty,
    child: Child,
    shown: vt100::Parser,
    written: Vec<u8>,
}

impl Person {
    fn start(service: &Service, arguments: &[&str]) -> Self {
        let (terminal, other_end) = pty_process::open().unwrap();
        terminal.resize(Size::new(ROWS, COLUMNS)).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_greenroom"))
            .args(["--socket", service.socket.to_str().unwrap()])
            .args(arguments)
            .env("TERM", "xterm-256color")
            .env_remove("GREENROOM_DATABASE")
            .kill_on_drop(true)
            .spawn(other_end)
            .unwrap();
        let [rows, columns] = [ROWS, COLUMNS].map(|size| size.try_into().unwrap());
        Self { terminal, child, shown: vt100::Parser::new(rows, columns, 0), written: Vec::new() }
    }

    fn rows(&self) -> Vec<String> {
        self.shown.screen().rows(0, COLUMNS).map(|row| row.trim_end().to_owned()).collect()
    }

    async fn types(&mut self, keys: &str) {
        self.terminal.write_all(keys.as_bytes()).await.unwrap();
    }

    async fn until(&mut self, text: &str) {
        while !self.rows().join("\n").contains(text) {
            let mut bytes = [0; 4096];
            let read = in_time(format!("{text:?}"), self.terminal.read(&mut bytes)).await;
            let Ok(count @ 1..) = read else { panic!("no {text:?} came ({read:?}): {:#?}", self.rows()) };
            self.take(&bytes[..count]);
        }
    }

    async fn until_end(&mut self) -> ExitStatus {
        let mut bytes = [0; 4096];
        // On Linux, reading fails when the last process has closed its end.
        while let Ok(count @ 1..) = in_time("the end", self.terminal.read(&mut bytes)).await {
            self.take(&bytes[..count]);
        }
        in_time("the end", self.child.wait()).await.unwrap()
    }

    fn take(&mut self, bytes: &[u8]) {
        self.written.extend_from_slice(bytes);
        self.shown.process(bytes);
    }

    /// True if the terminal takes lines and shows keys, as a shell wants it.
    fn is_cooked(&self) -> bool {
        tcgetattr(&self.terminal).unwrap().local_modes.contains(LocalModes::ICANON | LocalModes::ECHO)
    }

    fn has_window(&self) -> bool {
        self.shown.screen().alternate_screen()
    }
}

#[tokio::test]
async fn a_list_in_a_terminal_has_headings_and_aligned_columns() {
    let service = Service::start().await;
    for session in ["acme/a", "acme/日本語", "acme/long-name\u{1b}[2J"] {
        accepted(&service.backend, session).await;
    }
    let mut person = Person::start(&service, &["names"]);
    assert!(person.until_end().await.success());
    let rows = person.rows();
    assert!(rows[0].starts_with("NAME") && rows[0].contains("STATE"), "{rows:#?}");
    let column = rows[0].find("STATE").unwrap();
    assert!(rows[1..4].iter().any(|row| row.contains(r"acme/long-name\u{1b}[2J")), "{rows:#?}");
    for row in &rows[1..4] {
        let mut taken = 0;
        let at = row.char_indices().find(|(_, character)| {
            let is_there = taken == column;
            taken += if character.is_ascii() { 1 } else { 2 };
            is_there
        });
        assert!(row[at.unwrap().0..].starts_with("waiting"), "{rows:#?}");
    }
}

#[tokio::test]
async fn prompts_in_a_terminal_have_a_heading_for_each_column_that_is_shown() {
    let service = Service::start().await;
    accepted(&service.backend, "acme/a").await;
    for (flag, last, cell) in [(None, "LABELS", "-"), (Some("--text"), "TEXT", "hello")] {
        let arguments: Vec<_> = ["prompts", "acme/a"].into_iter().chain(flag).collect();
        let mut person = Person::start(&service, &arguments);
        assert!(person.until_end().await.success());
        let rows = person.rows();
        assert!(rows[0].starts_with("PROMPT") && rows[0].ends_with(last), "{rows:#?}");
        assert_eq!(rows[1].split_at(rows[0].find(last).unwrap()).1, cell, "{rows:#?}");
    }
}

#[tokio::test]
async fn a_feed_in_a_terminal_is_followed_until_ctrl_c() {
    let service = Service::start().await;
    service.run(&["feed", "--keep", "1h"]).await.done();
    accepted(&service.backend, "acme/a\u{202e}").await;
    let mut person = Person::start(&service, &["feed", "--follow"]);
    person.until(r"acme/a\u{202e}").await;
    assert!(person.rows()[0].starts_with("AT") && person.rows()[0].ends_with("NOTE"), "{:#?}", person.rows());
    accepted(&service.backend, "acme/b").await;
    person.until("acme/b").await;
    assert!(person.is_cooked());
    person.types("\u{3}").await;
    assert!(person.until_end().await.success());
}

#[tokio::test]
async fn top_shows_ten_thousand_sessions_with_bounded_looks() {
    let service = Service::start().await;
    let backend = &service.backend;
    joined(backend, "here").await;
    for number in 0..10_000 {
        let (tenant, session) = (number % 4, format!("{number:05}"));
        let session = format!("tenant-{tenant}/{session}");
        accepted(backend, &session).await;
        if number % 20 == 0 {
            quarantined(backend, &session, "it loops").await;
        }
    }
    let mut person = Person::start(&service, &["top", "--every", "1h"]);
    person.until("look 1 took").await;
    person.until("tenant-0/00000").await;
    person.until("nodes 1  queued 10000  tenants 1+  stuck 100+  questions 0").await;
    person.until("sessions 1-200 by name").await;
    assert!(person.has_window() && !person.is_cooked());

    backend.read.store(0, Ordering::SeqCst);
    person.types("r").await;
    person.until("look 2 took").await;
    let read = backend.read.load(Ordering::SeqCst);
    let summary = person.rows()[0].clone();
    println!("{summary}; {read} rows were read");
    assert!((200..2000).contains(&read), "{read} rows were read for a look");

    person.types("n").await;
    person.until("sessions 201-400 by name").await;
    person.until("tenant-0/00800").await;
    person.types("\u{1b}[B").await;
    person.until("tenant-0/00804").await;
    person.types("p").await;
    person.until("sessions 1-200 by name").await;
    // Every fifth one of the tenant is quarantined.
    person.types("s").await;
    person.until("by state").await;
    person.until("tenant-0/00020  quarantined").await;
    person.types("s").await;
    person.until("by age").await;
    person.types("f").await;
    person.until("stuck sessions 1-200 by age").await;
    person.types("q").await;
    assert!(person.until_end().await.success());
    assert!(!person.has_window() && person.is_cooked());
    assert!(backend.read.load(Ordering::SeqCst) < 10_000);

    let mut person = Person::start(&service, &["top", "--tenant", "tenant-3", "--stuck"]);
    person.until("stuck sessions 0-0").await;
    person.until("stuck 0").await;
    person.types("\u{3}").await;
    assert!(person.until_end().await.success());
}

#[tokio::test]
async fn signals_end_top_and_give_the_terminal_back() {
    let service = Service::start().await;
    accepted(&service.backend, "acme/a").await;
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let mut person = Person::start(&service, &["top"]);
        person.until("acme/a").await;
        assert!(person.has_window() && !person.is_cooked());
        let pid = Pid::from_raw(person.child.id().unwrap().try_into().unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
        let status = person.until_end().await;
        assert!(status.success() && !person.has_window() && person.is_cooked(), "{signal:?}: {status}");
    }
}

#[tokio::test]
async fn top_shows_no_sequence_of_others_and_goes_on_without_the_service() {
    let service = Service::start().await;
    accepted(&service.backend, "acme/a\u{1b}[2J\u{1b}]0;x\u{7}").await;
    let mut person = Person::start(&service, &["top", "--every", "1s"]);
    person.until(r"acme/a\u{1b}[2J\u{1b}]0;x\u{7}").await;
    assert!(!person.written.windows(4).any(|bytes| bytes == b"\x1b]0;"));
    drop(service);
    person.until("not reached: ").await;
    // The last sessions that were seen.
    person.until("acme/a").await;
    person.types("q").await;
    assert!(person.until_end().await.success());
    assert!(person.is_cooked());
}
