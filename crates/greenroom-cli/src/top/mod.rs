//! `top`: the fleet as it changes.
//!
//! ```text
//!            ┌── a key: another page, order or list ──┐
//!            ▼                                        │
//!  look: rows within bounds ──► snapshot ──► view ──► screen ──► waits for a key, the next look, a signal
//! ```
//!
//! A look reads a page of sessions and the first stuck ones and questions, however many there are. Keys work while a look takes long,
//! and the last snapshot stays on the screen when one fails.

mod screen;
mod snapshot;
mod view;

use std::future::pending;
use std::time::Duration;

use crossterm::event::{Event, EventStream, KeyCode, KeyEventKind, KeyModifiers};
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use greenroom_fleet::admin::Admin;
use greenroom_fleet::{BackendError, Name};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use crate::arguments::{Sort, Top};
use crate::failure::Failure;
use crate::output::Output;
use screen::Screen;
use snapshot::{Snapshot, look};

/// The shortest time between two looks.
const SHORTEST: Duration = Duration::from_millis(100);

/// The part of the fleet that is looked at.
#[derive(Clone)]
struct Part {
    tenant: Option<greenroom_fleet::Tenant>,
    /// The last sessions of the pages before this one.
    pages: Vec<Name>,
    stuck: bool,
    sort: Sort,
    /// The lines of the page above the window.
    scrolled: usize,
}

pub(crate) async fn run(admin: &Admin, options: Top, output: &mut Output) -> Result<(), Failure> {
    let every = options.every.max(SHORTEST);
    let part = Part {
        tenant: options.tenant,
        pages: Vec::new(),
        stuck: options.stuck,
        sort: options.sort,
        scrolled: 0,
    };
    // A fleet that cannot be asked is said before the window is taken.
    let first = look(admin.clone(), part.clone()).await?;
    if output.json {
        output.document(&first)?;
    } else if !output.is_terminal {
        for line in view::lines(&first, &part, None) {
            output.raw(format!("{line}\n").as_bytes())?;
        }
    } else {
        watch(admin, every, part, first).await?;
    }
    Ok(())
}

/// Shows the fleet until a key or a signal ends it.
async fn watch(admin: &Admin, every: Duration, mut part: Part, first: Snapshot) -> Result<(), Failure> {
    // Before the window is taken, so that no signal ends the process in it.
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hang_up = signal(SignalKind::hangup())?;
    let mut screen = Screen::open()?;
    let mut keys = EventStream::new();
    let mut looks = interval_at(Instant::now() + every, every);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut snapshot, mut failure, mut count) = (first, None, 1);
    let mut looking: Option<BoxFuture<'static, Result<Snapshot, BackendError>>> = None;
    loop {
        let window = view::Window { count, failure: failure.as_deref(), size: screen.size() };
        screen.show(&view::lines(&snapshot, &part, Some(&window)))?;
        tokio::select! {
            _ = terminate.recv() => return Ok(()),
            _ = interrupt.recv() => return Ok(()),
            _ = hang_up.recv() => return Ok(()),
            key = keys.next() => match key {
                // The terminal is gone.
                None => return Ok(()),
                Some(event) => match react(event?, &mut part, &snapshot) {
                    Reaction::End => return Ok(()),
                    // A look at another part is dropped.
                    Reaction::Look => looking = Some(Box::pin(look(admin.clone(), part.clone()))),
                    Reaction::Draw => {}
                },
            },
            _ = looks.tick(), if looking.is_none() => looking = Some(Box::pin(look(admin.clone(), part.clone()))),
            looked = async { match &mut looking { Some(looking) => looking.await, None => pending().await } } => {
                looking = None;
                count += 1;
                match looked {
                    Ok(seen) => (snapshot, failure) = (seen, None),
                    Err(error) => failure = Some(error.to_string()),
                }
            }
        }
    }
}

enum Reaction {
    End,
    Look,
    Draw,
}

fn react(event: Event, part: &mut Part, shown: &Snapshot) -> Reaction {
    let Event::Key(key) = event else { return Reaction::Draw };
    if key.kind == KeyEventKind::Release {
        return Reaction::Draw;
    }
    let last = shown.names.len().saturating_sub(1);
    match key.code {
        KeyCode::Char('q') | KeyCode::Esc => return Reaction::End,
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return Reaction::End,
        KeyCode::Down | KeyCode::Char('j') => part.scrolled = (part.scrolled + 1).min(last),
        KeyCode::Up | KeyCode::Char('k') => part.scrolled = part.scrolled.saturating_sub(1),
        KeyCode::Char('s') => {
            part.scrolled = 0;
            part.sort = match part.sort {
                Sort::Name => Sort::State,
                Sort::State => Sort::Age,
                Sort::Age => Sort::Name,
            };
        }
        KeyCode::Char('n') | KeyCode::PageDown => {
            if let Some(next) = &shown.next {
                part.pages.push(next.clone());
                part.scrolled = 0;
                return Reaction::Look;
            }
        }
        KeyCode::Char('p') | KeyCode::PageUp => {
            part.scrolled = 0;
            if part.pages.pop().is_some() {
                return Reaction::Look;
            }
        }
        KeyCode::Char('f') => {
            part.stuck = !part.stuck;
            (part.pages, part.scrolled) = (Vec::new(), 0);
            return Reaction::Look;
        }
        KeyCode::Char('r') => return Reaction::Look,
        _ => {}
    }
    Reaction::Draw
}
