//! The real `claude` CLI, killed at random moments.
//!
//! The sleeps in here wait for nothing: how long they are is the input of the test.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use greenroom::report::{Events, ExitCause, InterruptedBy};
use greenroom::transport::{ChildProcess, Exit};
use greenroom::{Event, NoArgs, Outcome, Session, ToolContext, ToolDef, ToolServer, Turn};
use greenroom_testkit::{ModelRequest, ModelTurn, Script, ScriptedModel};
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::timeline;
use crate::wait::in_time;

const KILLS: usize = 20;

/// When the CLI is killed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Moment {
    /// Soon after it was given a prompt; it may or may not have begun.
    Prompted,
    /// The model is writing its answer.
    Answering,
    /// A tool is running.
    Calling,
    /// The turn has just ended.
    Ended,
    /// Nothing is going on any more.
    Idle,
}

impl Moment {
    const ALL: [Self; 5] = [Self::Prompted, Self::Answering, Self::Calling, Self::Ended, Self::Idle];

    /// Longest delay from the moment to the kill.
    fn up_to(self) -> Duration {
        Duration::from_millis(match self {
            Self::Prompted => 15,
            Self::Answering | Self::Calling => 300,
            Self::Ended => 20,
            Self::Idle => 400,
        })
    }
}

/// An address for the whole session, behind which another model may stand after each kill: what the model says next
/// must not depend on how many requests the killed CLI has still made.
struct Switch {
    address: SocketAddr,
    model: Arc<Mutex<SocketAddr>>,
    _tasks: JoinSet<()>,
}

impl Switch {
    async fn new() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let model = Arc::new(Mutex::new(address));
        let (target, mut tasks) = (model.clone(), JoinSet::new());
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((mut from, _)) = listener.accept().await {
                let model = *target.lock().unwrap();
                connections.spawn(async move {
                    // Either end may be gone at any time: that is what is tested.
                    if let Ok(mut to) = TcpStream::connect(model).await {
                        tokio::io::copy_bidirectional(&mut from, &mut to).await.ok();
                    }
                });
            }
        });
        Self { address, model, _tasks: tasks }
    }

    async fn play(&self, script: Script) -> ScriptedModel {
        let model = ScriptedModel::start(script).await.unwrap();
        *self.model.lock().unwrap() = model.url().strip_prefix("http://").unwrap().parse().unwrap();
        model
    }
}

/// Prompts and answers as the application saw them.
#[derive(Default)]
struct Said {
    /// Prompt and answer of the turns that were completed, in order.
    completed: Vec<(String, String)>,
    /// The prompts of the turns that were cut off.
    cut_off: Vec<String>,
}

impl Said {
    fn note(&mut self, prompt: &str, outcome: &Outcome) {
        match outcome {
            Outcome::Completed { result, .. } => {
                self.completed.push((prompt.into(), result.result.clone().unwrap()));
            }
            Outcome::Interrupted {
                by: InterruptedBy::CliExit { cause: ExitCause::Exited { exit: Exit::Signal(9), .. } },
                ..
            } => self.cut_off.push(prompt.into()),
            other => panic!("{prompt}: {other:?}"),
        }
    }

    /// Asserts that the model's newest request holds all of them, once and in order.
    fn check(&self, request: &ModelRequest) {
        let told = Value::from(request.messages()).to_string();
        let mut from = 0;
        for text in self.completed.iter().flat_map(|(prompt, answer)| [prompt, answer]) {
            let count = told.matches(text.as_str()).count();
            assert_eq!(count, 1, "{text} was told {count} times: {told}");
            let at = told.find(text.as_str()).unwrap();
            assert!(at > from, "{text} is out of order: {told}");
            from = at;
        }
        for prompt in &self.cut_off {
            let count = told.matches(prompt.as_str()).count();
            assert!(count <= 1, "{prompt} was told {count} times: {told}");
        }
    }
}

/// Each tool call in the conversation and its one result.
fn calls(request: &ModelRequest) -> BTreeMap<String, (String, bool)> {
    let blocks = |kind: &'static str| {
        let messages = request.messages().iter();
        let blocks = messages.filter_map(|message| message["content"].as_array()).flatten();
        blocks.filter(move |block| block["type"] == kind)
    };
    let mut results = BTreeMap::new();
    for block in blocks("tool_result") {
        let id = block["tool_use_id"].as_str().unwrap().to_owned();
        let result = (block["content"].to_string(), block["is_error"] == true);
        let before = results.insert(id.clone(), result);
        assert!(before.is_none(), "{id} has two results");
    }
    let mut uses: Vec<_> = blocks("tool_use").map(|block| block["id"].as_str().unwrap()).collect();
    uses.sort_unstable();
    assert_eq!(uses, results.keys().collect::<Vec<_>>(), "each call has one result");
    results
}

/// A call and a text for each prompt, with ids and texts that no other kill has.
fn pairs(name: &str) -> Script {
    let pair = |script: Script, n: usize| {
        script
            .turn(ModelTurn::new().call_with_id(format!("toolu_{name}_{n}"), "mcp__desk__count", json!({})))
            .turn(ModelTurn::new().text(format!("<answer {name} {n}>")))
    };
    (0..4).fold(Script::new(), pair)
}

fn script(moment: Moment, name: &str) -> Script {
    let turn = match moment {
        Moment::Ended | Moment::Idle => return pairs(name),
        Moment::Prompted => ModelTurn::new().pause_before(Duration::MAX),
        Moment::Answering => ModelTurn::new()
            .text(format!("<cut off {name}> and so on"))
            .pause_between(Duration::from_millis(200)),
        Moment::Calling => {
            ModelTurn::new().call_with_id(format!("toolu_{name}"), "mcp__desk__hang", json!({}))
        }
    };
    Script::new().turn(turn)
}

/// A tool that returns and counts how often, and one that does not and says when it is called and cancelled.
fn desk() -> (ToolServer, mpsc::UnboundedReceiver<&'static str>, Arc<AtomicUsize>) {
    let (said, hear) = mpsc::unbounded_channel();
    let calls = Arc::new(AtomicUsize::new(0));
    let counting = calls.clone();
    let count = ToolDef::new("count", "Count", move |_: NoArgs| {
        counting.fetch_add(1, Ordering::SeqCst);
        std::future::ready("counted")
    });
    let hang = ToolDef::new("hang", "Wait for ever", move |_: NoArgs, cx: ToolContext| {
        let said = said.clone();
        async move {
            said.send("hang").unwrap();
            cx.cancelled().await;
            said.send("cancelled").unwrap();
        }
    });
    (
        ToolServer::new("desk", "1").add_tool(count.always_load(true)).add_tool(hang.always_load(true)),
        hear,
        calls,
    )
}

/// Shown also when the test passes.
fn log(line: fmt::Arguments<'_>) {
    // Not with `eprintln!`, which is not.
    let mut stderr = std::io::stderr();
    writeln!(stderr, "{line}").unwrap();
}

async fn pid(session: &Session) -> Pid {
    let cli = session.snapshot().await.unwrap().cli.expect("the CLI runs");
    Pid::from_raw(cli.pid.unwrap().try_into().unwrap()).unwrap()
}

async fn restarted(events: &mut Events) -> Option<String> {
    let search = async {
        loop {
            match events.next().await.expect("the session lives") {
                Event::CliRestarted { session_id, .. } => return session_id,
                Event::ResumeStep { step, refused, .. } => log(format_args!("  {step:?}: {refused}")),
                Event::Missed { count } => panic!("{count} events are lost"),
                _ => {}
            }
        }
    };
    in_time("the restart", search).await
}

async fn ended(turn: &mut Turn) -> Outcome {
    let outcome = in_time("the turn", turn.outcome()).await.unwrap();
    assert!(turn.next().await.is_none(), "nothing comes after the end");
    outcome
}

// Guards: resumed
#[tokio::test]
async fn a_cli_killed_at_twenty_random_moments_resumes_its_conversation() {
    let Some(cli) = crate::real::real_cli() else { return };
    let seed = match std::env::var("GREENROOM_SEED") {
        Ok(seed) => seed.parse().expect("GREENROOM_SEED is a number"),
        Err(_) => SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64,
    };
    timeline::seed("GREENROOM_SEED", seed);
    log(format_args!("killing at random moments: GREENROOM_SEED={seed}"));
    let mut random = SmallRng::seed_from_u64(seed);
    let mut moments: Vec<_> = Moment::ALL.into_iter().cycle().take(KILLS).collect();
    moments.shuffle(&mut random);

    let (home, cwd) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let switch = Switch::new().await;
    let first = switch.play(Script::new()).await;
    let (server, mut hear, count) = desk();
    let builder = crate::real::builder(&cli, &first, home.path(), cwd.path())
        .env("ANTHROPIC_BASE_URL", format!("http://{}", switch.address))
        .mcp_server(server)
        .allow_server_tools("desk")
        .configure(|options| {
            options.restarts.cli.intensity = 2 * KILLS as u32;
            options.restarts.cli.backoff_min = Duration::from_millis(10);
            options.restarts.cli.backoff_max = Duration::from_millis(50);
        });
    let builder = timeline::watched(builder, ChildProcess::new());
    let session = in_time("the start", builder.start()).await.unwrap();
    let mut events = session.events();
    let mut said = Said::default();
    let mut hung = 0;

    for (kill, moment) in moments.into_iter().enumerate() {
        let delay = random.random_range(Duration::ZERO..moment.up_to());
        log(format_args!("kill {kill}: {moment:?}, after {delay:?}"));
        let known = session.session_id();
        let pid = pid(&session).await;
        let model = switch.play(script(moment, &format!("before-{kill}"))).await;
        let prompt = format!("<prompt {kill}>");
        let mut turn = session.prompt(prompt.as_str()).await.unwrap();
        match moment {
            Moment::Prompted => {}
            Moment::Answering => drop(in_time("the request", model.wait_for_requests(1)).await),
            Moment::Calling => {
                hung += 1;
                assert_eq!(in_time("the call", hear.recv()).await, Some("hang"));
            }
            Moment::Ended | Moment::Idle => said.note(&prompt, &ended(&mut turn).await),
        }
        if moment == Moment::Idle {
            in_time("the end of the run", session.wait_idle()).await;
        }
        tokio::time::sleep(delay).await;
        kill_process(pid, Signal::KILL).unwrap();
        if moment == Moment::Calling {
            assert_eq!(in_time("the cancellation", hear.recv()).await, Some("cancelled"));
        }

        // From here on the next incarnation is answered.
        let after = switch.play(pairs(&format!("after-{kill}"))).await;
        let resumed = restarted(&mut events).await;
        assert!(known.is_none() || resumed == known, "{resumed:?} is resumed, and not {known:?}");
        if !matches!(moment, Moment::Ended | Moment::Idle) {
            let outcome = ended(&mut turn).await;
            log(format_args!("  {}", if outcome.is_completed() { "sent again" } else { "cut off" }));
            said.note(&prompt, &outcome);
        }
        let prompt = format!("<then {kill}>");
        let mut turn = session.prompt(prompt.as_str()).await.unwrap();
        let outcome = ended(&mut turn).await;
        assert!(outcome.is_completed(), "{outcome:?}");

        let session_id = session.session_id();
        assert!(session_id.is_some() && (known.is_none() || session_id == known), "{known:?} {session_id:?}");
        let request = after.requests().pop().expect("the model was asked");
        assert_eq!(request.session_id(), session_id.as_deref());
        assert_eq!(request.last_user_text(), Some(prompt.as_str()));
        said.check(&request);
        said.note(&prompt, &outcome);
        let results = calls(&request);
        let counted = results.values().filter(|(text, _)| text.contains("counted")).count();
        assert_eq!(
            counted,
            count.load(Ordering::SeqCst),
            "each call that was answered was answered once: {results:?}"
        );
    }

    let snapshot = session.snapshot().await.unwrap();
    let counters = snapshot.counters;
    assert!(counters.cli_restarts >= KILLS as u64, "{counters:?}");
    let settled = counters.answered + counters.cancelled + counters.refused + counters.orphaned;
    assert_eq!(counters.requests, settled, "each request ended once: {counters:?}");
    assert_eq!(counters.orphaned, hung, "of each incarnation that died in a call, one: {counters:?}");
    assert_eq!(counters.answered, count.load(Ordering::SeqCst) as u64, "{counters:?}");
    in_time("the stop", session.stop()).await.unwrap();
}
