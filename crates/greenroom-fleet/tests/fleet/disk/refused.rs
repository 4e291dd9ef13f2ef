//! Files that are refused, and files that are in use: what the error says, and that nothing is written.

use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;

use greenroom_fleet::FleetPrompt;
use greenroom_fleet::backend::Requests;

use super::*;
use crate::scenes::{asks, drain, in_time, named, outcome, secs, send};

/// A folder with the file of a fleet that has run a prompt and has ended.
struct Ended {
    folder: tempfile::TempDir,
    path: PathBuf,
    clis: Clis,
}

impl Ended {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let this = Self { path: folder.path().join("fleet.redb"), folder, clis: Clis::default() };
        let fleet = this.open().await.unwrap();
        outcome(send(&fleet, "a", FleetPrompt::new("one").key("k")).await).await;
        drain(&fleet, secs(5)).await;
        drop(fleet);
        // The file is closed when it can be opened again.
        LocalBackend::open(&this.path).await.unwrap().close().await;
        this
    }

    /// Starts a fleet as a service does.
    async fn open(&self) -> Result<Fleet, FleetError> {
        let backend = LocalBackend::open(&self.path).await?;
        on(backend, &self.clis, &self.folder.path().join("files")).start().await
    }

    /// A fleet does not start, and leaves everything as it was.
    async fn refused(&self, what: &str) -> BackendError {
        let list = || {
            let found = fs::read_dir(self.folder.path()).unwrap();
            let mut names: Vec<_> = found.map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            names
        };
        let (before, beside) = (fs::read(&self.path).unwrap(), list());
        let error = of_backend(in_time("the opening", self.open()).await);
        assert!(error.to_string().contains(&self.path.display().to_string()), "{what}: {error}");
        assert!(fs::read(&self.path).unwrap() == before, "{what}: the file was changed");
        assert_eq!(list(), beside, "{what}");
        error
    }

    /// The fleet goes on with what it knew.
    async fn goes_on(&self) {
        let fleet = self.open().await.unwrap();
        let known = send(&fleet, "a", FleetPrompt::new("one").key("k")).await;
        assert!(known.is_duplicate());
        assert_eq!(outcome(known).await.text(), Some("re: one"));
        assert_eq!(asks(&fleet, "a", "two").await, "re: two");
        drain(&fleet, secs(5)).await;
    }
}

const ROWS: redb::TableDefinition<'_, &[u8], &[u8]> = redb::TableDefinition::new("fleet");

/// Writes a row with redb alone.
fn write_row(path: &Path, key: &[u8], value: &[u8]) {
    let database = redb::Database::create(path).unwrap();
    let write = database.begin_write().unwrap();
    write.open_table(ROWS).unwrap().insert(key, value).unwrap();
    write.commit().unwrap();
}

// Guards: crash-safe
#[tokio::test]
async fn a_file_of_another_version_is_refused_and_kept_byte_for_byte() {
    let ended = Ended::new().await;
    let whole = fs::read(&ended.path).unwrap();
    for version in ["2", "77"] {
        write_row(&ended.path, b"\0", version.as_bytes());
        let error = ended.refused(version).await;
        let has = format!("has the format {version}, and this version of greenroom reads 1");
        let remedy = "export it with the version that wrote it, and import it with this one";
        assert_says(&error, BackendErrorKind::Version, &[&has, remedy]);
    }
    fs::write(&ended.path, whole).unwrap();
    ended.goes_on().await;
}

#[tokio::test]
async fn a_file_that_was_cut_anywhere_is_refused_and_kept_byte_for_byte() {
    let ended = Ended::new().await;
    let whole = fs::read(&ended.path).unwrap();
    let (page, length) = (4096, whole.len());
    let cuts = [1, 8, 9, 63, 64, 319, 320, 321, page - 1, page, page + 1, 2 * page, 5 * page + 17];
    let cuts = cuts.into_iter().chain([length / 2, length - page, length - 1]);
    for cut in cuts {
        fs::write(&ended.path, &whole[..cut]).unwrap();
        let error = ended.refused(&format!("cut at {cut} of {length}")).await;
        assert_says(&error, BackendErrorKind::Damaged, &["is damaged", "restore it from a backup"]);
    }
    fs::write(&ended.path, whole).unwrap();
    ended.goes_on().await;
}

#[tokio::test]
async fn the_file_of_another_program_is_refused_and_kept_byte_for_byte() {
    let ended = Ended::new().await;
    let whole = fs::read(&ended.path).unwrap();
    fs::write(&ended.path, "my notes\n".repeat(1000)).unwrap();
    let error = ended.refused("a text").await;
    assert_says(&error, BackendErrorKind::Damaged, &["no file of a fleet", "name another file"]);
    fs::remove_file(&ended.path).unwrap();
    let table: redb::TableDefinition<'_, &str, u64> = redb::TableDefinition::new("counts");
    let other = redb::Database::create(&ended.path).unwrap();
    let write = other.begin_write().unwrap();
    write.open_table(table).unwrap().insert("a", 1).unwrap();
    write.commit().unwrap();
    drop(other);
    let error = ended.refused("another database").await;
    assert_says(&error, BackendErrorKind::Damaged, &["the database of another program", "name another file"]);
    fs::write(&ended.path, whole).unwrap();
    ended.goes_on().await;
}

#[tokio::test]
async fn a_file_with_damaged_pages_is_refused_or_read_without_a_panic() {
    let ended = Ended::new().await;
    let whole = fs::read(&ended.path).unwrap();
    let mut refused = 0;
    for page in 0..whole.len() / 4096 {
        if whole[page * 4096..(page + 1) * 4096].iter().all(|byte| *byte == 0) {
            continue;
        }
        let mut spoilt = whole.clone();
        spoilt[page * 4096..(page + 1) * 4096].fill(0xa5);
        fs::write(&ended.path, &spoilt).unwrap();
        match LocalBackend::open(&ended.path).await {
            Ok(backend) => {
                // A page that the opening does not read: a request that reads it gets an error, and no panic.
                let name = "default/a".parse::<greenroom_fleet::Name>().unwrap();
                let read = backend.name_record(name).await;
                if let Err(error) = read {
                    assert_ne!(error.kind(), BackendErrorKind::Closed, "page {page}: {error}");
                }
                backend.close().await;
            }
            Err(error) => {
                refused += 1;
                assert_says(&error, BackendErrorKind::Damaged, &["restore it from a backup"]);
                assert!(fs::read(&ended.path).unwrap() == spoilt, "page {page}: the file was changed");
            }
        }
    }
    assert!(refused > 0, "pages that the opening reads were spoilt, too");
    fs::write(&ended.path, whole).unwrap();
    ended.goes_on().await;
}

#[tokio::test]
async fn a_second_backend_on_the_file_is_refused_and_harms_no_turn_of_the_first() {
    let ended = Ended::new().await;
    let fleet = ended.open().await.unwrap();
    let log = Log::of(&fleet);
    let runs = send(&fleet, "a", "hold").await;
    ended.clis.read(2).await;
    let error = of_backend(in_time("the second", ended.open()).await);
    let remedy = "use a clone of that backend, or close it first";
    assert_says(&error, BackendErrorKind::InUse, &["another backend of this process", remedy]);
    // Also by another name of the file.
    let link = ended.folder.path().join("link.redb");
    fs::hard_link(&ended.path, &link).unwrap();
    assert_eq!(LocalBackend::open(&link).await.unwrap_err().kind(), BackendErrorKind::InUse);
    assert_unharmed(&log);
    assert!(in_time("the interrupt", named(&fleet, "a").interrupt()).await.unwrap());
    assert!(!outcome(runs).await.is_completed());
    assert_eq!(asks(&fleet, "a", "two").await, "re: two");
    assert_unharmed(&log);
    drain(&fleet, secs(5)).await;
}

#[tokio::test]
async fn a_file_is_opened_again_as_soon_as_its_fleet_has_drained_and_is_dropped() {
    let ended = Ended::new().await;
    for n in 0..20 {
        let fleet = ended.open().await.unwrap_or_else(|error| panic!("round {n}: {error}"));
        assert_eq!(asks(&fleet, &format!("name-{n}"), "hello").await, "re: hello");
        drain(&fleet, secs(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_is_opened_again_after_a_drain_on_many_threads() {
    let ended = Ended::new().await;
    for n in 0..20 {
        let fleet = ended.open().await.unwrap_or_else(|error| panic!("round {n}: {error}"));
        drop(send(&fleet, &format!("name-{n}"), "hello").await);
        drain(&fleet, secs(5)).await;
    }
}

#[tokio::test]
async fn a_folder_on_a_disk_that_cannot_be_written_is_named() {
    // `/proc` takes no files, not even from root.
    let error = LocalBackend::open("/proc/fleet.redb").await.unwrap_err();
    assert_says(
        &error,
        BackendErrorKind::Unavailable,
        &["/proc/fleet.redb", "its folder has to exist and be writable"],
    );
    let disk = SimulatedDisk::new();
    disk.fail(ErrorKind::ReadOnlyFilesystem);
    let error = LocalBackend::on_disk(&disk).await.unwrap_err();
    assert_says(&error, BackendErrorKind::Unavailable, &["its disk is read-only: make it writable"]);
    assert_eq!(disk.bytes(), [0; 0]);
}
