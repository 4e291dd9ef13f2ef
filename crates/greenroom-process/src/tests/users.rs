//! Processes of other users of the system. Only root can start them.

use std::io::{ErrorKind, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};

use super::*;
use crate::root::own_users;
use crate::wait::found_by_thread;

/// A user of this test alone. The next number is a user of the test as well.
fn own_user(nth: u32) -> Option<OsUser> {
    own_users(nth).map(|users| OsUser::new(users.start, users.start))
}

/// A process without an environment, which no variable finds.
#[test]
fn processes_of_a_user_are_found_and_killed_and_others_live() {
    let Some(user) = own_user(0) else { return };
    let start = |uid: u32| {
        let mut command = StdCommand::new("/bin/cat");
        command.env_clear().stdin(Stdio::piped()).uid(uid).gid(uid).spawn().unwrap()
    };
    let (mut own, mut other) = (start(user.uid), start(user.uid + 1));
    let found = |uid| found_by_thread("a search", || processes_of_user(uid).ok());
    assert_eq!((found(user.uid), found(user.uid + 1)), (vec![own.id()], vec![other.id()]));
    found_by_thread("the end of all", || kill_processes_of_user(user.uid).ok());
    // A zombie until it is reaped.
    assert!(found(user.uid).is_empty());
    assert_eq!(own.wait().unwrap().signal(), Some(9));
    assert!(other.try_wait().unwrap().is_none(), "a process of another user was killed");
    other.kill().unwrap();
    other.wait().unwrap();
}

#[test]
fn processes_of_root_and_of_the_own_user_are_never_killed() {
    for uid in [0, rustix::process::geteuid().as_raw()] {
        assert_eq!(kill_processes_of_user(uid).unwrap_err().kind(), ErrorKind::InvalidInput);
    }
}

/// Each process of a chain starts the next one and ends.
#[test]
fn chains_of_forks_of_a_user_are_killed() {
    let Some(user) = own_user(1) else { return };
    // The chains end with the test.
    let goes_on = tempfile::NamedTempFile::new().unwrap();
    std::fs::set_permissions(goes_on.path(), std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    let next = r#"[ -e "$1" ] && sh -c "$0" "$0" "$1" &"#;
    for _ in 0..3 {
        let mut first = StdCommand::new("/bin/sh");
        first.args(["-c", next, next]).arg(goes_on.path()).uid(user.uid).gid(user.gid);
        assert!(first.status().unwrap().success());
    }
    found_by_thread("a chain", || processes_of_user(user.uid).ok().filter(|found| !found.is_empty()));
    found_by_thread("the end of all", || kill_processes_of_user(user.uid).ok());
    assert!(found_by_thread("a search", || processes_of_user(user.uid).ok()).is_empty());
    assert!(goes_on.path().exists());
}

#[test]
fn shared_memory_that_a_user_has_left_is_removed() {
    let Some(user) = own_user(2) else { return };
    if !StdCommand::new("sh").args(["-c", "command -v ipcmk"]).status().is_ok_and(|status| status.success()) {
        let (thread, mut stderr) = (std::thread::current(), std::io::stderr());
        writeln!(stderr, "{}: not run, for there is no ipcmk", thread.name().unwrap_or_default()).unwrap();
        return;
    }
    let make = |uid: u32| {
        let mut make = StdCommand::new("ipcmk");
        let output = make.args(["-M", "4096", "-S", "1", "-Q"]).uid(uid).gid(uid).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    };
    let left = |uid: u32| -> usize {
        let lists = ["shm", "sem", "msg"]
            .map(|list| std::fs::read_to_string(format!("/proc/sysvipc/{list}")).unwrap());
        lists
            .iter()
            .map(|list| list.split_ascii_whitespace().filter(|word| *word == uid.to_string()).count())
            .sum()
    };
    make(user.uid);
    make(user.uid + 1);
    assert!(left(user.uid) >= 3 && left(user.uid + 1) >= 3);
    remove_ipc_of_user(user.uid).unwrap();
    assert_eq!(left(user.uid), 0);
    assert!(left(user.uid + 1) >= 3, "objects of another user were removed");
    remove_ipc_of_user(user.uid + 1).unwrap();
}

#[tokio::test]
async fn a_child_of_another_user_gains_no_rights() {
    let Some(user) = own_user(3) else { return };
    let folder = tempfile::Builder::new()
        .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .tempdir()
        .unwrap();
    // A copy of `id` with the set-user-ID bit of root.
    let (path, make) = (folder.path().join("id"), "cp \"$(command -v id)\" \"$0\" && chmod 4755 \"$0\"");
    assert!(StdCommand::new("/bin/sh").args(["-c", make]).arg(&path).status().unwrap().success());
    let script = format!("{} -u; grep NoNewPrivs /proc/self/status", path.display());
    let printed = starts::printed(Command { user: Some(user), ..sh(&script) }).await;
    assert_eq!(printed, [user.uid.to_string(), "NoNewPrivs:\t1".to_owned()]);
}
