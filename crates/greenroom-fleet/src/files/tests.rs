//! Folders of names: created for one user, found by a person, and removed without following links.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use greenroom::{Options, Session, SessionBuilder};
use tempfile::TempDir;

use super::remove::{make_removable, remove_locks};
use super::*;
use crate::error::{FilesErrorKind, FleetError};
use crate::id::{Name, Term, Timestamp};
use crate::profile::ActivationContext;
use crate::record::NameState;

pub(crate) fn record(name: &str) -> NameRecord {
    NameRecord {
        name: format!("acme/{}", name).parse::<Name>().unwrap(),
        profile: "support".into(),
        host: None,
        conversation: Uuid::new_v4(),
        created_at: Timestamp(0),
        term: Term(1),
        state: NameState::Free,
        queued: 0,
        reminders: 0,
        ripened: 0,
        listed: None,
        stuck: false,
        last_order: 0,
        running: None,
        cli_turn: None,
        continues: None,
        parked: None,
        failures: Vec::new(),
        losses: 0,
        quarantine: None,
        last_failure: None,
        held_by: None,
        labels: Default::default(),
    }
}

async fn stage() -> (TempDir, Folders) {
    let folder = tempfile::tempdir().unwrap();
    let folders = Folders::at(folder.path().join("sessions"), false);
    folders.open().await.unwrap();
    (folder, folders)
}

async fn remove(folders: &Folders, conversation: Uuid) -> Result<(), FilesError> {
    folders.remove(conversation, &folders.removal().await).await
}

fn activation(record: &NameRecord, own: &NameFolders) -> ActivationContext {
    ActivationContext {
        name: record.name.clone(),
        conversation: record.conversation,
        term: record.term,
        working_directory: own.work.clone(),
        config_directory: own.config.clone(),
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn options_of(builder: SessionBuilder) -> Options {
    let mut options = None;
    let _unused = builder.configure(|of| options = Some(of.clone()));
    options.unwrap()
}

#[tokio::test]
async fn each_name_has_a_private_folder_that_says_whose_it_is() {
    let (_folder, folders) = stage().await;
    let long = "é".repeat(128);
    let names = ["../../etc", "/etc/passwd", "a\0b", ".", long.as_str(), "Anna", "anna"];
    for name in names {
        let record = record(name);
        let own = folders.create(&record).await.unwrap();
        let folder = folders.root.join(record.conversation.to_string());
        assert_eq!(own.work, folder.join("work"));
        for path in [&folders.root, &folder, &own.work, &own.config] {
            assert_eq!(mode(path), 0o700, "{}", path.display());
        }
        assert_eq!(mode(&folder.join("name.json")), 0o600);
        let label: serde_json::Value =
            serde_json::from_slice(&fs::read(folder.join("name.json")).unwrap()).unwrap();
        assert_eq!(label, serde_json::json!({ "name": format!("acme/{name}"), "profile": "support" }));
    }
    assert_eq!(fs::read_dir(&folders.root).unwrap().count(), names.len(), "and nothing else");
}

#[tokio::test]
async fn a_second_activation_finds_the_files_of_the_first() {
    let (_folder, folders) = stage().await;
    let record = record("a");
    let own = folders.create(&record).await.unwrap();
    fs::write(own.work.join("notes"), "kept").unwrap();
    let again = folders.create(&record).await.unwrap();
    assert_eq!(fs::read_to_string(again.work.join("notes")).unwrap(), "kept");
}

#[tokio::test]
async fn links_and_files_in_the_way_are_refused_and_told() {
    let (folder, folders) = stage().await;
    let precious = folder.path().join("precious");
    fs::create_dir(&precious).unwrap();
    fs::write(precious.join("file"), "kept").unwrap();

    let linked = record("linked");
    let path = folders.root.join(linked.conversation.to_string());
    symlink(&precious, &path).unwrap();
    let error = folders.create(&linked).await.unwrap_err();
    assert_eq!((error.kind(), error.path()), (FilesErrorKind::Link, path.as_path()));
    let error = remove(&folders, linked.conversation).await.unwrap_err();
    assert_eq!(error.kind(), FilesErrorKind::Link);
    assert!(error.to_string().contains("remove the link if it is not yours"), "{error}");

    let blocked = record("blocked");
    let path = folders.root.join(blocked.conversation.to_string());
    fs::write(&path, "a file").unwrap();
    let error = folders.create(&blocked).await.unwrap_err();
    assert_eq!(error.kind(), FilesErrorKind::InTheWay);
    let text = format!(
        "the fleet cannot create the folder {}: a file lies where a folder should be; move the file away, or name another \
         folder",
        path.display()
    );
    assert_eq!(error.to_string(), text);

    let inner = record("inner");
    let own = folders.create(&inner).await.unwrap();
    fs::remove_dir(&own.work).unwrap();
    symlink(&precious, &own.work).unwrap();
    assert_eq!(folders.create(&inner).await.unwrap_err().kind(), FilesErrorKind::Link);
    remove(&folders, inner.conversation).await.unwrap();
    assert_eq!(fs::read_to_string(precious.join("file")).unwrap(), "kept");
}

#[tokio::test]
async fn a_root_that_is_a_file_fails_the_opening() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("root");
    fs::write(&root, "a file").unwrap();
    let error = Folders::at(root.clone(), false).open().await.unwrap_err();
    assert_eq!((error.kind(), error.path()), (FilesErrorKind::InTheWay, root.as_path()));
}

#[test]
fn errors_of_the_disk_say_what_to_do() {
    let text = |kind: io::ErrorKind| FilesError::of("create the folder", Path::new("/a"), kind.into());
    for (kind, expected, advice) in [
        (io::ErrorKind::ReadOnlyFilesystem, FilesErrorKind::ReadOnly, "mount it for writing"),
        (io::ErrorKind::StorageFull, FilesErrorKind::Full, "free space"),
        (io::ErrorKind::QuotaExceeded, FilesErrorKind::Full, "free space"),
        (io::ErrorKind::PermissionDenied, FilesErrorKind::NotAllowed, "give the folder to the user"),
    ] {
        let error = text(kind);
        assert_eq!(error.kind(), expected);
        assert!(error.to_string().starts_with("the fleet cannot create the folder /a: "), "{error}");
        assert!(error.to_string().contains(advice), "{error}");
    }
}

#[tokio::test]
async fn a_session_gets_its_folders_and_its_conversation() {
    let (_folder, folders) = stage().await;
    let record = record("a");
    let own = folders.create(&record).await.unwrap();
    let cx = activation(&record, &own);
    let options = options_of(folders.apply(Session::builder(), &cx, None).await.unwrap());
    assert_eq!(options.cwd.as_deref(), Some(own.work.as_path()));
    assert_eq!(options.env["CLAUDE_CONFIG_DIR"], own.config.to_str().unwrap());
    assert_eq!(options.conversation, Some(record.conversation.to_string()));
}

#[tokio::test]
async fn folders_that_the_profile_sets_stay_and_only_the_conversation_is_removed_there() {
    let (folder, folders) = stage().await;
    let record = record("a");
    let own = folders.create(&record).await.unwrap();
    let shared = folder.path().join("claude");
    let project = shared.join("projects").join("-srv-shop");
    fs::create_dir_all(&project).unwrap();
    let transcript = |id: Uuid| project.join(format!("{id}.jsonl"));
    let (mine, other) = (record.conversation, Uuid::new_v4());
    for id in [mine, other] {
        let entry = serde_json::json!({ "type": "user", "sessionId": id, "cwd": "/srv/shop", "uuid": Uuid::new_v4(),
            "message": { "role": "user", "content": "hello" } });
        fs::write(transcript(id), format!("{entry}\n")).unwrap();
    }
    let profile = Session::builder()
        .cwd("/srv/shop")
        .env("CLAUDE_CONFIG_DIR", shared.display().to_string())
        .configure(|options| options.lock_dir = Some(folder.path().join("locks")));
    fs::create_dir(folder.path().join("locks")).unwrap();
    let lock = folder.path().join("locks").join(format!("{mine}-abc.lock"));
    fs::write(&lock, "1").unwrap();
    let options = options_of(folders.apply(profile, &activation(&record, &own), None).await.unwrap());
    assert_eq!(options.cwd.as_deref(), Some(Path::new("/srv/shop")));
    assert_eq!(options.env["CLAUDE_CONFIG_DIR"], shared.to_str().unwrap());

    remove(&folders, mine).await.unwrap();
    assert!(!transcript(mine).exists(), "the transcript is left");
    assert!(transcript(other).exists(), "another conversation is gone");
    assert!(!lock.exists(), "the lock of a killed process is left");
    assert!(!folders.root.join(mine.to_string()).exists());
    remove(&folders, mine).await.unwrap();
}

#[tokio::test]
async fn a_profile_that_chooses_the_conversation_is_refused() {
    let (_folder, folders) = stage().await;
    let record = record("a");
    let cx = activation(&record, &folders.create(&record).await.unwrap());
    let refused: [(&str, SessionBuilder); 4] = [
        ("conversation", Session::builder().conversation(Uuid::new_v4().to_string())),
        ("resume", Session::builder().resume(Uuid::new_v4().to_string())),
        (
            "continue_conversation",
            Session::builder().configure(|options| options.continue_conversation = true),
        ),
        ("persist_session", Session::builder().configure(|options| options.persist_session = Some(false))),
    ];
    for (option, profile) in refused {
        let error = folders.apply(profile, &cx, None).await.err().unwrap();
        assert!(matches!(error, FleetError::Invalid(_)), "{error}");
        assert!(error.to_string().contains(&format!("sets the option `{option}`")), "{error}");
    }
    let same = Session::builder().conversation(record.conversation.to_string().to_uppercase());
    assert!(folders.apply(same, &cx, None).await.is_ok());
}

#[tokio::test]
async fn the_user_of_the_pool_is_set_and_a_profile_that_sets_one_is_refused() {
    let (_folder, folders) = stage().await;
    let record = record("a");
    let cx = activation(&record, &folders.create(&record).await.unwrap());
    let user = Some(greenroom::options::OsUser::new(7, 8));
    let options = options_of(folders.apply(Session::builder(), &cx, user).await.unwrap());
    assert_eq!(options.user, user);
    let folder = folders.folder(record.conversation);
    assert_eq!(options.env["HOME"], folder.join("home").to_str().unwrap());
    assert_eq!(options.env["TMPDIR"], folder.join("tmp").to_str().unwrap());
    let own = Session::builder().env("HOME", "/srv/home").configure(|options| options.user = user);
    let error = folders.apply(own, &cx, user).await.err().unwrap();
    assert!(matches!(error, FleetError::Invalid(_)), "{error}");
    assert!(error.to_string().contains("sets the option `user`"), "{error}");
    let own = Session::builder().env("HOME", "/srv/home").configure(|options| options.user = user);
    let options = options_of(folders.apply(own, &cx, None).await.unwrap());
    assert_eq!(
        (options.user, options.env["HOME"].as_str()),
        (user, "/srv/home"),
        "without a pool it is the profile's"
    );
}

#[tokio::test]
async fn a_label_that_the_sessions_tools_have_spoilt_stops_nothing() {
    let (_folder, folders) = stage().await;
    let record = record("a");
    let own = folders.create(&record).await.unwrap();
    let label = own.work.parent().unwrap().join("name.json");
    fs::remove_file(&label).unwrap();
    // To read the pipe would wait for ever.
    rustix::fs::mkfifoat(rustix::fs::CWD, &label, rustix::fs::Mode::RWXU).unwrap();
    folders.create(&record).await.unwrap();
    assert!(fs::read_to_string(&label).unwrap().contains("\"support\""));
}

#[test]
fn folders_that_cannot_be_written_to_are_made_removable() {
    let folder = tempfile::tempdir().unwrap();
    let outside = folder.path().join("outside");
    let top = folder.path().join("top");
    let inner = top.join("pkg").join("mod");
    fs::create_dir_all(&inner).unwrap();
    fs::create_dir(&outside).unwrap();
    symlink(&outside, top.join("link")).unwrap();
    for path in [&outside, &inner, &top.join("pkg")] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o500)).unwrap();
    }
    make_removable(&top).unwrap();
    assert_eq!((mode(&inner), mode(&top.join("pkg")), mode(&outside)), (0o700, 0o700, 0o500));
}

#[test]
fn the_lock_of_a_live_session_is_kept_and_refuses_the_removal() {
    let folder = tempfile::tempdir().unwrap();
    let (mine, other) = (Uuid::new_v4(), Uuid::new_v4());
    let [lock, foreign] = [mine, other].map(|id| folder.path().join(format!("{id}-abc.lock")));
    let held = fs::File::create(&lock).unwrap();
    held.lock().unwrap();
    fs::write(&foreign, "1").unwrap();
    let error = remove_locks(folder.path(), mine).unwrap_err();
    assert_eq!((error.kind(), error.path()), (FilesErrorKind::InUse, lock.as_path()));
    held.unlock().unwrap();
    remove_locks(folder.path(), mine).unwrap();
    assert!(!lock.exists() && foreign.exists());
}

#[tokio::test]
async fn a_live_session_that_locks_in_its_own_folder_refuses_the_removal() {
    let (_folder, folders) = stage().await;
    let record = record("a");
    let own = folders.create(&record).await.unwrap();
    let locks = greenroom::sessions::lock_folders(Some(&own.config)).remove(0);
    assert!(locks.starts_with(&own.config));
    fs::create_dir(&locks).unwrap();
    let lock = locks.join(format!("{}.lock", record.conversation));
    let held = fs::File::create(&lock).unwrap();
    held.lock().unwrap();
    let error = remove(&folders, record.conversation).await.unwrap_err();
    assert_eq!((error.kind(), error.path()), (FilesErrorKind::InUse, lock.as_path()));
    held.unlock().unwrap();
    remove(&folders, record.conversation).await.unwrap();
    assert!(!own.config.exists());
}

#[tokio::test]
async fn each_backend_names_a_folder_and_that_of_a_memory_backend_is_temporary() {
    use crate::backend::{Backend, LocalBackend, MemoryBackend};

    let memory = MemoryBackend::new();
    let root = memory.default_folder().unwrap();
    Folders::at(root.clone(), false).create_root_of(&record("a")).await;
    let clone = memory.clone();
    drop(memory);
    assert_eq!(clone.default_folder(), Some(root.clone()));
    assert!(root.exists(), "a clone needs it still");
    drop(clone);
    assert!(!root.exists());

    let folder = tempfile::tempdir().unwrap();
    let local = LocalBackend::open(folder.path().join("fleet.redb")).await.unwrap();
    assert_eq!(local.default_folder(), Some(folder.path().join("fleet.redb.sessions")));
}

impl Folders {
    async fn create_root_of(&self, record: &NameRecord) {
        self.open().await.unwrap();
        self.create(record).await.unwrap();
    }
}
