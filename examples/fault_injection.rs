//! Find a bug that ordinary tests miss, by breaking things on purpose.
//!
//! A till takes coins from one account, waits for the bank, and puts the coins into another account. A handler whose
//! call is cancelled, or whose CLI dies, has five seconds to end (`timeouts.cancel_grace`); a handler whose server is
//! killed has no time. Then the handler is dropped where it waits, and the coins are gone.
//!
//! Run it with `cargo run --example fault_injection`. It needs only Rust, and takes seconds. In your project the two
//! halves of `main` would be two tests with `#[tokio::test(start_paused = true)]`.

#![allow(clippy::print_stdout, reason = "an example shows what happens")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use greenroom::{NoArgs, Session, ToolServer};
use greenroom_testkit::{Chaos, FaultKind, FaultMix};
use serde_json::json;

/// Two accounts that always hold 1,000 coins together.
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

/// The tool with the bug.
fn careless(accounts: Arc<Mutex<Accounts>>) -> ToolServer {
    till(accounts, |accounts, coins| async move {
        lock(&accounts).spent += coins;
        // If the call ends here, the coins have left one account and not reached the other.
        the_bank_takes_its_time().await;
        lock(&accounts).earned += coins;
    })
}

/// The tool without the bug: it waits first, then moves the coins without a wait in between.
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
                // Transfers on their way get the time to end.
                tokio::time::sleep(Duration::from_secs(30)).await;
                let accounts = lock(&accounts);
                format!("{} coins are missing", accounts.spent - accounts.earned)
            }
        })
}

fn lock(accounts: &Mutex<Accounts>) -> std::sync::MutexGuard<'_, Accounts> {
    accounts.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Makes a till with its own accounts for each plan, and the check that must hold after each plan.
fn chaos(till: fn(Arc<Mutex<Accounts>>) -> ToolServer) -> Chaos {
    Chaos::new(move || Session::builder().mcp_server(till(Arc::default())))
        .call("till", "transfer", |n| json!({ "coins": 1 + n % 10 }))
        .call("till", "audit", |_| json!({}))
        .expect(|_, result| match result["content"][0]["text"].as_str() {
            Some("moved" | "0 coins are missing") => Ok(()),
            other => Err(other.unwrap_or("no text").to_owned()),
        })
}

const DEATHS: [FaultKind; 6] = [
    FaultKind::CliExit,
    FaultKind::CliSignal,
    FaultKind::CliCloseStdout,
    FaultKind::CliHalfLine,
    FaultKind::ServerPanic,
    FaultKind::ServerKill,
];

// The clock is paused, so the thirty seconds of an audit take no time.
#[tokio::main(flavor = "current_thread")]
async fn main() {
    tokio::time::pause();
    std::panic::set_hook(Box::new(|_| {}));

    // Plans of calls alone find nothing: the tool is right while nothing goes wrong.
    let fine = chaos(careless).run(&FaultMix::none().plan(1)).await;
    println!("the careless till, nothing broken : {}", verdict(fine.is_fine()));

    // Users cancel calls, and CLIs and servers die.
    let mix = FaultMix::none().weights(&[FaultKind::CliCancel], 2).weights(&DEATHS, 1);
    for seed in 1..20 {
        let run = chaos(careless).run(&mix.plan(seed)).await;
        if run.is_fine() {
            continue;
        }
        println!("the careless till, seed {seed:<11}: {}", verdict(false));
        // A plan of sixty steps explains little, so the plan was shrunk to a few steps.
        let smallest = chaos(careless).shrink(run).await;
        println!("\nThe smallest plan that shows it: {}\n{}\n", smallest.plan, smallest.problems.join("\n"));
        break;
    }

    // Plays the plans again, with every other fault added.
    chaos(careful).test(&mix, 1..20).await;
    chaos(careful).test(&FaultMix::all(), 1..20).await;
    println!("the careful till, 38 plans        : {}", verdict(true));
}

fn verdict(fine: bool) -> &'static str {
    if fine { "every promise was kept" } else { "coins are missing" }
}
