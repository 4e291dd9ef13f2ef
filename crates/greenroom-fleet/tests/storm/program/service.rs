//! The service of the storm: a fleet on a file, driven over stdin and stdout.

use std::error::Error;
use std::io::{self, BufRead, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use greenroom::Session;
use greenroom::options::EnvPolicy;
use greenroom_fleet::backend::{LocalBackend, PostgresBackend, PostgresOptions};
use greenroom_fleet::{
    ActivationContext, Fleet, FleetError, FleetEvent, FleetEvents, FleetPrompt, NameFilter, NameQuery,
    PromptError, Quota,
};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::protocol::{
    LIFE, LINGER, LIVE, Line, NAME, NODE, NodeOf, REAL, RealCli, Reply, Request, SEED, Seen, Wish,
};

/// The time for which a prompt waits: longer than any storm.
const WAIT: Duration = Duration::from_secs(24 * 3600);

type Ended = Result<(), Box<dyn Error>>;

/// Serves until the driver wants the end, or is gone.
pub(crate) fn serve(scratch: &Path, life: String) -> Ended {
    let (requests, wishes) = mpsc::channel(64);
    thread::spawn(move || {
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            if requests.blocking_send(line).is_err() {
                return;
            }
        }
    });
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?.block_on(run(
        scratch.to_owned(),
        life,
        wishes,
    ))
}

async fn run(scratch: PathBuf, life: String, mut wishes: mpsc::Receiver<String>) -> Ended {
    let (program, seed) = (std::env::current_exe()?, std::env::var(SEED)?);
    let real: Option<RealCli> =
        std::env::var(REAL).ok().map(|real| serde_json::from_str(&real)).transpose()?;
    let is_slow = real.is_some() || std::env::var_os(LINGER).is_some();
    let node: Option<NodeOf> =
        std::env::var(NODE).ok().map(|node| serde_json::from_str(&node)).transpose()?;
    // A host of its own would have locks of its own.
    let locks = scratch.join(node.as_ref().map_or("locks".to_owned(), |node| format!("locks-{}", node.host)));
    let local = match &node {
        Some(_) => None,
        None => Some(LocalBackend::open(scratch.join("fleet.redb")).await?),
    };
    let profile = move |cx: &ActivationContext| {
        let builder = match &real {
            Some(RealCli { program, env }) => {
                let builder = Session::builder().cli_path(program).envs(env.clone());
                builder.configure(|options| options.env_policy = EnvPolicy::Clean)
            }
            None => Session::builder().cli_path(&program),
        };
        let builder = builder.env(NAME, cx.name.to_string()).env(LIFE, &life).env(SEED, &seed);
        builder.configure(|options| {
            options.lock_dir = Some(locks.clone());
            if !is_slow {
                // Much less than the defaults, so that a storm has many lives.
                let timeouts = &mut options.timeouts;
                timeouts.exit_after_host = Duration::from_millis(700);
                timeouts.exit_after_eof = Duration::from_millis(300);
                timeouts.exit_after_term = Duration::from_millis(300);
            }
        })
    };
    let mut builder = match (&local, &node) {
        (Some(local), _) => Fleet::builder().backend(local.clone()),
        (None, Some(node)) => {
            let mut options = PostgresOptions::new(&node.database);
            options.schema.clone_from(&node.schema);
            options.connections = 6;
            let backend = PostgresBackend::connect(options).await?;
            let builder = Fleet::builder().backend(backend).host(&node.host).folder(scratch.join("sessions"));
            builder.configure(|limits| limits.lease = node.lease)
        }
        (None, None) => return Err("there is no backend".into()),
    };
    builder = builder.profile("default", profile).configure(|limits| {
        limits.live = LIVE;
        limits.activations_at_once = 4;
        limits.idle_after = Duration::from_millis(if is_slow { 600_000 } else { 500 });
        limits.idle_before_eviction = Duration::ZERO;
        limits.wait = WAIT;
        limits.backoff = Duration::from_millis(50);
        limits.backoff_max = Duration::from_millis(400);
        limits.left_processes = Duration::from_secs(if is_slow { 60 } else { 3 });
    });
    for tenant in 0..5 {
        let quota = Quota::default().weight(1 + tenant);
        builder = builder.tenant(format!("tenant-{tenant}"), if tenant == 0 { quota.live(2) } else { quota });
    }
    let events = builder.events();
    let fleet = builder.start().await?;
    let mut tasks = JoinSet::new();
    tasks.spawn(watch(fleet.clone(), events));
    lift_all(&fleet).await?;
    say(&Line::Ready)?;
    let mut requests = JoinSet::new();
    loop {
        let line = tokio::select! {
            line = wishes.recv() => line,
            _ = fleet.wait() => return Err("the fleet has ended".into()),
        };
        let Some(line) = line else { return Ok(()) };
        let Request { id, wish } = serde_json::from_str(&line)?;
        if let Wish::Drain = wish {
            fleet.drain(Duration::from_secs(20)).await;
            if let Some(local) = local {
                local.close().await;
            }
            return say(&Line::Reply { id, reply: Reply::Done });
        }
        let fleet = fleet.clone();
        requests.spawn(async move {
            let reply = Box::pin(carry_out(&fleet, wish)).await.unwrap_or_else(Reply::Failed);
            say(&Line::Reply { id, reply }).is_ok()
        });
        while requests.try_join_next().is_some() {}
    }
}

async fn carry_out(fleet: &Fleet, wish: Wish) -> Result<Reply, String> {
    let failed = |error: FleetError| error.to_string();
    Ok(match wish {
        Wish::Prompt { name, key, text, continuations } => {
            let mut prompt = FleetPrompt::new(text.clone()).key(key);
            if continuations > 0 {
                prompt = prompt.continue_with(format!("{text} goes on"), continuations);
            }
            match fleet.operator().session(name).prompt(prompt).await {
                Ok(turn) => Reply::Accepted { prompt: turn.prompt_id(), is_duplicate: turn.is_duplicate() },
                Err(PromptError::Refused(why)) => Reply::Refused(why.to_string()),
                Err(error) => return Err(error.to_string()),
            }
        }
        Wish::Delete(name) => {
            fleet.operator().session(name).delete().await.map_err(failed)?;
            Reply::Done
        }
        Wish::Passivate(name) => {
            fleet.operator().session(name).passivate().await.map_err(failed)?;
            Reply::Done
        }
        Wish::Interrupt(name) => {
            // A CLI that is killed meanwhile does not take the interrupt.
            fleet.operator().session(name).interrupt().await.ok();
            Reply::Done
        }
        Wish::Look(prompts) => {
            let mut seen = Vec::new();
            for prompt in prompts {
                let mut turn = fleet.operator().turn(prompt);
                // A prompt that has ended has its outcome at once, but for the time of the backend's answer.
                seen.push(match tokio::time::timeout(Duration::from_millis(5), turn.outcome()).await {
                    Ok(Ok(outcome)) => Seen::Ended(outcome),
                    Ok(Err(FleetError::NotFound { .. })) => Seen::Missing,
                    Ok(Err(error)) => return Err(error.to_string()),
                    Err(_) => Seen::Open,
                });
            }
            Reply::Seen(seen)
        }
        Wish::Outcome(prompt) => match fleet.operator().turn(prompt).outcome().await {
            Err(FleetError::NotFound { .. }) => Reply::Seen(vec![Seen::Missing]),
            outcome => Reply::Ended(outcome.map_err(failed)?),
        },
        Wish::Drain => Reply::Done,
    })
}

/// Tells the driver of events, and lifts each quarantine: the driver kills CLIs more often than a fleet puts up with.
async fn watch(fleet: Fleet, mut events: FleetEvents) {
    while let Some(event) = events.next().await {
        let Ok(event) = event else { continue };
        let kind =
            serde_json::to_value(&event).ok().and_then(|event| Some(event["event"].as_str()?.to_owned()));
        // An error: the driver is gone, and the end of the input ends this process.
        say(&Line::Event(kind.unwrap_or_default())).ok();
        match event {
            FleetEvent::Joined { node } => say(&Line::Joined(node)).ok(),
            FleetEvent::NodeLost { node } => say(&Line::Lost(node)).ok(),
            _ => None,
        };
        if let FleetEvent::Quarantined { name, .. } = event {
            fleet.operator().session(name).unquarantine().await.ok();
        }
    }
}

/// Lifts quarantines of the life before.
async fn lift_all(fleet: &Fleet) -> Ended {
    let stuck =
        fleet.operator().names(NameQuery::new().only(NameFilter::Quarantined).limit(1000)).await?.names;
    for name in stuck {
        fleet.operator().session(name.name).unquarantine().await?;
    }
    Ok(())
}

fn say(line: &Line) -> Ended {
    let mut text = serde_json::to_vec(line)?;
    text.push(b'\n');
    let mut out = io::stdout().lock();
    out.write_all(&text)?;
    Ok(out.flush()?)
}
