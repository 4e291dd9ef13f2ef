//! The command without a fleet.

use std::fs::Permissions;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;

use rustix::process::Uid;
use rustix::thread::set_thread_res_uid;
use tokio::process::Command;

use crate::root::own_users;
use crate::stage::{Service, command, ended, run};

/// Each command, with arguments that are fine.
const COMMANDS: &[&[&str]] = &[
    &["nodes"],
    &["names"],
    &["stuck"],
    &["prompts", "acme/a"],
    &["questions"],
    &["answer", "6f1c0000-0000-4000-8000-000000000000", "--allow"],
    &["quarantine", "acme/a", "why"],
    &["unquarantine", "acme/a"],
    &["drain", "6f1c0000-0000-4000-8000-000000000000"],
    &["drop", "6f1c0000-0000-4000-8000-000000000000", "why"],
    &["move", "acme", "--to-socket", "/nowhere"],
    &["move-to-host", "acme/a", "there"],
    &["forget-host", "there"],
    &["account", "acme"],
    &["usage"],
    &["feed"],
    &["quota", "acme"],
    &["vacuum", "1h"],
    &["processes", "acme/a"],
    &["remove-process", "acme/a", "1"],
    &["top"],
];

#[tokio::test]
async fn each_command_says_that_the_fleet_is_not_reached_and_ends_with_3() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("none.sock");
    for arguments in COMMANDS {
        for json in [None, Some("--json")] {
            let socket = ["--socket", socket.to_str().unwrap()];
            let arguments: Vec<&str> = socket.iter().chain(*arguments).copied().chain(json).collect();
            let ended = run(&arguments).await;
            assert_eq!((ended.code, ended.out.as_str()), (3, ""), "{arguments:?}: {ended:?}");
            assert_eq!(ended.error.lines().count(), 1, "{ended:?}");
            assert!(ended.error.contains("no service has opened it"), "{ended:?}");
        }
    }
    // A database that nobody serves. Its password is nobody's business.
    let ended = run(&["--database", "postgres://fleet:secret@127.0.0.1:1/fleet", "nodes"]).await;
    assert_eq!(ended.code, 3, "{ended:?}");
    assert!(!ended.error.contains("secret"), "{ended:?}");
}

#[tokio::test]
async fn a_service_that_ends_under_a_move_is_not_reached() {
    let service = Service::start().await;
    let ended = service.run(&["move", "acme", "--to-socket", "/nowhere"]).await;
    assert_eq!(ended.code, 3, "{ended:?}");
}

#[tokio::test]
async fn help_needs_no_fleet_and_names_each_command() {
    let help = run(&["--help"]).await.done();
    for arguments in COMMANDS {
        assert!(help.contains(arguments[0]), "{}: {help}", arguments[0]);
        let of_command = run(&[arguments[0], "--help"]).await.done();
        assert!(of_command.contains("Usage: greenroom"), "{of_command}");
    }
    assert!(help.contains("3 the fleet cannot be reached"), "{help}");
    assert!(run(&["--version"]).await.done().starts_with("greenroom "));
}

#[tokio::test]
async fn wrong_arguments_end_with_2_before_a_fleet_is_asked() {
    let wrong: &[&[&str]] = &[
        &["nodes"],
        &["--socket", "/nowhere", "no-command"],
        &["--socket", "/nowhere", "--database", "postgres://h/d", "nodes"],
        &["--socket", "/nowhere", "--schema", "s", "nodes"],
        &["--socket", "/nowhere", "unquarantine", "no-tenant"],
        &["--socket", "/nowhere", "unquarantine"],
        &["--socket", "/nowhere", "unquarantine", "acme/a", "--all"],
        &["--socket", "/nowhere", "unquarantine", "--all", "--kind", "none"],
        &["--socket", "/nowhere", "drain", "no-id"],
        &["--socket", "/nowhere", "vacuum", "7"],
        &["--socket", "/nowhere", "answer", "6f1c0000-0000-4000-8000-000000000000"],
        &["--socket", "/nowhere", "answer", "6f1c0000-0000-4000-8000-000000000000", "--allow", "--dismiss"],
        &["--socket", "/nowhere", "move", "acme"],
        &["--socket", "/nowhere", "move", "acme", "--to-socket", "/n", "--to-database", "postgres://h/d"],
        &["--socket", "/nowhere", "move", "acme", "--to-socket", "/n", "--to-schema", "s"],
        &["--socket", "/nowhere", "usage", "--name", "acme/a", "--by-hour"],
        &["--socket", "/nowhere", "usage", "--days", "0"],
        &["--socket", "/nowhere", "usage", "--since", "yesterday"],
        &["--socket", "/nowhere", "feed", "--after", "no cursor"],
        &["--socket", "/nowhere", "feed", "--off", "--follow"],
        &["--database", "no address", "nodes"],
    ];
    for arguments in wrong {
        let ended = run(arguments).await;
        assert_eq!((ended.code, ended.out.as_str()), (2, ""), "{arguments:?}: {ended:?}");
    }
    // A socket in the arguments goes before a database of the environment.
    let mut both = command(&["--socket", "/nowhere", "nodes"]);
    both.env("GREENROOM_DATABASE", "postgres://127.0.0.1:1/fleet");
    assert!(ended(both).await.error.contains("/nowhere"));
}

#[tokio::test]
async fn the_other_database_of_a_move_may_be_in_the_environment() {
    let service = Service::start().await;
    let socket = service.socket.to_str().unwrap();
    for (flags, reached) in [(&[][..], "127.0.0.1:1"), (&["--to-socket", "/nowhere"][..], "/nowhere")] {
        let mut moves = command(&[&["--socket", socket, "move", "acme"], flags].concat());
        moves.env("GREENROOM_TO_DATABASE", "postgres://fleet:secret@127.0.0.1:1/fleet");
        let moves = ended(moves).await;
        assert!(moves.code == 3 && moves.error.contains(reached), "{moves:?}");
        assert!(!moves.error.contains("secret"), "{moves:?}");
    }
    let help = run(&["move", "--help"]).await.done();
    assert!(help.contains("GREENROOM_TO_DATABASE"), "{help}");
}

#[tokio::test]
async fn another_user_is_refused_also_if_the_modes_let_them() {
    let Some(users) = own_users(0) else { return };
    let service = Service::start().await;
    let folder = service.socket.parent().unwrap();
    for (path, mode) in [(folder, 0o755), (&service.socket, 0o666)] {
        std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }
    // Other users cannot enter the folders of a build.
    let program = folder.join("greenroom");
    std::fs::copy(env!("CARGO_BIN_EXE_greenroom"), &program).unwrap();
    for (user, code) in [(0, 0), (users.start, 3)] {
        #[allow(clippy::disallowed_methods, reason = "it ends with the test")]
        let mut other = Command::new("setpriv");
        let user = user.to_string();
        other.args(["--reuid", &user, "--clear-groups"]).arg(&program).arg("--socket").arg(&service.socket);
        other.arg("nodes").kill_on_drop(true);
        let seen = ended(other).await;
        assert_eq!(seen.code, code, "{user}: {seen:?}");
    }
}

/// Listens as a user in place of root.
fn listening(user: u32, path: &Path) -> UnixListener {
    let path = path.to_owned();
    // A user of a thread is the user of its sockets. The thread ends with it.
    let bind = move || {
        set_thread_res_uid(None::<Uid>, Uid::from_raw(user), None::<Uid>).unwrap();
        UnixListener::bind(path).unwrap()
    };
    std::thread::spawn(bind).join().unwrap()
}

#[tokio::test]
async fn nothing_is_sent_to_a_socket_of_a_user_who_is_not_trusted() {
    let Some(users) = own_users(1) else { return };
    let (server, other) = (users.start, users.start + 1);
    let top = tempfile::tempdir().unwrap();
    std::fs::set_permissions(top.path(), Permissions::from_mode(0o755)).unwrap();
    let program = top.path().join("greenroom");
    std::fs::copy(env!("CARGO_BIN_EXE_greenroom"), &program).unwrap();
    for (number, (client, is_trusted)) in [(0, false), (server, true), (other, false)].into_iter().enumerate()
    {
        let folder = top.path().join(number.to_string());
        std::fs::create_dir(&folder).unwrap();
        std::fs::set_permissions(&folder, Permissions::from_mode(0o777)).unwrap();
        let path = folder.join("fleet.sock");
        let listener = listening(server, &path);
        std::os::unix::fs::chown(&folder, Some(server), None).unwrap();
        std::fs::set_permissions(&folder, Permissions::from_mode(0o755)).unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o777)).unwrap();
        let heard = std::thread::spawn(move || listener.accept().unwrap().0.read(&mut [0; 8]).unwrap());
        #[allow(clippy::disallowed_methods, reason = "it ends with the test")]
        let mut command = Command::new("setpriv");
        command.args(["--reuid", &client.to_string(), "--clear-groups"]).arg(&program);
        command.arg("--socket").arg(&path).arg("nodes").kill_on_drop(true);
        let ended = ended(command).await;
        assert_eq!(ended.code, 3, "{number}: {ended:?}");
        let text = format!("is served by the user {server}, whom the user {client} does not trust");
        assert_eq!(ended.error.contains(&text), !is_trusted, "{number}: {ended:?}");
        assert_eq!(heard.join().unwrap(), if is_trusted { 8 } else { 0 }, "{number}");
    }
}
