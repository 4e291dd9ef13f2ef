//! Signals, children and pipes of a fake CLI.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::process::Command;
use std::time::{Duration, Instant};

use greenroom::transport::Exit;
use rustix::process::{Signal, getpid, kill_process};

/// The longest sleep of a fake CLI; stands for ever.
const FOR_EVER: Duration = Duration::from_secs(600);

/// The arguments with which a test binary runs only this test, and lets it write to stdout.
pub(super) fn only_test(test: &str) -> Vec<String> {
    [test, "--exact", "--nocapture", "--test-threads=1"].map(str::to_owned).to_vec()
}

/// Stays without doing anything.
pub(super) fn linger() -> ! {
    let end = Instant::now() + FOR_EVER;
    while let Some(rest) = end.checked_duration_since(Instant::now()) {
        std::thread::park_timeout(rest);
    }
    std::process::exit(0)
}

/// Writes lines that are no frames.
pub(super) fn garbage() -> ! {
    let end = Instant::now() + FOR_EVER;
    while Instant::now() < end && io::stdout().write_all(b"this line is not for you\n").is_ok() {
        std::thread::park_timeout(Duration::from_millis(20));
    }
    std::process::exit(0)
}

/// Ends the process, as this says.
pub(super) fn end(exit: Exit) -> ! {
    if let Exit::Signal(number) = exit
        && let Some(signal) = Signal::from_named_raw(number)
    {
        // A signal that does not end a process is none to ask for.
        kill_process(getpid(), signal).ok();
        std::thread::park_timeout(FOR_EVER);
    }
    std::process::exit(if let Exit::Code(code) = exit { code } else { 1 })
}

/// Writes one line to stderr. That nobody reads it is no error.
pub(super) fn say(line: &str) {
    io::stderr().write_all(format!("{line}\n").as_bytes()).ok();
}

/// Writes that many bytes to stderr, in lines of 80.
pub(super) fn flood_stderr(mut bytes: usize) -> io::Result<()> {
    let line = [[b'x'; 79].as_slice(), b"\n"].concat();
    let many = line.repeat(100);
    while bytes > 0 {
        let now = bytes.min(many.len());
        io::stderr().write_all(&many[..now])?;
        bytes -= now;
    }
    Ok(())
}

/// Starts a process that ignores SIGTERM, has our pipes, and outlives us unless someone kills it.
pub(super) fn fork() -> io::Result<()> {
    // The child inherits ignored signals from its first instruction on.
    ignore_sigterm(true);
    // Not this binary once more: its harness would write into the pipe to the host.
    #[expect(
        clippy::disallowed_methods,
        reason = "this stands for what the CLI starts, and not for the CLI"
    )]
    Command::new("sleep").arg(FOR_EVER.as_secs().to_string()).spawn()?;
    ignore_sigterm(false);
    Ok(())
}

pub(super) fn ignore_sigterm(ignore: bool) {
    use std::ffi::c_int;
    unsafe extern "C" {
        fn signal(number: c_int, action: usize) -> usize;
    }
    const SIG_DFL: usize = 0;
    const SIG_IGN: usize = 1;
    // SAFETY: both actions are constants of the C library; no handler of ours is installed.
    unsafe {
        signal(Signal::TERM.as_raw(), if ignore { SIG_IGN } else { SIG_DFL });
    }
}

/// Lets what we start inherit this file.
pub(super) fn inherited(file: &File) -> io::Result<()> {
    Ok(rustix::io::fcntl_setfd(file, rustix::io::FdFlags::empty())?)
}

/// Closes stdout. Nothing may be written to it afterwards.
pub(super) fn close_stdout() {
    // SAFETY: nobody else in this process owns descriptor 1, and nothing that is opened later counts on being it:
    // the process does nothing but wait from now on.
    drop(unsafe { OwnedFd::from_raw_fd(1) });
}
