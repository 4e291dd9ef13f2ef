//! Finds every process that a child has started, so that all of them can be ended.
//!
//! The process group is not enough: a child may start processes in sessions of their own. Two more ways are used, together where
//! possible:
//!
//! ```text
//! prepare ── a mark (mark.rs), and a control group if one can be made (cgroup.rs)
//!    │ fork: the variable is set, and the child enters the control group before it executes
//!    ▼
//! running ── confirm: is the child in the control group? may this process see its mark?
//!    │ the process group is killed (group.rs)
//!    ▼
//! sweep ──── control group killed, marked processes killed, until none is found (sweep.rs)
//! ```
//!
//! If the host ends first, its guardian sweeps all children of the host: all marks of a host begin with the host's
//! own mark, and all its control groups are below one folder.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use rustix::process::Pid;
use tokio::sync::SetOnce;
use uuid::Uuid;

use super::cgroup::{self, Leaf};
use crate::Containment;
use crate::environment::{self, Patience};
use crate::error::{Error, ErrorKind, Result};
use crate::lock;
use crate::mark;
use crate::{ContainedBy, Leftover};

/// The name of this process in marks and control groups.
#[derive(Debug)]
pub(crate) struct Host {
    /// The beginning of all marks of this host.
    pub(crate) mark: String,
    /// The folder for its control groups; `None` without cgroup v2.
    pub(crate) base: Option<PathBuf>,
}

pub(crate) fn host() -> Arc<Host> {
    static HOST: OnceLock<Arc<Host>> = OnceLock::new();
    Arc::clone(HOST.get_or_init(|| Arc::new(Host::new())))
}

impl Host {
    fn new() -> Self {
        let mark = Uuid::new_v4().simple().to_string();
        let own = cgroup::own_folder();
        if let Some(own) = &own {
            cgroup::remove_stale(own);
        }
        let base = own.map(|own| cgroup::base(&own, std::process::id(), &mark));
        Self { mark, base }
    }
}

/// The containment of one child.
#[derive(Debug, Default)]
pub(crate) struct Contained {
    pub(crate) mark: Option<String>,
    pub(crate) leaf: Option<Leaf>,
    choice: Containment,
    /// The way that holds the child; the group alone until [`confirm`](Self::confirm).
    pub(crate) by: ContainedBy,
}

/// True if no process has the mark. False if nobody can tell.
fn is_unused(mark: &str) -> bool {
    let (mut found, mut patience) = (false, Patience::of(Duration::ZERO, None));
    mark::scan(&[mark], &mut patience, |_, _| found = true).is_ok() && !found
}

/// The result of a sweep.
#[derive(Debug)]
pub(crate) struct Swept {
    /// The killed processes that had left the group.
    pub(crate) killed: Vec<Leftover>,
    /// The last search has found all that is left.
    pub(crate) is_known: bool,
}

/// The processes that a child has started, and the result of sweeping them.
#[derive(Debug)]
pub(crate) struct Descendants {
    /// The child, which is also the leader of its process group.
    pub(crate) leader: Pid,
    pub(crate) contained: Contained,
    leftovers: SetOnce<Swept>,
    /// The processes that the last round of the sweep has found.
    left: Mutex<Vec<Leftover>>,
}

impl Descendants {
    pub(crate) fn new(leader: Pid, contained: Contained) -> Self {
        Self { leader, contained, leftovers: SetOnce::new(), left: Mutex::default() }
    }

    /// Waits until the group was killed and no descendant is left, or until those that are left cannot be ended. Returns the
    /// killed ones that had left the group.
    pub(crate) async fn swept(&self) -> Vec<Leftover> {
        self.leftovers.wait().await.killed.clone()
    }

    /// Ends the wait of [`swept`](Self::swept). There is one sweep, so a second call changes nothing.
    pub(crate) fn set_swept(&self, swept: Swept) {
        self.leftovers.set(swept).ok();
    }

    /// True if [`left`](Self::left) surely has all processes that are left. After a sweep that gave up, one look at all
    /// processes tells.
    pub(crate) fn is_known(&self) -> bool {
        let Some(swept) = self.leftovers.get() else { return false };
        swept.is_known || self.contained.mark.as_deref().is_some_and(is_unused)
    }

    /// The processes that the sweep has found and that still run.
    pub(crate) fn left(&self) -> Vec<Leftover> {
        let mut left = lock(&self.left).clone();
        left.retain(|leftover| {
            let pid = i32::try_from(leftover.pid).ok().and_then(Pid::from_raw);
            pid.is_some_and(|pid| self.contained.has(pid))
        });
        left
    }

    /// The processes that a round of the sweep has found.
    #[cfg(target_os = "linux")]
    pub(crate) fn set_left(&self, left: Vec<Leftover>) {
        *lock(&self.left) = left;
    }
}

impl Contained {
    /// Makes the mark and the control group for a child that may have a watchdog.
    ///
    /// # Errors
    /// [`ErrorKind::Spawn`] if `choice` names one way and this machine does not offer it.
    pub(crate) fn prepare(choice: Containment, watchdog: Option<u64>) -> Result<Self> {
        if choice == Containment::Group {
            return Ok(Self::default());
        }
        if !cfg!(target_os = "linux") || !mark::can_be_found() {
            return match choice {
                Containment::Auto => Ok(Self::default()),
                _ => Err(refused(choice, &io::ErrorKind::Unsupported.into())),
            };
        }
        let host = host();
        let incarnation = Uuid::new_v4().simple().to_string();
        let leaf = match choice {
            Containment::Auto | Containment::Cgroup => {
                let base = host.base.as_deref().ok_or_else(|| io::ErrorKind::Unsupported.into());
                base.and_then(|base| Leaf::make(base, &cgroup::leaf_name(watchdog, &incarnation)))
            }
            Containment::Mark | Containment::Group => Err(io::ErrorKind::Unsupported.into()),
        };
        if let Err(error) = &leaf {
            if choice == Containment::Cgroup {
                return Err(refused(choice, error));
            }
            tracing::debug!(%error, "no control group for the child: what it starts is found by a mark");
        }
        let watchdog = watchdog.map(mark::of_watchdog).unwrap_or_default();
        let mark = Some(format!("{}.{watchdog}{incarnation}", host.mark));
        Ok(Self { mark, leaf: leaf.ok(), choice, by: ContainedBy::Group })
    }

    /// Has the child of `command` start with the mark and in the control group.
    pub(crate) fn apply(&mut self, command: &mut Command) {
        if let Some(mark) = &self.mark {
            command.env(mark::VARIABLE, mark::value(mark));
        }
        let Some(entrance) = self.leaf.as_mut().and_then(Leaf::take_entrance) else { return };
        let enter = move || {
            // A failure shows in `confirm`, where the host decides what to do about it.
            rustix::io::write(&entrance, b"0").ok();
            Ok(())
        };
        // SAFETY: only async-signal-safe code may run between fork and exec. The closure makes one plain system call on
        // an open descriptor; it allocates nothing and takes no lock. The host cannot move the child instead: by then
        // the child could have started processes.
        unsafe {
            command.pre_exec(enter);
        }
    }

    /// Checks whether the child has entered its control group, and whether this process can read its mark. Without
    /// `CAP_SYS_PTRACE`, which containers take even from root, the mark of another user's process cannot be read, nor
    /// that of a program whose file may not be read.
    ///
    /// # Errors
    /// If the chosen way does not hold the child.
    pub(crate) fn confirm(&mut self, child: Pid) -> io::Result<()> {
        let entered = self.leaf.as_ref().is_some_and(|leaf| leaf.has(child));
        let readable = self.mark.is_some() && environment::is_readable(child);
        self.by = match self.mark {
            Some(_) if entered => ContainedBy::Cgroup,
            Some(_) if readable => ContainedBy::Mark,
            _ => ContainedBy::Group,
        };
        match self.choice {
            Containment::Cgroup if !entered => {
                Err(io::Error::other("the system refused to move the child into its control group"))
            }
            Containment::Mark if !readable => Err(io::Error::other(
                "this process may not read the child's environment, so it could not find the child's descendants by a mark",
            )),
            _ => Ok(()),
        }
    }

    /// True if the process is in the control group or has the mark, and is no zombie. Also true if nobody can tell.
    fn has(&self, pid: Pid) -> bool {
        self.leaf.as_ref().is_some_and(|leaf| leaf.processes().contains(&pid))
            || self.mark.as_ref().is_some_and(|mark| mark::has(mark, pid))
    }
}

fn refused(choice: Containment, cause: &io::Error) -> Error {
    let (what, help) = match choice {
        Containment::Cgroup => (
            "control group (cgroup v2)",
            "give the host a control group of its own that it may write to (systemd: `Delegate=yes`), or choose \
             `Containment::Auto`",
        ),
        _ => ("mark in the environment", "it needs Linux with `/proc`: choose `Containment::Auto`"),
    };
    let message = format!("the child cannot be contained by a {what}: {cause}");
    Error::new(ErrorKind::Spawn, message).with_help(help)
}
