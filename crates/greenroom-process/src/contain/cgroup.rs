//! A control group (cgroup v2) for each child. A descendant leaves it only if somebody with the permission moves
//! it.
//!
//! ```text
//! the host's own group/
//!   greenroom-HOST/           one for each host; its guardian kills and removes it when the host has ended
//!     cli-INCARNATION/        one for each child: it enters it before it executes its program
//! ```
//!
//! The groups are below the host's own, where the host needs no help from systemd or a container's runtime to make
//! them. No controller is enabled, because a group with controllers and processes may have no groups below it.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use rustix::process::Pid;

/// Start of the name of a host's folder; the host's process id follows.
const PREFIX: &str = "greenroom-";

const OWN_GROUPS: &str = "proc/self/cgroup";
const MOUNTS: &str = "proc/self/mountinfo";

/// A tree of control groups.
#[derive(Clone, Copy)]
pub(crate) enum Hierarchy {
    /// That of cgroup v2.
    Unified,
    /// That of cgroup v1 with the controller `memory`.
    Memory,
}

/// The control group that this process is in.
pub(crate) struct Group {
    pub(crate) folder: PathBuf,
    /// The mount point: the folder itself, or one above it.
    pub(crate) top: PathBuf,
}

/// The folder of the control group that this process is in; `None` without cgroup v2.
pub(crate) fn own_folder() -> Option<PathBuf> {
    let own = own_group(Path::new("/"), Hierarchy::Unified)?.folder;
    // The guardian may be a shell.
    (!own.as_os_str().as_encoded_bytes().contains(&b'\\')).then_some(own)
}

/// The group of this process in a hierarchy, on a system whose files are below `root`. `None` if it has no such hierarchy.
pub(crate) fn own_group(root: &Path, hierarchy: Hierarchy) -> Option<Group> {
    let read = |file: &str| fs::read_to_string(root.join(file)).ok();
    let Group { folder, top } = group_of(hierarchy, &read(OWN_GROUPS)?, &read(MOUNTS)?)?;
    let below = |path: PathBuf| path.strip_prefix("/").map(|path| root.join(path)).ok();
    Some(Group { folder: below(folder)?, top: below(top)? })
}

/// The group, by the texts of `/proc/self/cgroup` and `/proc/self/mountinfo`.
fn group_of(hierarchy: Hierarchy, groups: &str, mounts: &str) -> Option<Group> {
    let has_memory = |list: &str| list.split(',').any(|controller| controller == "memory");
    // `ID:CONTROLLERS:PATH`
    let group = groups.lines().find_map(|line| {
        let (id, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        let is_it = match hierarchy {
            Hierarchy::Unified => id == "0" && controllers.is_empty(),
            Hierarchy::Memory => has_memory(controllers),
        };
        is_it.then_some(path)
    })?;
    // `ID PARENT MAJOR:MINOR ROOT MOUNTPOINT OPTIONS [TAGS] - TYPE SOURCE OPTIONS`
    let found = mounts.lines().find_map(|line| {
        let (mount, kind) = line.split_once(" - ")?;
        let mut fields = mount.split(' ').skip(3);
        let (root, point) = (fields.next()?, fields.next()?);
        let is_it = match hierarchy {
            Hierarchy::Unified => kind.starts_with("cgroup2 "),
            Hierarchy::Memory => kind.starts_with("cgroup ") && has_memory(kind.rsplit(' ').next()?),
        };
        // Special characters in a path are escaped with a backslash; such a mount point is not used for control groups.
        (is_it && !point.contains('\\')).then_some((root, point))
    });
    let (root, point) = found?;
    let below = Path::new(group).strip_prefix(root).ok()?;
    // `..` means a group outside the host's cgroup namespace.
    let top = PathBuf::from(point);
    (!group.contains("..")).then(|| Group { folder: top.join(below), top })
}

/// The folder for the control groups of a host.
pub(crate) fn base(own: &Path, process: u32, mark: &str) -> PathBuf {
    own.join(format!("{PREFIX}{process}-{mark}"))
}

/// Removes the empty groups of hosts that ended together with their guardian.
pub(crate) fn remove_stale(own: &Path) {
    for folder in folders_in(own) {
        let name = folder.file_name().and_then(|name| name.to_str()?.strip_prefix(PREFIX)?.split('-').next());
        if name.is_some_and(|process| !Path::new("/proc").join(process).exists()) {
            remove(&folder).ok();
        }
    }
}

/// The name of a child's group. It begins with the number of the child's watchdog, if there is one.
pub(crate) fn leaf_name(watchdog: Option<u64>, incarnation: &str) -> String {
    match watchdog {
        Some(watchdog) => format!("cli-w{watchdog}-{incarnation}"),
        None => format!("cli-{incarnation}"),
    }
}

/// Kills all processes in the groups of a host whose name begins with `prefix`.
#[cfg(target_os = "linux")]
pub(crate) fn kill_below(base: &Path, prefix: &str) {
    let named = |folder: &PathBuf| {
        folder.file_name().is_some_and(|name| name.to_str().is_some_and(|name| name.starts_with(prefix)))
    };
    for folder in folders_in(base).into_iter().filter(named) {
        // An error: the group is gone.
        kill_all(&folder).ok();
    }
}

/// Kills all processes in a group and in the groups below it, in one step that no fork can slip through.
pub(crate) fn kill_all(folder: &Path) -> io::Result<()> {
    fs::write(folder.join("cgroup.kill"), "1")
}

/// The control group of one child. Dropping it removes the group if it is empty.
#[derive(Debug)]
pub(crate) struct Leaf {
    folder: PathBuf,
    /// `cgroup.procs`, open until the child is started: a process whose id is written there enters the group.
    entrance: Option<File>,
}

impl Leaf {
    /// Makes the group below `base`, and `base` if it does not exist.
    pub(crate) fn make(base: &Path, name: &str) -> io::Result<Self> {
        match fs::create_dir(base) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let folder = base.join(name);
        fs::create_dir(&folder)?;
        let open = || {
            // Missing before Linux 5.14; without it a group cannot be killed in one step.
            fs::metadata(folder.join("cgroup.kill"))?;
            OpenOptions::new().write(true).open(folder.join("cgroup.procs"))
        };
        match open() {
            Ok(entrance) => Ok(Self { folder, entrance: Some(entrance) }),
            Err(error) => {
                fs::remove_dir(&folder).ok();
                Err(error)
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the file once. A process that writes `0` to it enters the group.
    pub(crate) fn take_entrance(&mut self) -> Option<File> {
        self.entrance.take()
    }

    /// Whether the process, running or a zombie, is in the group.
    pub(crate) fn has(&self, pid: Pid) -> bool {
        let groups = fs::read_to_string(format!("/proc/{}/cgroup", pid.as_raw_pid())).unwrap_or_default();
        let own = groups.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or_default();
        self.folder.file_name().is_some_and(|name| Path::new(own).file_name() == Some(name))
    }

    /// The processes in this group and in the groups below it, without zombies.
    pub(crate) fn processes(&self) -> Vec<Pid> {
        processes(&self.folder)
    }

    /// Kills all processes of the group in one step that no fork can slip through.
    pub(crate) fn kill(&self) -> io::Result<()> {
        kill_all(&self.folder)
    }

    /// Removes the empty group. Succeeds if it is removed already.
    pub(crate) fn remove(&self) -> io::Result<()> {
        match remove(&self.folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

impl Drop for Leaf {
    fn drop(&mut self) {
        // The guardian removes a group that is not empty now.
        self.remove().ok();
    }
}

fn processes(folder: &Path) -> Vec<Pid> {
    let list = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
    let own = list.lines().filter_map(|line| Pid::from_raw(line.parse().ok()?));
    own.chain(folders_in(folder).iter().flat_map(|below| processes(below))).collect()
}

/// Removes a group and those below it. Fails while a process is in one of them.
pub(crate) fn remove(folder: &Path) -> io::Result<()> {
    for below in folders_in(folder) {
        remove(&below)?;
    }
    fs::remove_dir(folder)
}

fn folders_in(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n\
        32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
        41 31 0:38 / /sys/fs/cgroup/unified rw,relatime shared:9 - cgroup2 cgroup2 rw\n";

    fn folder(groups: &str, mounts: &str) -> Option<String> {
        group_of(Hierarchy::Unified, groups, mounts).map(|group| group.folder.to_str().unwrap().to_owned())
    }

    #[test]
    fn the_hosts_own_group_is_found_by_its_mount() {
        let found = folder("9:name=systemd:/\n0::/\n", HYBRID);
        assert_eq!(found.as_deref(), Some("/sys/fs/cgroup/unified/"));
        let unified = "26 1 0:23 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n";
        let found = folder("0::/user.slice/app.scope\n", unified);
        assert_eq!(found.as_deref(), Some("/sys/fs/cgroup/user.slice/app.scope"));
        // A container sees its own group as the root of the mount.
        let in_a_container = "26 1 0:23 /docker/5f /sys/fs/cgroup ro - cgroup2 cgroup rw\n";
        let found = folder("0::/docker/5f/init\n", in_a_container);
        assert_eq!(found.as_deref(), Some("/sys/fs/cgroup/init"));
    }

    #[test]
    fn a_group_that_is_not_below_the_mount_is_not_guessed() {
        assert_eq!(folder("4:memory:/a\n", HYBRID), None, "no cgroup v2");
        assert_eq!(folder("0::/\n", "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"), None);
        assert_eq!(folder("0::/../other\n", HYBRID), None);
        assert_eq!(folder("0::/a\n", "26 1 0:23 /b /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"), None);
    }
}
