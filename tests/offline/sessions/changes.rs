//! Sessions are renamed, tagged, deleted and forked.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;

use greenroom::ErrorKind;
use greenroom::sessions::Page;

use super::*;

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
async fn an_empty_transcript_is_deleted_alone_and_beside_another() {
    let home = Home::new();
    let path = home.write(A, 1, &talk());
    let beside = path.parent().unwrap().with_file_name("-srv-elsewhere");
    fs::create_dir_all(&beside).unwrap();
    let empty = beside.join(path.file_name().unwrap());
    fs::write(&empty, "").unwrap();
    home.all().delete(A).await.unwrap();
    assert!(!path.exists() && !empty.exists());
    fs::write(&empty, "").unwrap();
    home.all().delete(A).await.unwrap();
    assert!(!empty.exists());
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
    let mode = fs::metadata(path.with_file_name(format!("{fork}.jsonl"))).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}
