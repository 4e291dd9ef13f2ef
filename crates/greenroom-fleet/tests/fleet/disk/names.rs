//! Names that look like something else, with the files that their sessions really make.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use greenroom_fleet::{FleetError, Name};
use uuid::Uuid;

use super::*;
use crate::scenes::{asks, drain, in_time, named, secs, start};

/// Names that a path, a file system that folds cases, or a C string would take for another one.
fn odd_names() -> Vec<String> {
    let mut names: Vec<String> = [
        ".",
        "..",
        "../up",
        "../../up",
        "/etc/passwd",
        "a/b",
        "a\\b",
        "a",
        "a\0b",
        "a\0",
        "\0",
        "a\nb",
        " ",
        "a ",
        "Anna",
        "anna",
        "ANNA",
        "ä",
        "a\u{308}",
        "ß",
        "ss",
        "\u{202e}anna",
        "~",
        "$HOME",
        "*",
        "-rf",
        "CON",
        "name.json",
        "work",
        "config",
        "fleet.redb",
        "\u{feff}a",
        "a.",
    ]
    .map(str::to_owned)
    .to_vec();
    // 256 bytes: of one byte each, of four bytes each, and as a path of the greatest depth.
    names.extend(["x".repeat(256), "x".repeat(255), "\u{1f98e}".repeat(64), "../".repeat(85) + "x"]);
    names
}

/// Every file and folder below a folder, with the contents of the files.
fn tree(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let content = if path.is_dir() { Vec::new() } else { std::fs::read(&path).unwrap() };
            if path.is_dir() {
                folders.push(path.clone());
            }
            found.insert(path, content);
        }
    }
    found
}

/// A fleet whose sessions write their name into a file in each of their folders, as a CLI writes its transcript.
async fn writing(backend: LocalBackend, clis: &Clis) -> Fleet {
    let clis = clis.clone();
    let profile = move |cx: &greenroom_fleet::ActivationContext| {
        std::fs::write(cx.working_directory.join("notes"), cx.name.session()).unwrap();
        let transcripts = cx.config_directory.join("projects").join("-work");
        std::fs::create_dir_all(&transcripts).unwrap();
        std::fs::write(transcripts.join(format!("{}.jsonl", cx.conversation)), cx.name.session()).unwrap();
        session(&clis, cx.name.session())
    };
    start(Fleet::builder().backend(backend).configure(|limits| limits.live = 64).profile("default", profile))
        .await
}

#[tokio::test]
async fn odd_names_have_files_of_their_own_and_a_deletion_removes_exactly_them() {
    let folder = tempfile::tempdir().unwrap();
    let (data, clis) = (folder.path().join("data"), Clis::default());
    std::fs::create_dir(&data).unwrap();
    // Beside the data, where `../up` and its like would lie.
    for path in ["up", "data/up", "data/a", "data/anna"] {
        std::fs::write(folder.path().join(path), "not the fleet's").unwrap();
    }
    let path = data.join("fleet.redb");
    let names = odd_names();
    let fleet = writing(LocalBackend::open(&path).await.unwrap(), &clis).await;
    let mut conversations = BTreeMap::new();
    for (n, name) in names.iter().enumerate() {
        assert_eq!(asks(&fleet, name, format!("one {n}")).await, format!("re: one {n}"), "{name:?}");
        conversations.insert(name, named(&fleet, name).record().await.unwrap().conversation);
    }
    assert_eq!(conversations.values().collect::<BTreeSet<_>>().len(), names.len(), "each has its own");
    drain(&fleet, secs(20)).await;
    drop(fleet);

    // Another process finds each name again, and its conversation.
    let fleet = writing(LocalBackend::open(&path).await.unwrap(), &clis).await;
    for (n, name) in names.iter().enumerate() {
        assert_eq!(asks(&fleet, name, format!("two {n}")).await, format!("re: two {n}"), "{name:?}");
        assert_eq!(clis.prompts_of(name), [format!("one {n}"), format!("two {n}")], "{name:?}");
        assert_eq!(clis.starts_of(name), 2, "{name:?}");
        in_time("sleep", named(&fleet, name).passivate()).await.unwrap();
    }
    let sessions = data.join("fleet.redb.sessions");
    let without_database = || {
        let mut tree = tree(folder.path());
        tree.remove(&path).expect("the database");
        tree
    };
    let of = |conversation: Uuid| sessions.join(conversation.to_string());
    let mut left = without_database();
    for (name, conversation) in &conversations {
        let written =
            |path: &str| left.get(&of(*conversation).join(path)).map(|bytes| bytes == name.as_bytes());
        let transcript = format!("config/projects/-work/{conversation}.jsonl");
        assert_eq!((written("work/notes"), written(&transcript)), (Some(true), Some(true)), "{name:?}");
    }

    for (name, conversation) in &conversations {
        in_time("delete", named(&fleet, name).delete()).await.unwrap();
        left.retain(|path, _| !path.starts_with(of(*conversation)));
        assert_eq!(without_database(), left, "{name:?} removes its own files, and no others");
        let gone = in_time("the record", named(&fleet, name).record()).await;
        assert!(matches!(gone, Err(FleetError::NotFound { what: "session", .. })), "{name:?}: {gone:?}");
    }
    let not_ours = ["up", "data", "data/up", "data/a", "data/anna", "data/fleet.redb.sessions"];
    assert_eq!(
        left.keys().cloned().collect::<BTreeSet<_>>(),
        not_ours.map(|path| folder.path().join(path)).into()
    );
    drain(&fleet, secs(20)).await;
}

#[test]
fn a_name_is_1_to_256_bytes() {
    for name in odd_names() {
        assert_eq!(format!("default/{name}").parse::<Name>().unwrap().session(), name);
    }
    for bad in [String::new(), "x".repeat(257), "\u{1f98e}".repeat(64) + "x", "ä".repeat(129)] {
        let error = format!("default/{bad}").parse::<Name>().unwrap_err();
        assert!(error.to_string().contains("1 to 256 bytes"), "{error}");
    }
}
