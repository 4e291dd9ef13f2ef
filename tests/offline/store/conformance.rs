//! The conformance test finds each flaw that a session store may have.

use std::sync::Mutex;
use std::time::SystemTime;

use futures_util::future::BoxFuture;
use greenroom::sessions::TranscriptEntry;
use greenroom::store::{MemoryStore, SessionKey, SessionStore, SessionSummary, StoreResult, StoredSession};
use greenroom_testkit::store_conformance;
use serde_json::json;

/// A defect of a store.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Flaw {
    None,
    KeepsRepeats,
    DropsAnonymous,
    ForgetsOrder,
    RemembersTheEmpty,
    OneProject,
    MixesParts,
    RoundsNumbers,
    JoinsKeys,
    ListsParts,
    ListsTooMuch,
    CountsSeconds,
    SummarisesParts,
    OldSummaries,
    DeletesNothing,
    DeletesNoParts,
    DeletesAllParts,
    DeletesOtherProjects,
    NoSubkeys,
    SubkeysOfAll,
    Panics,
    Fails,
}

struct Flawed {
    flaw: Flaw,
    inner: MemoryStore,
    empty: Mutex<Vec<SessionKey>>,
}

fn in_project(project: &str, key: &SessionKey) -> SessionKey {
    let mut key = key.clone();
    key.project_key = project.into();
    key
}

impl Flawed {
    fn key(&self, key: &SessionKey) -> SessionKey {
        match self.flaw {
            Flaw::OneProject => in_project("one", key),
            Flaw::MixesParts => key.main(),
            Flaw::JoinsKeys => SessionKey::new("", key.to_string()),
            _ => key.clone(),
        }
    }
}

impl SessionStore for Flawed {
    fn append<'a>(
        &'a self,
        key: &'a SessionKey,
        entries: &'a [TranscriptEntry],
    ) -> BoxFuture<'a, StoreResult<()>> {
        Box::pin(async move {
            assert!(self.flaw != Flaw::Panics || entries.len() < 3, "more than two entries");
            if entries.is_empty() {
                self.empty.lock().unwrap().push(key.clone());
            }
            let changed = entries.iter().map(|it| {
                let mut value = it.value();
                let fields = value.as_object_mut().unwrap();
                match self.flaw {
                    // As something else under a name that is never asked for.
                    Flaw::KeepsRepeats => {
                        drop(fields.remove("uuid").map(|uuid| fields.insert("id".into(), uuid)))
                    }
                    Flaw::DropsAnonymous if it.uuid().is_none() => {
                        drop(fields.insert("uuid".into(), "same".into()))
                    }
                    Flaw::RoundsNumbers if fields.contains_key("z") => {
                        drop(fields.insert("z".into(), json!([1, -2.5])))
                    }
                    _ => {}
                }
                TranscriptEntry::try_from(value).unwrap()
            });
            let mut changed: Vec<_> = changed.collect();
            if self.flaw == Flaw::ForgetsOrder {
                changed.sort_by_key(|entry| entry.uuid().map(str::to_owned));
            }
            self.inner.append(&self.key(key), &changed).await
        })
    }

    fn load<'a>(&'a self, key: &'a SessionKey) -> BoxFuture<'a, StoreResult<Option<Vec<TranscriptEntry>>>> {
        Box::pin(async move {
            if self.flaw == Flaw::Fails {
                return Err("the disk is on fire".into());
            }
            let loaded = self.inner.load(&self.key(key)).await?;
            let remembered = self.flaw == Flaw::RemembersTheEmpty && self.empty.lock().unwrap().contains(key);
            let restored = |entries: Vec<TranscriptEntry>| {
                let restore = |it: TranscriptEntry| {
                    let mut value = it.value();
                    if let Some(id) = value.as_object_mut().unwrap().remove("id") {
                        value["uuid"] = id;
                    }
                    TranscriptEntry::try_from(value).unwrap()
                };
                entries.into_iter().map(restore).collect::<Vec<_>>()
            };
            let loaded = if self.flaw == Flaw::KeepsRepeats { loaded.map(restored) } else { loaded };
            Ok(loaded.or_else(|| remembered.then(Vec::new)))
        })
    }

    fn list_sessions<'a>(&'a self, project_key: &'a str) -> BoxFuture<'a, StoreResult<Vec<StoredSession>>> {
        Box::pin(async move {
            let mut listed = self.inner.list_sessions(project_key).await?;
            match self.flaw {
                Flaw::ListsParts => {
                    let parts = self.inner.keys().into_iter().filter(|key| key.subpath.is_some());
                    listed.extend(parts.map(|key| StoredSession::new(key.to_string(), SystemTime::now())));
                }
                Flaw::ListsTooMuch => listed.extend(self.inner.list_sessions("project-2").await?),
                Flaw::CountsSeconds => listed.iter_mut().for_each(|session| {
                    let since = session.modified.duration_since(SystemTime::UNIX_EPOCH).unwrap();
                    session.modified = SystemTime::UNIX_EPOCH + since / 1000;
                }),
                _ => {}
            }
            Ok(listed)
        })
    }

    fn list_summaries<'a>(&'a self, project_key: &'a str) -> BoxFuture<'a, StoreResult<Vec<SessionSummary>>> {
        Box::pin(async move {
            let mut summaries = self.inner.list_summaries(project_key).await?;
            for summary in &mut summaries {
                match self.flaw {
                    Flaw::SummarisesParts => {
                        let parts = self.inner.keys().into_iter().filter(|key| key.subpath.is_some());
                        for part in parts {
                            summary.fold(&self.inner.entries(&part), SystemTime::now());
                        }
                    }
                    Flaw::OldSummaries => summary.fold(&[], SystemTime::UNIX_EPOCH),
                    _ => {}
                }
            }
            Ok(summaries)
        })
    }

    fn delete<'a>(&'a self, key: &'a SessionKey) -> BoxFuture<'a, StoreResult<()>> {
        Box::pin(async move {
            let parts =
                self.inner.list_subkeys(key).await?.into_iter().map(|part| key.main().with_subpath(part));
            match self.flaw {
                Flaw::DeletesNothing => Ok(()),
                Flaw::DeletesNoParts if key.subpath.is_none() => {
                    let mut kept = Vec::new();
                    for part in parts {
                        kept.push((part.clone(), self.inner.entries(&part)));
                    }
                    self.inner.delete(key).await?;
                    for (part, entries) in kept {
                        self.inner.append(&part, &entries).await?;
                    }
                    Ok(())
                }
                Flaw::DeletesAllParts => {
                    for part in parts {
                        self.inner.delete(&part).await?;
                    }
                    self.inner.delete(key).await
                }
                Flaw::DeletesOtherProjects => {
                    self.inner.delete(&in_project("project-2", key)).await?;
                    self.inner.delete(key).await
                }
                _ => self.inner.delete(&self.key(key)).await,
            }
        })
    }

    fn list_subkeys<'a>(&'a self, key: &'a SessionKey) -> BoxFuture<'a, StoreResult<Vec<String>>> {
        Box::pin(async move {
            match self.flaw {
                Flaw::NoSubkeys => Ok(Vec::new()),
                Flaw::SubkeysOfAll => {
                    Ok(self.inner.keys().into_iter().filter_map(|key| key.subpath).collect())
                }
                _ => self.inner.list_subkeys(key).await,
            }
        })
    }
}

async fn broken_by(flaw: Flaw) -> Vec<&'static str> {
    let make = async || Flawed { flaw, inner: MemoryStore::new(), empty: Mutex::default() };
    match store_conformance(make).await {
        Ok(_) => Vec::new(),
        Err(violations) => violations.iter().map(|violation| violation.rule).collect(),
    }
}

#[tokio::test]
async fn each_flaw_of_a_store_is_found() {
    assert_eq!(broken_by(Flaw::None).await, [""; 0]);
    for (flaw, rule) in [
        (Flaw::KeepsRepeats, "an entry with a uuid that the key has already is dropped"),
        (Flaw::DropsAnonymous, "an entry without a uuid is kept each time"),
        (Flaw::ForgetsOrder, "entries come back in the order of their appends"),
        (Flaw::RemembersTheEmpty, "no entries change nothing"),
        (Flaw::OneProject, "projects are kept apart"),
        (Flaw::MixesParts, "the parts of a session are kept apart"),
        (Flaw::RoundsNumbers, "what was appended comes back equal, with fields and numbers of any kind"),
        (Flaw::JoinsKeys, "any text can be a key"),
        (Flaw::ListsParts, "sessions are listed, without their parts"),
        (Flaw::ListsTooMuch, "sessions are listed, without their parts"),
        (Flaw::CountsSeconds, "a session has the time of its last append"),
        (Flaw::SummarisesParts, "summaries are folded from the entries of the session itself"),
        (Flaw::OldSummaries, "summaries are folded from the entries of the session itself"),
        (Flaw::DeletesNothing, "what is deleted is gone"),
        (Flaw::DeletesNoParts, "a session is deleted with its parts, and nothing else"),
        (Flaw::DeletesAllParts, "a part is deleted alone"),
        (Flaw::DeletesOtherProjects, "a session is deleted with its parts, and nothing else"),
        (Flaw::NoSubkeys, "the parts of a session are listed, without the session itself"),
        (Flaw::SubkeysOfAll, "the parts of a session are listed, without the session itself"),
        (Flaw::Panics, "an entry with a uuid that the key has already is dropped"),
        (Flaw::Fails, "a key without entries has none"),
    ] {
        let broken = broken_by(flaw).await;
        assert!(broken.contains(&rule), "{flaw:?} breaks {broken:?}");
    }
}

/// Two methods, as the documentation of the trait says.
struct Least(MemoryStore);

impl SessionStore for Least {
    fn append<'a>(
        &'a self,
        key: &'a SessionKey,
        entries: &'a [TranscriptEntry],
    ) -> BoxFuture<'a, StoreResult<()>> {
        self.0.append(key, entries)
    }

    fn load<'a>(&'a self, key: &'a SessionKey) -> BoxFuture<'a, StoreResult<Option<Vec<TranscriptEntry>>>> {
        self.0.load(key)
    }
}

#[tokio::test]
async fn what_a_store_cannot_do_is_passed_over_and_the_rest_is_checked() {
    let kept = store_conformance(async || Least(MemoryStore::new())).await.unwrap();
    assert_eq!(kept.len(), 10, "{kept:?}");
}

#[tokio::test]
async fn the_store_of_the_library_keeps_all_promises() {
    let kept = store_conformance(async || MemoryStore::new()).await.unwrap();
    assert_eq!(kept.len(), 17, "{kept:?}");
}
