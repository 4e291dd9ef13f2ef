//! A command for the operators of a fleet in PostgreSQL.
//!
//! ```console
//! $ export DATABASE_URL=postgres://fleet:secret@db.internal/fleet
//! $ cargo run -p greenroom-fleet --features postgres --example fleet_admin -- nodes
//! $ cargo run -p greenroom-fleet --features postgres --example fleet_admin -- drain 6f1c…
//! ```

#![allow(clippy::print_stdout, reason = "a command answers on stdout")]

use std::error::Error;
use std::time::Duration;

use greenroom_fleet::admin::Admin;
use greenroom_fleet::backend::{PostgresBackend, PostgresOptions};
use greenroom_fleet::{NameFilter, NameQuery, NodeId, PromptId, Term};

const USAGE: &str = "\
usage: fleet_admin COMMAND, with the database in DATABASE_URL and perhaps its schema in FLEET_SCHEMA
  nodes                  lists the nodes
  drain NODE             asks a node to drain
  stuck                  lists names that somebody has to look at
  unquarantine NAME      lets a name be activated again
  drop PROMPT REASON     takes a prompt out of its queue
  vacuum HOURS           forgets prompts that ended longer ago
  processes NAME         lists the processes that lost owners of a name have left
  remove-process NAME TERM   removes the record of such a process: end the process first";

/// Prompts that `vacuum` forgets at most.
const VACUUM: usize = 1_000_000;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut options = PostgresOptions::new(std::env::var("DATABASE_URL").map_err(|_| USAGE)?);
    if let Ok(schema) = std::env::var("FLEET_SCHEMA") {
        options.schema = schema;
    }
    let backend = PostgresBackend::connect(options).await?;
    let done = run(&Admin::new(backend.clone()), &arguments).await;
    backend.close().await;
    done
}

async fn run(admin: &Admin, arguments: &[String]) -> Result<(), Box<dyn Error>> {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["nodes"] => {
            for node in admin.nodes().await? {
                let (record, age) = (&node.record, node.lease_age.as_secs());
                let asked = if record.asked_to_drain { ", asked to drain" } else { "" };
                let over = if node.holds_lease { "" } else { ", its lease is over" };
                println!(
                    "{} on {}: {:?}, {} of {} names, renewed {age} s ago{over}{asked}",
                    record.id, record.host, record.state, record.owns, record.capacity
                );
            }
        }
        ["drain", node] => {
            let node = NodeId(node.parse()?);
            println!("{}", if admin.drain(node).await? { "asked" } else { "no such node is alive" });
        }
        ["stuck"] => {
            let mut query = NameQuery::new().only(NameFilter::Stuck);
            loop {
                let page = admin.names(query.clone()).await?;
                for name in page.names {
                    println!("{}: {:?}, {} prompts wait", name.name, name.state, name.queued);
                }
                let Some(next) = page.next else { break };
                query = query.after(next);
            }
        }
        ["unquarantine", name] => {
            let free = admin.unquarantine(name.parse()?).await?;
            println!("{}", if free { "free" } else { "the name was not quarantined" });
        }
        ["drop", prompt, why] => println!("{:?}", admin.drop_prompt(PromptId(prompt.parse()?), why).await?),
        ["vacuum", hours] => {
            let age = Duration::from_secs(hours.parse::<u64>()?.saturating_mul(3600));
            println!("{} prompts forgotten", admin.vacuum(age, VACUUM).await?);
        }
        ["processes", name] => {
            for left in admin.left_processes(name.parse()?).await? {
                println!("term {} on {}: {}", left.term, left.host, left.process);
            }
        }
        ["remove-process", name, term] => {
            let removed = admin.remove_process(name.parse()?, Term(term.parse()?)).await?;
            println!("{}", if removed { "removed" } else { "its owner is alive: nothing was removed" });
        }
        _ => return Err(USAGE.into()),
    }
    Ok(())
}
