//! The in-process servers, as the CLI knows them: announced by `initialize` or by `mcp_set_servers`; their tools, which may
//! change; their resources; and the tools that the CLI itself has for those.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde_json::{Value, json};

use super::calls::read_answer;
use super::{Player, Stop};
use crate::cli::hand::CliEnd;

/// The servers of the host.
#[derive(Debug, Default)]
pub(super) struct Servers {
    known: BTreeMap<String, Server>,
    /// Requests whose answers tell about a server.
    asked: HashMap<String, ServerRequest>,
    /// A change of all servers that is answered when they have answered.
    change: Option<Change>,
}

#[derive(Debug, Default)]
struct Server {
    read_only: HashSet<String>,
    failed: Option<String>,
}

#[derive(Clone, Debug)]
enum ServerRequest {
    Initialize(String),
    Tools(String),
}

#[derive(Debug)]
struct Change {
    request: Value,
    added: Vec<String>,
    removed: Vec<String>,
}

impl Servers {
    /// The server and the tool that a model's name means.
    pub(super) fn find(&self, name: &str) -> Option<(String, String)> {
        self.known.keys().find_map(|server| {
            let tool = name.strip_prefix(&prefix(server))?;
            Some((server.clone(), tool.to_owned()))
        })
    }

    pub(super) fn is_read_only(&self, name: &str) -> bool {
        self.find(name).is_some_and(|(server, tool)| self.known[&server].read_only.contains(&tool))
    }

    /// The rows of `mcp_status`.
    pub(super) fn status(&self) -> Vec<Value> {
        let row = |(name, server): (&String, &Server)| {
            let status = if server.failed.is_some() { "failed" } else { "connected" };
            json!({ "name": name, "status": status, "source": "sdk" })
        };
        self.known.iter().map(row).collect()
    }

    fn take_tools(&mut self, name: &str, tools_list: &Value) {
        let tools = tools_list["tools"].as_array().into_iter().flatten();
        let read_only = tools.filter(|tool| tool["annotations"]["readOnlyHint"] == true);
        let read_only = read_only.filter_map(|tool| tool["name"].as_str()).map(str::to_owned).collect();
        self.known.entry(name.to_owned()).or_default().read_only = read_only;
    }
}

fn initialize(end: &mut CliEnd, server: &str) -> String {
    let params =
        json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "scripted" } });
    end.mcp(server, json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params }))
}

fn list_tools(end: &mut CliEnd, server: &str) -> String {
    end.mcp(server, json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" }))
}

impl Player {
    /// Takes those that `initialize` names, with what it tells about them. Of the others it asks them themselves.
    pub(super) fn servers_by_initialize(&mut self, request: &Value) {
        let manifests = &request["sdkMcpServerManifests"];
        for name in request["sdkMcpServers"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            match manifests.get(name) {
                Some(manifest) => self.servers.take_tools(name, &manifest["toolsListResult"]),
                None => self.shake_hands(name.to_owned()),
            }
        }
    }

    fn shake_hands(&mut self, name: String) {
        let asked = initialize(&mut self.end, &name);
        self.servers.asked.insert(asked, ServerRequest::Initialize(name.clone()));
        self.servers.known.entry(name).or_default();
    }

    /// The host sets all servers: each is asked anew, those that were there before as well.
    pub(super) fn set_servers(&mut self, frame: &Value) {
        let servers = &frame["request"]["servers"];
        let inside = servers.as_object().into_iter().flatten().filter(|(_, server)| server["type"] == "sdk");
        let named: Vec<String> = inside.map(|(name, _)| name.clone()).collect();
        let removed: Vec<String> =
            self.servers.known.keys().filter(|name| !named.contains(name)).cloned().collect();
        self.servers.known.retain(|name, _| named.contains(name));
        let added = named.iter().filter(|name| !self.servers.known.contains_key(*name)).cloned().collect();
        for name in named {
            self.shake_hands(name);
        }
        self.servers.change = Some(Change { request: frame.clone(), added, removed });
        self.answer_change();
    }

    fn answer_change(&mut self) {
        if !self.servers.asked.values().any(|request| matches!(request, ServerRequest::Initialize(_)))
            && let Some(Change { request, added, removed }) = self.servers.change.take()
        {
            let failed =
                self.servers.known.iter().filter_map(|(name, server)| Some((name, server.failed.as_ref()?)));
            let errors: BTreeMap<&String, &String> = failed.collect();
            let answer = json!({ "added": added, "removed": removed, "errors": errors });
            self.end.answer(&request, answer);
        }
    }

    /// Whether a frame is the answer of a server to what was asked of it.
    pub(super) fn is_of_server(&self, frame: &Value) -> bool {
        frame["response"]["request_id"].as_str().is_some_and(|id| self.servers.asked.contains_key(id))
    }

    pub(super) fn server_answered(&mut self, response: &Value) {
        let id = response["request_id"].as_str().unwrap_or_default();
        let Some(question) = self.servers.asked.remove(id) else { return };
        let answer = &response["response"]["mcp_response"];
        match question {
            ServerRequest::Initialize(name) => {
                let well = answer["result"].is_object();
                if let Some(server) = self.servers.known.get_mut(&name) {
                    server.failed = (!well).then(|| read_answer(response).0);
                }
                if well {
                    self.end.mcp(&name, json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
                    let listed = list_tools(&mut self.end, &name);
                    self.servers.asked.insert(listed, ServerRequest::Tools(name));
                }
            }
            ServerRequest::Tools(name) if self.servers.known.contains_key(&name) => {
                self.servers.take_tools(&name, &answer["result"]);
            }
            ServerRequest::Tools(_) => {}
        }
        self.answer_change();
    }

    /// A server says something of its own accord: that its tools are others now, how far a call has come, or a request,
    /// which is refused as the CLI does.
    pub(super) fn server_says(&mut self, frame: &Value) {
        let (server, message) = (frame["request"]["server_name"].as_str(), &frame["request"]["message"]);
        self.end.answer(frame, json!({}));
        let Some(server) = server else { return };
        match (message["method"].as_str(), message.get("id")) {
            (Some("notifications/tools/list_changed"), _) => {
                let listed = list_tools(&mut self.end, server);
                self.servers.asked.insert(listed, ServerRequest::Tools(server.to_owned()));
            }
            (Some(_), Some(id)) => {
                let error = json!({ "code": -32601, "message": "Method not found" });
                self.end.mcp(server, json!({ "jsonrpc": "2.0", "id": id, "error": error }));
            }
            _ => {}
        }
    }

    /// Waits until every server has answered what it was asked.
    pub(super) async fn settle_servers(&mut self) -> Result<(), Stop> {
        while let Some(request) = self.servers.asked.keys().next().cloned() {
            let answer = self.wait_for(&request).await?;
            self.server_answered(&answer);
        }
        Ok(())
    }

    /// Whether a tool of the CLI's own may run without asking.
    pub(super) fn needs_no_permission(&self, name: &str) -> bool {
        matches!(name, "ListMcpResourcesTool" | "ReadMcpResourceTool" | "StructuredOutput")
    }

    /// The tools that the CLI has itself; what the model reads, and whether it is an error.
    pub(super) async fn built_in(
        &mut self,
        name: &str,
        input: &Value,
    ) -> Result<Option<(String, bool)>, Stop> {
        match name {
            "StructuredOutput" if self.wants_structured => {
                self.structured = Some(input.clone());
                Ok(Some(("Structured output provided successfully".to_owned(), false)))
            }
            "AskUserQuestion" => {
                let answers = input["answers"].as_object().into_iter().flatten();
                let said: Vec<String> =
                    answers.map(|(question, answer)| format!("\"{question}\"={answer}")).collect();
                Ok(Some((format!("Your questions have been answered: {}.", said.join(", ")), false)))
            }
            "ListMcpResourcesTool" => {
                let only = input["server"].as_str();
                let servers: Vec<String> = self.servers.known.keys().cloned().collect();
                let mut all = Vec::new();
                for server in servers.into_iter().filter(|name| only.is_none_or(|only| only == name)) {
                    let listed = self.ask_server(&server, "resources/list", json!({})).await?;
                    for resource in listed["result"]["resources"].as_array().into_iter().flatten() {
                        let mut resource = resource.clone();
                        resource["server"] = json!(server);
                        all.push(resource);
                    }
                }
                Ok(Some((Value::Array(all).to_string(), false)))
            }
            "ReadMcpResourceTool" => {
                let server = input["server"].as_str().unwrap_or_default();
                let read = self.ask_server(server, "resources/read", json!({ "uri": input["uri"] })).await?;
                Ok(Some(match read["error"]["message"].as_str() {
                    Some(message) => (message.to_owned(), true),
                    None => (read["result"].to_string(), false),
                }))
            }
            _ => Ok(None),
        }
    }

    async fn ask_server(&mut self, server: &str, method: &str, params: Value) -> Result<Value, Stop> {
        let id = self.end.next_rpc_id();
        let message = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        let request = self.end.mcp(server, message);
        let answer = self.wait_for(&request).await?;
        Ok(answer["response"]["mcp_response"].clone())
    }
}

/// The prefix of the names of a server's tools, as the CLI makes it.
fn prefix(server: &str) -> String {
    let safe: String =
        server.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' }).collect();
    format!("mcp__{safe}__")
}
