//! The MCP servers of a session that may come and go, and the plan of a change. Only the supervisor changes the roster.
//!
//! External servers that the CLI was started with are not listed: they stay as long as the CLI runs.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use serde_json::{Map, Value, json};

use super::queue::ServerQueue;
use crate::Options;
use crate::actor::base::gate::Gate;
use crate::error::{Error, Result};
use crate::options::ExternalServer;
use crate::options::check::check_server_name;
use crate::tool::run::blocking::BlockingLane;
use crate::tool::spec::ServerSpec;

/// The MCP servers of a session that may come and go.
#[derive(Clone, Default)]
pub(crate) struct Roster {
    /// Servers in this process, in the order in which they were added.
    inside: Vec<Arc<InsideServer>>,
    /// External servers added at run time, which the CLI connects to itself.
    outside: BTreeMap<String, ExternalServer>,
}

/// A server in this process: what outlives its actors.
pub(crate) struct InsideServer {
    pub(crate) spec: Arc<ServerSpec>,
    /// Bounds the requests in flight to the server.
    pub(crate) gate: Arc<Gate>,
    pub(crate) queue: Arc<ServerQueue>,
    /// Number of states made or tried so far; counted by the actors.
    pub(crate) generations: AtomicU32,
    /// A handler that blocks its thread may outlive the actor.
    pub(crate) blocking: Arc<BlockingLane>,
}

/// A change that a caller asks for.
pub(crate) enum ServerChange {
    /// Adds a server, if the CLI accepts it.
    Add(Addition),
    Remove(String),
    /// Replaces all servers.
    Replace {
        additions: Vec<Addition>,
        kept: Vec<String>,
    },
}

/// A server to add.
#[derive(Clone)]
#[allow(clippy::large_enum_variant, reason = "additions are few and short-lived")]
pub(crate) enum Addition {
    Inside(Arc<ServerSpec>),
    Outside(String, ExternalServer),
}

impl Addition {
    /// A copy for another session.
    pub(crate) fn for_another_session(&self) -> Self {
        match self {
            Self::Inside(spec) => Self::Inside(Arc::new(ServerSpec::clone(spec))),
            Self::Outside(..) => self.clone(),
        }
    }

    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Inside(spec) => &spec.name,
            Self::Outside(name, _) => name,
        }
    }
}

/// The plan of a change.
pub(crate) struct ChangePlan {
    /// The servers until the CLI has answered: old and new.
    pub(crate) meanwhile: Arc<Roster>,
    /// The servers after the change.
    pub(crate) target: Arc<Roster>,
    /// New servers in this process.
    pub(crate) start: Vec<Arc<ServerSpec>>,
    /// Servers in this process to stop.
    pub(crate) stop: Vec<String>,
    /// New servers that the CLI must accept, or the change fails: those in this process, and the server of a
    /// single-server change.
    pub(crate) needed: Vec<String>,
    /// A single-server change: all or nothing.
    pub(crate) alone: bool,
}

impl Roster {
    pub(crate) fn new(servers: Vec<Arc<ServerSpec>>, options: &Options) -> Self {
        let mut roster = Self::default();
        for server in servers {
            roster.put(Addition::Inside(server), options);
        }
        roster
    }

    /// Servers in this process.
    pub(crate) fn inside(&self) -> &[Arc<InsideServer>] {
        &self.inside
    }

    /// The server with this name.
    pub(crate) fn server(&self, name: &str) -> Option<&Arc<InsideServer>> {
        self.inside.iter().find(|server| server.spec.name == name)
    }

    /// Whether `initialize` announces all servers: external servers added at run time are told to the running CLI.
    pub(crate) fn is_announced_at_start(&self) -> bool {
        self.outside.is_empty()
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        self.inside
            .iter()
            .map(|server| server.spec.name.as_str())
            .chain(self.outside.keys().map(String::as_str))
    }

    fn put(&mut self, addition: Addition, options: &Options) {
        match addition {
            Addition::Inside(spec) => {
                let (name, limit) = (spec.name.clone(), options.limits.calls_per_server);
                let queue = ServerQueue::new(name.clone(), limit, options.timeouts.server_restart);
                self.inside.push(Arc::new(InsideServer {
                    spec,
                    gate: Arc::new(Gate::new(Some(name), limit)),
                    queue: Arc::new(queue),
                    generations: AtomicU32::new(0),
                    blocking: BlockingLane::new(options.limits.blocking_calls),
                }));
            }
            Addition::Outside(name, server) => drop(self.outside.insert(name, server)),
        }
    }

    fn retain(&mut self, keep: impl Fn(&str) -> bool) {
        self.inside.retain(|server| keep(&server.spec.name));
        self.outside.retain(|name, _| keep(name));
    }

    /// The roster without these servers.
    pub(crate) fn without(&self, names: &[String]) -> Self {
        let mut roster = self.clone();
        roster.retain(|name| !names.iter().any(|gone| gone == name));
        roster
    }

    /// The `mcp_set_servers` request. It replaces all servers set before and all in-process servers from the CLI's
    /// start, so it names each server with its settings.
    pub(crate) fn request(&self) -> Value {
        let mut servers = Map::new();
        for spec in self.inside.iter().map(|server| &server.spec) {
            let mut config = spec.settings();
            config.insert("type".into(), json!("sdk"));
            config.insert("name".into(), json!(spec.name));
            servers.insert(spec.name.clone(), Value::Object(config));
        }
        for (name, server) in &self.outside {
            servers.insert(name.clone(), json!(server));
        }
        json!({ "subtype": "mcp_set_servers", "servers": servers })
    }

    /// The plan of a change; an error if the change is invalid.
    pub(crate) fn plan(&self, change: &ServerChange, options: &Options) -> Result<ChangePlan> {
        let (additions, alone, kept) = match change {
            ServerChange::Add(addition) => {
                (vec![addition.clone()], true, self.names().map(str::to_owned).collect())
            }
            ServerChange::Remove(name) => {
                self.must_have(name, options)?;
                let kept = self.names().filter(|other| other != name).map(str::to_owned).collect();
                (Vec::new(), true, kept)
            }
            ServerChange::Replace { additions, kept } => (additions.clone(), false, kept.clone()),
        };
        for name in &kept {
            self.must_have(name, options)?;
        }
        self.must_be_distinct(&additions, &kept, options)?;

        let mut target = self.clone();
        target.retain(|name| kept.iter().any(|kept| kept == name));
        let mut plan = ChangePlan {
            meanwhile: Arc::default(),
            target: Arc::default(),
            start: Vec::new(),
            stop: self
                .inside
                .iter()
                .map(|server| server.spec.name.clone())
                .filter(|name| !kept.contains(name))
                .collect(),
            needed: Vec::new(),
            alone,
        };
        for addition in additions {
            if alone || matches!(addition, Addition::Inside(_)) {
                plan.needed.push(addition.name().to_owned());
            }
            if let Addition::Inside(spec) = &addition {
                plan.start.push(spec.clone());
            }
            target.put(addition, options);
        }
        let mut meanwhile = self.clone();
        // With the gates of the target, so that requests that arrive meanwhile count there.
        meanwhile.inside.extend(plan.start.iter().filter_map(|spec| target.server(&spec.name).cloned()));
        plan.meanwhile = Arc::new(meanwhile);
        plan.target = Arc::new(target);
        Ok(plan)
    }

    fn must_have(&self, name: &str, options: &Options) -> Result<()> {
        if self.names().any(|known| known == name) {
            return Ok(());
        }
        let error =
            Error::invalid_option(format!("the session has no MCP server '{name}' to keep or remove"));
        Err(if options.mcp_servers.contains_key(name) {
            error.with_help("the CLI was started with it and keeps it; `mcp_toggle` can switch it off")
        } else {
            error.with_help("the snapshot lists those in this process")
        })
    }

    fn must_be_distinct(&self, additions: &[Addition], kept: &[String], options: &Options) -> Result<()> {
        for (index, addition) in additions.iter().enumerate() {
            if let Addition::Inside(spec) = addition {
                spec.validate()?;
            } else {
                check_server_name(addition.name())?;
            }
            // A server that is not kept still exists when the new ones are added.
            let going = match addition {
                Addition::Inside(_) => self.names().collect::<Vec<_>>(),
                Addition::Outside(..) => self.inside.iter().map(|server| server.spec.name.as_str()).collect(),
            };
            let running = going.into_iter().chain(kept.iter().map(String::as_str));
            let others = running
                .map(|name| (name, ServerOrigin::Running))
                .chain(options.mcp_servers.keys().map(|name| (name.as_str(), ServerOrigin::Outside)))
                .chain(additions[..index].iter().map(|added| (added.name(), ServerOrigin::Added)));
            refuse_clash((addition.name(), ServerOrigin::Added), others)?;
        }
        Ok(())
    }
}

/// Where the definition of a server comes from, for error texts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ServerOrigin<'a> {
    /// A server in this process, of the builder.
    Inside,
    /// An external server of the options.
    Outside,
    /// A file of the options.
    File(&'a Path),
    /// A server of the running session.
    Running,
    /// A server that is added to the running session.
    Added,
}

impl fmt::Display for ServerOrigin<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inside => f.write_str("`mcp_server`"),
            Self::Outside => f.write_str("`external_mcp_server` or `Options::mcp_servers`"),
            Self::File(path) => write!(f, "the file '{}' of `Options::mcp_config_files`", path.display()),
            Self::Running => f.write_str("the running session"),
            Self::Added => f.write_str("this change of its servers"),
        }
    }
}

/// An error if the names of two servers' tools would have the same prefix.
pub(crate) fn refuse_clash<'a>(
    (name, origin): (&str, ServerOrigin<'_>),
    mut others: impl Iterator<Item = (&'a str, ServerOrigin<'a>)>,
) -> Result<()> {
    let prefix = ServerSpec::prefix(name);
    let Some((other, from)) = others.find(|(other, _)| ServerSpec::prefix(other) == prefix) else {
        return Ok(());
    };
    let text = match (other == name, from == origin) {
        (true, true) => format!("two MCP servers have the name '{name}', both from {origin}"),
        (true, false) => {
            format!("two MCP servers have the name '{name}': one is from {from}, the other from {origin}")
        }
        (false, _) => format!(
            "two MCP servers have names that the CLI cannot tell apart: '{other}' is from {from}, '{name}' is from \
             {origin}, and the tools of both are `{prefix}...` to the model"
        ),
    };
    Err(Error::invalid_option(text).with_help("give one of them another name"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::server::ToolServer;

    fn inside(name: &str) -> Addition {
        Addition::Inside(Arc::new(ToolServer::<()>::new(name, "1").spec().clone()))
    }

    fn outside(name: &str) -> Addition {
        Addition::Outside(name.into(), ExternalServer::http("http://127.0.0.1:9/mcp"))
    }

    fn roster(additions: Vec<Addition>) -> Roster {
        let mut roster = Roster::default();
        additions.into_iter().for_each(|addition| roster.put(addition, &Options::default()));
        roster
    }

    fn names(roster: &Roster) -> Vec<&str> {
        roster.names().collect()
    }

    #[test]
    fn unnamed_servers_go_after_the_new_ones_are_there() {
        let before = roster(vec![inside("a"), inside("b"), outside("x"), outside("y")]);
        let change = ServerChange::Replace {
            additions: vec![inside("c"), outside("y"), outside("z")],
            kept: vec!["b".into(), "x".into()],
        };
        let plan = before.plan(&change, &Options::default()).unwrap();
        assert_eq!(names(&plan.target), ["b", "c", "x", "y", "z"]);
        assert_eq!(names(&plan.meanwhile), ["a", "b", "c", "x", "y"]);
        assert_eq!((plan.stop, plan.needed), (vec!["a".to_owned()], vec!["c".to_owned()]));
        let gate = |roster: &Roster, name| roster.server(name).unwrap().gate.clone();
        let same = |name| Arc::ptr_eq(&gate(&plan.meanwhile, name), &gate(&plan.target, name));
        assert!(same("b") && same("c"), "requests in flight keep their gate");
        assert!(plan.target.server("a").is_none());
    }

    #[test]
    fn names_with_the_same_tool_prefix_are_refused() {
        let before = roster(vec![inside("my.calc"), outside("web")]);
        let mut options = Options::default();
        options.mcp_servers.insert("launched".into(), ExternalServer::http("http://127.0.0.1:9/mcp"));
        let refused = |change| before.plan(&change, &options).err().unwrap().to_string();
        for clash in [inside("my_calc"), outside("my_calc"), inside("web"), outside("launched")] {
            assert!(refused(ServerChange::Add(clash)).contains("two MCP servers"));
        }
        let twins = ServerChange::Replace { additions: vec![inside("n"), inside("n")], kept: Vec::new() };
        assert!(refused(twins).contains("two MCP servers"));
        let again = ServerChange::Replace { additions: vec![inside("my.calc")], kept: Vec::new() };
        assert!(refused(again).contains("two MCP servers"), "it is gone only after the new one is there");
        assert!(refused(ServerChange::Remove("nobody".into())).contains("'nobody'"));
        assert!(refused(ServerChange::Remove("launched".into())).contains("'launched'"));
        assert!(refused(ServerChange::Add(outside(" "))).contains("1 to 128"));
    }

    #[test]
    fn the_request_names_every_server_with_its_settings() {
        let calc = ToolServer::<()>::new("calc", "1").cli_timeout(std::time::Duration::from_secs(5));
        let program = Addition::Outside("program".into(), ExternalServer::stdio("it", Vec::<String>::new()));
        let before = roster(vec![Addition::Inside(Arc::new(calc.spec().clone()))]);
        let plan = before.plan(&ServerChange::Add(outside("web")), &Options::default()).unwrap();
        let servers = json!({
            "calc": { "type": "sdk", "name": "calc", "timeout": 5000 },
            "web": { "type": "http", "url": "http://127.0.0.1:9/mcp" },
        });
        assert_eq!(plan.target.request(), json!({ "subtype": "mcp_set_servers", "servers": servers }));
        assert_eq!(plan.needed, ["web"]);
        let program = &roster(vec![program]).request()["servers"]["program"];
        assert_eq!(*program, json!({ "type": "stdio", "command": "it", "args": [] }));
        assert!(!plan.target.is_announced_at_start() && before.is_announced_at_start());
    }
}
