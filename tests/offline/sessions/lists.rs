//! Lists of sessions.

use std::fs;
use std::path::Path;

use greenroom::ErrorKind;
use greenroom::sessions::{LocalSessions, Page, project_key};
use serde_json::json;

use super::*;

#[tokio::test]
async fn sessions_are_listed_newest_first_by_page_and_by_directory() {
    let home = Home::new();
    for (id, seconds) in [(A, 1), (B, 3), (C, 2)] {
        home.write(id, seconds, &talk());
    }
    let other = tempfile::tempdir().unwrap();
    home.write_to(other.path(), A, 9, &[user("x", None, "Elsewhere")]);
    for noise in ["notes.jsonl", "memory.md", "11111111-0000-4000-8000-000000000001.jsonl"] {
        fs::write(home.folder(home.work.path()).join(noise), "").unwrap();
    }
    assert_eq!(ids(&home.here().list(Page::ALL).await.unwrap()), [B, C, A]);
    assert_eq!(ids(&home.here().list(Page::first(1).after(1)).await.unwrap()), [C]);
    assert_eq!(ids(&home.here().list(Page::first(9).after(5)).await.unwrap()), [""; 0]);
    let all = home.all().list(Page::ALL).await.unwrap();
    assert_eq!(ids(&all), [A, B, C], "the newer of two files with one id");
    assert_eq!(all[0].summary, "Elsewhere");
    let nobody = LocalSessions::at("/no/such/folder");
    assert!(nobody.list(Page::ALL).await.unwrap().is_empty());
    assert!(home.all().in_directory("/no/such/work").list(Page::ALL).await.unwrap().is_empty());
}

#[tokio::test]
async fn sessions_of_other_worktrees_are_found_unless_excluded() {
    let home = Home::new();
    let linked = tempfile::tempdir().unwrap();
    let (main, linked) =
        (fs::canonicalize(home.work.path()).unwrap(), fs::canonicalize(linked.path()).unwrap());
    let admin = main.join(".git/worktrees/linked");
    fs::create_dir_all(&admin).unwrap();
    fs::write(linked.join(".git"), format!("gitdir: {}\n", admin.display())).unwrap();
    fs::write(admin.join("gitdir"), format!("{}/.git\n", linked.display())).unwrap();
    fs::write(admin.join("commondir"), "../..\n").unwrap();
    home.write(A, 1, &talk());
    home.write_to(&linked, B, 2, &talk());
    let deep = main.join("src/deep");
    fs::create_dir_all(&deep).unwrap();
    for from in [&main, &linked, &deep] {
        let sessions = home.all().in_directory(from);
        assert_eq!(ids(&sessions.list(Page::ALL).await.unwrap()), [B, A], "from {}", from.display());
        assert_eq!(sessions.messages(A, Page::ALL).await.unwrap().total, 4);
    }
    let sessions = home.all().in_directory(&linked).without_worktrees();
    assert_eq!(ids(&sessions.list(Page::ALL).await.unwrap()), [B]);
    assert_eq!(sessions.info(A).await.unwrap_err().kind(), ErrorKind::SessionNotFound);
}

#[tokio::test]
async fn a_directory_with_a_long_path_is_found_by_its_prefix() {
    let home = Home::new();
    let work = home.work.path().join("x".repeat(120)).join("y".repeat(120));
    fs::create_dir_all(&work).unwrap();
    let key = project_key(&work);
    let other = format!("{}-zzz", &key[..200]);
    let folder = home.config.path().join("projects").join(other);
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join(format!("{A}.jsonl")), format!("{}\n", user("u", None, "Hi"))).unwrap();
    assert_eq!(ids(&home.all().in_directory(&work).list(Page::ALL).await.unwrap()), [A]);
}

#[test]
fn the_sessions_of_options_are_in_their_cli_s_configuration_folder() {
    let mut options = greenroom::Options::new();
    options.env_policy = greenroom::options::EnvPolicy::Clean;
    options.env.insert("HOME".into(), "/home/x".into());
    assert_eq!(LocalSessions::of(&options).unwrap().config_dir(), Path::new("/home/x/.claude"));
    options.env.insert("CLAUDE_CONFIG_DIR".into(), "/config".into());
    assert_eq!(LocalSessions::of(&options).unwrap().config_dir(), Path::new("/config"));
}

#[tokio::test]
async fn sessions_of_programs_are_listed_unless_excluded() {
    let home = Home::new();
    let begun = |id: &str, seconds, key: &str, value: &str| {
        let mut entry = user("u1", None, "Hello");
        entry[key] = json!(value);
        home.write(id, seconds, &[entry]);
    };
    begun(A, 1, "entrypoint", "cli");
    begun(B, 2, "entrypoint", "sdk-py");
    begun(C, 3, "sessionKind", "daemon-worker");
    let ids = async |sessions: LocalSessions| -> Vec<String> {
        sessions.list(Page::ALL).await.unwrap().into_iter().map(|info| info.session_id).collect()
    };
    assert_eq!(ids(home.here()).await, [C, B, A]);
    assert_eq!(ids(home.here().without_programmatic()).await, [A]);
    // `info` finds it by id all the same.
    assert!(home.here().without_programmatic().info(B).await.is_ok());
}
