//! Start child processes of which nothing outlives its host: each child with everything that it starts is contained, watched and
//! ended, also when the host is killed.
//!
//! ```no_run
//! use greenroom_process::{Child, Command, Error, spawn};
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     // First, before a runtime starts: this program may have been started as its own guardian.
//!     greenroom_process::guardian::init();
//!     let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
//!     runtime.block_on(async {
//!         let Child { mut process, .. } = spawn(|| Ok::<_, Error>(Command::new("/bin/sleep").arg("60"))).await?;
//!         // Kills the child, its process group, and all that has left the group.
//!         process.kill();
//!         println!("it {}; outside its group were {:?}", process.wait().await, process.cleared().await);
//!         Ok(())
//!     })
//! }
//! ```
//!
//! [`Process`] says what happens at the end of a child and of its host, and [`Containment`] what each way of finding descendants can
//! miss.
//!
//! # Requirements
//!
//! Unix; a tokio runtime with IO enabled; and two threads for the whole host. They start with the first child, sleep most of
//! the time, and never end; they belong to no runtime:
//!
//! - `greenroom-start` starts all children, one after another. The parent-death signal of the system fires when the *thread* that
//!   started a child ends, and threads of a runtime come and go.
//! - `greenroom-exits` waits for the ends of all children. It needs pidfds (Linux 5.3); without them each running child has a
//!   thread `greenroom-wait`, and the guardian has `greenroom-guard`.
//!
//! A third thread, `greenroom-sweep`, runs only while descendants of a child that ended are being killed.
//!
//! Before each start, a short-lived thread (`greenroom-look`) opens the files that the start needs, so a file system
//! that hangs delays only the starts that need it. If the start itself hangs, other starts wait behind it until the future of
//! [`spawn`] is dropped.
//!
//! A fork of the host that executes no other program has none of these threads, and must start no children: a start would wait for
//! ever.

// From the bottom up; each file uses those above it:
//
// - `types.rs`, `error.rs`, `command.rs`: plain data
// - `aside.rs`: work that may hang, on a thread of its own
// - `start/spawner.rs`: the one thread that starts all children
// - `exits.rs`: the one thread that waits for the ends of all children
// - `numbers.rs`: the numbers of processes
// - `stat.rs`: the fields of `/proc/PID/stat`
// - `environment.rs`: looks at the environment of all processes
// - `mark.rs`: finds every descendant by a variable that descendants inherit
// - `contain/`: finds every descendant by a control group (`cgroup.rs`) and the mark; `containment.rs` combines the two
// - `contain/memory.rs`: the memory that the host's control groups leave
// - `contain/ending.rs`: stops and kills the processes that have a mark or another variable, or are of a user
// - `variable.rs`: finds and kills processes by a variable of their environment, for the application
// - `contain/user.rs`: the processes of a user of the system and what they leave in memory, for the application
// - `contain/sweep.rs`: kills the descendants that have left the process group
// - `guardian/`: one process for each host that outlives the host and ends what it leaves behind
// - `identity.rs`: the identity of a child's process, for a host that comes after this one
// - `group.rs`: the process group of one child; sends signals only while its id is not reused
// - `stderr.rs`: stderr as lines
// - `start/exec.rs`: executes a program without the shell that the C library would take for a file that is no program
// - `start/spawn.rs`: from a command to a running child, and the cause of a failed start
// - `process.rs`: a running child

mod aside;
mod command;
mod contain;
mod environment;
mod error;
mod exits;
mod group;
pub mod guardian;
mod identity;
mod mark;
mod numbers;
mod process;
#[cfg(all(test, target_os = "linux"))]
#[path = "../../../tests/support/root.rs"]
mod root;
mod start;
#[cfg_attr(not(target_os = "linux"), expect(dead_code))]
mod stat;
mod stderr;
#[cfg(test)]
mod tests;
mod types;
mod variable;
#[cfg(test)]
#[path = "../../../tests/support/wait.rs"]
mod wait;

use std::sync::{Mutex, MutexGuard, PoisonError};

pub use command::{Command, StderrSink};
pub use contain::memory::available_memory;
pub use contain::user::{kill_processes_of_user, processes_of_user, remove_ipc_of_user};
pub use error::{Error, ErrorKind, ErrorReport, Result};
pub use identity::ProcessIdentity;
pub use process::{Child, Process, spawn};
pub use types::{ContainedBy, Containment, Exit, Leftover, OsUser};
pub use variable::{kill_processes_with, processes_with};

#[cfg(not(unix))]
compile_error!("greenroom-process starts children in Unix process groups: Windows is not supported yet");

/// Locks a mutex, also after a panic under its lock.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The program of the README is a doc test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
