//! Signals, child processes and pipes of the stand-in.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Writes one line to stderr. That nobody reads it is no error.
pub(crate) fn say(line: &str) {
    let _ = io::stderr().write_all(format!("{line}\n").as_bytes());
}

/// Stays without doing anything.
pub(crate) fn linger() -> ! {
    let end = Instant::now() + Duration::from_secs(600);
    while let Some(rest) = end.checked_duration_since(Instant::now()) {
        std::thread::park_timeout(rest);
    }
    std::process::exit(0)
}

/// Opens a named pipe, says so in it, and keeps it open in this process and in all that it starts.
#[cfg(unix)]
pub(crate) fn hold(path: &Path) -> io::Result<&'static File> {
    let mut pipe = OpenOptions::new().write(true).open(path)?;
    pipe.write_all(b"held\n")?;
    rustix::io::fcntl_setfd(&pipe, rustix::io::FdFlags::empty())?;
    Ok(Box::leak(Box::new(pipe)))
}

/// Starts chains of processes. Each process starts the next one after 2 ms, in a session of its own, and exits. The chains end
/// when nobody reads the pipe any more.
#[cfg(unix)]
pub(crate) fn fork_chains(chains: u32, pipe: &File) -> io::Result<()> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    unsafe extern "C" {
        fn fork() -> std::ffi::c_int;
        fn _exit(status: std::ffi::c_int) -> !;
    }
    const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 2_000_000 };
    for _ in 0..chains {
        // SAFETY: this process has one thread, so its fork may do all that the process may do.
        if unsafe { fork() } != 0 {
            continue;
        }
        loop {
            let _ = rustix::process::setsid();
            // An event: nobody reads the pipe any more.
            let end = !matches!(poll(&mut [PollFd::new(pipe, PollFlags::empty())], Some(&PAUSE)), Ok(0));
            // SAFETY: as above.
            if end || unsafe { fork() } != 0 {
                // SAFETY: it runs nothing that this process has inherited.
                unsafe { _exit(0) };
            }
        }
    }
    Ok(())
}

/// Starts a process that outlives this one unless someone kills it; its id.
pub(crate) fn fork(group: Group) -> io::Result<u32> {
    // The child inherits the ignored signal, so it ignores it from its first moment.
    ignore_sigterm(true);
    #[expect(clippy::disallowed_methods, reason = "this program stands for one that greenroom did not write")]
    let mut command = Command::new(std::env::current_exe()?);
    #[cfg(unix)]
    if group == Group::New {
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
    }
    let child = command.env("FAKE_CLI", "sleep").spawn()?;
    ignore_sigterm(false);
    say(&format!("grandchild {}", child.id()));
    Ok(child.id())
}

/// The process group of a process that is started.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Group {
    Same,
    New,
}

/// Leaves the process group for that of another process.
#[cfg(unix)]
pub(crate) fn join_group_of(pid: u32) -> io::Result<()> {
    Ok(rustix::process::setpgid(None, rustix::process::Pid::from_raw(pid.cast_signed()))?)
}

#[cfg(not(unix))]
pub(crate) fn join_group_of(_: u32) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(unix)]
pub(crate) fn ignore_sigterm(ignore: bool) {
    use std::ffi::c_int;
    unsafe extern "C" {
        fn signal(number: c_int, action: usize) -> usize;
    }
    const SIG_DFL: usize = 0;
    const SIG_IGN: usize = 1;
    // SAFETY: both actions are constants of the C library; no handler of ours is installed.
    unsafe { signal(rustix::process::Signal::TERM.as_raw(), if ignore { SIG_IGN } else { SIG_DFL }) };
}

/// Dies as if the machine had sent this signal: nothing is flushed, nothing is cleaned up.
#[cfg(unix)]
pub(crate) fn kill_self(signal: i32) -> ! {
    if let Some(signal) = rustix::process::Signal::from_named_raw(signal) {
        let _ = rustix::process::kill_process(rustix::process::getpid(), signal);
    }
    linger()
}

/// Closes stdout. Nothing may be written to it afterwards.
#[cfg(unix)]
pub(crate) fn close_stdout() {
    use std::os::fd::{FromRawFd, OwnedFd};
    // SAFETY: nobody else in this process owns descriptor 1, and the process only waits from now on.
    drop(unsafe { OwnedFd::from_raw_fd(1) });
}

#[cfg(not(unix))]
pub(crate) fn hold(_: &Path) -> io::Result<&'static File> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(not(unix))]
pub(crate) fn fork_chains(_: u32, _: &File) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(not(unix))]
pub(crate) fn ignore_sigterm(_: bool) {}

#[cfg(not(unix))]
pub(crate) fn kill_self(_: i32) -> ! {
    std::process::abort()
}

#[cfg(not(unix))]
pub(crate) fn close_stdout() {}
