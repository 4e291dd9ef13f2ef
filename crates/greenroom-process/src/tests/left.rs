//! Processes that leave the child's group are killed as well.

use super::*;
use crate::contain::{cgroup, containment};

/// Starts a process in a session of its own that holds stdout open and prints `ready`.
const WITH_LEAVER: &str = "setsid sh -c 'echo ready; kill -STOP $$' & ";

fn contained(containment: Containment, script: &str) -> Command {
    Command { containment, ..sh(script) }
}

/// The containments that this machine supports. The error without control groups must name them.
fn ways() -> Vec<Containment> {
    match containment::Contained::prepare(Containment::Cgroup, None) {
        Ok(_) => vec![Containment::Auto, Containment::Cgroup, Containment::Mark],
        Err(error) => {
            assert!(error.to_string().contains("control group") && error.help().is_some(), "{error}");
            say_no_cgroups();
            vec![Containment::Auto, Containment::Mark]
        }
    }
}

async fn ready(launch: Command) -> (BufReader<impl tokio::io::AsyncRead + Unpin>, Process) {
    let Child { stdout: reader, process, .. } = open(launch).await;
    let mut reader = BufReader::new(reader);
    expect_line(&mut reader, "ready").await;
    (reader, process)
}

fn names(leftovers: &[Leftover]) -> Vec<&str> {
    leftovers.iter().map(|leftover| leftover.name.as_str()).collect()
}

#[tokio::test]
async fn kill_ends_and_names_processes_that_left_the_group() {
    for way in ways() {
        let (reader, mut process) = ready(contained(way, &format!("{WITH_LEAVER} sleep 1000"))).await;
        let by = process.contained_by();
        match way {
            Containment::Cgroup => assert_eq!(by, ContainedBy::Cgroup),
            Containment::Mark => assert_eq!(by, ContainedBy::Mark),
            _ => {
                assert_eq!(by == ContainedBy::Cgroup, ways().len() == 3, "the best way of this machine")
            }
        }
        process.kill();
        assert_eq!(to_the_end(reader).await, "");
        let leftovers = in_time(process.cleared()).await;
        assert_eq!(names(&leftovers), ["sh"], "{way:?}");
        assert_eq!(in_time(process.cleared()).await, leftovers, "it may be asked again");
    }
}

#[tokio::test]
async fn processes_that_left_are_killed_after_the_child_has_ended() {
    for way in ways() {
        for end in ["exit 3", "kill -KILL $$"] {
            let script = format!("{WITH_LEAVER} read line; {end}");
            let Child { stdout: reader, stdin: mut writer, mut process, .. } =
                open(contained(way, &script)).await;
            let mut reader = BufReader::new(reader);
            expect_line(&mut reader, "ready").await;
            writer.write_all(b"\n").await.unwrap();
            in_time(process.wait()).await;
            process.kill();
            assert_eq!(to_the_end(reader).await, "", "{way:?} {end}");
            assert_eq!(names(&in_time(process.cleared()).await), ["sh"], "{way:?} {end}");
        }
    }
}

#[tokio::test]
async fn dropping_without_a_runtime_kills_processes_that_left() {
    for way in ways() {
        let (reader, process) = ready(contained(way, &format!("{WITH_LEAVER} sleep 1000"))).await;
        std::thread::spawn(move || drop(process)).join().unwrap();
        assert_eq!(to_the_end(reader).await, "", "{way:?}");
    }
}

#[tokio::test]
async fn descendants_of_other_clis_are_not_killed() {
    for way in ways() {
        let script = format!("{WITH_LEAVER} sleep 1000");
        let (first, mut killed) = ready(contained(way, &script)).await;
        let (mut second, mut other) = ready(contained(way, &script)).await;
        killed.kill();
        assert_eq!(to_the_end(first).await, "");
        in_time(killed.cleared()).await;
        let mut line = String::new();
        assert!(futures_util::poll!(Box::pin(second.read_line(&mut line))).is_pending(), "{way:?}");
        other.kill();
        assert_eq!(names(&in_time(other.cleared()).await), ["sh"], "it lived until then: {way:?}");
    }
}

#[tokio::test]
async fn a_control_group_finds_processes_without_a_mark_and_is_removed() {
    let Ok(probe) = containment::Contained::prepare(Containment::Cgroup, None) else {
        return say_no_cgroups();
    };
    drop(probe);
    let base = containment::host().base.clone().unwrap();
    // A grandchild without the environment, whose parent has ended.
    let script = "env -i setsid sh -c 'sh -c \"echo ready; kill -STOP \\$\\$\" & exit' & ";
    let (reader, mut process) = ready(contained(Containment::Auto, &format!("{script} sleep 1000"))).await;
    let folder = own_leaf(process.pid(), &base);
    let open = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let mut open = open.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    assert!(!open.any(|file| file.starts_with(&folder)), "a child holds no descriptor for it");
    process.kill();
    assert_eq!(to_the_end(reader).await, "");
    assert_eq!(names(&in_time(process.cleared()).await), ["sh"]);
    assert!(!folder.exists(), "removed");
}

fn own_leaf(pid: u32, base: &Path) -> std::path::PathBuf {
    let groups = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    let own = groups.lines().find_map(|line| line.strip_prefix("0::")).unwrap();
    let folder = base.join(Path::new(own).file_name().unwrap());
    assert!(folder.is_dir(), "{folder:?}");
    folder
}

#[tokio::test]
async fn with_the_group_alone_processes_that_left_live_on() {
    // Ends when its stdin ends, which is the child's.
    let script = "exec 3<&0; setsid sh -c 'echo ready; cat <&3; echo outlived' & sleep 1000";
    let Child { stdout: reader, stdin: writer, mut process, .. } =
        open(contained(Containment::Group, script)).await;
    let mut reader = BufReader::new(reader);
    expect_line(&mut reader, "ready").await;
    assert_eq!(process.contained_by(), ContainedBy::Group);
    process.kill();
    assert_eq!(in_time(process.cleared()).await, []);
    drop(writer);
    assert_eq!(to_the_end(reader).await, "outlived\n");
}

/// The system does not show the environment of a program whose file may not be read, like that of another user's
/// process to a host without `CAP_SYS_PTRACE`.
#[test]
fn a_mark_that_the_host_may_not_read_does_not_count() {
    use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
    use std::io::{Read, Write};

    let folder = tempfile::tempdir().unwrap();
    let cat = folder.path().join("cat");
    // Written by a child: another child of this process could inherit the open file, which then cannot be executed.
    let made =
        StdCommand::new("/bin/sh").args(["-c", "cp /bin/cat \"$0\" && chmod 111 \"$0\""]).arg(&cat).status();
    assert!(made.unwrap().success());
    let look = move || {
        // Changes this thread only. With these capabilities root reads everything.
        let mut own = capabilities(None).unwrap();
        own.effective -= CapabilitySet::SYS_PTRACE
            | CapabilitySet::SYS_ADMIN
            | CapabilitySet::PERFMON
            | CapabilitySet::DAC_OVERRIDE
            | CapabilitySet::DAC_READ_SEARCH;
        set_capabilities(None, own).unwrap();
        let mut contained = containment::Contained::prepare(Containment::Mark, None).unwrap();
        let mut command = StdCommand::new(cat);
        command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
        contained.apply(&mut command);
        let mut child = command.spawn().unwrap();
        child.stdin.as_mut().unwrap().write_all(b"x").unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        let error = contained.confirm(Pid::from_child(&child)).unwrap_err();
        assert!(error.to_string().contains("may not read"), "{error}");
        assert_eq!(contained.by, ContainedBy::Group);
        drop(child.stdin.take());
        child.wait().unwrap();
    };
    std::thread::spawn(look).join().unwrap();
}

#[tokio::test]
async fn a_start_that_fails_leaves_no_control_group() {
    let Ok(probe) = containment::Contained::prepare(Containment::Cgroup, None) else {
        return say_no_cgroups();
    };
    let folder = probe.leaf.as_ref().unwrap().folder().to_owned();
    assert!(folder.is_dir());
    drop(probe);
    assert!(!folder.exists());
}

#[tokio::test]
async fn control_groups_of_ended_hosts_are_removed() {
    let Some(own) = cgroup::own_folder() else { return say_no_cgroups() };
    // Greater than the greatest process id.
    let stale = own.join("greenroom-2000000000-a");
    if std::fs::create_dir(&stale).is_err() {
        return say_no_cgroups();
    }
    std::fs::create_dir(stale.join("cli-b")).unwrap();
    let alive = own.join(format!("greenroom-{}-a", std::process::id()));
    std::fs::create_dir(&alive).unwrap();
    cgroup::remove_stale(&own);
    assert!(!stale.exists() && alive.exists());
    std::fs::remove_dir(&alive).unwrap();
}
