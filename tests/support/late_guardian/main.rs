//! A host whose `main` runs in a runtime, where it calls `guardian::init`, for the tests of guardians.
//!
//! Starts a session with the CLI that the first argument names, says so on stdout, and stays. Warnings of the library go to
//! stdout as well.

use std::fmt;
use std::time::Duration;

use greenroom::Session;
use greenroom::guardian::{self, BootTime, Watchdog};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

#[tokio::main(worker_threads = 2)]
async fn main() -> greenroom::Result<()> {
    guardian::init();
    // Fails only if there is one already.
    tracing::subscriber::set_global_default(Warnings).ok();
    let watchdog = Watchdog::new()?;
    watchdog.extend(BootTime::now() + Duration::from_secs(600)).await?;
    let program = std::env::args().nth(1).unwrap_or_default();
    let behaviour = std::env::var("FAKE_CLI").unwrap_or_default();
    let builder = Session::builder().cli_path(program).env("FAKE_CLI", behaviour).watchdog(&watchdog);
    let session =
        builder.configure(|options| options.timeouts.exit_after_host = Duration::ZERO).start().await?;
    // Again, by a guardian that has been told of a group.
    watchdog.extend(BootTime::now() + Duration::from_secs(900)).await?;
    say("ready");
    tokio::time::sleep(Duration::from_secs(600)).await;
    session.stop().await
}

/// That nobody reads it is no error.
fn say(line: impl fmt::Display) {
    use std::io::Write;
    writeln!(std::io::stdout(), "{line}").ok();
}

/// Prints warnings and errors.
struct Warnings;

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn event(&self, event: &Event<'_>) {
        struct Text(String);
        impl Visit for Text {
            fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
                self.0.push_str(&format!("{field}={value:?} "));
            }
        }
        let mut text = Text(String::new());
        event.record(&mut text);
        say(text.0);
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}
