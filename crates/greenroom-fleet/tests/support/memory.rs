//! Scripted CLIs that remember: they answer with all prompts of their conversation, read from its transcript.
//!
//! | prompt | what the CLI does |
//! |---|---|
//! | `late` | answers, and writes one more entry a second later |
//! | `two entries` | writes one more entry, `the second`, before it answers |
//! | `long` | writes an entry of 64 KiB |
//! | anything else | answers with all prompts so far |

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use greenroom::options::StoreFlush;
use greenroom::transport::Exit;
use greenroom::{Session, SessionBuilder};
use greenroom_testkit::{CliEnd, ScriptedCli};
use serde_json::{Value, json};

/// The CLIs of a test, for all its fleets.
#[derive(Clone, Default)]
pub(crate) struct Remembering {
    /// The configuration folders of all starts.
    folders: Arc<Mutex<Vec<PathBuf>>>,
}

impl Remembering {
    /// A session whose entries go to the store at once.
    pub(crate) fn session(&self) -> SessionBuilder {
        let (transport, mut listener) = ScriptedCli::by_hand();
        let folders = self.folders.clone();
        tokio::spawn(async move {
            while let Some(end) = listener.try_accept().await {
                let folder = PathBuf::from(&end.launch().command.env["CLAUDE_CONFIG_DIR"]);
                folders.lock().unwrap().push(folder.clone());
                tokio::spawn(play(end, folder));
            }
        });
        let eager = |options: &mut greenroom::Options| options.store.flush = StoreFlush::Eager;
        Session::builder().transport(transport).configure(eager)
    }

    pub(crate) fn folders(&self) -> Vec<PathBuf> {
        self.folders.lock().unwrap().clone()
    }
}

async fn play(mut end: CliEnd, folder: PathBuf) {
    end.handshake().await;
    let file = transcript(&folder, end.session_id());
    let mut said = remembered(&folder, end.session_id());
    while let Some(frame) = end.recv().await {
        if frame["type"] == "control_request" {
            end.answer(&frame, json!({}));
        }
        if frame["type"] != "user" {
            continue;
        }
        let content = &frame["message"]["content"];
        let text = content.as_str().or_else(|| content[0]["text"].as_str()).unwrap().to_owned();
        end.begin_turn();
        match &*text {
            "long" => writes(&mut end, &file, &"x".repeat(64 << 10)),
            text => writes(&mut end, &file, text),
        }
        if text == "two entries" {
            writes(&mut end, &file, "the second");
        }
        said.push(text.clone());
        finish(&mut end, &frame, &said.join(", "));
        if text == "late" {
            tokio::time::sleep(Duration::from_secs(1)).await;
            writes(&mut end, &file, "too late");
        }
    }
    end.exit(Exit::Code(0));
}

/// A transcript where the CLI would have it.
pub(crate) fn transcript(folder: &Path, conversation: &str) -> PathBuf {
    folder.join("projects/p").join(format!("{conversation}.jsonl"))
}

/// A line of a transcript.
pub(crate) fn line(text: &str) -> Value {
    json!({ "type": "user", "uuid": uuid::Uuid::new_v4(), "message": { "role": "user", "content": text } })
}

fn writes(end: &mut CliEnd, file: &Path, text: &str) {
    end.message(json!({ "type": "transcript_mirror", "filePath": file, "entries": [line(text)] }));
}

/// The prompts in the transcripts of this conversation.
fn remembered(folder: &Path, conversation: &str) -> Vec<String> {
    let projects = std::fs::read_dir(folder.join("projects")).into_iter().flatten().flatten();
    let files = projects.map(|project| project.path().join(format!("{conversation}.jsonl")));
    let texts = files.filter_map(|file| std::fs::read_to_string(file).ok());
    let lines: Vec<Value> = texts
        .flat_map(|text| text.lines().map(|line| serde_json::from_str(line).unwrap()).collect::<Vec<_>>())
        .collect();
    lines.iter().filter_map(|line| Some(line["message"]["content"].as_str()?.to_owned())).collect()
}

fn finish(end: &mut CliEnd, prompt: &Value, text: &str) {
    end.message(json!({
        "type": "result", "subtype": "success", "is_error": false, "result": text, "num_turns": 1,
        "duration_ms": 0, "duration_api_ms": 0, "total_cost_usd": 0.0, "terminal_reason": "completed",
        "usage": { "input_tokens": 1, "output_tokens": 1 }, "user_message_uuids": [prompt["uuid"]],
    }));
}
