//! A bug that no ordinary test finds, found by breaking things on purpose.
//!
//! A till takes coins from one account and puts them into another. Between the two it waits for the bank. A handler whose
//! call is cancelled, or whose CLI dies, has five seconds to end (`timeouts.cancel_grace`); one whose server is killed has
//! none. Then it is dropped, right where it waits, and the coins are gone.
//!
//! Run it with `cargo run --example fault_injection`. It needs nothing but Rust, and takes seconds. In a project of yours,
//! what is in `main` would be two tests with `#[tokio::test(start_paused = true)]`.

#![allow(clippy::print_stdout, reason = "an example shows what happens")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use greenroom::testkit::{Chaos, FaultKind, FaultMix};
use greenroom::{NoArgs, Session, ToolServer};
use serde_json::json;

/// Two accounts, with 1,000 coins together, always.
#[derive(Default)]
struct Accounts {
    spent: i64,
    earned: i64,
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Transfer {
    coins: i64,
}

async fn the_bank_takes_its_time() {
    tokio::time::sleep(Duration::from_secs(8)).await;
}

/// The tool as one writes it first.
fn careless(accounts: Arc<Mutex<Accounts>>) -> ToolServer {
    till(accounts, |accounts, coins| async move {
        lock(&accounts).spent += coins;
        // If the call ends here, the coins have left one account and not reached the other.
        the_bank_takes_its_time().await;
        lock(&accounts).earned += coins;
    })
}

/// The tool as it should be: wait first, then do both without a wait in between.
fn careful(accounts: Arc<Mutex<Accounts>>) -> ToolServer {
    till(accounts, |accounts, coins| async move {
        the_bank_takes_its_time().await;
        let mut accounts = lock(&accounts);
        accounts.spent += coins;
        accounts.earned += coins;
    })
}

fn till<Fut: Future<Output = ()> + Send + 'static>(
    accounts: Arc<Mutex<Accounts>>,
    transfer: impl Fn(Arc<Mutex<Accounts>>, i64) -> Fut + Send + Sync + 'static,
) -> ToolServer {
    let audited = accounts.clone();
    ToolServer::new("till", "1.0.0")
        .tool("transfer", "Moves coins from one account to the other", move |args: Transfer| {
            let moved = transfer(accounts.clone(), args.coins);
            async move {
                moved.await;
                "moved"
            }
        })
        .tool("audit", "Whether the accounts agree", move |_: NoArgs| {
            let accounts = audited.clone();
            async move {
                // Transfers that are on their way now get the time to come to their end.
                tokio::time::sleep(Duration::from_secs(30)).await;
                let accounts = lock(&accounts);
                format!("{} coins are missing", accounts.spent - accounts.earned)
            }
        })
}

fn lock(accounts: &Mutex<Accounts>) -> std::sync::MutexGuard<'_, Accounts> {
    accounts.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// A till with accounts of its own for every plan, and what has to be true of it whatever happens.
fn chaos(till: fn(Arc<Mutex<Accounts>>) -> ToolServer) -> Chaos {
    Chaos::new(move || Session::builder().mcp_server(till(Arc::default())))
        .call("till", "transfer", |n| json!({ "coins": 1 + n % 10 }))
        .call("till", "audit", |_| json!({}))
        .expect(|_, result| match result["content"][0]["text"].as_str() {
            Some("moved" | "0 coins are missing") => Ok(()),
            other => Err(other.unwrap_or("no text").to_owned()),
        })
}

// The clock is paused: the thirty seconds of an audit take no time at all.
#[tokio::main(flavor = "current_thread")]
async fn main() {
    tokio::time::pause();
    std::panic::set_hook(Box::new(|_| {}));

    // Calls alone find nothing: the tool is right as long as nothing goes wrong.
    let fine = chaos(careless).run(&FaultMix::none().plan(1)).await;
    println!("the careless till, nothing broken : {}", verdict(fine.is_fine()));

    // What users do: they cancel. And what CLIs and servers do: they die.
    let mix = FaultMix::none().weight(FaultKind::CliCancel, 2).cli_deaths(1).servers(1);
    for seed in 1..20 {
        let run = chaos(careless).run(&mix.plan(seed)).await;
        if run.is_fine() {
            continue;
        }
        println!("the careless till, seed {seed:<11}: {}", verdict(false));
        // A plan of sixty steps explains nothing. One of a few does.
        let smallest = chaos(careless).shrink(run).await;
        println!("\nThe smallest plan that shows it: {}\n{}\n", smallest.plan, smallest.problems.join("\n"));
        break;
    }

    // The same plans, and everything else that can break.
    chaos(careful).test(&mix, 1..20).await;
    chaos(careful).test(&FaultMix::all(), 1..20).await;
    println!("the careful till, 38 plans        : {}", verdict(true));
}

fn verdict(fine: bool) -> &'static str {
    if fine { "every promise was kept" } else { "coins are missing" }
}
