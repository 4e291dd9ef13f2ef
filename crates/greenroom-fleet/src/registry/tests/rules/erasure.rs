//! Promises about deletions: the rows of a name, and its files on hosts.

use greenroom::sessions::TranscriptEntry;
use greenroom::store::SessionKey;
use serde_json::json;
use uuid::Uuid;

use super::stage::{
    Checked, LEASE, Stage, accept, accept_with_continuation, name, promises, same, unexpected,
};
use crate::admin::hosts::{HostError, forget_host, move_to_host};
use crate::backend::Requests;
use crate::id::{AttemptId, NodeId, PromptId, QuestionId, Timestamp};
use crate::record::{CommandKind, CommandRecord, NameState};
use crate::registry::{FIRST_KEY, Lane, Part, Range, Row, Table, Wanted};
use crate::request::{
    Accept, Accepted, Answered, Append, AppendEntries, Ask, Claimed, CommandPut, Erasure, FilesLeft, Owned,
    Ownership, TranscriptsOf, Withdrawn,
};

promises! {
    "no row but its usage has anything of a deleted name" => nothing_left,
    "the deletion of a name leaves the rows of others" => others,
    "a host has its files of a deleted name listed until it has removed them, also when the name is gone" => hosts,
    "a deletion that goes on touches nothing of a name that was made anew" => anew,
    "a name that is bound to a host is bound to another one while it rests" => moves,
    "a host that is gone is forgotten with its files and processes, and not while a node of it is alive" => forgets,
}

/// All rows but those of nodes and counters of tenants.
async fn rows(stage: &Stage) -> Checked<Vec<Row>> {
    let (from, to, part) = (FIRST_KEY.to_vec(), vec![u8::MAX], Part::Values);
    let range = Range { from, to, limit: 100_000, part };
    let wanted = Wanted { ranges: [range.clone()].into(), ..Wanted::default() };
    let mut rows = stage.backend.read(Lane::Requests, wanted).await?;
    Ok(rows.ranges.remove(&range).unwrap_or_default())
}

fn has(bytes: &[u8], needle: &[u8]) -> bool {
    bytes.windows(needle.len()).any(|window| window == needle)
}

/// The rows with a text or an id in their keys or values.
fn rows_with<'a>(rows: &'a [Row], texts: &[&str], ids: &[Uuid]) -> Vec<&'a Row> {
    let texts = texts.iter().map(|text| text.as_bytes().to_vec());
    let ids = ids.iter().flat_map(|id| [id.as_bytes().to_vec(), id.to_string().into_bytes()]);
    let needles: Vec<_> = texts.chain(ids).collect();
    let found = |(key, value): &&Row| needles.iter().any(|needle| has(key, needle) || has(value, needle));
    rows.iter().filter(found).collect()
}

async fn erased(stage: &Stage, of: &str) -> Checked {
    let mut calls = 0;
    while !stage.deleted(of).await? {
        calls += 1;
        same("whether the deletion comes to an end", calls < 1000, true)?;
    }
    Ok(())
}

/// A name that has used every kind of row, and is at rest. Answers with its conversation and with the ids of its prompts and questions.
async fn lived(stage: &Stage, of: &str) -> Checked<(Uuid, Vec<Uuid>)> {
    let conversation = Uuid::new_v4();
    let key = |key: &str| Accept { key: Some(key.to_owned()), conversation, ..accept(of, "hello") };
    let (first, waits) = (stage.accepted(key("one")).await?, stage.accepted(key("two")).await?);
    let later = stage.backend.now().after(LEASE / 2);
    let reminder = stage.accepted(Accept { not_before: Some(later), ..key("three") }).await?;
    let withdrawn = stage.accepted(key("four")).await?;
    same("the answer to a withdrawal", stage.backend.withdraw(withdrawn).await?, Withdrawn::Unsent)?;
    let owner = stage.own(of).await?;
    let process = stage.backend.record_process(owner.clone(), Some(json!({ "pid": 7 }))).await?;
    same("the answer to a process", process, Owned::Done(()))?;
    let (attempt, _) = stage.begin(&owner, first).await?;
    let messages = vec!["\"text\"".to_owned(); 3];
    let append = Append { owner: owner.clone(), prompt: first, first_seq: 1, messages, bound: 1000 };
    same("the last number", stage.backend.append(append).await?, Owned::Done(Some(3)))?;
    let questions = [QuestionId::new(), QuestionId::new()];
    for question in questions {
        let ask =
            Ask { owner: owner.clone(), question, prompt: first, wait: LEASE, call: None, body: json!({}) };
        let _: Owned<_> = stage.backend.ask(ask).await?;
    }
    let _: Answered = stage.backend.answer(questions[0], AttemptId::new(), json!("yes")).await?;
    for ends in [true, false] {
        let command =
            CommandRecord::new(owner.clone(), CommandKind::Passivate, stage.backend.now().after(LEASE));
        let id = command.id;
        let _: CommandPut = stage.backend.put_command(command).await?;
        if ends {
            stage.backend.withdraw_command(id).await?;
        }
    }
    let entry =
        TranscriptEntry::parse(&json!({ "uuid": Uuid::new_v4(), "text": "hello" }).to_string()).unwrap();
    for part in [None, Some("part")] {
        let key = SessionKey::new(conversation.to_string(), conversation.to_string());
        let key = part.map_or(key.clone(), |part| key.with_subpath(part));
        let (owner, entries) = (Some(owner.clone()), vec![entry.clone()]);
        let append = AppendEntries { owner, attempt: AttemptId::new(), key, entries };
        same("the answer to entries", stage.backend.append_entries(append).await?, Owned::Done(()))?;
    }
    stage.complete(&owner, first, attempt).await?;
    same("the answer to the release", stage.backend.release(owner).await?, Owned::Done(true))?;
    let prompts = [first, waits, reminder, withdrawn].map(|prompt| prompt.0);
    Ok((conversation, prompts.into_iter().chain(questions.map(|question| question.0)).collect()))
}

async fn nothing_left(stage: Stage) -> Checked {
    let (conversation, ids) = lived(&stage, "needle").await?;
    let before = rows_with(&rows(&stage).await?, &["needle"], &ids).len();
    same("whether the name has rows", before > 20, true)?;
    stage.delete("needle").await?;
    let transcripts = TranscriptsOf::project(conversation.to_string());
    while !stage.backend.delete_transcripts(transcripts.clone()).await? {}
    for files in stage.backend.files_left(None, 10).await? {
        stage.backend.files_removed(files).await?;
    }
    erased(&stage, "needle").await?;
    let left = rows(&stage).await?;
    let ids: Vec<_> = ids.into_iter().chain([conversation]).collect();
    let left = rows_with(&left, &["needle"], &ids).into_iter().map(|(key, _)| key.clone());
    // The usage of a day stays for the bills of the tenant.
    let left: Vec<_> = left.filter(|key| key[0] != Table::UsageOfName as u8).collect();
    same("the rows of the name", left, Vec::new())?;
    same("the prompts that wait", stage.backend.queued().await?, 0)
}

async fn others(stage: Stage) -> Checked {
    let (_, ids) = lived(&stage, "other").await?;
    let of = |rows: Vec<Row>| rows_with(&rows, &["other"], &ids).into_iter().cloned().collect::<Vec<_>>();
    let before = of(rows(&stage).await?);
    lived(&stage, "othe").await?;
    stage.delete("othe").await?;
    erased(&stage, "othe").await?;
    same("the rows of the other name", of(rows(&stage).await?), before)
}

/// A name that was active on two hosts: `here`, whose node is alive, and `there`, whose node is dead and has left a process.
async fn on_two_hosts(stage: &Stage, of: &str) -> Checked<(Ownership, PromptId)> {
    let (prompt, node) = (stage.prompt(of, "hello").await?, NodeId::new());
    stage.join_on("there", node, std::time::Duration::ZERO).await?;
    let lost = stage.own_by(node, of).await?;
    let process = stage.backend.record_process(lost, Some(json!({ "pid": 7 }))).await?;
    same("the answer to a process", process, Owned::Done(()))?;
    stage.kill(node).await?;
    Ok((stage.own(of).await?, prompt))
}

async fn hosts(stage: Stage) -> Checked {
    let (owner, _) = on_two_hosts(&stage, "a").await?;
    let conversation = stage.backend.name_record(name("a")).await?.unwrap().conversation;
    same("files left before", stage.backend.files_left(None, 10).await?, Vec::new())?;
    same("the release", stage.backend.release(owner).await?, Owned::Done(true))?;
    stage.delete("a").await?;
    stage.delete("a").await?;
    let both = ["here", "there"].map(str::to_owned).to_vec();
    let of = Erasure { conversation, hosts: both.clone() };
    same("the deletion", stage.backend.erasure(name("a")).await?, Some(of.clone()))?;
    let files = |host: &str| FilesLeft { host: host.to_owned(), conversation, name: name("a") };
    same("files left", stage.backend.files_left(None, 10).await?, vec![files("here"), files("there")])?;
    for _ in 0..2 {
        stage.backend.files_removed(files("here")).await?;
        same("hosts left", stage.backend.hosts_left(of.clone()).await?, both[1..].to_vec())?;
    }
    erased(&stage, "a").await?;
    same("the record", stage.backend.name_record(name("a")).await?, None)?;
    same("hosts left after that", stage.backend.hosts_left(of.clone()).await?, both[1..].to_vec())?;
    same("files here", stage.backend.files_left(Some("here".to_owned()), 10).await?, Vec::new())?;
    let there = stage.backend.files_left(Some("there".to_owned()), 10).await?;
    same("files there", there, vec![files("there")])?;
    // The process is ended before the files are removed.
    same("processes left", stage.backend.left_processes_of(name("a")).await?.len(), 1)?;
    stage.backend.files_removed(files("there")).await?;
    same("hosts left at last", stage.backend.hosts_left(of).await?, Vec::new())
}

async fn anew(stage: Stage) -> Checked {
    let (owner, _) = on_two_hosts(&stage, "a").await?;
    same("the release", stage.backend.release(owner.clone()).await?, Owned::Done(true))?;
    let before = stage.backend.name_record(name("a")).await?.unwrap().conversation;
    stage.delete("a").await?;
    erased(&stage, "a").await?;
    let keyed = || Accept { key: Some("k".to_owned()), ..accept_with_continuation("a") };
    let prompt = stage.accepted(keyed()).await?;
    let again = stage.own("a").await?;
    same("whether the term grew", again.term > owner.term, true)?;
    let seen = rows(&stage).await?;
    // The earlier deletion goes on, late.
    same("the answer to an erasure", stage.backend.erase(name("a")).await?, true)?;
    erased(&stage, "a").await?;
    same("the deletion", stage.backend.erasure(name("a")).await?, None)?;
    same("the rows", rows(&stage).await?, seen)?;
    for files in stage.backend.files_left(None, 10).await? {
        same("the conversation", files.conversation, before)?;
        stage.backend.files_removed(files).await?;
    }
    match stage.backend.accept(keyed()).await? {
        Accepted::Duplicate(known) => same("the prompt of the key", known.id, prompt)?,
        other => return unexpected("the key of the new session", other),
    }
    stage.begin(&again, prompt).await?;
    // The new life has files of its own.
    same("the release", stage.backend.release(again).await?, Owned::Done(true))?;
    stage.delete("a").await?;
    let hosts = stage.backend.files_left(None, 10).await?.into_iter().map(|files| files.host);
    same("hosts of the new life", hosts.collect(), vec!["here".to_owned()])?;
    // The earlier deletion ends at last.
    same("the answer", stage.backend.deleted(name("a"), before).await?, true)?;
    let known = stage.backend.name_record(name("a")).await?;
    same("whether the later deletion goes on", known.is_some(), true)
}

async fn moves(stage: Stage) -> Checked {
    let to = |host: &str| move_to_host(&*stage.backend, name("a"), host.to_owned());
    let bound = |to: &str| Accept { host: Some("gone".to_owned()), ..accept(to, "hello") };
    match to("here").await {
        Err(HostError::NotFound(_)) => {}
        other => return unexpected("a name that is not known", other),
    }
    let prompt = stage.accepted(bound("a")).await?;
    same("the claim before", stage.claim_by(stage.node, "a").await?, Claimed::OtherHost("gone".to_owned()))?;
    match to("elsewhere").await {
        Err(HostError::NoNode(_)) => {}
        other => return unexpected("a host without a node", other),
    }
    to("here").await.unwrap();
    to("here").await.unwrap();
    let owner = stage.own("a").await?;
    let node = NodeId::new();
    stage.join_on("elsewhere", node, std::time::Duration::ZERO).await?;
    match to("elsewhere").await {
        Err(HostError::NotAtRest(_)) => {}
        other => return unexpected("a name that is awake", other),
    }
    stage.begin(&owner, prompt).await?;
    same("the release", stage.backend.release(owner).await?, Owned::Done(false))?;
    to("elsewhere").await.unwrap();
    stage.prompt("a", "again").await?;
    // Its owner is lost: the name rests.
    stage.own_by(node, "a").await?;
    stage.kill(node).await?;
    to("here").await.unwrap();
    let record = stage.backend.name_record(name("a")).await?.unwrap();
    same("the name", (record.state, record.host.as_deref()), (NameState::Free, Some("here")))?;
    stage.prompt("b", "hello").await?;
    match move_to_host(&*stage.backend, name("b"), "here".to_owned()).await {
        Err(HostError::NotBound(_)) => Ok(()),
        other => unexpected("a name that is bound to no host", other),
    }
}

async fn forgets(stage: Stage) -> Checked {
    let (owner, _) = on_two_hosts(&stage, "kept").await?;
    let (deleted, _) = on_two_hosts(&stage, "deleted").await?;
    same("the release", stage.backend.release(deleted).await?, Owned::Done(true))?;
    stage.delete("deleted").await?;
    erased(&stage, "deleted").await?;
    stage.accepted(Accept { host: Some("there".to_owned()), ..accept("bound", "hello") }).await?;
    match forget_host(&*stage.backend, "here").await {
        Err(HostError::Alive { .. }) => {}
        other => return unexpected("a host with a living node", other),
    }
    let forgotten = forget_host(&*stage.backend, "there").await.unwrap();
    let counts = (forgotten.files, forgotten.processes, forgotten.bound);
    same("what was forgotten", counts, (2, 2, vec![name("bound")]))?;
    same("files left there", stage.backend.files_left(Some("there".to_owned()), 10).await?, Vec::new())?;
    same("files left here", stage.backend.files_left(Some("here".to_owned()), 10).await?.len(), 1)?;
    same("processes left", stage.backend.left_processes(10).await?, Vec::new())?;
    let again = forget_host(&*stage.backend, "there").await.unwrap();
    same("what is forgotten again", (again.files, again.processes), (0, 0))?;
    same("the release", stage.backend.release(owner).await?, Owned::Done(true))?;
    stage.delete("kept").await?;
    let hosts = stage.backend.erasure(name("kept")).await?.map(|erasure| erasure.hosts);
    same("hosts with files", hosts, Some(vec!["here".to_owned()]))?;
    same("the number forgotten", stage.backend.forget(Timestamp(0), 10).await?, 0)
}
