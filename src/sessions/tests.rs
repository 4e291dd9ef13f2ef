mod archive;

use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;
use crate::ErrorKind;

const A: &str = "aaaaaaaa-0000-4000-8000-000000000001";
const B: &str = "bbbbbbbb-0000-4000-8000-000000000002";
const C: &str = "cccccccc-0000-4000-8000-000000000003";

/// A configuration folder, and the directory of a project.
struct Home {
    config: TempDir,
    work: TempDir,
}

impl Home {
    fn new() -> Self {
        Self { config: tempfile::tempdir().unwrap(), work: tempfile::tempdir().unwrap() }
    }

    fn folder(&self, project: &Path) -> PathBuf {
        let folder = self.config.path().join("projects").join(project_key(project));
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    /// Writes a transcript with a modification time of `seconds` after a fixed moment.
    fn write(&self, id: &str, seconds: u64, lines: &[Value]) -> PathBuf {
        let path = self.folder(self.work.path()).join(format!("{id}.jsonl"));
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        fs::write(&path, text).unwrap();
        age(&path, seconds);
        path
    }

    fn all(&self) -> LocalSessions {
        LocalSessions::at(self.config.path())
    }

    fn here(&self) -> LocalSessions {
        self.all().in_directory(self.work.path())
    }
}

fn age(path: &Path, seconds: u64) {
    let moment = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000 + seconds);
    fs::File::options().write(true).open(path).unwrap().set_modified(moment).unwrap();
}

fn user(uuid: &str, parent: Option<&str>, text: &str) -> Value {
    json!({"type": "user", "uuid": uuid, "parentUuid": parent, "sessionId": A, "cwd": "/work", "gitBranch": "main",
        "timestamp": "2024-05-01T10:00:00.000Z", "message": {"role": "user", "content": text}})
}

fn assistant(uuid: &str, parent: &str, text: &str) -> Value {
    json!({"type": "assistant", "uuid": uuid, "parentUuid": parent, "sessionId": A,
        "message": {"id": format!("msg_{uuid}"), "role": "assistant", "content": [{"type": "text", "text": text}]}})
}

fn talk() -> Vec<Value> {
    vec![
        json!({"type": "queue-operation", "operation": "enqueue"}),
        user("u1", None, "What is 5 + 3?"),
        assistant("a1", "u1", "8"),
        user("u2", Some("a1"), "And 2 more?"),
        assistant("a2", "u2", "10"),
    ]
}

fn ids(sessions: &[SessionInfo]) -> Vec<&str> {
    sessions.iter().map(|session| session.session_id.as_str()).collect()
}

fn said(messages: &SessionMessages) -> Vec<&str> {
    messages.messages.iter().map(|message| message.uuid.as_str()).collect()
}

#[tokio::test]
async fn sessions_are_listed_newest_first_by_page_and_by_directory() {
    let home = Home::new();
    for (id, seconds) in [(A, 1), (B, 3), (C, 2)] {
        home.write(id, seconds, &talk());
    }
    let other = tempfile::tempdir().unwrap();
    let elsewhere = home.folder(other.path()).join(format!("{A}.jsonl"));
    fs::write(&elsewhere, format!("{}\n", user("x", None, "Elsewhere"))).unwrap();
    age(&elsewhere, 9);
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
async fn a_session_is_described_by_its_transcript() {
    let home = Home::new();
    let path = home.write(A, 5, &talk());
    let info = home.all().info(A).await.unwrap();
    assert_eq!(
        (info.summary.as_str(), info.first_prompt.as_deref()),
        ("What is 5 + 3?", Some("What is 5 + 3?"))
    );
    assert_eq!((info.cwd.as_deref(), info.git_branch.as_deref()), (Some(Path::new("/work")), Some("main")));
    assert_eq!(info.file_size, Some(fs::metadata(&path).unwrap().len()));
    assert_eq!(info.created, Some(SystemTime::UNIX_EPOCH + Duration::from_secs(1_714_557_600)));
    assert_eq!(info.modified, SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_005));
}

#[tokio::test]
async fn a_missing_session_or_message_is_named_in_the_error() {
    let home = Home::new();
    home.write(A, 1, &talk());
    home.write(C, 1, &[json!({"type": "mode"})]);
    let (here, all) = (home.here(), home.all());
    for error in [
        here.info(B).await.unwrap_err(),
        all.messages(B, Page::ALL).await.unwrap_err(),
        all.rename(B, "x").await.unwrap_err(),
        all.tag(B, None).await.unwrap_err(),
        all.delete(B).await.unwrap_err(),
        all.fork(B, None, None).await.unwrap_err(),
        all.subagents(B).await.unwrap_err(),
        all.clone().in_directory("/no/such").info(A).await.unwrap_err(),
        all.info(C).await.unwrap_err(),
        all.subagent_messages(A, "nobody", Page::ALL).await.unwrap_err(),
        all.fork(A, Some("nothing"), None).await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::SessionNotFound, "{error}");
        let text = error.to_string();
        assert!([A, B, C].iter().any(|id| text.contains(id)), "{text}");
    }
    let error = all.delete("../../etc").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidOption);
    assert!(error.to_string().contains("'../../etc'"), "{error}");
}

#[tokio::test]
async fn messages_are_read_in_order_by_page_and_unchanged() {
    let home = Home::new();
    let mut lines = talk();
    lines.insert(3, json!({"type": "system", "subtype": "informational", "uuid": "s", "parentUuid": "a1", "content": "x"}));
    lines[4]["parentUuid"] = json!("s");
    lines[2]["newer"] = json!({"than": "this"});
    let path = home.write(A, 1, &lines);
    let mut file = fs::File::options().append(true).open(&path).unwrap();
    file.write_all(b"not json\n\n[1]\n{\"type\":\"user\",\"uuid\":\"torn").unwrap();
    let all = home.all().messages(A, Page::ALL).await.unwrap();
    assert_eq!((said(&all).join(" ").as_str(), all.total, all.skipped_lines), ("u1 a1 u2 a2", 4, 3));
    let first = &all.messages[1];
    assert_eq!(first.message.text().as_deref(), Some("8"));
    assert_eq!(first.message.field("newer").unwrap()["than"], "this");
    assert_eq!((first.parent_uuid.as_deref(), first.session_id.as_deref()), (Some("u1"), Some(A)));
    let page = home.all().messages(A, Page::first(2).after(1)).await.unwrap();
    assert_eq!((said(&page).join(" ").as_str(), page.total), ("a1 u2", 4));
    let all = home.all().messages_with_system(A, Page::ALL).await.unwrap();
    assert_eq!(said(&all).join(" "), "u1 a1 s u2 a2");
}

#[tokio::test]
async fn the_last_title_and_tag_count() {
    let home = Home::new();
    let path = home.write(A, 1, &talk());
    let all = home.all();
    all.rename(A, "  First \n").await.unwrap();
    all.rename(A, "Second").await.unwrap();
    all.tag(A, Some("a\u{200b}b\u{feff} ")).await.unwrap();
    let info = all.info(A).await.unwrap();
    assert_eq!((info.summary.as_str(), info.tag.as_deref()), ("Second", Some("ab")));
    all.tag(A, None).await.unwrap();
    assert_eq!(all.info(A).await.unwrap().tag, None);
    for error in [all.rename(A, " \n").await.unwrap_err(), all.tag(A, Some("\u{200b}")).await.unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::InvalidOption);
    }
    // A torn line does not swallow the entry after it.
    fs::File::options().append(true).open(&path).unwrap().write_all(b"{\"type\":\"us").unwrap();
    all.rename(A, "Third").await.unwrap();
    assert_eq!(all.info(A).await.unwrap().summary, "Third");
    assert_eq!(all.messages(A, Page::ALL).await.unwrap().skipped_lines, 1);
}

#[tokio::test]
async fn a_huge_file_is_listed_by_its_two_ends() {
    let home = Home::new();
    let path = home.write(A, 1, &talk());
    let mut file = fs::File::options().write(true).open(&path).unwrap();
    file.seek(SeekFrom::Start(4 << 30)).unwrap();
    let end = format!(
        "\n{}\n{}\n",
        json!({"type": "custom-title", "customTitle": "Huge"}),
        json!({"gitBranch": "late"})
    );
    file.write_all(end.as_bytes()).unwrap();
    let info = home.all().info(A).await.unwrap();
    assert_eq!((info.summary.as_str(), info.first_prompt.as_deref()), ("Huge", Some("What is 5 + 3?")));
    assert_eq!(info.git_branch.as_deref(), Some("late"));
    assert!(info.file_size.unwrap() > 4 << 30);
}

#[tokio::test]
async fn a_huge_first_line_still_gives_directory_and_branch() {
    let home = Home::new();
    let mut first = user("u1", None, &"x".repeat(200_000));
    first["message"]["z"] = json!("\"customTitle\":\"not a title\"");
    home.write(A, 1, &[json!({"type": "summary", "summary": "Long"}), first]);
    let info = home.all().info(A).await.unwrap();
    assert_eq!((info.summary.as_str(), info.custom_title, info.first_prompt), ("Long", None, None));
    assert_eq!((info.cwd.as_deref(), info.git_branch.as_deref()), (Some(Path::new("/work")), Some("main")));
}

#[tokio::test]
async fn a_session_is_deleted_with_its_subagents() {
    let home = Home::new();
    let path = home.write(A, 1, &talk());
    let kept = home.write(B, 1, &talk());
    let agents = path.with_extension("").join("subagents");
    fs::create_dir_all(&agents).unwrap();
    fs::write(agents.join("agent-1.jsonl"), "{}\n").unwrap();
    home.all().delete(A).await.unwrap();
    assert!(!path.exists() && !path.with_extension("").exists() && kept.exists());
    assert_eq!(home.all().delete(A).await.unwrap_err().kind(), ErrorKind::SessionNotFound);
}

#[tokio::test]
async fn a_fork_is_a_session_of_its_own_with_the_same_messages() {
    let home = Home::new();
    let path = home.write(A, 1, &talk());
    let all = home.all();
    let fork = all.fork(A, Some("a1"), None).await.unwrap();
    let copied = all.messages(&fork, Page::ALL).await.unwrap();
    let texts: Vec<_> =
        copied.messages.iter().map(|said| said.message.raw().get().contains("5 + 3")).collect();
    assert_eq!((copied.total, texts), (2, vec![true, false]));
    assert!(copied.messages.iter().all(|said| said.session_id.as_deref() == Some(&fork)));
    assert_eq!(all.info(&fork).await.unwrap().summary, "What is 5 + 3? (fork)");
    assert_eq!(all.messages(A, Page::ALL).await.unwrap().total, 4, "the session is as it was");
    let named = all.fork(A, None, Some(" Mine ")).await.unwrap();
    assert_eq!(all.info(&named).await.unwrap().summary, "Mine");
    let again = all.fork(&fork, None, None).await.unwrap();
    assert_eq!(all.info(&again).await.unwrap().summary, "What is 5 + 3? (fork) (fork)");
    let beside = fs::read_dir(path.parent().unwrap()).unwrap().count();
    assert_eq!(beside, 4, "no temporary file is left");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = fs::metadata(path.with_file_name(format!("{fork}.jsonl"))).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}

#[tokio::test]
async fn subagents_are_listed_with_their_parents_and_read() {
    let home = Home::new();
    let agents = home.write(A, 1, &talk()).with_extension("").join("subagents");
    let deep = agents.join("workflows/run-1");
    fs::create_dir_all(&deep).unwrap();
    let side = |mut entry: Value| {
        entry["isSidechain"] = json!(true);
        format!("{entry}\n")
    };
    let text = side(user("s1", None, "Count.")) + &side(assistant("s2", "s1", "3"));
    fs::write(agents.join("agent-b.jsonl"), &text).unwrap();
    fs::write(deep.join("agent-a.jsonl"), &text).unwrap();
    fs::write(deep.join("other.jsonl"), &text).unwrap();
    let note = json!({"agentType": "general-purpose", "description": "count", "toolUseId": "t1", "parentAgentId": "b", "x": 1});
    fs::write(deep.join("agent-a.meta.json"), note.to_string()).unwrap();
    fs::write(agents.join("agent-b.meta.json"), "{torn").unwrap();
    let listed = home.all().subagents(A).await.unwrap();
    assert_eq!(listed.iter().map(|agent| agent.agent_id.as_str()).collect::<Vec<_>>(), ["b", "a"]);
    assert_eq!((listed[0].agent_type.as_deref(), &listed[0].metadata), (None, &Value::Null));
    assert_eq!(
        (listed[1].agent_type.as_deref(), &listed[1].metadata["x"]),
        (Some("general-purpose"), &json!(1))
    );
    let read = home.all().subagent_messages(A, "a", Page::ALL).await.unwrap();
    assert_eq!(said(&read).join(" "), "s1 s2");
    assert_eq!(read.messages[0].parent_tool_use_id.as_deref(), Some("t1"));
    assert_eq!(read.messages[0].parent_agent_id.as_deref(), Some("b"));
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
    let sessions = home.all().in_directory(&linked);
    assert_eq!(ids(&sessions.list(Page::ALL).await.unwrap()), [A]);
    assert_eq!(sessions.messages(A, Page::ALL).await.unwrap().total, 4);
    let sessions = sessions.without_worktrees();
    assert!(sessions.list(Page::ALL).await.unwrap().is_empty());
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
    let mut options = crate::Options::new();
    options.env_policy = crate::options::EnvPolicy::Clean;
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
