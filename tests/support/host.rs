//! This test binary, run once more for one of its tests: as a host that ends, or as another process of the same user.

#![allow(dead_code, reason = "each test binary uses a part of it")]
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "in the helpers of tests, too")]
#![allow(clippy::disallowed_methods, reason = "a host is started without the library, as a user would")]

use std::process::{Child, Command, Stdio};

use rustix::process::Pid;

/// The command that runs only this test of this binary, and shows what it prints.
pub(crate) fn test_alone(test: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]).stdin(Stdio::null());
    command
}

/// A process that is killed and reaped when it is dropped, unless it has ended before.
pub(crate) struct Host(pub(crate) Child);

impl Host {
    pub(crate) fn start(command: &mut Command) -> Self {
        Self(command.spawn().unwrap())
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.0)
    }

    /// The child processes of all its threads.
    #[cfg(target_os = "linux")]
    pub(crate) fn children(&self) -> Vec<Pid> {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.0.id())).unwrap().flatten();
        let lists = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
        lists
            .flat_map(|list| list.split_whitespace().flat_map(str::parse).collect::<Vec<_>>())
            .filter_map(Pid::from_raw)
            .collect()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // Both fail if it has ended and was waited for.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// Whether this process may make control groups; a shell tries it, without the code under test. Says so if not.
#[cfg(target_os = "linux")]
pub(crate) fn can_make_cgroups() -> bool {
    let script = r#"
        own=$(sed -n 's/^0:://p' /proc/self/cgroup)
        mount=$(awk '/ - cgroup2 / { print $5; exit }' /proc/self/mountinfo)
        [ -n "$own" ] && [ -n "$mount" ] || exit 1
        folder=$mount$own/test-$$
        mkdir "$folder" || exit 1
        [ -e "$folder/cgroup.kill" ] && sh -c 'echo 0 >"$0/cgroup.procs"' "$folder"
        status=$?
        rmdir "$folder"
        exit $status"#;
    let can = Command::new("/bin/sh").args(["-c", script]).stderr(Stdio::null()).status().unwrap().success();
    if !can {
        println!("no control group can be made on this machine: sessions are contained by their mark");
    }
    can
}
