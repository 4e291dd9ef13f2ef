//! No two live sessions of two processes of one user have one conversation.

#![cfg(unix)]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use crate::common::within;
use crate::host::{Host, test_alone};
use greenroom::options::EnvPolicy;
use greenroom::{ErrorKind, Session, SessionBuilder};

const ID: &str = "3f0c5d3e-8a57-4b0c-9a41-5b8f1d0c7e01";

/// Far more than a start takes.
const LIMIT: Duration = Duration::from_secs(60);

/// Where the other process has its configuration and its locks.
const FOLDER: &str = "GREENROOM_TEST_FOLDER";

const READY: &str = "the conversation is claimed";

fn builder(folder: &Path) -> SessionBuilder {
    Session::builder()
        .configure(|options| options.resume = Some(ID.to_owned()))
        .cli_path(env!("CARGO_BIN_EXE_greenroom-fake-cli"))
        .env("HOME", folder.to_str().unwrap())
        .configure(|options| {
            options.env_policy = EnvPolicy::Clean;
            options.lock_dir = Some(folder.join("locks"));
        })
}

/// Not a test by itself, but the other process.
#[tokio::test]
async fn holder() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        let _session = builder(Path::new(&folder)).start().await.unwrap();
        println!("{READY}");
        std::future::pending().await
    }
}

fn other_process(folder: &Path) -> Host {
    let mut child = Host::start(test_alone("in_use::holder").env(FOLDER, folder).stdout(Stdio::piped()));
    let mut lines = BufReader::new(child.0.stdout.take().unwrap()).lines();
    // The harness may write on the same line first.
    assert!(lines.any(|line| line.unwrap().ends_with(READY)), "the other process has ended");
    child
}

#[tokio::test]
async fn a_conversation_of_another_process_is_refused_until_that_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let mut other = other_process(folder.path());
    let error = within(LIMIT, builder(folder.path()).start()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::SessionInUse, "{error}");
    let holder = format!("process {}", other.0.id());
    assert!(error.to_string().contains(ID) && error.to_string().contains(&holder), "{error}");
    other.0.kill().unwrap();
    other.0.wait().unwrap();
    let session = within(LIMIT, builder(folder.path()).start()).await.unwrap();
    within(LIMIT, session.stop()).await.unwrap();
    assert_eq!(std::fs::read_dir(folder.path().join("locks")).unwrap().count(), 0);
}
