//! The plain data of processes.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A user of the operating system, by ids.
///
/// The host needs the permission to become this user (root, or the capability), or the child does not start.
/// Supplementary groups are dropped. The environment stays the same: set another `HOME`, or the child uses the host's home.
///
/// On Linux the child and all that it starts gain no rights by starting a program (`PR_SET_NO_NEW_PRIVS`), so `sudo` fails, and a
/// program with the set-user-ID bit runs as this user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the usual names of the ids")]
pub struct OsUser {
    pub uid: u32,
    pub gid: u32,
}

impl OsUser {
    /// The user with this user id and group id.
    pub const fn new(uid: u32, gid: u32) -> Self {
        Self { uid, gid }
    }

    /// True if this process has the user id. The group id is not compared.
    pub fn is_this_process(self) -> bool {
        self.uid == rustix::process::geteuid().as_raw()
    }
}

/// The way in which processes that a child starts are found, so that all of them end with it.
///
/// A child may start processes in sessions of their own, which a signal to the child's process group does not reach. So there are
/// three ways:
///
/// | | finds | misses | needs |
/// |---|---|---|---|
/// | control group | every descendant | a process that was moved to another control group: by root, or by itself where the user may | Linux 5.14, cgroup v2, and a host that may make a group below its own |
/// | mark | every descendant that inherited the variable `GREENROOM_INCARNATION`, by `/proc` | a process whose environment was replaced (`env -i`), or that the host's user must not read | Linux |
/// | process group | processes that did not leave the group | processes with a session of their own | Unix |
///
/// Each way includes the ways below it. The mark is a random value for each child, so no other process is ever
/// killed. A process that another service starts for the child (`systemd-run`, `docker run`) is that service's
/// descendant; no way finds it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Containment {
    /// A control group if one can be made, else the mark, else the process group. The mark needs `/proc` and a host
    /// that may read the child's environment, which root without `CAP_SYS_PTRACE` may not with [`OsUser`].
    #[default]
    Auto,
    /// A control group; if that is impossible, the child does not start.
    Cgroup,
    /// The mark without a control group; if that is impossible, the child does not start.
    Mark,
    /// The process group only. Choose it for processes that should outlive the child: those that the child has not
    /// ended itself live on, and you have to end them.
    Group,
}

/// The way in which descendants of a child are found; see [`Containment`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ContainedBy {
    /// A control group (cgroup v2), and the mark.
    Cgroup,
    /// The variable `GREENROOM_INCARNATION` in the environment of each of them.
    Mark,
    /// The child's process group alone: a process that has left the group outlives the child.
    #[default]
    Group,
}

/// A process that outlived the child that has started it, or could not be ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Leftover {
    /// The process id. If the process has ended, another process may have the id.
    pub pid: u32,
    /// The name of its program as the system shows it, at most 15 bytes; `the child itself` for a child that the search has not met.
    pub name: String,
}

/// The exit of a child.
///
/// ```
/// use greenroom_process::Exit;
///
/// assert_eq!(Exit::Code(1).to_string(), "exited with code 1");
/// assert_eq!(Exit::Signal(9).to_string(), "was ended by signal 9");
/// assert!(Exit::Code(0).is_success());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Exit {
    /// Exited with this code.
    Code(i32),
    /// Killed by this signal.
    Signal(i32),
    /// Ended, and the system did not say how.
    Unknown,
}

impl Exit {
    /// True for exit code 0.
    pub fn is_success(self) -> bool {
        self == Exit::Code(0)
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Exit::Code(code) => write!(f, "exited with code {code}"),
            Exit::Signal(signal) => write!(f, "was ended by signal {signal}"),
            Exit::Unknown => f.write_str("is gone"),
        }
    }
}
