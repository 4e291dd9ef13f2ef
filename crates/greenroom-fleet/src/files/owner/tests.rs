//! Files that go from one user of the system to the next one.

#![allow(clippy::disallowed_methods, reason = "the processes stand for CLIs")]

use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

use super::super::tests::record;
use super::*;
use crate::record::NameRecord;
use crate::root::own_users;
use crate::wait::found_by_thread;

struct Stage {
    folder: TempDir,
    folders: Folders,
    record: NameRecord,
    /// The users of the pool.
    users: [OsUser; 3],
}

impl Stage {
    /// `None`: this process is not root.
    async fn new(nth: u32) -> Option<Self> {
        let first = own_users(nth)?.start;
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
        let folders = Folders::at(folder.path().join("sessions"), false).for_users();
        folders.open().await.unwrap();
        let users = [0, 1, 2].map(|nth| OsUser::new(first + nth, first + nth));
        Some(Self { folder, folders, record: record("a"), users })
    }

    fn owner(&self, nth: usize) -> NewOwner {
        let stamp = || -> Changed {
            let stamp = self.folder.path().join("stamp");
            fs::write(&stamp, "now").unwrap();
            let written = fs::metadata(&stamp).unwrap();
            (written.ctime(), written.ctime_nsec())
        };
        let before = stamp();
        let since = found_by_thread("the next tick", || Some(stamp()).filter(|now| *now > before));
        let pool = self.users.iter().map(|user| user.uid).collect();
        NewOwner { user: self.users[nth], pool, since }
    }

    /// An activation that a profile takes part in.
    async fn open_with(&self, nth: usize, profile: impl FnOnce(&NameFolders)) -> NameFolders {
        let owner = self.owner(nth);
        let own = self.folders.create(&self.record).await.unwrap();
        profile(&own);
        self.folders.open_to(&own, owner).await.unwrap();
        own
    }

    async fn open(&self, nth: usize) -> NameFolders {
        self.open_with(nth, |_| ()).await
    }

    fn close(&self, nth: usize) {
        self.folders.close_to(self.record.conversation, self.users[nth].uid).unwrap();
    }

    /// True if a command of a user succeeds.
    fn can(&self, nth: usize, script: &str, path: &Path) -> bool {
        let OsUser { uid, gid, .. } = self.users[nth];
        let mut command = Command::new("/bin/sh");
        let output = command.args(["-c", script]).arg(path).current_dir("/").uid(uid).gid(gid).output();
        output.unwrap().status.success()
    }

    /// A file of the service that nobody else may read.
    fn precious(&self) -> PathBuf {
        let path = self.folder.path().join("precious");
        fs::write(&path, "precious").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        path
    }
}

const READ: &str = "cat \"$0\"";
const WRITE: &str = "umask 022; echo hello > \"$0\"";

fn owner_of(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().uid()
}

// Guards: users-apart
#[tokio::test]
async fn the_files_of_a_session_go_to_its_next_user_and_no_other_user_reads_them() {
    let Some(stage) = Stage::new(0).await else { return };
    let own = stage.open(0).await;
    let notes = own.work.join("notes");
    for folder in [&own.work, &own.config, &own.home, &own.temporary] {
        assert!(stage.can(0, WRITE, &folder.join("notes")), "{}", folder.display());
        assert!(!stage.can(1, READ, &folder.join("notes")), "{}", folder.display());
    }
    let inner = own.work.join("a/b");
    assert!(stage.can(0, "mkdir -p \"$0\"; echo hello > \"$0/deep\"; chmod 500 \"$0\"", &inner));
    assert!(!stage.can(0, "mv \"$0\" \"$0.away\"", &own.work), "the session's folder is the service's");
    assert!(!stage.can(0, READ, &own.folder.join("name.json")));
    assert!(!stage.can(0, "ls \"$0\"", stage.folders.root()), "the ids of other sessions are not listed");

    stage.close(0);
    for nth in [0, 1] {
        assert!(!stage.can(nth, READ, &notes), "it sleeps: {nth}");
    }
    stage.open(1).await;
    assert!(
        stage.can(1, READ, &notes) && stage.can(1, WRITE, &notes) && stage.can(1, READ, &inner.join("deep"))
    );
    assert!(!stage.can(0, READ, &notes));
    assert_eq!(fs::metadata(&inner).unwrap().permissions().mode() & 0o777, 0o500);
    // The late end of the owner before.
    stage.close(0);
    assert!(stage.can(1, READ, &notes), "it was closed to another user");
}

// Guards: users-apart
#[tokio::test]
async fn links_to_files_of_others_give_nothing_away() {
    let Some(stage) = Stage::new(1).await else { return };
    let precious = stage.precious();
    let own = stage.open(0).await;
    // As where `fs.protected_hardlinks` is off.
    fs::hard_link(&precious, own.work.join("name")).unwrap();
    symlink(&precious, own.work.join("link")).unwrap();
    symlink(stage.folder.path(), own.work.join("folder")).unwrap();
    rustix::fs::chownat(
        rustix::fs::CWD,
        own.work.join("link"),
        Some(Uid::from_raw(stage.users[0].uid)),
        None,
        AtFlags::SYMLINK_NOFOLLOW,
    )
    .unwrap();
    let other = own.work.join("of_another_user");
    fs::write(&other, "x").unwrap();
    chown(&other, Some(stage.users[2].uid), None).unwrap();
    fs::hard_link(&other, stage.folder.path().join("other")).unwrap();
    stage.close(0);
    stage.open(1).await;
    assert_eq!(owner_of(&precious), 0);
    assert_eq!(owner_of(stage.folder.path()), 0);
    assert_eq!(owner_of(&own.work.join("link")), stage.users[1].uid, "the link itself is given");
    assert_eq!(owner_of(&other), stage.users[2].uid, "it has a second name, perhaps in that user's folder");
    assert!(!stage.can(1, READ, &own.work.join("name")) && !stage.can(1, READ, &own.work.join("link")));
}

#[tokio::test]
async fn a_link_in_the_place_of_a_folder_is_not_followed() {
    let Some(stage) = Stage::new(2).await else { return };
    let own = stage.open(0).await;
    fs::remove_dir(&own.temporary).unwrap();
    symlink(stage.folder.path(), &own.temporary).unwrap();
    assert!(stage.folders.open_to(&own, stage.owner(1)).await.is_err());
    assert_eq!(owner_of(stage.folder.path()), 0);
}

#[tokio::test]
async fn files_of_the_service_are_given_if_it_makes_them_for_the_session() {
    let Some(stage) = Stage::new(3).await else { return };
    let write = |name: &'static str| move |own: &NameFolders| fs::write(own.work.join(name), "x").unwrap();
    let own = stage.open_with(0, write("first")).await;
    assert_eq!(owner_of(&own.work.join("first")), stage.users[0].uid);
    // Moved there by the CLI, from a folder that all may write to.
    fs::rename(stage.precious(), own.work.join("moved")).unwrap();
    stage.close(0);
    stage.open_with(1, write("second")).await;
    assert_eq!(owner_of(&own.work.join("second")), stage.users[1].uid);
    assert_eq!(owner_of(&own.work.join("moved")), 0);
    assert!(!stage.can(1, READ, &own.work.join("moved")));
}

#[tokio::test]
async fn a_giving_that_was_cut_off_is_finished_for_another_user() {
    let Some(stage) = Stage::new(4).await else { return };
    let own = stage.open(0).await;
    let (given, not_given) = (own.work.join("given"), own.work.join("not_given"));
    assert!(stage.can(0, WRITE, &given) && stage.can(0, WRITE, &not_given));
    chown(&given, Some(stage.users[1].uid), Some(stage.users[1].gid)).unwrap();
    stage.open(2).await;
    assert!(stage.can(2, READ, &given) && stage.can(2, WRITE, &given) && stage.can(2, WRITE, &not_given));
}

#[tokio::test]
async fn a_program_does_not_take_the_rights_of_its_last_user_along() {
    let Some(stage) = Stage::new(5).await else { return };
    let own = stage.open(0).await;
    let program = own.work.join("program");
    assert!(stage.can(0, "cp /bin/true \"$0\" && chmod 6755 \"$0\"", &program));
    stage.close(0);
    stage.open(1).await;
    assert_eq!(fs::metadata(&program).unwrap().permissions().mode() & 0o7777, 0o755);
}

#[tokio::test]
async fn folders_that_are_nested_too_deep_are_refused() {
    let Some(stage) = Stage::new(6).await else { return };
    let own = stage.open(0).await;
    let deep = "cd \"$0\"; for i in $(seq 200); do mkdir d && cd d || exit 1; done";
    assert!(stage.can(0, deep, &own.work));
    let error = stage.folders.open_to(&own, stage.owner(1)).await.unwrap_err();
    assert!(error.to_string().contains("deeper than 128 levels"), "{error}");
}
