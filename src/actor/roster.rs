//! Which MCP servers a session has at this moment, and what a change makes of them. The supervisor is the only one
//! that changes it; everybody else looks.
//!
//! Those that the CLI was started with and dials itself are not in here: they stay for as long as it runs.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::admission::Gate;
use crate::error::{Error, Result};
use crate::options::{ExternalServer, Options};
use crate::tool::server::ServerSpec;

/// The MCP servers of a session that may come and go.
#[derive(Clone, Debug, Default)]
pub(crate) struct Roster {
    /// Those in this process, in the order in which they came.
    inside: Vec<Arc<ServerSpec>>,
    /// The requests in flight to each of them.
    gates: HashMap<String, Arc<Gate>>,
    /// Those that were added at run time and that the CLI dials itself.
    outside: BTreeMap<String, ExternalServer>,
}

/// What a caller wishes.
#[derive(Debug)]
pub(crate) enum Change {
    /// One more, if the CLI takes it.
    Add(Addition),
    Remove(String),
    /// These and no others.
    Replace {
        additions: Vec<Addition>,
        kept: Vec<String>,
    },
}

/// A server that is to be there.
#[derive(Clone, Debug)]
pub(crate) enum Addition {
    Inside(Arc<ServerSpec>),
    Outside(String, ExternalServer),
}

impl Addition {
    /// The same for a session of its own.
    pub(crate) fn anew(&self) -> Self {
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

/// What a change comes to.
#[derive(Debug)]
pub(crate) struct Plan {
    /// What there is while the CLI has not answered: the old and the new.
    pub(crate) meanwhile: Arc<Roster>,
    /// What there is to be.
    pub(crate) target: Arc<Roster>,
    /// The servers in this process that are new.
    pub(crate) start: Vec<Arc<ServerSpec>>,
    /// Those that are to go.
    pub(crate) stop: Vec<String>,
    /// The new ones without which the change has failed: one of ours that the CLI cannot talk to, and whatever was
    /// asked for alone.
    pub(crate) needed: Vec<String>,
    /// Whether one was asked for, which the CLI takes or the whole change has failed.
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

    /// The servers in this process.
    pub(crate) fn inside(&self) -> &[Arc<ServerSpec>] {
        &self.inside
    }

    pub(crate) fn gate(&self, server: &str) -> Option<&Arc<Gate>> {
        self.gates.get(server)
    }

    /// Whether the CLI knows from its start all that there is: what it dials itself it is told when it runs.
    pub(crate) fn is_announced_at_start(&self) -> bool {
        self.outside.is_empty()
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        self.inside.iter().map(|spec| spec.name.as_str()).chain(self.outside.keys().map(String::as_str))
    }

    fn put(&mut self, addition: Addition, options: &Options) {
        match addition {
            Addition::Inside(spec) => {
                let gate = Gate::new(Some(spec.name.clone()), options.limits.calls_per_server);
                self.gates.insert(spec.name.clone(), Arc::new(gate));
                self.inside.push(spec);
            }
            Addition::Outside(name, server) => drop(self.outside.insert(name, server)),
        }
    }

    fn retain(&mut self, keep: impl Fn(&str) -> bool) {
        self.inside.retain(|spec| keep(&spec.name));
        self.gates.retain(|name, _| keep(name));
        self.outside.retain(|name, _| keep(name));
    }

    /// The same without these.
    pub(crate) fn without(&self, names: &[String]) -> Self {
        let mut roster = self.clone();
        roster.retain(|name| !names.iter().any(|gone| gone == name));
        roster
    }

    /// The control request that makes the CLI's servers these. It replaces all that were set so before, and all
    /// in-process ones from its start, so each is named with its settings.
    pub(crate) fn request(&self) -> Value {
        let mut servers = Map::new();
        for spec in &self.inside {
            let mut config = spec.settings();
            config.insert("type".into(), json!("sdk"));
            config.insert("name".into(), json!(spec.name));
            servers.insert(spec.name.clone(), Value::Object(config));
        }
        for (name, server) in &self.outside {
            let mut config = json!(server);
            if matches!(server, ExternalServer::Stdio { args, .. } if args.is_empty()) {
                // Here CLI 2.1.328 was seen not to connect without them, other than in `--mcp-config`.
                config["args"] = json!([]);
            }
            servers.insert(name.clone(), config);
        }
        json!({ "subtype": "mcp_set_servers", "servers": servers })
    }

    /// What a change would make of these servers; an error if it cannot be.
    pub(crate) fn plan(&self, change: &Change, options: &Options) -> Result<Plan> {
        let (additions, alone, kept) = match change {
            Change::Add(addition) => {
                (vec![addition.clone()], true, self.names().map(str::to_owned).collect())
            }
            Change::Remove(name) => {
                self.must_have(name, options)?;
                let kept = self.names().filter(|other| other != name).map(str::to_owned).collect();
                (Vec::new(), true, kept)
            }
            Change::Replace { additions, kept } => (additions.clone(), false, kept.clone()),
        };
        for name in &kept {
            self.must_have(name, options)?;
        }
        self.must_be_distinct(&additions, &kept, options)?;

        let mut target = self.clone();
        target.retain(|name| kept.iter().any(|kept| kept == name));
        let mut plan = Plan {
            meanwhile: Arc::default(),
            target: Arc::default(),
            start: Vec::new(),
            stop: self
                .inside
                .iter()
                .map(|spec| spec.name.clone())
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
        for spec in &plan.start {
            // The gate of the target, so that what comes in meanwhile is counted there.
            meanwhile.gates.extend(target.gate(&spec.name).map(|gate| (spec.name.clone(), gate.clone())));
            meanwhile.inside.push(spec.clone());
        }
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
            } else if addition.name().trim().is_empty() {
                return Err(Error::invalid_option("an external MCP server has no name"));
            }
            // One that is there and not kept is gone only when the new ones are there already.
            let going = match addition {
                Addition::Inside(_) => self.names().collect::<Vec<_>>(),
                Addition::Outside(..) => self.inside.iter().map(|spec| spec.name.as_str()).collect(),
            };
            let others = going
                .into_iter()
                .chain(kept.iter().map(String::as_str))
                .chain(options.mcp_servers.keys().map(String::as_str))
                .chain(additions[..index].iter().map(Addition::name));
            refuse_clash(addition.name(), others)?;
        }
        Ok(())
    }
}

/// An error if the CLI could not tell a server from one of the others: by the names of their tools.
pub(crate) fn refuse_clash<'a>(name: &str, mut others: impl Iterator<Item = &'a str>) -> Result<()> {
    let prefix = ServerSpec::prefix(name);
    match others.find(|other| ServerSpec::prefix(other) == prefix) {
        None => Ok(()),
        Some(other) => {
            let text = format!(
                "two MCP servers have the names '{name}' and '{other}', which are '{prefix}' to the CLI"
            );
            Err(Error::invalid_option(text).with_help("give one of them another name"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::ToolServer;

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
    fn what_is_kept_stays_and_what_is_not_named_goes_when_the_new_ones_are_there() {
        let before = roster(vec![inside("a"), inside("b"), outside("x"), outside("y")]);
        let change = Change::Replace {
            additions: vec![inside("c"), outside("y"), outside("z")],
            kept: vec!["b".into(), "x".into()],
        };
        let plan = before.plan(&change, &Options::default()).unwrap();
        assert_eq!(names(&plan.target), ["b", "c", "x", "y", "z"]);
        assert_eq!(names(&plan.meanwhile), ["a", "b", "c", "x", "y"]);
        assert_eq!((plan.stop, plan.needed), (vec!["a".to_owned()], vec!["c".to_owned()]));
        let same = |name| Arc::ptr_eq(plan.meanwhile.gate(name).unwrap(), plan.target.gate(name).unwrap());
        assert!(same("b") && same("c"), "what is in flight is counted on");
        assert!(plan.target.gate("a").is_none());
    }

    #[test]
    fn names_that_the_cli_could_not_tell_apart_are_refused() {
        let before = roster(vec![inside("my calc"), outside("web")]);
        let mut options = Options::default();
        options.mcp_servers.insert("launched".into(), ExternalServer::http("http://127.0.0.1:9/mcp"));
        let refused = |change| before.plan(&change, &options).unwrap_err().to_string();
        for clash in [inside("my_calc"), outside("my.calc"), inside("web"), outside("launched")] {
            assert!(refused(Change::Add(clash)).contains("two MCP servers"));
        }
        let twins = Change::Replace { additions: vec![inside("n"), inside("n")], kept: Vec::new() };
        assert!(refused(twins).contains("two MCP servers"));
        let again = Change::Replace { additions: vec![inside("my calc")], kept: Vec::new() };
        assert!(refused(again).contains("two MCP servers"), "it is gone only after the new one is there");
        assert!(refused(Change::Remove("nobody".into())).contains("'nobody'"));
        assert!(refused(Change::Remove("launched".into())).contains("'launched'"));
        assert!(refused(Change::Add(outside(" "))).contains("no name"));
    }

    #[test]
    fn every_server_is_named_with_its_settings() {
        let calc = ToolServer::<()>::new("calc", "1").cli_timeout(std::time::Duration::from_secs(5));
        let program = Addition::Outside("program".into(), ExternalServer::stdio("it", Vec::<String>::new()));
        let before = roster(vec![Addition::Inside(Arc::new(calc.spec().clone()))]);
        let plan = before.plan(&Change::Add(outside("web")), &Options::default()).unwrap();
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
