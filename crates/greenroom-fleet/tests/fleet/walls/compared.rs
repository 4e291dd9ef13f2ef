//! Each attack in two scenes, with and without the victim. The attacker cannot distinguish them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use futures_util::future::ready;
use greenroom::callback::InquiryAnswer;
use tokio::time::timeout;

use super::attacks::{Arms, Attack, attacks_on_session, attacks_on_tenant, attacks_on_turn};
use super::*;

/// The time for the answers of an attack, and the time from its start after which its effects are compared.
const ANSWERS: Duration = secs(5);
const EFFECTS: Duration = secs(6);

/// The observable results of an attack.
struct Seen {
    learnt: String,
    took: Duration,
    /// The fleet's requests to the backend, from the attack on.
    requests: BTreeMap<&'static str, i64>,
    /// The attacker's account.
    account: String,
    /// A change of the victim's records.
    changed: Option<String>,
}

/// Replaces ids by their roles, which are equal in two scenes.
struct Roles(Vec<(String, String)>);

impl Roles {
    fn new(theirs: &Ids, own: &Ids) -> Self {
        let of = |whose: &'static str, ids: &Ids| {
            ids.named().map(|(role, id)| (id.to_string(), format!("{whose} {role}")))
        };
        Self(of("their", theirs).into_iter().chain(of("own", own)).collect())
    }

    /// The text with a role for each id. Other ids, such as those of conversations, are numbered as they come.
    fn in_text(&mut self, text: &str) -> String {
        let (mut result, mut rest) = (String::new(), text);
        while let Some(first) = rest.chars().next() {
            if let Some(id) = rest.get(..36).filter(|id| Uuid::try_parse(id).is_ok()) {
                let known = self.0.iter().position(|(of, _)| of == id).unwrap_or_else(|| {
                    self.0.push((id.to_owned(), format!("id {}", self.0.len())));
                    self.0.len() - 1
                });
                result += &self.0[known].1;
                rest = &rest[36..];
            } else {
                result.push(first);
                rest = &rest[first.len_utf8()..];
            }
        }
        result
    }
}

/// Attacks in a new scene.
async fn attacked(attack: Attack, has_victim: bool) -> Seen {
    let scene = Scene::new(has_victim).await;
    let theirs = scene.theirs.unwrap_or_else(Ids::unknown);
    let before = (scene.rows_of_victim().await, scene.account(VICTIM).await);
    let counted = scene.requests.lock().unwrap().clone();
    let begun = Instant::now();
    let attack = attack(Arms { evil: scene.evil(), theirs, own: scene.own });
    let learnt = timeout(ANSWERS, attack).await.unwrap_or_else(|_| "no answer yet".to_owned());
    let took = begun.elapsed();
    sleep_until(begun + EFFECTS).await;
    let requests = without(scene.requests.lock().unwrap().clone(), &counted);
    let account = scene.account(ATTACKER).await;
    let after = (scene.rows_of_victim().await, scene.account(VICTIM).await);
    let changed = difference("the account before and after", &before.1, &after.1)
        .or_else(|| (before.0 != after.0).then(|| "a row".to_owned()));
    assert_eq!(scene.theirs.is_some(), !before.0.is_empty());
    if scene.theirs.is_some() && changed.is_none() {
        goes_on(&scene, theirs).await;
    }
    drain(&scene.fleet, secs(0)).await;
    let in_roles = |text: &str| Roles::new(&theirs, &scene.own).in_text(text);
    let (learnt, account) = (in_roles(&learnt), in_roles(&account));
    Seen { learnt, took, requests, account, changed }
}

/// The requests minus the others.
fn without(
    mut requests: BTreeMap<&'static str, i64>,
    others: &BTreeMap<&'static str, i64>,
) -> BTreeMap<&'static str, i64> {
    for (method, count) in others {
        *requests.entry(method).or_default() -= count;
    }
    requests.retain(|_, count| *count != 0);
    requests
}

/// The victim's turns end as if there were no attacker.
async fn goes_on(scene: &Scene, ids: Ids) {
    let victim = scene.victim();
    victim.answer(ids.question, InquiryAnswer::allow()).await.unwrap();
    assert!(in_time("the interrupt", victim.session("42").unwrap().interrupt()).await.unwrap());
    for (id, text) in [(ids.asks, "re: ask allow"), (ids.waits, "re: two"), (ids.ended, "re: cost 0.5")] {
        assert_eq!(outcome(victim.turn(id)).await.text(), Some(text));
    }
    assert_eq!(outcome(victim.turn(ids.runs)).await.word(), "interrupted");
}

/// The first line that differs.
fn difference(what: &str, one: &str, other: &str) -> Option<String> {
    let different = one.lines().zip(other.lines()).find(|(one, other)| one != other);
    let lengths = [one, other].map(|text| text.lines().count());
    match different {
        Some((one, other)) => Some(format!("{what}:\n  {one}\n  {other}")),
        None => (lengths[0] != lengths[1]).then(|| format!("{what}: {lengths:?} lines\n  {one}\n  {other}")),
    }
}

/// Compares each attack with the victim and without it.
async fn compare(attacks: Vec<(&'static str, Attack)>) {
    let mut found = Vec::new();
    // The fleet's requests without an attack: it reads the victim's open question each second.
    let idle: Attack = |_| Box::pin(ready(String::new()));
    let idle = [attacked(idle, true).await.requests, attacked(idle, false).await.requests];
    for (call, attack) in attacks {
        let (with, alone) = (attacked(attack, true).await, attacked(attack, false).await);
        found.extend(difference(&format!("{call}, the answer"), &with.learnt, &alone.learnt));
        found.extend(difference(&format!("{call}, the attacker's account"), &with.account, &alone.account));
        let requests = [without(with.requests, &idle[0]), without(alone.requests, &idle[1])];
        if requests[0] != requests[1] {
            found.push(format!("{call}, the requests:\n  {:?}\n  {:?}", requests[0], requests[1]));
        }
        if with.took != alone.took {
            found.push(format!("{call}, the time: {:?}, {:?}", with.took, alone.took));
        }
        found.extend(with.changed.map(|changed| format!("{call} changes the victim: {changed}")));
    }
    assert!(found.is_empty(), "with the victim, and without:\n{}", found.join("\n"));
}

// Guards: walled
#[tokio::test(start_paused = true)]
async fn no_call_of_a_tenant_shows_whether_another_tenant_exists() {
    compare(attacks_on_tenant()).await;
}

// Guards: walled
#[tokio::test(start_paused = true)]
async fn no_call_of_a_session_shows_whether_another_tenant_exists() {
    compare(attacks_on_session()).await;
}

// Guards: walled
#[tokio::test(start_paused = true)]
async fn no_call_of_a_turn_shows_whether_another_tenant_exists() {
    compare(attacks_on_turn()).await;
}

#[test]
fn an_attack_uses_each_public_call_of_a_tenants_handles() {
    let attacks = [attacks_on_tenant(), attacks_on_session(), attacks_on_turn()];
    let used: BTreeSet<_> = attacks.into_iter().flatten().map(|(call, _)| call.to_owned()).collect();
    let public = public_calls(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
    assert_eq!(used, public);
}

/// The public methods of a tenant's handles in a folder of sources, such as `FleetTenant::names`.
fn public_calls(folder: &Path) -> BTreeSet<String> {
    const HANDLES: [&str; 5] = ["FleetTenant", "FleetSession", "FleetTurn", "TurnUpdates", "Feed"];
    let mut calls = BTreeSet::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            calls.extend(public_calls(&path));
            continue;
        }
        let mut handle = None;
        for line in std::fs::read_to_string(&path).unwrap_or_default().lines() {
            if let Some(of) = line.strip_prefix("impl ") {
                handle = of.strip_suffix(" {").filter(|of| HANDLES.contains(of)).map(str::to_owned);
            } else if line == "}" {
                handle = None;
            }
            let method = line.strip_prefix("    pub ").and_then(|rest| {
                let rest = rest.strip_prefix("async ").unwrap_or(rest).strip_prefix("fn ")?;
                rest.split(['(', '<']).next()
            });
            if let (Some(handle), Some(method)) = (&handle, method) {
                calls.insert(format!("{handle}::{method}"));
            }
        }
    }
    calls
}
