use std::fs::File;
use std::os::unix::fs::{PermissionsExt, chown, symlink};

use super::file::Refused;
use super::*;

const ID: &str = "9f0bd1c4-3a5e-4c0e-8f6f-0d4a8f6a7b11";

fn place(folder: &Path) -> ConversationPlace {
    ConversationPlace::Disk { config_dir: folder.join("config"), locks: vec![folder.join("locks")] }
}

#[tokio::test]
async fn a_conversation_is_claimed_once_until_it_is_freed() {
    let folder = tempfile::tempdir().unwrap();
    let claim = Claim::take(&place(folder.path()), ID).await.unwrap();
    let error = Claim::take(&place(folder.path()), &ID.to_uppercase()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::SessionInUse);
    assert!(error.to_string().contains(ID), "{error}");
    let elsewhere = ConversationPlace::Disk {
        config_dir: folder.path().join("other"),
        locks: vec![folder.path().join("locks")],
    };
    drop(Claim::take(&elsewhere, ID).await.unwrap());
    drop(Claim::take(&ConversationPlace::Transport(u64::MAX), ID).await.unwrap());
    drop(claim);
    drop(Claim::take(&place(folder.path()), ID).await.unwrap());
    assert_eq!(fs::read_dir(folder.path().join("locks")).unwrap().count(), 0, "no file is left");
}

#[tokio::test]
async fn a_lock_of_another_process_refuses_and_names_it() {
    let folder = tempfile::tempdir().unwrap();
    let locks = folder.path().join("locks");
    // A second file description counts like another process.
    let held = LockFile::take(&locks, "a.lock").unwrap_or_else(|_| panic!("it is free"));
    let Err(Refused::Held(by)) = LockFile::take(&locks, "a.lock") else { panic!("it was not refused") };
    assert_eq!(by, format!("a session of process {}", std::process::id()));
    drop(held);
    assert!(LockFile::take(&locks, "a.lock").is_ok());
}

#[tokio::test]
async fn a_claim_whose_file_was_deleted_does_not_delete_the_next_one() {
    let folder = tempfile::tempdir().unwrap();
    let locks = folder.path().join("locks");
    let take = || LockFile::take(&locks, "a.lock");
    let first = take().unwrap_or_else(|_| panic!("it is free"));
    // As a cleaner of temporary files does.
    fs::remove_file(locks.join("a.lock")).unwrap();
    let _second = take().unwrap_or_else(|_| panic!("there was no file"));
    drop(first);
    assert!(matches!(take(), Err(Refused::Held(_))), "the second one has it still");
}

#[tokio::test]
async fn a_copied_descriptor_does_not_keep_the_lock() {
    let folder = tempfile::tempdir().unwrap();
    let locks = folder.path().join("locks");
    let held = LockFile::take(&locks, "a.lock").unwrap_or_else(|_| panic!("it is free"));
    // As in a child between fork and exec, and in a process that opened the file before it was deleted.
    let (_copy, opened) = (held.file.try_clone().unwrap(), File::open(locks.join("a.lock")).unwrap());
    drop(held);
    opened.try_lock().unwrap();
}

#[tokio::test]
async fn a_configuration_folder_is_the_same_before_and_after_it_is_made() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("real")).unwrap();
    symlink(folder.path().join("real"), folder.path().join("link")).unwrap();
    let place = ConversationPlace::Disk {
        config_dir: folder.path().join("link/config"),
        locks: vec![folder.path().join("locks")],
    };
    let claim = Claim::take(&place, ID).await.unwrap();
    // As the CLI does at its first start.
    fs::create_dir(folder.path().join("real/config")).unwrap();
    let error = Claim::take(&place, ID).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::SessionInUse);
    drop(claim);
}

#[tokio::test]
async fn a_lock_folder_that_others_can_write_to_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let locks = folder.path().join("locks");
    fs::create_dir(&locks).unwrap();
    fs::set_permissions(&locks, fs::Permissions::from_mode(0o770)).unwrap();
    let error = Claim::take(&place(folder.path()), ID).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(error.to_string().contains("has the mode 770"), "{error}");
    fs::remove_dir(&locks).unwrap();
    fs::create_dir(folder.path().join("elsewhere")).unwrap();
    symlink(folder.path().join("elsewhere"), &locks).unwrap();
    let error = Claim::take(&place(folder.path()), ID).await.unwrap_err();
    assert!(error.to_string().contains("is not a directory"), "{error}");
    // A refused claim leaves no entry.
    fs::remove_file(&locks).unwrap();
    drop(Claim::take(&place(folder.path()), ID).await.unwrap());
}

#[tokio::test]
async fn a_lock_file_that_is_a_link_is_refused_and_not_followed() {
    let folder = tempfile::tempdir().unwrap();
    let claim = Claim::take(&place(folder.path()), ID).await.unwrap();
    let lock = fs::read_dir(folder.path().join("locks")).unwrap().next().unwrap().unwrap().path();
    drop(claim);
    let other = folder.path().join("other");
    fs::write(&other, "precious").unwrap();
    symlink(&other, &lock).unwrap();
    let error = Claim::take(&place(folder.path()), ID).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert_eq!(fs::read_to_string(&other).unwrap(), "precious");
}

#[tokio::test]
async fn an_id_that_is_no_uuid_never_becomes_a_file_name() {
    let folder = tempfile::tempdir().unwrap();
    let error = Claim::take(&place(folder.path()), "../../etc/passwd").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Malformed);
}

/// The names of the files in a folder.
fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// A conversation with two lock folders.
fn two_folders(folder: &Path, first: &Path, second: &Path) -> ConversationPlace {
    let locks = vec![first.to_owned(), second.to_owned()];
    ConversationPlace::Disk { config_dir: folder.join("config"), locks }
}

#[tokio::test]
async fn a_folder_that_refuses_lock_files_for_good_stops_no_session() {
    let folder = tempfile::tempdir().unwrap();
    let [file, own] = ["file", "own"].map(|name| folder.path().join(name));
    fs::write(&file, "").unwrap();
    let place = two_folders(folder.path(), &file.join("locks"), &own);
    Claim::check(&place).await.unwrap();
    let _claim = Claim::take(&place, ID).await.unwrap();
    assert_eq!(names(&own).len(), 1);
}

#[tokio::test]
async fn a_lock_folder_with_a_wrong_mode_lets_no_second_session_in() {
    let folder = tempfile::tempdir().unwrap();
    let [first, second] = ["first", "second"].map(|name| folder.path().join(name));
    let place = two_folders(folder.path(), &first, &second);
    drop(Claim::take(&place, ID).await.unwrap());
    // Another session may have its lock there since before.
    for mode in [0o755, 0o500] {
        fs::set_permissions(&first, fs::Permissions::from_mode(mode)).unwrap();
        for error in [Claim::check(&place).await.unwrap_err(), Claim::take(&place, ID).await.unwrap_err()] {
            assert_eq!(error.kind(), ErrorKind::Io);
            assert!(
                error.to_string().contains(&format!("has the mode {mode:o}, and must have 700")),
                "{error}"
            );
        }
    }
    assert!(!second.exists(), "it locked elsewhere");
    fs::set_permissions(&first, fs::Permissions::from_mode(0o700)).unwrap();
    drop(Claim::take(&place, ID).await.unwrap());
}

#[tokio::test]
async fn a_lock_folder_of_another_user_lets_no_second_session_in() {
    let folder = tempfile::tempdir().unwrap();
    let [mut foreign, second] = ["foreign", "second"].map(|name| folder.path().join(name));
    fs::create_dir(&foreign).unwrap();
    if chown(&foreign, Some(1), None).is_err() {
        // Only root may give a folder away. This one belongs to root.
        foreign = "/".into();
    }
    let error = Claim::take(&two_folders(folder.path(), &foreign, &second), ID).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(error.to_string().contains("belongs to user "), "{error}");
    assert!(!second.exists(), "it locked elsewhere");
}

#[tokio::test]
async fn one_configuration_folder_under_two_paths_has_one_lock() {
    let folder = tempfile::tempdir().unwrap();
    let [root, home] = ["root", "home"].map(|name| folder.path().join(name));
    let place = |home: &Path| ConversationPlace::Disk {
        config_dir: home.join(".claude"),
        locks: vec![home.join(".claude/locks")],
    };
    let claim = Claim::take(&place(&root), ID).await.unwrap();
    // As if two containers had the folder at different paths.
    fs::rename(&root, &home).unwrap();
    let error = Claim::take(&place(&home), ID).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::SessionInUse);
    drop(claim);
    drop(Claim::take(&place(&home), ID).await.unwrap());
}

#[test]
fn a_claim_does_not_wait_for_ever_for_a_sweep_that_was_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let locks = folder.path().join("locks");
    let _held = LockFile::take(&locks, "a.lock").unwrap_or_else(|_| panic!("it is free"));
    let sweeping = File::open(&locks).unwrap();
    sweeping.lock().unwrap();
    assert!(matches!(LockFile::take(&locks, "a.lock"), Err(Refused::Held(_))));
}

#[tokio::test]
async fn each_folder_that_cannot_have_locks_is_named_before_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let [file, open] = ["file", "open"].map(|name| folder.path().join(name));
    fs::write(&file, "").unwrap();
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o755)).unwrap();
    let place = ConversationPlace::Disk {
        config_dir: folder.path().join("config"),
        locks: vec![file.join("locks"), open.clone()],
    };
    let error = Claim::check(&place).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    let text = error.to_string();
    for part in [
        &format!("the folder {}/locks cannot be used: ", file.display()),
        &format!("the folder {} has the mode 755, and must have 700", open.display()),
        "name a folder in `lock_dir`",
    ] {
        assert!(text.contains(part), "{part} is not in: {text}");
    }
}

#[test]
fn locks_are_in_the_folder_of_the_conversation_whatever_the_environment() {
    let user = rustix::process::geteuid().as_raw();
    let folders = lock_folders(Some("/srv/config".as_ref()));
    assert_eq!(folders[0], Path::new(&format!("/srv/config/greenroom-locks-{user}")));
    // Another user's folder is not written to.
    assert!(lock_folders(None).iter().all(|folder| !folder.starts_with("/srv/config")));
    assert!(lock_folders(None).last().unwrap().starts_with(std::env::temp_dir()));
}

#[tokio::test]
async fn locks_of_killed_processes_are_removed_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let locks = folder.path().join("locks");
    let claim = Claim::take(&place(folder.path()), ID).await.unwrap();
    let held = names(&locks).pop().unwrap();
    let stale = format!("{}-abc.lock", uuid::Uuid::new_v4());
    let in_own_folder = format!("{}.lock", uuid::Uuid::new_v4());
    let ours =
        [&stale, &in_own_folder, "notes.lock", "00000000-notes.lock", "notes"].map(|name| locks.join(name));
    ours.iter().for_each(|path| fs::write(path, "4194305").unwrap());
    let link = format!("{}-abc.lock", uuid::Uuid::new_v4());
    symlink(folder.path().join("notes"), locks.join(&link)).unwrap();
    Claim::check(&place(folder.path())).await.unwrap();
    let mut left = vec![held, link, "notes.lock".into(), "00000000-notes.lock".into(), "notes".into()];
    left.sort();
    assert_eq!(names(&locks), left);
    drop(claim);
}

#[test]
fn a_claim_of_a_killed_owners_conversation_is_not_refused_by_a_sweep() {
    let folder = tempfile::tempdir().unwrap();
    let locks = folder.path().join("locks");
    drop(LockFile::take(&locks, "made").unwrap_or_else(|_| panic!("it is free")));
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                LockFile::sweep(&locks, usize::MAX).unwrap();
            }
        });
        let refused = (0..300).filter(|_| {
            let name = file::name(&uuid::Uuid::new_v4().to_string(), Some("abc"));
            fs::write(locks.join(&name), "4194305").unwrap();
            let first = LockFile::take(&locks, &name);
            let second = LockFile::take(&locks, &name);
            first.is_err() || !matches!(second, Err(Refused::Held(_)))
        });
        let refused = refused.count();
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(refused, 0);
    });
}
