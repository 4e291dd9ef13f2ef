//! Exports read a snapshot of the file on a thread of their own, so that requests do not wait for them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use redb::{Database, ReadTransaction, ReadableDatabase};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::error::failed;
use super::export::Text;
use super::writer::ROWS;
use crate::error::{BackendError, BackendErrorKind};
use crate::registry::{FIRST_KEY, Result};

/// A request for an export.
pub(super) struct Export {
    pub(super) reply: oneshot::Sender<Result<String>>,
    /// Lets the next export begin when it is dropped: one runs at a time.
    pub(super) turn: OwnedSemaphorePermit,
}

/// The thread of the export that runs.
#[derive(Default)]
pub(super) struct Exporter {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Exporter {
    /// Starts an export of everything that is committed now.
    pub(super) fn start(&mut self, database: &Database, export: Export) {
        // The turn of the last export is over, so its thread has nothing left to do.
        self.join();
        let stop = Arc::clone(&self.stop);
        let started = database.begin_read().map_err(failed).and_then(|snapshot| {
            let (told, reply) = oneshot::channel::<Export>();
            let run = move || {
                let Ok(Export { reply, turn }) = reply.blocking_recv() else { return };
                let text = write(&snapshot, || stop.load(Ordering::SeqCst) || reply.is_closed());
                drop((snapshot, turn));
                // The task may have stopped waiting.
                reply.send(text).ok();
            };
            let thread = std::thread::Builder::new().name("greenroom-fleet-export".to_owned()).spawn(run);
            thread.map(|thread| (thread, told)).map_err(|error| {
                BackendError::new(BackendErrorKind::Unavailable, "no thread for the export").caused_by(error)
            })
        });
        match started {
            Ok((thread, told)) => {
                self.thread = Some(thread);
                // The thread waits for it.
                told.send(export).ok();
            }
            // The task may have stopped waiting.
            Err(error) => drop(export.reply.send(Err(error))),
        }
    }

    /// Ends the export, whose snapshot keeps the file open.
    pub(super) fn end(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        self.join();
        self.stop.store(false, Ordering::SeqCst);
    }

    fn join(&mut self) {
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has dropped its reply: the task that waits is told so.
            thread.join().ok();
        }
    }
}

fn write(snapshot: &ReadTransaction, stopped: impl Fn() -> bool) -> Result<String> {
    let table = snapshot.open_table(ROWS).map_err(failed)?;
    let mut text = Text::new()?;
    for row in table.range(FIRST_KEY..).map_err(failed)? {
        if stopped() {
            let message = "the export was ended, because the file is closed or opened again: repeat it";
            return Err(BackendError::new(BackendErrorKind::Unavailable, message));
        }
        let (key, value) = row.map_err(failed)?;
        text.row(key.value(), value.value())?;
    }
    Ok(text.whole())
}
