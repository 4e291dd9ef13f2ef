//! The program of `tests/storm`: the service, its CLIs, and what these start. Which of them it is says the first
//! argument, or a variable for a CLI, whose arguments belong to greenroom.

#![allow(missing_docs, reason = "a program of tests")]

#[cfg(unix)]
mod cli;
#[cfg(unix)]
mod protocol;
#[cfg(unix)]
mod service;

#[cfg(unix)]
fn main() -> std::process::ExitCode {
    greenroom::guardian::init();
    let scratch = std::env::var_os(protocol::SCRATCH).map(std::path::PathBuf::from).unwrap_or_default();
    let mut arguments = std::env::args().skip(1);
    let ended = match arguments.next().as_deref() {
        Some("service") => service::serve(&scratch, arguments.next().unwrap_or_default()),
        Some("child") => cli::stay(),
        _ => cli::run(&scratch),
    };
    match ended {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            use std::io::Write;
            // Nobody may read it any more.
            writeln!(std::io::stderr(), "{error}").ok();
            std::process::ExitCode::FAILURE
        }
    }
}

#[cfg(not(unix))]
fn main() {}
