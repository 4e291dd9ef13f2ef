//! The arguments.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use greenroom_fleet::{
    Credential, FeedCursor, Name, NodeId, PromptCursor, PromptFilter, PromptId, QuarantineKind, QuestionId,
    Tenant, Term,
};

use crate::rows::State;
use crate::text::{read_age, read_day};

const ENDS: &str = "\
The fleet is the one in the database at `--database` or in GREENROOM_DATABASE, or the one of the service that serves `--socket`.
Other users of the host see the arguments of a command. Put an address with a password into GREENROOM_DATABASE, and the other one of `move` into GREENROOM_TO_DATABASE.

Exit status: 0 done, 1 not done or not found, 2 wrong arguments, 3 the fleet cannot be reached.";

/// Looks after a fleet of named agent sessions.
#[derive(Debug, Parser)]
#[command(name = "greenroom", version, after_help = ENDS)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) target: Target,
    /// Writes JSON: an object for each line of a list
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Args, Debug)]
pub(crate) struct Target {
    /// The database of the fleet; GREENROOM_DATABASE keeps the password out of the list of processes
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) database: Option<String>,
    /// The schema of the fleet in the database [default: greenroom_fleet]
    #[arg(long, global = true)]
    pub(crate) schema: Option<String>,
    /// The socket of a service on this host
    #[arg(long, global = true, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Lists the nodes
    Nodes,
    /// Lists sessions
    Names {
        #[command(flatten)]
        names: Names,
        /// Sessions that are shown in this state only
        #[arg(long, value_enum)]
        state: Option<State>,
    },
    /// Lists sessions that somebody has to look at
    Stuck(Names),
    /// Lists the prompts of a session, the newest first
    Prompts(Prompts),
    /// Lists open questions, the nearest deadline first
    Questions {
        /// Questions of this tenant only
        #[arg(long, value_parser = tenant)]
        tenant: Option<Tenant>,
        /// Questions of this session only
        #[arg(long, value_name = "TENANT/SESSION")]
        name: Option<Name>,
        /// The number of questions
        #[arg(long, default_value_t = 100)]
        limit: usize,
    },
    /// Answers a question
    Answer(Answer),
    /// Ends a session, and keeps it from being activated
    Quarantine {
        #[arg(value_name = "TENANT/SESSION")]
        name: Name,
        /// The reason, which is shown with the session
        why: String,
    },
    /// Lets a quarantined session be activated again, or all of them
    Unquarantine(Unquarantine),
    /// Lists credentials that the API rejects for now, whose prompts wait
    Holds,
    /// Lets the prompts of such a credential begin
    Release {
        /// As `holds` lists it: key:NAME or tenant:TENANT/PROFILE
        credential: Credential,
    },
    /// Asks a node to drain
    Drain {
        #[arg(value_parser = node)]
        node: NodeId,
    },
    /// Takes a prompt out of its queue
    Drop {
        #[arg(value_parser = prompt)]
        prompt: PromptId,
        /// The reason, which is in the outcome of the prompt
        why: String,
    },
    /// Moves a tenant that is at rest to another fleet
    Move(Move),
    /// Binds a session that is bound to a host to another one
    MoveToHost {
        #[arg(value_name = "TENANT/SESSION")]
        name: Name,
        host: String,
    },
    /// Forgets a host that is gone for ever, with its disk
    ForgetHost { host: String },
    /// Shows the account of a tenant: sessions, prompts, bytes, money of its period
    Account {
        #[arg(value_parser = tenant)]
        tenant: Tenant,
    },
    /// Lists the money and the tokens that turns have used, by day
    Usage(UsageOf),
    /// Lists what has happened to sessions, from the feed
    Feed(Feed),
    /// Shows or sets the quota of a tenant, for all nodes
    Quota(QuotaOf),
    /// Forgets prompts that ended longer ago than a time
    Vacuum {
        /// The time, such as 90s, 15m, 24h or 7d
        #[arg(value_parser = read_age)]
        age: Duration,
        /// The number of prompts that are forgotten at most
        #[arg(long, default_value_t = 1_000_000)]
        most: usize,
    },
    /// Lists processes that lost owners of a session have left
    Processes {
        #[arg(value_name = "TENANT/SESSION")]
        name: Name,
    },
    /// Removes the record of such a process: end the process first
    RemoveProcess {
        #[arg(value_name = "TENANT/SESSION")]
        name: Name,
        #[arg(value_parser = term)]
        term: Term,
    },
    /// Shows the fleet as it changes; in a pipe, as it is now
    Top(Top),
    /// Writes completions for a shell
    Completions { shell: Shell },
}

// clap names a group after its struct, and the command `Names` has a group of this name.
#[derive(Args, Debug)]
#[group(skip)]
pub(crate) struct Names {
    /// Sessions of this tenant only
    #[arg(long, value_parser = tenant)]
    pub(crate) tenant: Option<Tenant>,
    /// Sessions whose name begins with this text after the tenant
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub(crate) prefix: String,
    /// Sessions with this label only
    #[arg(long, value_name = "KEY=VALUE", value_parser = label)]
    pub(crate) label: Option<(String, String)>,
    /// Sessions after this one
    #[arg(long, value_name = "TENANT/SESSION")]
    pub(crate) after: Option<Name>,
    /// The number of sessions [default: all]
    #[arg(long)]
    pub(crate) limit: Option<usize>,
}

#[derive(Args, Debug)]
pub(crate) struct Prompts {
    #[arg(value_name = "TENANT/SESSION")]
    pub(crate) name: Name,
    /// Prompts in this state only
    #[arg(long, value_enum)]
    pub(crate) state: Option<PromptStage>,
    /// Prompts with this label only
    #[arg(long, value_name = "KEY=VALUE", value_parser = label)]
    pub(crate) label: Option<(String, String)>,
    /// Prompts that are older than this one: the `cursor` in its JSON
    #[arg(long, value_name = "CURSOR")]
    pub(crate) after: Option<PromptCursor>,
    /// The number of prompts
    #[arg(long, default_value_t = 100)]
    pub(crate) limit: usize,
    /// Shows the text of each prompt, which a customer may have written: its first line, or all of it in JSON
    #[arg(long)]
    pub(crate) text: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Unquarantine {
    #[arg(value_name = "TENANT/SESSION", required_unless_present = "all", conflicts_with = "all")]
    pub(crate) name: Option<Name>,
    /// All sessions, such as those that one mended fault has quarantined
    #[arg(long)]
    pub(crate) all: bool,
    /// With `--all`: those of this kind: activations, losses, transcript, process or operator
    #[arg(long, requires = "all", value_parser = kind)]
    pub(crate) kind: Option<QuarantineKind>,
    /// With `--all`: those whose reason has this text
    #[arg(long, requires = "all", value_name = "TEXT")]
    pub(crate) because: Option<String>,
}

#[derive(Args, Debug)]
pub(crate) struct Answer {
    #[arg(value_parser = question)]
    pub(crate) question: QuestionId,
    #[command(flatten)]
    pub(crate) given: Given,
    /// The person who answers
    #[arg(long, value_name = "PERSON")]
    pub(crate) by: Option<String>,
}

#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
pub(crate) struct Given {
    /// Lets the tool run
    #[arg(long)]
    pub(crate) allow: bool,
    /// Refuses, with a reason for the model
    #[arg(long, value_name = "REASON")]
    pub(crate) deny: Option<String>,
    /// Says that nobody decides
    #[arg(long)]
    pub(crate) dismiss: bool,
    /// Gives an answer as JSON: see `InquiryAnswer` of greenroom
    #[arg(long, value_name = "JSON")]
    pub(crate) answer: Option<String>,
}

#[derive(Args, Debug)]
pub(crate) struct QuotaOf {
    #[arg(value_parser = tenant)]
    pub(crate) tenant: Tenant,
    /// The quota; a field that is left out has its default: see `Quota` of greenroom-fleet
    #[arg(long, value_name = "JSON", conflicts_with = "remove")]
    pub(crate) set: Option<String>,
    /// Leaves the quota to the services again
    #[arg(long)]
    pub(crate) remove: bool,
}

#[derive(Args, Debug)]
pub(crate) struct UsageOf {
    /// Usage of this tenant only
    #[arg(long, value_parser = tenant, conflicts_with = "name")]
    pub(crate) tenant: Option<Tenant>,
    /// Usage of this session only
    #[arg(long, value_name = "TENANT/SESSION", conflicts_with = "by_hour")]
    pub(crate) name: Option<Name>,
    /// Sums up each hour in place of each day
    #[arg(long)]
    pub(crate) by_hour: bool,
    /// The number of days up to today
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) days: u32,
    /// The first day, such as 2026-11-27, in place of a number of days
    #[arg(long, value_name = "DAY", value_parser = read_day, conflicts_with = "days")]
    pub(crate) since: Option<SystemTime>,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct Feed {
    /// Entries after this one: the `cursor` in its JSON [default: the oldest entries]
    #[arg(long, value_name = "CURSOR")]
    pub(crate) after: Option<FeedCursor>,
    /// Entries of this tenant only
    #[arg(long, value_parser = tenant)]
    pub(crate) tenant: Option<Tenant>,
    /// The number of entries [default: all]
    #[arg(long)]
    pub(crate) limit: Option<usize>,
    /// Waits for further entries, until it is interrupted
    #[arg(long)]
    pub(crate) follow: bool,
    /// Switches the feed on, and keeps its entries for a time, such as 7d
    #[arg(long, value_name = "TIME", value_parser = read_age, conflicts_with_all = ["after", "tenant", "limit", "follow", "off"])]
    pub(crate) keep: Option<Duration>,
    /// Switches the feed off, and removes its entries
    #[arg(long, conflicts_with_all = ["after", "tenant", "limit", "follow"])]
    pub(crate) off: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Move {
    #[arg(value_parser = tenant)]
    pub(crate) tenant: Tenant,
    /// The database of the other fleet; GREENROOM_TO_DATABASE keeps the password out of the list of processes
    #[arg(long, value_name = "URL")]
    pub(crate) to_database: Option<String>,
    /// The schema of the other fleet [default: greenroom_fleet]
    #[arg(long, value_name = "SCHEMA")]
    pub(crate) to_schema: Option<String>,
    /// The socket of the other fleet's service on this host
    #[arg(long, value_name = "PATH")]
    pub(crate) to_socket: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(crate) struct Top {
    /// Sessions of this tenant only
    #[arg(long, value_parser = tenant)]
    pub(crate) tenant: Option<Tenant>,
    /// The time between two looks
    #[arg(long, value_name = "TIME", value_parser = read_age, default_value = "2s")]
    pub(crate) every: Duration,
    /// The order of the sessions of a page
    #[arg(long, value_enum, default_value_t)]
    pub(crate) sort: Sort,
    /// Shows only sessions that somebody has to look at
    #[arg(long)]
    pub(crate) stuck: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Sort {
    /// By name
    #[default]
    Name,
    /// By state: first those that somebody has to look at, then those that run, wait and sleep
    State,
    /// By the time in which the state has not changed: the longest one first
    Age,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum PromptStage {
    Waiting,
    Running,
    Parked,
    Ended,
}

impl PromptStage {
    pub(crate) fn filter(self) -> PromptFilter {
        match self {
            Self::Waiting => PromptFilter::Waiting,
            Self::Running => PromptFilter::Running,
            Self::Parked => PromptFilter::Parked,
            Self::Ended => PromptFilter::Ended,
        }
    }
}

fn tenant(text: &str) -> Result<Tenant, String> {
    Tenant::new(text).map_err(|error| error.to_string())
}

fn label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("a label is written as KEY=VALUE".to_owned()),
    }
}

fn kind(text: &str) -> Result<QuarantineKind, String> {
    serde_json::from_value(text.into()).map_err(|error| error.to_string())
}

fn node(text: &str) -> Result<NodeId, uuid::Error> {
    text.parse().map(NodeId)
}

fn prompt(text: &str) -> Result<PromptId, uuid::Error> {
    text.parse().map(PromptId)
}

fn question(text: &str) -> Result<QuestionId, uuid::Error> {
    text.parse().map(QuestionId)
}

fn term(text: &str) -> Result<Term, std::num::ParseIntError> {
    text.parse().map(Term)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_arguments_are_consistent() {
        super::Arguments::command().debug_assert();
    }
}
