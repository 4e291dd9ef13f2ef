//! The memory that a host may still use, by the system and by the host's own control groups.
//!
//! | read | of | limit |
//! |---|---|---|
//! | `/proc/meminfo` | the system | `MemAvailable` |
//! | `memory.max`, `memory.high` | the own group and each group above it (cgroup v2) | the smallest, less what the group uses |
//! | `memory.limit_in_bytes` | the same (cgroup v1) | the same |
//!
//! systemd's `MemoryMax` and the limit of a container are such groups. A group uses its `memory.current` without `inactive_file`, the
//! cache that the kernel takes back first: the working set, as Kubernetes has it.

use std::fs;
use std::path::Path;

use super::cgroup::{self, Hierarchy};

/// The files of one version of control groups.
struct Files {
    limits: &'static [&'static str],
    used: &'static str,
    /// The cache of the group and of those below it, in `memory.stat`.
    cache: &'static str,
}

const V2: Files =
    Files { limits: &["memory.max", "memory.high"], used: "memory.current", cache: "inactive_file" };
const V1: Files =
    Files { limits: &["memory.limit_in_bytes"], used: "memory.usage_in_bytes", cache: "total_inactive_file" };

/// The memory in bytes that this process and its children may still use: what the system has available, or less if a control group of
/// this process or one above it (cgroup v2 or v1) has a limit. `None` on a system that does not say, such as one without `/proc`.
///
/// Swap does not count. Limits that lie outside of a container's own view are not seen.
///
/// ```
/// if let Some(bytes) = greenroom_process::available_memory() {
///     println!("{} MiB are left", bytes >> 20);
/// }
/// ```
pub fn available_memory() -> Option<u64> {
    available_below(Path::new("/"))
}

/// [`available_memory`] of a system whose files are below a folder.
fn available_below(root: &Path) -> Option<u64> {
    let meminfo = fs::read_to_string(root.join("proc/meminfo")).ok()?;
    let available = field(&meminfo, "MemAvailable:")?.saturating_mul(1024);
    let hierarchies = [(Hierarchy::Unified, V2), (Hierarchy::Memory, V1)];
    let left =
        hierarchies.into_iter().filter_map(|(hierarchy, files)| left_by_groups(root, hierarchy, &files));
    Some(left.fold(available, u64::min))
}

/// The least that the own group and those above it leave. `None`: none of them has a limit.
fn left_by_groups(root: &Path, hierarchy: Hierarchy, files: &Files) -> Option<u64> {
    let group = cgroup::own_group(root, hierarchy)?;
    let folders = group.folder.ancestors().take_while(|folder| folder.starts_with(&group.top));
    folders.filter_map(|folder| left_by(folder, files)).min()
}

/// The rest of one group's limit. `None` without a limit: the word `max`, or a file that is missing or cannot be read.
fn left_by(folder: &Path, files: &Files) -> Option<u64> {
    let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap_or_default();
    let number = |name: &str| read(name).trim().parse::<u64>().ok();
    let limit = files.limits.iter().filter_map(|name| number(name)).min()?;
    let cache = field(&read("memory.stat"), files.cache).unwrap_or(0);
    let used = number(files.used).unwrap_or(0).saturating_sub(cache);
    Some(limit.saturating_sub(used))
}

/// The number in the line that begins with a word.
fn field(text: &str, word: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        (words.next() == Some(word)).then(|| words.next()?.parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const UNIFIED: &str = "26 1 0:23 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n";
    const HYBRID: &str = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n\
        32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n\
        33 31 0:30 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
        41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";

    /// A system with 8 GiB available, and these files.
    fn available(groups: &str, mounts: &str, files: &[(&str, &str)]) -> Option<u64> {
        let root = tempfile::tempdir().unwrap();
        let meminfo = "MemTotal:       16777216 kB\nMemAvailable:    8388608 kB\n";
        let own = [("proc/meminfo", meminfo), ("proc/self/cgroup", groups), ("proc/self/mountinfo", mounts)];
        for (path, text) in own.iter().chain(files) {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        available_below(root.path()).map(|bytes| bytes / MIB)
    }

    #[test]
    fn a_limit_of_the_own_group_or_of_one_above_it_counts() {
        let group = "0::/user.slice/app.scope\n";
        let own = ("sys/fs/cgroup/user.slice/app.scope/memory.max", "1073741824\n");
        let above = ("sys/fs/cgroup/user.slice/memory.max", "536870912\n");
        let (open, high) =
            (("sys/fs/cgroup/memory.max", "max\n"), ("sys/fs/cgroup/user.slice/memory.high", "268435456\n"));
        let beside = ("sys/fs/cgroup/other.slice/memory.max", "4096\n");
        assert_eq!(available(group, UNIFIED, &[own, open, beside]), Some(1024));
        assert_eq!(available(group, UNIFIED, &[own, above, open]), Some(512));
        assert_eq!(available(group, UNIFIED, &[own, above, high]), Some(256));
    }

    #[test]
    fn systemds_memory_max_of_a_service_in_an_escaped_slice_counts() {
        let group = "0::/system.slice/system-app\\x2dagents.slice/app@1.service\n";
        let limit = (
            "sys/fs/cgroup/system.slice/system-app\\x2dagents.slice/app@1.service/memory.max",
            "2147483648\n",
        );
        assert_eq!(available(group, UNIFIED, &[limit]), Some(2048));
    }

    #[test]
    fn memory_in_use_is_subtracted_without_the_cache_that_is_taken_back_first() {
        let files = [
            ("sys/fs/cgroup/memory.max", "1073741824"),
            ("sys/fs/cgroup/memory.current", "805306368"),
            ("sys/fs/cgroup/memory.stat", "anon 268435456\ninactive_file 536870912\nactive_file 0\n"),
        ];
        assert_eq!(available("0::/\n", UNIFIED, &files), Some(1024 - 256));
        // A group over its limit leaves nothing.
        let full = [("sys/fs/cgroup/memory.max", "4096"), ("sys/fs/cgroup/memory.current", "8192")];
        assert_eq!(available("0::/\n", UNIFIED, &full), Some(0));
    }

    #[test]
    fn a_limit_of_cgroup_v1_counts_and_its_huge_number_is_none() {
        let groups = "9:name=systemd:/\n4:cpuset,memory:/docker/5f/init\n0::/\n";
        let own = ("sys/fs/cgroup/memory/docker/5f/init/memory.limit_in_bytes", "9223372036854771712\n");
        let files = [
            own,
            ("sys/fs/cgroup/memory/docker/5f/memory.limit_in_bytes", "1073741824\n"),
            ("sys/fs/cgroup/memory/docker/5f/memory.usage_in_bytes", "536870912\n"),
            (
                "sys/fs/cgroup/memory/docker/5f/memory.stat",
                "inactive_file 1\ntotal_inactive_file 268435456\n",
            ),
        ];
        assert_eq!(available(groups, HYBRID, &files), Some(1024 - 256));
        assert_eq!(available(groups, HYBRID, &[own]), Some(8192));
        // A container without a namespace of its own sees its group as the root of the mount.
        let inside = "33 31 0:30 /docker/5f /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n";
        let limit = ("sys/fs/cgroup/memory/memory.limit_in_bytes", "1073741824\n");
        assert_eq!(available("4:memory:/docker/5f\n", inside, &[limit]), Some(1024));
    }

    #[test]
    fn without_a_limit_that_can_be_read_the_system_decides() {
        assert_eq!(available("0::/a\n", UNIFIED, &[]), Some(8192));
        assert_eq!(available("", "", &[]), Some(8192));
        assert_eq!(available("0::/../a\n", UNIFIED, &[("sys/fs/cgroup/memory.max", "4096")]), Some(8192));
        let unreadable =
            [("sys/fs/cgroup/a/memory.max", "much"), ("sys/fs/cgroup/a/memory.high/file", "a folder")];
        assert_eq!(available("0::/a\n", UNIFIED, &unreadable), Some(8192));
        assert_eq!(available_below(Path::new("/no/such/folder")), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_system_says_how_much_memory_it_has() {
        assert!(available_memory().is_some_and(|bytes| bytes > MIB));
    }
}
