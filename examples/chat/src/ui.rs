//! The window of the chat: it takes keys, progress and questions as they come, and draws what is going on.

use std::collections::VecDeque;
use std::pin::pin;
use std::time::{Duration, Instant};

use crossterm::event::{Event, EventStream, KeyCode, KeyModifiers};
use futures_util::StreamExt;
use tokio::sync::mpsc;
use tokio::time::{Interval, MissedTickBehavior};

use crate::input::{Input, Typed};
use crate::kitchen::Progress;
use crate::questions::{After, Ask, Asked};
use crate::screen::{Live, MODEL, PERSON, Screen, Voice};
use crate::text::{Flow, PlainPieces, lay_out, shorten};

/// The most lines that are typed ahead while the model works.
const AHEAD: usize = 20;

/// The wish of the person, as far as it is not about the line.
#[derive(Debug, PartialEq)]
pub(crate) enum Wish {
    Nothing,
    /// Ctrl-C.
    Interrupt,
    /// Ctrl-D, or the terminal is gone.
    Leave,
}

pub(crate) struct Ui {
    pub(crate) screen: Screen,
    keys: Option<EventStream>,
    progress: mpsc::Receiver<Progress>,
    asks: mpsc::Receiver<Ask>,
    tick: Interval,
    input: Input,
    asked: Option<Asked>,
    /// The line for the answer to a question. The line that was typed before stays as it is. One for all questions:
    /// dropping an editor of `reedline` would end the terminal's raw mode.
    answer: Input,
    /// Lines that were typed while the model worked.
    ahead: VecDeque<String>,
    /// The work that the spinner tells of, and its start.
    work: Option<(&'static str, Instant)>,
    bars: Vec<Progress>,
    /// The answer that the model is writing: its row that is not full, and a cut escape sequence.
    flow: Flow,
    pieces: PlainPieces,
    writing: bool,
}

impl Ui {
    pub(crate) fn open(
        progress: mpsc::Receiver<Progress>,
        asks: mpsc::Receiver<Ask>,
    ) -> std::io::Result<Self> {
        let screen = Screen::open()?;
        let keys = screen.is_terminal().then(EventStream::new);
        let mut tick = tokio::time::interval(Duration::from_millis(100));
        // Ticks that nobody took while nothing ran are not made up for.
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Ok(Self {
            screen,
            keys,
            progress,
            asks,
            tick,
            input: Input::new(),
            asked: None,
            answer: Input::new(),
            ahead: VecDeque::new(),
            work: None,
            bars: Vec::new(),
            flow: Flow::default(),
            pieces: PlainPieces::default(),
            writing: false,
        })
    }

    /// Waits for the next event, and handles it. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Wish {
        let Self { keys, progress, asks, asked, tick, work, .. } = self;
        let ticks = work.is_some() || asked.is_some();
        let wish = tokio::select! {
            event = next_key(keys) => self.event(event),
            // The senders live in handlers of the session, so both channels outlast the turns.
            Some(progress) = progress.recv() => self.progressed(progress),
            Some(ask) = asks.recv(), if asked.is_none() => self.ask(ask),
            _ = tick.tick(), if ticks => self.check_question(),
            _ = tokio::signal::ctrl_c() => Wish::Interrupt,
        };
        self.draw();
        wish
    }

    /// Waits for the next line of the person; `None` if the person leaves.
    pub(crate) async fn line(&mut self) -> Option<String> {
        let mut interrupted = false;
        loop {
            if let Some(line) = self.ahead.pop_front() {
                self.screen.say(Voice::Person, &format!("{PERSON}{line}"));
                return Some(line);
            }
            self.draw();
            match self.next().await {
                Wish::Interrupt if interrupted => return None,
                Wish::Interrupt => {
                    interrupted = true;
                    // The history keeps the text.
                    self.input.submit();
                    self.screen.say(Voice::Chat, "(Ctrl-C again, or Ctrl-D, leaves)");
                }
                Wish::Leave => return None,
                Wish::Nothing => interrupted &= self.input.text().is_empty(),
            }
        }
    }

    /// Waits with a spinner; `None` if the person interrupts or leaves.
    pub(crate) async fn wait<T>(&mut self, work: &'static str, future: impl Future<Output = T>) -> Option<T> {
        self.begin(work);
        let mut future = pin!(future);
        let done = loop {
            tokio::select! {
                done = &mut future => break Some(done),
                wish = self.next() => if wish != Wish::Nothing { break None },
            }
        };
        self.end();
        done
    }

    /// Shows a spinner from now on.
    pub(crate) fn begin(&mut self, work: &'static str) {
        self.work = Some((work, Instant::now()));
        self.draw();
    }

    /// Ends the spinner, the bars, the answer and the question.
    pub(crate) fn end(&mut self) {
        self.model_ends();
        while self.progress.try_recv().is_ok() {}
        self.bars.clear();
        self.work = None;
        self.check_question();
        self.draw();
    }

    /// Shows a text for good, below the answer so far.
    pub(crate) fn say(&mut self, voice: Voice, text: &str) {
        self.model_ends();
        self.screen.say(voice, text);
    }

    /// Shows a piece of the model's answer.
    pub(crate) fn model_says(&mut self, piece: &str) {
        let mut text = self.pieces.next(piece);
        if !self.writing {
            text = text.trim_start_matches('\n').to_owned();
            if text.is_empty() {
                return;
            }
            text.insert_str(0, MODEL);
            self.writing = true;
        }
        let rows = self.flow.add(&text, self.screen.width());
        self.screen.rows(Voice::Model, &rows);
        self.draw();
    }

    /// The answer, or a part of it, is complete.
    pub(crate) fn model_ends(&mut self) {
        let row = self.flow.finish();
        (self.writing, self.pieces) = (false, PlainPieces::default());
        self.screen.rows(Voice::Model, row.as_slice());
    }

    /// A call has ended: its bar goes.
    pub(crate) fn call_ended(&mut self, call: &str) {
        self.bars.retain(|bar| bar.call != call);
    }

    fn event(&mut self, event: Option<std::io::Result<Event>>) -> Wish {
        let Some(Ok(event)) = event else {
            self.keys = None;
            return Wish::Leave;
        };
        if let Event::Key(key) = &event
            && (key.code, key.modifiers) == (KeyCode::Char('l'), KeyModifiers::CONTROL)
        {
            self.screen.clear();
            return Wish::Nothing;
        }
        let input = if self.asked.is_some() { &mut self.answer } else { &mut self.input };
        match input.take(event) {
            Typed::Text => {}
            Typed::Interrupt => return Wish::Interrupt,
            Typed::End => return Wish::Leave,
            Typed::Line(line) => match self.asked.take() {
                Some(asked) => self.answered(asked, &line),
                None if line.trim().is_empty() => {}
                None if self.ahead.len() == AHEAD => {
                    self.say(Voice::Error, "(too many lines wait: not taken)")
                }
                None => self.ahead.push_back(line),
            },
        }
        Wish::Nothing
    }

    fn progressed(&mut self, progress: Progress) -> Wish {
        if !self.screen.is_terminal() {
            if progress.done == progress.of {
                self.say(Voice::Tool, &bar(&progress));
            }
        } else if let Some(bar) = self.bars.iter_mut().find(|bar| bar.call == progress.call) {
            *bar = progress;
        } else {
            self.bars.push(progress);
        }
        Wish::Nothing
    }

    /// Shows a question. Nobody is there to answer without a terminal: the question is dropped, which denies the call.
    fn ask(&mut self, ask: Ask) -> Wish {
        let asked = Asked::new(ask);
        if self.screen.is_terminal() && !asked.is_withdrawn() {
            self.say(Voice::Tool, &asked.text());
            // A question that was withdrawn may have left a part of an answer.
            self.answer.submit();
            self.asked = Some(asked);
        }
        Wish::Nothing
    }

    fn answered(&mut self, asked: Asked, line: &str) {
        self.say(Voice::Tool, &format!("{}{line}", asked.label()));
        match asked.answer(line) {
            After::Done => {}
            After::Next(asked) => {
                self.say(Voice::Tool, &asked.text());
                self.asked = Some(asked);
            }
            After::Again(asked) => {
                self.say(Voice::Error, "(type one of the words, or its first letter)");
                self.asked = Some(asked);
            }
        }
    }

    /// Takes the question away whose turn the person interrupts.
    pub(crate) fn interrupt_question(&mut self) {
        if let Some(asked) = self.asked.take() {
            asked.interrupt();
            self.say(Voice::Tool, "(the question was withdrawn)");
        }
    }

    fn check_question(&mut self) -> Wish {
        if self.asked.take_if(|asked| asked.is_withdrawn()).is_some() {
            self.say(Voice::Tool, "(the question was withdrawn)");
        }
        Wish::Nothing
    }

    /// Draws the live rows: the answer's open row, bars, the spinner, lines typed ahead, and the typed line.
    fn draw(&mut self) {
        let Some(width) = self.screen.width() else { return };
        let mut rows: Vec<(Voice, String)> = Vec::new();
        if !self.flow.open().is_empty() {
            rows.push((Voice::Model, self.flow.open().trim_end().to_owned()));
        }
        rows.extend(self.bars.iter().map(|progress| (Voice::Tool, bar(progress))));
        if let Some((work, since)) = &self.work {
            let since = since.elapsed();
            let wheel = ["|", "/", "-", "\\"][(since.as_millis() / 100 % 4) as usize];
            rows.push((Voice::Chat, format!("{wheel} {work}, {} s (Ctrl-C interrupts)", since.as_secs())));
        }
        rows.extend(self.ahead.iter().map(|line| (Voice::Chat, format!("next > {}", shorten(line, 1, 100)))));
        for (_, row) in &mut rows {
            clip(row, width);
        }
        let (label, input) = match &self.asked {
            Some(asked) => (asked.label(), &self.answer),
            None => (PERSON, &self.input),
        };
        let (typed, (row, column)) = lay_out(label, input.text(), input.cursor(), width);
        let cursor = (rows.len() + row, column);
        rows.extend(typed.into_iter().map(|row| (Voice::Person, row)));
        self.screen.draw(Live { rows, cursor });
    }
}

/// The next event of the terminal; never without a terminal.
async fn next_key(keys: &mut Option<EventStream>) -> Option<std::io::Result<Event>> {
    match keys {
        Some(keys) => keys.next().await,
        None => std::future::pending().await,
    }
}

fn bar(Progress { tool, done, of, .. }: &Progress) -> String {
    let full = (20 * u64::from(*done) / u64::from((*of).max(1))).min(20) as usize;
    format!("  [{}{}] {tool} {done}/{of}", "#".repeat(full), ".".repeat(20 - full))
}

/// Cuts a row at the width of the window.
fn clip(row: &mut String, width: usize) {
    let mut columns = 0;
    let end = row.char_indices().find(|(_, char)| {
        columns += textwrap::core::display_width(char.encode_utf8(&mut [0; 4]));
        columns > width
    });
    if let Some((end, _)) = end {
        row.truncate(end);
    }
}
