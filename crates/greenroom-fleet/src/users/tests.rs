//! Users that are lent, cleaned and set aside. Only root can run processes as other users.

#![allow(clippy::disallowed_methods, reason = "the processes stand for those of CLIs")]

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use super::*;
use crate::files::tests::record;
use crate::record::NameRecord;
use crate::root::own_users;

struct Stage {
    _folder: TempDir,
    folders: Folders,
    pool: UserPool,
    first: u32,
}

impl Stage {
    /// A pool of two users. `None`: this process is not root.
    async fn new(nth: u32) -> Option<Self> {
        let first = own_users(nth)?.start;
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let folders = Folders::at(folder.path().join("sessions"), false).for_users();
        folders.open().await.unwrap();
        Some(Self { _folder: folder, folders, pool: UserPool::ids(first..first + 2), first })
    }

    /// The users of a service.
    async fn users(&self) -> Users {
        let users = Users::new(&self.pool, 2, self.folders.clone()).unwrap();
        users.open().await.unwrap();
        users
    }

    /// The folder of a session that is live.
    async fn open(&self, record: &NameRecord, held: &HeldUser) -> PathBuf {
        let own = self.folders.create(record).await.unwrap();
        self.folders.open_to(&own, held.owner()).await.unwrap();
        own.folder
    }
}

async fn take(users: &Users, session: Uuid) -> Result<HeldUser, String> {
    users.take(session, |aside| panic!("{} is set aside: {}", aside.uid, aside.why)).await
}

/// A process of a user, without an environment by which it could be found.
fn process(uid: u32) -> Child {
    let mut command = Command::new("/bin/cat");
    command.env_clear().stdin(Stdio::piped()).uid(uid).gid(uid).spawn().unwrap()
}

fn is_killed(child: &mut Child) -> bool {
    child.try_wait().unwrap().is_some_and(|status| status.signal() == Some(9))
}

/// A file of a user in the system's folder for temporary files.
fn temporary_file(uid: u32) -> PathBuf {
    let path = Path::new("/tmp").join(format!("greenroom-test-{uid}"));
    fs::create_dir_all(path.join("inner")).unwrap();
    fs::write(path.join("inner/secret"), "secret").unwrap();
    chown(&path, Some(uid), Some(uid)).unwrap();
    path
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

// Guards: users-apart
#[tokio::test]
async fn no_two_sessions_have_a_user_and_a_session_gets_its_last_one_again() {
    let Some(stage) = Stage::new(10).await else { return };
    let users = stage.users().await;
    let (a, b) = (record("a"), record("b"));
    let of_a = take(&users, a.conversation).await.unwrap();
    let of_b = take(&users, b.conversation).await.unwrap();
    assert_ne!(of_a.user(), of_b.user());
    stage.open(&b, &of_b).await;
    assert!(take(&users, Uuid::new_v4()).await.err().unwrap().contains("no user of the pool is free"));
    let last = of_b.user();
    for held in [of_a, of_b] {
        assert!(users.release(held).await.is_none());
    }
    assert_eq!(take(&users, b.conversation).await.unwrap().user(), last);
}

// Guards: users-apart
#[tokio::test]
async fn what_a_user_has_left_is_removed_before_the_next_session_gets_it() {
    let Some(stage) = Stage::new(11).await else { return };
    let users = stage.users().await;
    let a = record("a");
    let held = take(&users, a.conversation).await.unwrap();
    let (folder, uid) = (stage.open(&a, &held).await, held.user().uid);
    let (mut left, file) = (process(uid), temporary_file(uid));
    assert!(users.release(held).await.is_none());
    assert!(is_killed(&mut left), "a process goes on");
    assert!(!file.exists(), "a file is left");
    let found = fs::metadata(&folder).unwrap();
    assert_eq!((mode(&folder), found.uid(), found.gid()), (0o700, 0, 0), "the session's folder is open");
}

// Guards: users-apart
#[tokio::test]
async fn after_a_crash_a_user_is_cleaned_when_the_next_service_opens() {
    let Some(stage) = Stage::new(12).await else { return };
    let users = stage.users().await;
    let a = record("a");
    let held = take(&users, a.conversation).await.unwrap();
    let (folder, uid) = (stage.open(&a, &held).await, held.user().uid);
    assert_eq!(mode(&folder), 0o710);
    let mut left = process(uid);
    drop((held, users));
    stage.users().await;
    assert!(is_killed(&mut left), "a process of the session before goes on");
    assert_eq!(mode(&folder), 0o700, "the folder of the session before is open");
}

// Guards: users-apart
#[tokio::test]
async fn after_the_crash_of_another_service_on_the_folder_a_user_is_cleaned_before_it_is_lent_again() {
    let Some(stage) = Stage::new(17).await else { return };
    let (old, new) = (stage.users().await, stage.users().await);
    let a = record("a");
    let held = take(&old, a.conversation).await.unwrap();
    let (folder, uid) = (stage.open(&a, &held).await, held.user().uid);
    let mut left = process(uid);
    drop((held, old));
    let both = [take(&new, Uuid::new_v4()).await.unwrap(), take(&new, Uuid::new_v4()).await.unwrap()];
    assert!(both.iter().any(|held| held.user().uid == uid));
    assert!(is_killed(&mut left), "a process of the session before goes on");
    assert_eq!(mode(&folder), 0o700, "the folder of the session before is open");
}

// Guards: users-apart
#[tokio::test]
async fn a_user_that_another_service_on_the_folder_holds_is_not_lent() {
    let Some(stage) = Stage::new(13).await else { return };
    let (old, new) = (stage.users().await, stage.users().await);
    let a = record("a");
    let held = take(&old, a.conversation).await.unwrap();
    stage.open(&a, &held).await;
    let mut runs = process(held.user().uid);
    let other = take(&new, Uuid::new_v4()).await.unwrap();
    assert_ne!(other.user(), held.user());
    assert!(take(&new, Uuid::new_v4()).await.is_err());
    assert!(runs.try_wait().unwrap().is_none(), "the other service's process was killed");

    // The session's processes there may still use its files.
    assert!(new.release(other).await.is_none());
    let why = take(&new, a.conversation).await.err().unwrap();
    assert!(why.contains("may still use its files"), "{why}");
    assert!(old.release(held).await.is_none());
    assert!(is_killed(&mut runs));
    assert!(take(&new, a.conversation).await.is_ok());
}

#[tokio::test]
async fn a_user_whose_processes_the_fleet_has_not_started_is_set_aside_and_they_live() {
    let Some(stage) = Stage::new(14).await else { return };
    let users = stage.users().await;
    let mut stranger = process(stage.first);
    let mut aside = Vec::new();
    let held = users.take(Uuid::new_v4(), |user| aside.push(user)).await.unwrap();
    assert_eq!(held.user().uid, stage.first + 1);
    assert_eq!(aside.iter().map(|user| user.uid).collect::<Vec<_>>(), [stage.first]);
    assert!(aside[0].why.contains("no session has started"), "{}", aside[0].why);
    // Told once.
    assert!(take(&users, Uuid::new_v4()).await.is_err());
    assert!(stranger.try_wait().unwrap().is_none());
    stranger.kill().unwrap();
    stranger.wait().unwrap();
    assert_eq!(take(&users, Uuid::new_v4()).await.unwrap().user().uid, stage.first, "tried again");
}

#[tokio::test]
async fn a_user_that_cannot_be_cleaned_is_set_aside() {
    let Some(stage) = Stage::new(15).await else { return };
    let users = stage.users().await;
    let held = take(&users, Uuid::new_v4()).await.unwrap();
    let (uid, slip) = (held.user().uid, stage.folders.root().join("users").join(held.user().uid.to_string()));
    fs::write(&slip, "spoilt").unwrap();
    let aside = users.release(held).await.unwrap();
    assert_eq!(aside.uid, uid);
    assert!(aside.why.contains("remove the file"), "{}", aside.why);
    assert_ne!(take(&users, Uuid::new_v4()).await.unwrap().user().uid, uid);
    assert!(take(&users, Uuid::new_v4()).await.is_err());
    fs::remove_file(slip).unwrap();
    assert_eq!(take(&users, Uuid::new_v4()).await.unwrap().user().uid, uid);
}

#[tokio::test]
async fn a_folder_that_users_cannot_reach_fails_the_opening() {
    let Some(stage) = Stage::new(16).await else { return };
    let above = stage.folders.root().parent().unwrap();
    fs::set_permissions(above, fs::Permissions::from_mode(0o750)).unwrap();
    let users = Users::new(&stage.pool, 2, stage.folders.clone()).unwrap();
    let error = users.open().await.unwrap_err().to_string();
    let expected =
        format!("user {} of the pool cannot pass the folder {} (mode 0750)", stage.first, above.display());
    assert!(error.contains(&expected), "{error}");
}

#[test]
fn a_process_without_the_rights_of_root_is_told_which_it_lacks() {
    use rustix::thread::CapabilitySet as Set;

    let lacking = rights::lacking_in(Set::all() - Set::SETUID - Set::CHOWN).unwrap();
    assert_eq!(lacking, "CAP_SETUID and CAP_CHOWN (to give a session's files to its user),");
    assert_eq!(rights::lacking_in(Set::all()), None);
    for name in ["SETUID", "SETGID", "CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL"] {
        assert!(rights::lacking_in(Set::empty()).unwrap().contains(name), "{name}");
    }
}

#[test]
fn a_pool_that_cannot_serve_is_refused() {
    let user = |id| OsUser::new(id, id);
    let refused = |users: &[OsUser], live, part: &str| {
        let error = pool::check(users, live).unwrap_err();
        assert!(matches!(error, FleetError::Invalid(_)) && error.to_string().contains(part), "{error}");
    };
    refused(&[user(60_000), user(0)], 1, "is root");
    refused(&[user(60_000), user(60_000)], 1, "twice");
    refused(&[user(60_000)], 2, "the pool has 1 users, and each of the `live` sessions, 2 at most");
    refused(&[], 1, "has 0 users");
    assert!(pool::check(&[user(60_000), user(60_001)], 2).is_ok());

    let known = "root:x:0:0:root:/root:/bin/sh\nagent-1:x:901:902::/nonexistent:/usr/sbin/nologin\n";
    assert_eq!(pool::user_in(known, "agent-1").unwrap(), OsUser::new(901, 902));
    let error = pool::user_in(known, "agent").unwrap_err().to_string();
    assert!(error.contains("no user 'agent'"), "{error}");
}
