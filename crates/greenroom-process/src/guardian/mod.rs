//! The guardian: a process that ends what a host leaves behind, and watchdogs, which end children at a deadline.
//!
//! Call [`init`] first in `main`, before a runtime starts, and the guardian is your program, started once more. Without the call it is a shell, which ends
//! children when the host has ended, but knows no deadlines.
//!
//! [`Process`](crate::Process) says what the guardian does when the host ends. A [`Watchdog`] ends its children while the host
//! exists as well.

mod acknowledgements;
mod boot_time;
mod host;
#[cfg(target_os = "linux")]
mod program;
mod running;
mod watchdog;

use std::path::PathBuf;

pub use self::boot_time::BootTime;
#[cfg(test)]
pub(super) use self::host::tests;
pub(super) use self::host::{forget, ready, watch};
pub use self::watchdog::Watchdog;

/// Lets this program be the guardian of its children. Call it first in `main`.
///
/// The guardian is a process that outlives the host and ends what the host leaves behind; see
/// [`Process`](crate::Process). If this process was started as the guardian, `init` runs the guardian and
/// ends the process. Otherwise it returns at once, and the first child's guardian is this program, started once more, in
/// place of a shell. That is what a [`Watchdog`] needs.
///
/// Nothing should happen before the call: no thread, no runtime, no output, no parsing of arguments. It would happen in the
/// guardian as well.
///
/// ```no_run
/// fn main() -> std::io::Result<()> {
///     greenroom_process::guardian::init();
///     tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(serve())
/// }
///
/// async fn serve() -> std::io::Result<()> {
///     // Children.
///     Ok(())
/// }
/// ```
///
/// In a `main` with `#[tokio::main]` the call works too, but the guardian then has a runtime with idle threads. Call it in
/// `main` itself, and not in a task: while the guardian works in a task, `main` goes on.
///
/// On other systems than Linux it does nothing, and the guardian is a shell.
pub fn init() {
    #[cfg(target_os = "linux")]
    {
        program::run_if_asked();
        // The program of this process, also after its file was replaced.
        host::set_program("/proc/self/exe".into());
    }
}

/// Names another program as the guardian: one that calls [`init`] of this version of the crate first in its `main`. For hosts whose
/// `main` is not their own, such as tests and extensions of other languages.
///
/// If the program cannot be started, a warning is logged, and a [`Watchdog`] refuses to be extended. On other systems than Linux
/// it does nothing.
pub fn use_program(path: impl Into<PathBuf>) {
    if cfg!(target_os = "linux") {
        host::set_program(path.into());
    }
}
