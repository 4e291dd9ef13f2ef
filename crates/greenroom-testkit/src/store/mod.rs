//! Whether a session store keeps its promises.

use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::time::{Duration, SystemTime};

use futures_util::FutureExt;
use greenroom::sessions::TranscriptEntry;
use greenroom::store::{SessionKey, SessionStore, StoreError, StoreResult, Unsupported};
use serde_json::{Value, json};

/// A promise of [`SessionStore`] that a store has broken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{rule}: {what}")]
#[non_exhaustive]
pub struct StoreViolation {
    /// The promise.
    pub rule: &'static str,
    /// The violation, in words.
    pub what: String,
}

type Checked = Result<(), StoreError>;

/// Checks every promise of [`SessionStore`] on stores that `make` makes, an empty one for each. Methods that a store
/// does not have ([`Unsupported`]) are passed over, but each of their promises is checked where they are there. A
/// method that panics, fails or takes more than 30 s breaks the promise that it was called for.
///
/// Returns the promises that were kept.
///
/// # Errors
/// All that were broken.
///
/// ```
/// use greenroom::store::MemoryStore;
/// use greenroom_testkit::store_conformance;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let kept = store_conformance(async || MemoryStore::new()).await.unwrap();
/// assert!(kept.contains(&"entries come back in the order of their appends"));
/// # }
/// ```
pub async fn store_conformance<S: SessionStore>(
    make: impl AsyncFn() -> S,
) -> Result<Vec<&'static str>, Vec<StoreViolation>> {
    let mut report = RuleReport { kept: Vec::new(), broken: Vec::new() };
    macro_rules! rule {
        ($name:literal, $check:expr) => {
            report.check($name, async { $check(make().await).await }).await
        };
    }
    rule!("what was appended comes back equal, with fields and numbers of any kind", comes_back_equal);
    rule!("a key without entries has none", unknown_is_none);
    rule!("entries come back in the order of their appends", keeps_order);
    rule!("no entries change nothing", empty_append);
    rule!("an entry with a uuid that the key has already is dropped", drops_repeats);
    rule!("an entry without a uuid is kept each time", keeps_anonymous);
    rule!("the parts of a session are kept apart", keeps_parts_apart);
    rule!("projects are kept apart", keeps_projects_apart);
    rule!("any text can be a key", takes_any_key);
    rule!("appends to many keys at once are all there", takes_many_at_once);
    rule!("sessions are listed, without their parts", lists_sessions);
    rule!("a session has the time of its last append", tells_times);
    rule!("summaries are folded from the entries of the session itself", keeps_summaries);
    rule!("what is deleted is gone", deletes);
    rule!("a session is deleted with its parts, and nothing else", deletes_parts);
    rule!("a part is deleted alone", deletes_one_part);
    rule!("the parts of a session are listed, without the session itself", lists_subkeys);
    if report.broken.is_empty() { Ok(report.kept) } else { Err(report.broken) }
}

struct RuleReport {
    kept: Vec<&'static str>,
    broken: Vec<StoreViolation>,
}

impl RuleReport {
    async fn check(&mut self, rule: &'static str, check: impl Future<Output = Checked>) {
        let limit = Duration::from_secs(30);
        let caught = AssertUnwindSafe(check).catch_unwind();
        let what = match tokio::time::timeout(limit, caught).await {
            Ok(Ok(Ok(()))) => return self.kept.push(rule),
            Ok(Ok(Err(error))) if error.is::<Unsupported>() => return,
            Ok(Ok(Err(error))) => error.to_string(),
            Ok(Err(panic)) => format!("it panicked: {}", panic_text(&*panic)),
            Err(_) => format!("it took more than {limit:?}"),
        };
        self.broken.push(StoreViolation { rule, what });
    }
}

fn entry(value: Value) -> StoreResult<TranscriptEntry> {
    Ok(value.try_into()?)
}

/// Entries with these uuids.
fn entries(uuids: &[&str]) -> StoreResult<Vec<TranscriptEntry>> {
    uuids.iter().map(|uuid| entry(json!({ "type": "user", "uuid": uuid }))).collect()
}

fn key() -> SessionKey {
    SessionKey::new("project", "11111111-1111-4111-8111-111111111111")
}

fn other_session() -> SessionKey {
    SessionKey::new("project", "22222222-2222-4222-8222-222222222222")
}

fn other_project() -> SessionKey {
    SessionKey::new("project-2", key().session_id)
}

fn agent(number: u32) -> SessionKey {
    key().with_subpath(format!("subagents/agent-{number}"))
}

/// Fails with what was found, unless it is what was expected.
fn same<T: PartialEq + fmt::Debug>(what: impl fmt::Display, found: T, expected: T) -> Checked {
    if found == expected { Ok(()) } else { Err(format!("{what} is {found:?} and not {expected:?}").into()) }
}

async fn has(store: &impl SessionStore, key: &SessionKey, uuids: &[&str]) -> Checked {
    let loaded = store.load(key).await?.unwrap_or_default();
    same(format_args!("what is under {key}"), loaded, entries(uuids)?)
}

async fn has_none(store: &impl SessionStore, key: &SessionKey) -> Checked {
    same(format_args!("what is under {key}"), store.load(key).await?, None)
}

async fn comes_back_equal(store: impl SessionStore) -> Checked {
    let odd = [
        json!({"type": "x", "z": [1, -2.5, 1e300, 9_007_199_254_740_993_u64, null, true], "a": {"b": {"c": []}}}),
        json!({"type": "x", "text": "a\nb\r\u{2028}\u{0}\"\\/é😀", "": "no name", "$key": 1, "a.b": 2}),
        json!({"type": "x", "long": "y".repeat(1 << 20)}),
        json!({}),
    ];
    let odd: Vec<_> = odd.into_iter().map(entry).collect::<StoreResult<_>>()?;
    store.append(&key(), &odd).await?;
    let loaded = store.load(&key()).await?.unwrap_or_default();
    same("the number of entries", loaded.len(), odd.len())?;
    for (loaded, odd) in loaded.iter().zip(&odd) {
        if loaded != odd {
            let shown = |entry: &TranscriptEntry| entry.raw().get().chars().take(200).collect::<String>();
            return Err(format!("{} came back as {}", shown(odd), shown(loaded)).into());
        }
    }
    Ok(())
}

async fn unknown_is_none(store: impl SessionStore) -> Checked {
    has_none(&store, &key()).await?;
    store.append(&key(), &entries(&["a"])?).await?;
    has_none(&store, &agent(1)).await?;
    has_none(&store, &other_session()).await
}

async fn keeps_order(store: impl SessionStore) -> Checked {
    store.append(&key(), &entries(&["z"])?).await?;
    store.append(&key(), &entries(&["m", "a"])?).await?;
    store.append(&key(), &entries(&["b"])?).await?;
    has(&store, &key(), &["z", "m", "a", "b"]).await
}

async fn empty_append(store: impl SessionStore) -> Checked {
    store.append(&key(), &[]).await?;
    has_none(&store, &key()).await?;
    store.append(&key(), &entries(&["a"])?).await?;
    store.append(&key(), &[]).await?;
    has(&store, &key(), &["a"]).await
}

async fn drops_repeats(store: impl SessionStore) -> Checked {
    store.append(&key(), &entries(&["a", "b"])?).await?;
    store.append(&key(), &entries(&["a", "b", "c"])?).await?;
    has(&store, &key(), &["a", "b", "c"]).await?;
    // An entry of another key is another entry, also with an equal uuid.
    store.append(&other_session(), &entries(&["a"])?).await?;
    has(&store, &other_session(), &["a"]).await
}

async fn keeps_anonymous(store: impl SessionStore) -> Checked {
    let tag = entry(json!({ "type": "tag", "tag": "x" }))?;
    for _ in 0..2 {
        store.append(&key(), std::slice::from_ref(&tag)).await?;
    }
    same("the number of entries", store.load(&key()).await?.unwrap_or_default().len(), 2)
}

async fn keeps_parts_apart(store: impl SessionStore) -> Checked {
    store.append(&key(), &entries(&["m"])?).await?;
    store.append(&agent(1), &entries(&["s"])?).await?;
    store.append(&agent(1).main().with_subpath("subagents"), &entries(&["t"])?).await?;
    has(&store, &key(), &["m"]).await?;
    has(&store, &agent(1), &["s"]).await
}

async fn keeps_projects_apart(store: impl SessionStore) -> Checked {
    store.append(&key(), &entries(&["a"])?).await?;
    store.append(&other_project(), &entries(&["b"])?).await?;
    has(&store, &key(), &["a"]).await?;
    has(&store, &other_project(), &["b"]).await
}

async fn takes_any_key(store: impl SessionStore) -> Checked {
    let keys = [
        SessionKey::new("tenant/a", "s"),
        SessionKey::new("tenant", "a/s"),
        SessionKey::new("tenant", "a").with_subpath("s"),
        SessionKey::new("TENANT?", "s"),
        SessionKey::new("té%nant:*", "..").with_subpath("a b/é"),
    ];
    for (number, key) in keys.iter().enumerate() {
        store.append(key, &entries(&[&number.to_string()])?).await?;
    }
    for (number, key) in keys.iter().enumerate() {
        has(&store, key, &[&number.to_string()]).await?;
    }
    Ok(())
}

async fn takes_many_at_once(store: impl SessionStore) -> Checked {
    let keys: Vec<_> = (0..16).map(agent).collect();
    let appends = keys.iter().map(|key| async {
        for uuid in ["a", "b", "c"] {
            store.append(key, &entries(&[uuid])?).await?;
        }
        Checked::Ok(())
    });
    futures_util::future::try_join_all(appends).await?;
    for key in &keys {
        has(&store, key, &["a", "b", "c"]).await?;
    }
    Ok(())
}

async fn sessions_of(store: &impl SessionStore, project_key: &str) -> StoreResult<Vec<String>> {
    let listed = store.list_sessions(project_key).await?;
    let mut ids: Vec<_> = listed.into_iter().map(|session| session.session_id).collect();
    ids.sort();
    Ok(ids)
}

async fn lists_sessions(store: impl SessionStore) -> Checked {
    let none: [String; 0] = [];
    same("the list of an empty project", sessions_of(&store, "project").await?, none.to_vec())?;
    for key in [key(), other_session(), other_project(), agent(1)] {
        store.append(&key, &entries(&["a"])?).await?;
    }
    let expected = vec![key().session_id, other_session().session_id];
    same("the list of the project", sessions_of(&store, "project").await?, expected)
}

async fn tells_times(store: impl SessionStore) -> Checked {
    // Clocks and file systems differ, but not by an hour; and a time in other units is off by decades.
    let hour = Duration::from_secs(3600);
    let (from, to) = (SystemTime::now() - hour, SystemTime::now() + hour);
    store.append(&key(), &entries(&["a"])?).await?;
    store.append(&other_session(), &entries(&["a"])?).await?;
    store.append(&key(), &entries(&["b"])?).await?;
    let listed = store.list_sessions("project").await?;
    for session in &listed {
        if session.modified < from || session.modified > to {
            return Err(format!("{} was modified at {:?}", session.session_id, session.modified).into());
        }
    }
    let time = |key: SessionKey| listed.iter().find(|session| session.session_id == key.session_id);
    match (time(key()), time(other_session())) {
        (Some(later), Some(earlier)) if later.modified >= earlier.modified => Ok(()),
        found => Err(format!("the session that was written to last is not the newest: {found:?}").into()),
    }
}

async fn keeps_summaries(store: impl SessionStore) -> Checked {
    let title = |title: &str| entry(json!({ "type": "custom-title", "customTitle": title }));
    let titles = async || -> StoreResult<Vec<(String, Option<String>)>> {
        let summaries = store.list_summaries("project").await?;
        let named = summaries.iter().map(|summary| {
            (summary.session_id().to_owned(), summary.info().and_then(|info| info.custom_title))
        });
        Ok(named.collect())
    };
    same("the summaries of an empty project", titles().await?, Vec::new())?;
    store.append(&key(), &[title("first")?, entry(json!({ "type": "x" }))?]).await?;
    store.append(&key(), &[title("second")?]).await?;
    store.append(&agent(1), &[title("of a subagent")?]).await?;
    store.append(&other_project(), &[title("of another project")?]).await?;
    let expected = vec![(key().session_id, Some("second".to_owned()))];
    same("the summaries of the project", titles().await?, expected)?;
    let listed = store.list_sessions("project").await?;
    let summary = store.list_summaries("project").await?;
    for (summary, listed) in summary.iter().zip(&listed) {
        if summary.modified() < listed.modified {
            return Err(format!("{summary:?} is older than {listed:?}: they have to have one clock").into());
        }
    }
    match store.delete(&key()).await {
        Err(error) if error.is::<Unsupported>() => Ok(()),
        deleted => {
            deleted?;
            same("the summaries after it was deleted", titles().await?, Vec::new())
        }
    }
}

async fn deletes(store: impl SessionStore) -> Checked {
    store.delete(&key()).await?;
    store.append(&key(), &entries(&["a"])?).await?;
    store.delete(&key()).await?;
    has_none(&store, &key()).await?;
    store.append(&key(), &entries(&["a", "b"])?).await?;
    has(&store, &key(), &["a", "b"]).await
}

async fn deletes_parts(store: impl SessionStore) -> Checked {
    let all = [key(), agent(1), agent(2), other_session(), other_project()];
    for key in &all {
        store.append(key, &entries(&["a"])?).await?;
    }
    store.delete(&key()).await?;
    for key in &all[..3] {
        has_none(&store, key).await?;
    }
    for key in &all[3..] {
        has(&store, key, &["a"]).await?;
    }
    Ok(())
}

async fn deletes_one_part(store: impl SessionStore) -> Checked {
    for key in [key(), agent(1), agent(2)] {
        store.append(&key, &entries(&["a"])?).await?;
    }
    store.delete(&agent(1)).await?;
    has_none(&store, &agent(1)).await?;
    has(&store, &agent(2), &["a"]).await?;
    has(&store, &key(), &["a"]).await
}

async fn lists_subkeys(store: impl SessionStore) -> Checked {
    let subkeys = async |key: SessionKey| -> StoreResult<Vec<String>> {
        let mut listed = store.list_subkeys(&key).await?;
        listed.sort();
        Ok(listed)
    };
    same("the list of a session that is not there", subkeys(key()).await?, Vec::new())?;
    store.append(&key(), &entries(&["a"])?).await?;
    same("the list of a session without parts", subkeys(key()).await?, Vec::new())?;
    let deep = key().with_subpath("subagents/workflows/run-1/agent-3");
    for key in [agent(1), agent(2), deep, other_session().with_subpath("subagents/agent-x")] {
        store.append(&key, &entries(&["a"])?).await?;
    }
    let expected = ["subagents/agent-1", "subagents/agent-2", "subagents/workflows/run-1/agent-3"];
    same("the list of parts", subkeys(key()).await?, expected.map(str::to_owned).to_vec())
}

/// The text of a panic.
fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("a panic without a text")
        .to_owned()
}
