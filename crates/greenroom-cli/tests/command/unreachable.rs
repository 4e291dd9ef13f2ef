//! The command without a fleet.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

use tokio::process::Command;

use crate::root::own_users;
use crate::stage::{Service, command, ended, run};

/// Each command, with arguments that are fine.
const COMMANDS: &[&[&str]] = &[
    &["nodes"],
    &["names"],
    &["stuck"],
    &["questions"],
    &["answer", "6f1c0000-0000-4000-8000-000000000000", "--allow"],
    &["quarantine", "acme/a", "why"],
    &["unquarantine", "acme/a"],
    &["drain", "6f1c0000-0000-4000-8000-000000000000"],
    &["drop", "6f1c0000-0000-4000-8000-000000000000", "why"],
    &["move", "acme", "--to-socket", "/nowhere"],
    &["move-to-host", "acme/a", "there"],
    &["forget-host", "there"],
    &["usage", "acme"],
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
