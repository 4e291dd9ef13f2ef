//! Forty sessions of three tenants on two slots, on scripted CLIs.
//!
//! ```text
//! cargo run -p fleet                      # needs only Rust; forgets everything
//! cargo run -p fleet -- --data FOLDER     # keeps names, prompts and outcomes in FOLDER
//! ```
//!
//! Two sessions want to refund an order, which a person has to allow. A stand-in for the person answers the question of `acme/1`;
//! nobody answers the question of `cobalt/1`, which is denied after two seconds.
//!
//! Kill the second program in the middle with `kill -9` and run it again: prompts that waited run now, prompts that had begun
//! are told as interrupted, and prompts that had ended have the outcome that they had. `--pace MILLISECONDS` (default: 100) is the
//! time that the model takes for an answer.
//!
//! | line | meaning |
//! |---|---|
//! | `waits NAME` | a prompt was accepted, and waits |
//! | `starts NAME` | the session has one of the two slots; its CLI starts |
//! | `runs NAME` | the CLI begins with a prompt |
//! | `asks NAME`, `allows NAME` | the session asks a person; the person allows it |
//! | `refunds NAME` | the tool runs |
//! | `ended NAME OUTCOME` | the prompt has its outcome |
//! | `sleeps NAME` | the CLI has ended, and the slot is free for another session |

mod arguments;
mod clis;

use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use greenroom::callback::InquiryAnswer;
use greenroom::{NoArgs, Session, ToolServer};
use greenroom_fleet::backend::LocalBackend;
use greenroom_fleet::{ActivationContext, Fleet, FleetEvent, FleetEvents, FleetPrompt};
use greenroom_fleet::{PromptOutcome, QuestionAnswer, QuestionQuery, Quota};

use crate::arguments::Arguments;
use crate::clis::clis;

type Failure = Box<dyn std::error::Error>;

/// The tenants with their weights and their numbers of sessions. A tenant of weight 2 gets two turns where another one gets one.
const TENANTS: [(&str, u32, usize); 3] = [("acme", 2, 20), ("brick", 1, 10), ("cobalt", 1, 10)];

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<(), Failure> {
    let Arguments { data, pace } = Arguments::read(std::env::args().skip(1))?;
    let forgotten = tempfile::tempdir()?;
    let data = data.as_deref().unwrap_or(forgotten.path());
    std::fs::create_dir_all(data)?;

    // One file has the names, the prompts and their outcomes. The sessions' folders are created beside it.
    let backend = LocalBackend::open(data.join("fleet.redb")).await?;
    let clis = clis(pace);
    let mut builder = Fleet::builder()
        .backend(backend)
        // Called anew whenever a session starts. In your service: the options, the tools and the path of the CLI.
        .profile("support", move |cx| {
            Session::builder().mcp_server(shop(cx)).transport(clis.transport(cx.name.to_string()))
        })
        .configure(|limits| {
            limits.live = 2;
            // An idle session keeps its slot for 5 s by default, for its next prompt. Here none comes.
            limits.idle_before_eviction = Duration::ZERO;
            limits.question = Duration::from_secs(2);
        });
    for (tenant, weight, _) in TENANTS {
        builder = builder.tenant(tenant, Quota::default().weight(weight));
    }
    // Before the start: prompts of an earlier run begin at once.
    let events = builder.events();
    let fleet = builder.start().await?;
    let (worked, (), asked) = tokio::join!(work(&fleet), show(events), person(&fleet));
    worked.and(asked)
}

/// The tools of a session. No rule allows the refund and no handler decides on it, so it becomes a question of the fleet.
fn shop(cx: &ActivationContext) -> ToolServer {
    let name = cx.name.clone();
    ToolServer::new("shop", "1.0.0").tool("refund", "Refund the order", move |_: NoArgs| {
        println!("refunds {name}");
        std::future::ready("refunded")
    })
}

/// Sends each session a prompt, and waits for all outcomes.
async fn work(fleet: &Fleet) -> Result<(), Failure> {
    let mut turns = Vec::new();
    for (tenant, _, sessions) in TENANTS {
        for number in 0..sessions {
            let session = fleet.tenant(tenant)?.session(number.to_string())?.profile("support");
            // With its key the prompt is one prompt, however often this program sends it. It may wait for a day, so that the next run
            // finds it.
            let prompt = FleetPrompt::new("Where is my lamp?").key("lamp").wait(Duration::from_secs(86_400));
            turns.push((session.name().to_string(), session.prompt(prompt).await?));
            if (tenant, number) == ("cobalt", 9) {
                // Wakes the session in a second, in this run or in the next one.
                let later = SystemTime::now() + Duration::from_secs(1);
                let reminder = FleetPrompt::new("Has it arrived?").key("reminder").not_before(later);
                turns.push((format!("{tenant}/{number}"), session.prompt(reminder).await?));
            }
        }
    }
    let known = turns.iter().filter(|(_, turn)| turn.is_duplicate()).count();
    let mut completed = 0;
    for (name, turn) in &mut turns {
        match turn.outcome().await? {
            PromptOutcome::Completed { .. } => completed += 1,
            // A CLI had begun with the prompt, so the fleet does not send it again: nobody knows what it has done already.
            PromptOutcome::Interrupted { by, .. } => println!("interrupted {name}: {by:?}"),
            other => println!("not completed {name}: {other:?}"),
        }
    }
    println!("{} prompts: {known} known from an earlier run, {completed} completed", turns.len());
    // Idle sessions end, and nothing of the fleet is left but its file and its folders.
    fleet.drain(Duration::from_secs(20)).await;
    Ok(())
}

/// A person who answers for acme. In your service: a page that lists the questions of the tenant and posts the answer.
async fn person(fleet: &Fleet) -> Result<(), Failure> {
    let (mut events, acme) = (fleet.operator().events()?, fleet.tenant("acme")?);
    while let Some(event) = events.next().await {
        if let Ok(FleetEvent::Asked { .. }) = event {
            for question in acme.questions(QuestionQuery::new()).await? {
                println!("allows {}", question.name);
                acme.answer(question.id, QuestionAnswer::new(InquiryAnswer::allow()).by("anna")).await?;
            }
        }
    }
    Ok(())
}

/// Prints the events of the fleet, until it has ended.
async fn show(mut events: FleetEvents) {
    while let Some(event) = events.next().await {
        match event {
            Ok(FleetEvent::Accepted { name, .. }) => println!("waits {name}"),
            Ok(FleetEvent::Activating { name, .. }) => println!("starts {name}"),
            Ok(FleetEvent::Begun { name, .. }) => println!("runs {name}"),
            Ok(FleetEvent::Asked { name, .. }) => println!("asks {name}"),
            Ok(FleetEvent::Ended { name, outcome, .. }) => println!("ended {name} {outcome}"),
            Ok(FleetEvent::Passivated { name, .. }) => println!("sleeps {name}"),
            Ok(
                FleetEvent::ActivationFailed { name, why, .. } | FleetEvent::Quarantined { name, why, .. },
            ) => {
                println!("failed {name}: {why}");
            }
            Ok(_) => {}
            Err(missed) => println!("{missed} events were not read in time"),
        }
    }
}
