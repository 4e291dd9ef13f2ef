//! Tool calls of a model turn, from permission to result.

use serde_json::{Value, json};

use super::{Item, ModelTurn, Player, Stop, hooks};

impl Player {
    /// Runs the calls of one model turn: read-only calls at once, all others one after another.
    pub(super) async fn calls(&mut self, turn: &ModelTurn) -> Result<(), Stop> {
        let mut waiting: Vec<Waiting> = Vec::new();
        let mut results = Vec::new();
        for item in turn.calls() {
            let Item::Call { name, input, id } = item else { continue };
            let id = id.clone().unwrap_or_default();
            let input = match self.permitted(name, input, &id).await? {
                Ok(input) => input,
                Err(denied) => {
                    results.push(self.result(&id, &denied, true));
                    continue;
                }
            };
            if let Some((text, is_error)) = self.built_in(name, &input).await? {
                results.push(self.ended(name, &input, &id, text, is_error).await?);
                continue;
            }
            self.settle_servers().await?;
            let Some((server, tool)) = self.servers.find(name) else {
                results.push(self.result(&id, &format!("No such tool available: {name}"), true));
                continue;
            };
            let body = self.end.tool_call(&server, &tool, &input, Some(&id));
            let request = self.end.request(body);
            let rpc_id = self.end.last_rpc_id();
            waiting.push(Waiting { request, server, rpc_id, name: name.clone(), input, id });
            if !self.servers.is_read_only(name) {
                self.collect(&mut waiting, &mut results).await?;
            }
        }
        self.collect(&mut waiting, &mut results).await?;
        self.seen.results(results);
        Ok(())
    }

    async fn collect(&mut self, waiting: &mut Vec<Waiting>, results: &mut Vec<String>) -> Result<(), Stop> {
        let requests: Vec<String> = waiting.iter().map(|call| call.request.clone()).collect();
        for request in requests {
            let answer = match self.wait_for(&request).await {
                Ok(answer) => answer,
                Err(stop) => {
                    for call in waiting.drain(..) {
                        self.end.cancel_call(&call.server, call.rpc_id);
                    }
                    return Err(stop);
                }
            };
            let Waiting { name, input, id, .. } = waiting.remove(0);
            let (text, is_error) = read_answer(&answer);
            results.push(self.ended(&name, &input, &id, text, is_error).await?);
        }
        Ok(())
    }

    /// Tells the hooks, then the model, that a tool has run.
    async fn ended(
        &mut self,
        name: &str,
        input: &Value,
        id: &str,
        text: String,
        is_error: bool,
    ) -> Result<String, Stop> {
        let mut told = json!({ "tool_name": name, "tool_input": input, "tool_use_id": id });
        let (event, field, value) = if is_error {
            ("PostToolUseFailure", "error", json!(text))
        } else {
            ("PostToolUse", "tool_response", json!([{ "type": "text", "text": text }]))
        };
        told[field] = value;
        let said = self.hook(event, Some(name), told).await?;
        let text = hooks::replaced(&said).unwrap_or(text);
        Ok(self.result(id, &text, is_error))
    }
}

/// A call without an answer.
struct Waiting {
    request: String,
    server: String,
    rpc_id: u64,
    name: String,
    input: Value,
    id: String,
}

/// The text that the model reads in an answer, and whether the call failed.
pub(super) fn read_answer(answer: &Value) -> (String, bool) {
    if answer["subtype"] == "error" {
        return (answer["error"].as_str().unwrap_or_default().to_owned(), true);
    }
    let response = &answer["response"]["mcp_response"];
    if let Some(message) = response["error"]["message"].as_str() {
        return (message.to_owned(), true);
    }
    let result = &response["result"];
    let blocks = result["content"].as_array().into_iter().flatten();
    let text: Vec<String> =
        blocks.map(|block| block["text"].as_str().map_or_else(|| block.to_string(), str::to_owned)).collect();
    (text.join("\n"), result["isError"] == true)
}
