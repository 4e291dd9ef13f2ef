//! The attacks: each public call of a tenant's handles, with ids and names of another tenant.

use std::fmt::Debug;
use std::time::UNIX_EPOCH;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use greenroom::callback::InquiryAnswer;
use greenroom_fleet::{
    Feed, FleetSession, FleetTurn, NameFilter, PromptFilter, QuestionAnswer, QuestionQuery, UpdateId,
    UsageQuery,
};
use tokio::time::timeout;

use super::*;

/// The inputs of an attack: the attacker's handle, the ids of the victim (unknown ids if there is none), and the attacker's ids.
pub(super) struct Arms {
    pub(super) evil: FleetTenant,
    pub(super) theirs: Ids,
    pub(super) own: Ids,
}

/// Returns the answers as text.
pub(super) type Attack = fn(Arms) -> BoxFuture<'static, String>;

/// The answers to the calls of an attack.
#[derive(Default)]
struct Learnt(String);

impl Learnt {
    fn note(&mut self, answer: impl Debug) {
        writeln!(self.0, "{answer:?}").unwrap();
    }
}

/// The attacker's handles for the victim's names. The attacker has no session `40`; `41` is idle, `42` runs a turn, `43` asks.
fn sessions(evil: &FleetTenant) -> [FleetSession; 4] {
    ["40", "41", "42", "43"].map(|name| evil.session(name).unwrap())
}

/// The turns of the victim, and two of the attacker.
fn turns(arms: &Arms) -> Vec<FleetTurn> {
    let own = [arms.own.ended, arms.own.waits];
    arms.theirs.prompts().into_iter().chain(own).map(|id| arms.evil.turn(id)).collect()
}

/// All usage, at any time.
fn usage() -> UsageQuery {
    UsageQuery::since(UNIX_EPOCH).until(UNIX_EPOCH + secs(4_000_000_000))
}

/// Reads to the end or an error, or until nothing comes for a second: the attacker's waiting prompt has no outcome.
macro_rules! all {
    ($learnt:ident, $next:expr) => {
        while let Ok(item) = timeout(secs(1), $next).await {
            $learnt.note(&item);
            if !matches!(item, Some(Ok(_))) {
                break;
            }
        }
    };
}

fn feeds(evil: &FleetTenant, ids: &Ids) -> Vec<Feed> {
    // The beginning of the places of the victim's session, as hexadecimal digits.
    let place = format!("{VICTIM}\x00\x0042").bytes().map(|byte| format!("{byte:02x}")).collect::<String>();
    let places = [
        String::from("0"),
        format!("0.{place}"),
        format!("1.{place}"),
        format!("0.{}", ids.ended.0.simple()),
    ];
    places.iter().map(|place| evil.feed(place.parse().unwrap())).collect()
}

/// Defines an attack, whose steps note their answers.
macro_rules! attack {
    ($call:literal, |$arms:ident, $learnt:ident| $steps:block) => {
        ($call, |$arms| {
            Box::pin(async move {
                let mut $learnt = Learnt::default();
                $steps
                $learnt.0
            })
        })
    };
    // Makes the call on each session.
    ($call:literal, |$session:ident| $answer:expr) => {
        attack!($call, |arms, learnt| {
            for $session in sessions(&arms.evil) {
                learnt.note($answer);
            }
        })
    };
}

pub(super) fn attacks_on_tenant() -> Vec<(&'static str, Attack)> {
    vec![
        attack!("FleetTenant::id", |arms, learnt| {
            learnt.note(arms.evil.id());
        }),
        attack!("FleetTenant::on_behalf_of", |arms, learnt| {
            // A person who may do everything that the attack does, in any tenant.
            let agent = arms.evil.on_behalf_of("agent");
            for prompt in arms.theirs.prompts() {
                learnt.note(agent.turn(prompt).outcome().await);
                learnt.note(agent.withdraw(prompt).await);
            }
            learnt.note(agent.answer(arms.theirs.question, InquiryAnswer::allow()).await);
            learnt.note(agent.names(NameQuery::new()).await);
            for session in sessions(&agent) {
                learnt.note(session.record().await);
            }
        }),
        attack!("FleetTenant::session", |arms, learnt| {
            for name in ["40", "acme/42", "../acme/42", "acme\x00\x0042", "\x00\x00"] {
                let Ok(session) = arms.evil.session(name) else { continue };
                learnt.note(session.record().await);
                learnt.note(session.questions().await);
                learnt.note(session.prompts(PromptQuery::new()).await);
            }
        }),
        attack!("FleetTenant::turn", |arms, learnt| {
            for turn in turns(&arms) {
                learnt.note(&turn);
                learnt.note(turn.record().await);
            }
        }),
        attack!("FleetTenant::withdraw", |arms, learnt| {
            for prompt in arms.theirs.prompts().into_iter().chain(arms.own.prompts()) {
                learnt.note(arms.evil.withdraw(prompt).await);
            }
        }),
        attack!("FleetTenant::questions", |arms, learnt| {
            let victim = Tenant::new(VICTIM).unwrap();
            learnt.note(arms.evil.questions(QuestionQuery::new()).await);
            learnt.note(arms.evil.questions(QuestionQuery::new().limit(1)).await);
            learnt.note(arms.evil.questions(QuestionQuery::new().tenant(victim)).await);
            for session in ["acme/42", "acme/43", "evil/43"] {
                let query = QuestionQuery::new().session(session.parse().unwrap());
                learnt.note(arms.evil.questions(query).await);
            }
        }),
        attack!("FleetTenant::answer", |arms, learnt| {
            // The attacker's question takes one answer.
            for question in [arms.theirs.question, arms.own.question, arms.theirs.question] {
                learnt.note(arms.evil.answer(question, InquiryAnswer::deny("no")).await);
                let answer = QuestionAnswer::new(InquiryAnswer::allow()).by("the victim");
                learnt.note(arms.evil.answer(question, answer).await);
            }
        }),
        attack!("FleetTenant::names", |arms, learnt| {
            let victim = Tenant::new(VICTIM).unwrap();
            let all = NameQuery::new;
            for query in [
                all(),
                all().limit(1),
                all().tenant(victim.clone()),
                all().after("acme/41".parse().unwrap()),
                all().tenant(victim).after("acme/41".parse().unwrap()),
                all().prefix("4"),
                all().prefix("acme/4"),
                all().label("plan", "pro"),
                all().only(NameFilter::Running),
                all().only(NameFilter::Waiting),
                all().only(NameFilter::Owned),
                all().only(NameFilter::Stuck),
                all().only(NameFilter::Quarantined),
            ] {
                learnt.note(arms.evil.names(query).await);
            }
        }),
        attack!("FleetTenant::usage", |arms, learnt| {
            learnt.note(arms.evil.usage(usage()).await);
            learnt.note(arms.evil.usage(usage().by_hour()).await);
        }),
        attack!("FleetTenant::feed", |arms, learnt| {
            for mut feed in feeds(&arms.evil, &arms.theirs) {
                let first = timeout(secs(1), feed.next()).await;
                learnt.note(first);
            }
        }),
        attack!("Feed::next", |arms, learnt| {
            let mut feed = arms.evil.feed(FeedCursor::default());
            all!(learnt, async { feed.next().await.transpose() });
        }),
    ]
}

pub(super) fn attacks_on_session() -> Vec<(&'static str, Attack)> {
    vec![
        attack!("FleetSession::name", |session| session.name()),
        attack!("FleetSession::profile", |arms, learnt| {
            for profile in ["default", "unknown"] {
                for session in sessions(&arms.evil).map(|session| session.profile(profile)) {
                    learnt.note(session.prompt("two").await.map(|turn| turn.prompt_id()));
                }
            }
        }),
        attack!("FleetSession::prompt", |arms, learnt| {
            // The victim's key, with its content and with another one.
            for text in ["two", "three"] {
                for session in sessions(&arms.evil) {
                    let sent = session.prompt(FleetPrompt::new(text).key(KEY)).await;
                    learnt.note(sent.map(|turn| (turn.prompt_id(), turn.is_duplicate())));
                }
            }
        }),
        attack!("FleetSession::warm", |session| session.warm().await),
        attack!("FleetSession::passivate", |arms, learnt| {
            // Without 42 and 43, whose turns do not end.
            for session in &sessions(&arms.evil)[..2] {
                learnt.note(session.passivate().await);
            }
        }),
        attack!("FleetSession::quarantine", |session| session.quarantine("mine").await),
        attack!("FleetSession::unquarantine", |arms, learnt| {
            for session in sessions(&arms.evil) {
                learnt.note(session.unquarantine().await);
            }
            let [_, idle, ..] = sessions(&arms.evil);
            learnt.note(idle.quarantine("mine").await);
            learnt.note(idle.unquarantine().await);
        }),
        attack!("FleetSession::delete", |session| session.delete().await),
        attack!("FleetSession::record", |session| session.record().await),
        attack!("FleetSession::questions", |session| session.questions().await),
        attack!("FleetSession::interrupt", |session| session.interrupt().await),
        attack!("FleetSession::interrupt_turn", |arms, learnt| {
            for session in sessions(&arms.evil) {
                for prompt in arms.theirs.prompts() {
                    learnt.note(session.interrupt_turn(prompt).await);
                }
            }
            // Ends the attacker's turn, which has gone on until here.
            let [_, _, running, _] = sessions(&arms.evil);
            learnt.note(running.interrupt_turn(arms.own.runs).await);
        }),
        attack!("FleetSession::steer", |session| session.steer("obey me").await),
        attack!("FleetSession::prompts", |arms, learnt| {
            for session in sessions(&arms.evil) {
                let all = PromptQuery::new;
                for query in [
                    all(),
                    all().limit(1),
                    all().label("topic", "lamps"),
                    all().only(PromptFilter::Waiting),
                    all().only(PromptFilter::Running),
                    all().only(PromptFilter::Ended),
                ] {
                    learnt.note(session.prompts(query).await);
                }
                for prompt in arms.theirs.prompts() {
                    let place = format!("{}.{}", u64::MAX, prompt.0.simple());
                    learnt.note(
                        session.prompts(all().after(place.parse().unwrap())).await.map(|page| page.prompts),
                    );
                }
            }
        }),
        attack!("FleetSession::labels", |session| session.labels().await),
        attack!("FleetSession::set_labels", |session| session.set_labels(Labels::new().with("a", "b")).await),
        attack!("FleetSession::usage", |session| session.usage(usage()).await),
    ]
}

pub(super) fn attacks_on_turn() -> Vec<(&'static str, Attack)> {
    vec![
        attack!("FleetTurn::messages_from", |arms, learnt| {
            for mut turn in turns(&arms).into_iter().map(|turn| turn.messages_from(2)) {
                all!(learnt, turn.next());
            }
        }),
        attack!("FleetTurn::prompt_id", |arms, learnt| {
            for turn in turns(&arms) {
                learnt.note(turn.prompt_id());
            }
        }),
        attack!("FleetTurn::is_duplicate", |arms, learnt| {
            for turn in turns(&arms) {
                learnt.note(turn.is_duplicate());
            }
        }),
        attack!("FleetTurn::next", |arms, learnt| {
            for mut turn in turns(&arms) {
                all!(learnt, turn.next());
            }
        }),
        attack!("FleetTurn::outcome", |arms, learnt| {
            for mut turn in turns(&arms) {
                learnt.note(timeout(secs(1), turn.outcome()).await);
            }
        }),
        attack!("FleetTurn::into_stream", |arms, learnt| {
            for turn in turns(&arms) {
                let mut stream = turn.into_stream();
                all!(learnt, stream.next());
            }
        }),
        attack!("FleetTurn::record", |arms, learnt| {
            for turn in turns(&arms) {
                learnt.note(turn.record().await);
            }
        }),
        attack!("FleetTurn::hold", |arms, learnt| {
            for turn in turns(&arms) {
                learnt.note(turn.hold().await);
            }
        }),
        attack!("FleetTurn::updates", |arms, learnt| {
            for mut updates in turns(&arms).into_iter().map(FleetTurn::updates) {
                all!(learnt, updates.next());
            }
        }),
        attack!("TurnUpdates::after", |arms, learnt| {
            for place in ["0.1", "2.1", "end"] {
                for turn in turns(&arms) {
                    let mut updates = turn.updates().after(place.parse::<UpdateId>().ok());
                    let first = timeout(Duration::from_millis(100), updates.next()).await;
                    learnt.note(first);
                }
            }
        }),
        attack!("TurnUpdates::next", |arms, learnt| {
            // The attacker's own turn that asks, too.
            for prompt in arms.theirs.prompts().into_iter().chain([arms.own.asks]) {
                let mut updates = arms.evil.turn(prompt).updates();
                all!(learnt, updates.next());
            }
        }),
        attack!("TurnUpdates::into_stream", |arms, learnt| {
            for turn in turns(&arms) {
                let mut stream = turn.updates().into_stream();
                all!(learnt, stream.next());
            }
        }),
    ]
}
