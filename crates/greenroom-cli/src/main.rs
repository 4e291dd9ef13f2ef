//! `greenroom`, a command that looks after a fleet from outside: over its database, or over the socket of a service on this host.
//!
//! ```text
//!  arguments ──► target: a database or a socket ──► Admin ──► commands ──► rows ──► output: a table, lines with tabs, or JSON
//!                                                     └─────► top ──► view ──► screen
//! ```
//!
//! The guide is `docs/command.md`.

mod arguments;
mod commands;
mod failure;
mod output;
mod rows;
mod target;
mod text;
mod top;

use std::io::{ErrorKind, IsTerminal, Write};
use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use arguments::{Arguments, Command};
use failure::Failure;
use output::Output;
use target::Fleet;

fn main() -> ExitCode {
    // Errors of arguments end the process with 2, and help with 0.
    let arguments = Arguments::parse();
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return ended(Failure::Output(error)),
    };
    let done = runtime.block_on(run(arguments));
    // The thread that reads keys may still wait for one.
    runtime.shutdown_background();
    done.map_or_else(ended, |()| ExitCode::SUCCESS)
}

async fn run(arguments: Arguments) -> Result<(), Failure> {
    let mut output = Output::new(arguments.json, std::io::stdout().is_terminal());
    if let Command::Completions { shell } = arguments.command {
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut Arguments::command(), "greenroom", &mut script);
        output.raw(&script)?;
        return Ok(output.end()?);
    }
    let fleet = Fleet::of(arguments.target)?;
    if let Command::Move(to) = &arguments.command {
        // Wrong arguments end the command before it asks a fleet.
        Fleet::of_move(to)?;
    }
    let connection = fleet.connect().await?;
    let done = match arguments.command {
        Command::Top(options) => top::run(&connection.admin, options, &mut output).await,
        command => commands::run(&connection.admin, command, &mut output).await,
    };
    // What was written before a failure is seen before its text.
    let written = output.end();
    connection.close().await;
    done?;
    Ok(written?)
}

/// Says why the command has failed.
fn ended(failure: Failure) -> ExitCode {
    if let Failure::Output(error) = &failure
        && error.kind() == ErrorKind::BrokenPipe
    {
        // The reader, such as `head`, has what it wants.
        return ExitCode::SUCCESS;
    }
    // An error: nobody reads it.
    writeln!(std::io::stderr(), "greenroom: {}", text::shown(&failure.to_string())).ok();
    failure.code()
}
