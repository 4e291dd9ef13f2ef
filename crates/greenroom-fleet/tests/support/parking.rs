//! Scripted CLIs that ask for a permission, write their transcripts, and ask again for a call that the transcript has as deferred.
//!
//! | prompt | what the CLI does |
//! |---|---|
//! | `run` | asks for the permission to run a tool, and says what has become of it |
//! | anything else | answers |

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use greenroom::options::StoreFlush;
use greenroom::transport::Exit;
use greenroom::{Session, SessionBuilder};
use greenroom_testkit::{CliEnd, ScriptedCli};
use serde_json::{Value, json};

/// The CLIs of a test, for all its fleets.
#[derive(Clone, Default)]
pub(crate) struct Parking {
    /// The calls that have run, with their arguments.
    ran: Arc<Mutex<Vec<(String, Value)>>>,
    /// The calls that were asked about again.
    asked_again: Arc<Mutex<Vec<String>>>,
}

impl Parking {
    /// A session whose entries go to the store at once.
    pub(crate) fn session(&self) -> SessionBuilder {
        let (transport, mut listener) = ScriptedCli::by_hand();
        let clis = self.clone();
        tokio::spawn(async move {
            while let Some(end) = listener.try_accept().await {
                tokio::spawn(clis.clone().play(end));
            }
        });
        let eager = |options: &mut greenroom::Options| {
            options.store.flush = StoreFlush::Eager;
            options.restarts.cli.intensity = 0;
        };
        Session::builder().transport(transport).configure(eager)
    }

    pub(crate) fn ran(&self) -> Vec<(String, Value)> {
        self.ran.lock().unwrap().clone()
    }

    pub(crate) fn asked_again(&self) -> Vec<String> {
        self.asked_again.lock().unwrap().clone()
    }

    async fn play(self, mut end: CliEnd) {
        let folder = PathBuf::from(&end.launch().command.env["CLAUDE_CONFIG_DIR"]);
        let conversation = end.session_id().to_owned();
        let file = folder.join("projects/p").join(format!("{conversation}.jsonl"));
        end.handshake().await;
        let mut open = None;
        if let Some(call) = deferred(&folder, &conversation) {
            self.asked_again.lock().unwrap().push(call.clone());
            end.begin_turn();
            open = Some(ask(&mut end, call));
        }
        let mut prompt = json!({});
        while let Some(frame) = end.recv().await {
            match frame["type"].as_str() {
                Some("control_request") if frame["request"]["subtype"] == "interrupt" => {
                    end.answer(&frame, json!({}));
                    if open.take().is_some() {
                        end.fail_turn(&prompt, "aborted_tools", "interrupted");
                    }
                }
                Some("control_request") => end.answer(&frame, json!({})),
                Some("user") => {
                    let content = &frame["message"]["content"];
                    let text = content.as_str().or_else(|| content[0]["text"].as_str()).unwrap().to_owned();
                    prompt = frame;
                    end.begin_turn();
                    writes(&mut end, &file, "user", json!({ "role": "user", "content": text }));
                    if text == "run" {
                        let call = format!("call-{}", uuid::Uuid::new_v4());
                        says(
                            &mut end,
                            &file,
                            json!({ "type": "tool_use", "id": call, "name": "Bash", "input": { "command": "ls" } }),
                        );
                        open = Some(ask(&mut end, call));
                    } else {
                        finish(&mut end, &prompt, "Here I am.");
                    }
                }
                Some("control_response") => {
                    let Some((request, call)) =
                        open.take_if(|(request, _)| frame["response"]["request_id"] == **request)
                    else {
                        continue;
                    };
                    drop(request);
                    let answer = &frame["response"]["response"];
                    let text = match answer["behavior"].as_str() {
                        Some("allow") => {
                            self.ran.lock().unwrap().push((call.clone(), answer["updatedInput"].clone()));
                            "ran".to_owned()
                        }
                        _ => format!("denied: {}", answer["message"].as_str().unwrap_or_default()),
                    };
                    let result = json!({ "type": "tool_result", "tool_use_id": call, "content": text });
                    writes(&mut end, &file, "user", json!({ "role": "user", "content": [result] }));
                    says(&mut end, &file, json!({ "type": "text", "text": text }));
                    finish(&mut end, &prompt, &text);
                }
                _ => {}
            }
        }
        end.exit(Exit::Code(0));
    }
}

/// Asks for the permission to run a call.
fn ask(end: &mut CliEnd, call: String) -> (String, String) {
    let request = end.request(json!({
        "subtype": "can_use_tool", "tool_name": "Bash", "input": { "command": "ls" }, "tool_use_id": call,
    }));
    (request, call)
}

fn says(end: &mut CliEnd, file: &std::path::Path, block: Value) {
    let message = json!({
        "id": format!("msg-{}", uuid::Uuid::new_v4()), "type": "message", "role": "assistant", "model": "scripted",
        "content": [block], "usage": { "input_tokens": 1, "output_tokens": 1 },
    });
    end.message(json!({ "type": "assistant", "message": message }));
    writes(end, file, "assistant", message);
}

fn writes(end: &mut CliEnd, file: &std::path::Path, kind: &str, message: Value) {
    let entry = json!({ "type": kind, "uuid": uuid::Uuid::new_v4(), "cwd": "/", "message": message });
    end.message(json!({ "type": "transcript_mirror", "filePath": file, "entries": [entry] }));
}

/// The call that ends the transcript of a conversation as deferred.
fn deferred(folder: &std::path::Path, conversation: &str) -> Option<String> {
    let projects = std::fs::read_dir(folder.join("projects")).ok()?.flatten();
    let files = projects.map(|project| project.path().join(format!("{conversation}.jsonl")));
    let text = files.filter_map(|file| std::fs::read_to_string(file).ok()).next()?;
    let last: Value = serde_json::from_str(text.lines().last()?).unwrap();
    let attachment = &last["attachment"];
    (attachment["type"] == "hook_deferred_tool").then(|| attachment["toolUseID"].as_str().unwrap().to_owned())
}

fn finish(end: &mut CliEnd, prompt: &Value, text: &str) {
    let mut result = json!({
        "type": "result", "subtype": "success", "is_error": false, "result": text, "num_turns": 1,
        "duration_ms": 0, "duration_api_ms": 0, "total_cost_usd": 0.0, "terminal_reason": "completed",
        "usage": { "input_tokens": 1, "output_tokens": 1 },
    });
    if !prompt["uuid"].is_null() {
        result["user_message_uuids"] = json!([prompt["uuid"]]);
    }
    end.message(result);
}
