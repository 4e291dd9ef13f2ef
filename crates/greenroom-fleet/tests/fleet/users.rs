//! Sessions whose CLIs run as users of the system, as real processes: a shell script in the place of the CLI runs each prompt as a
//! command, and answers with its output.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use greenroom::Session;
use greenroom_fleet::backend::MemoryBackend;
use greenroom_fleet::{Fleet, FleetBuilder, FleetError, FleetEvent, UserPool};
use tempfile::TempDir;

use crate::root::own_users;
use crate::scenes::*;

const CLI: &str = r#"#!/bin/sh
while IFS= read -r line; do
  field() { printf '%s' "$line" | sed -n "s/.*\"$1\":\"\([^\"]*\)\".*/\1/p"; }
  case $line in
    *'"control_request"'*)
      printf '{"type":"control_response","response":{"subtype":"success","request_id":"%s","response":{"commands":[],"claude_code_version":"999.0.0-users","pid":%s,"capabilities":[]}}}\n' "$(field request_id)" "$$" ;;
    *'"type":"user"'*)
      said=$(sh -c "$(printf '%s' "$line" | grep -o 'run [^"]*' | cut -c 5-)" 2>&1 | tr '\n"' ' ')
      printf '{"type":"result","subtype":"success","is_error":false,"result":"%s","num_turns":1,"duration_ms":0,"duration_api_ms":0,"total_cost_usd":0,"terminal_reason":"completed","usage":{"input_tokens":1,"output_tokens":1},"user_message_uuids":["%s"]}\n' "$said" "$(field uuid)" ;;
  esac
done
"#;

struct Stage {
    folder: TempDir,
    users: UserPool,
}

impl Stage {
    /// `None`: this process is not root.
    fn new(nth: u32) -> Option<Self> {
        let first = own_users(nth)?.start;
        let folder = tempfile::tempdir().unwrap();
        let open = fs::Permissions::from_mode(0o755);
        fs::set_permissions(folder.path(), open.clone()).unwrap();
        // A child writes it: the system does not run a file that is open for writing, and a child of another test may inherit it.
        let write = "printf %s \"$1\" > \"$0\" && chmod 755 \"$0\"";
        let status =
            Command::new("/bin/sh").args(["-c", write]).arg(folder.path().join("claude")).arg(CLI).status();
        assert!(status.unwrap().success());
        Some(Self { folder, users: UserPool::ids(first..first + 2) })
    }

    fn builder(&self) -> FleetBuilder {
        let cli = self.folder.path().join("claude");
        Fleet::builder()
            .backend(MemoryBackend::new())
            .folder(self.folder.path().join("sessions"))
            .configure(|limits| limits.live = 2)
            .users(self.users.clone())
            .profile("default", move |cx| {
                fs::write(cx.working_directory.join("greeting"), "good morning").unwrap();
                Session::builder().cli_path(&cli)
            })
    }
}

/// Has a session's CLI run a command, and returns its output.
async fn run(fleet: &Fleet, name: &str, command: &str) -> String {
    asks(fleet, name, format!("run {command}")).await.trim().to_owned()
}

fn one_of(words: &str) -> [PathBuf; 3] {
    words.split(' ').map(PathBuf::from).collect::<Vec<_>>().try_into().unwrap()
}

// Guards: users-apart
#[tokio::test]
async fn sessions_run_as_users_of_their_own_and_cannot_read_each_others_files() {
    let Some(stage) = Stage::new(0) else { return };
    let fleet = start(stage.builder()).await;
    let first = run(&fleet, "a", "echo secret > notes; chmod 644 notes; id -u").await;
    let second = run(&fleet, "b", "id -u").await;
    assert_ne!(first, second);
    let own = fs::metadata(stage.folder.path()).unwrap().uid();
    assert!([&first, &second].iter().all(|uid| **uid != own.to_string()), "{first}, {second}");
    let [work, home, temporary] = one_of(&run(&fleet, "a", "pwd; echo $HOME; echo $TMPDIR").await);
    assert!([&home, &temporary].iter().all(|path| path.parent() == work.parent()), "{home:?}");
    assert_eq!(run(&fleet, "a", "echo x > $HOME/x && echo x > $TMPDIR/x && echo done").await, "done");
    assert_eq!(
        run(&fleet, "a", "echo !  >> greeting; cat greeting").await,
        "good morning!",
        "the profile's file"
    );
    let read = format!("cat {}", work.join("notes").display());
    let refused = |said: String| assert!(said.contains("Permission denied"), "{said}");
    refused(run(&fleet, "b", &read).await);

    // Another session gets the user of a session that sleeps.
    in_time("sleep", named(&fleet, "a").passivate()).await.unwrap();
    assert_eq!(run(&fleet, "c", "id -u").await, first);
    refused(run(&fleet, "c", &read).await);

    // The files of a session are those of its next user.
    in_time("sleep", named(&fleet, "b").passivate()).await.unwrap();
    assert_eq!(run(&fleet, "a", "id -u").await, second);
    assert_eq!(run(&fleet, "a", "echo more >> notes; cat notes").await, "secret more");
    refused(run(&fleet, "c", &read).await);
    drain(&fleet, secs(20)).await;
}

// Guards: users-apart
#[tokio::test]
async fn a_process_that_a_session_has_left_ends_before_another_session_gets_its_user() {
    let Some(stage) = Stage::new(1) else { return };
    let fleet = start(stage.builder()).await;
    // Without the environment and the process group by which it would be found.
    let left = "env -i setsid sleep 600 > /dev/null 2>&1 < /dev/null & echo $!";
    let pid = run(&fleet, "a", left).await;
    let status = Path::new("/proc").join(&pid).join("status");
    assert!(status.exists(), "{pid}");
    in_time("sleep", named(&fleet, "a").passivate()).await.unwrap();
    let ended = fs::read_to_string(status).map_or(true, |status| status.contains("State:\tZ"));
    assert!(ended, "it goes on");
    drain(&fleet, secs(20)).await;
}

#[tokio::test]
async fn a_profile_that_sets_a_user_fails_its_activation() {
    let Some(stage) = Stage::new(2) else { return };
    let own = |_: &_| {
        Session::builder().configure(|options| options.user = Some(greenroom::options::OsUser::new(1, 1)))
    };
    let fleet = start(stage.builder().profile("default", own)).await;
    let log = Log::of(&fleet);
    let _turn = send(&fleet, "a", "hello").await;
    let failed = |event: &FleetEvent| match event {
        FleetEvent::ActivationFailed { why, .. } => why.contains("sets the option `user`"),
        _ => false,
    };
    log.wait("the failure", failed).await;
    drain(&fleet, secs(20)).await;
}

#[tokio::test]
async fn a_pool_with_fewer_users_than_live_sessions_fails_the_opening() {
    let Some(stage) = Stage::new(3) else { return };
    let builder = stage.builder().configure(|limits| limits.live = 3);
    let error = in_time("the start", builder.start()).await.err().unwrap();
    assert!(matches!(error, FleetError::Invalid(_)), "{error}");
    assert!(error.to_string().contains("the pool has 2 users"), "{error}");
}
