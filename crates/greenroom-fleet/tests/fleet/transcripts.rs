//! Transcripts in the backend: sessions move between hosts with their memory.

use greenroom::store::{SessionKey, SessionStore};
use greenroom_fleet::backend::{MemoryBackend, Requests};
use greenroom_fleet::testkit::{Fault, FaultedBackend};
use greenroom_fleet::{
    ActivationContext, BackendErrorKind, Cause, Fleet, FleetBuilder, FleetEvent, NameRecord, NameState,
    PromptOutcome, Transcripts, TranscriptsIn, TranscriptsOf,
};
use serde_json::json;
use tempfile::TempDir;
use tokio::time::Instant;

use crate::remembering::{Remembering, line, transcript};
use crate::scenes::{Log, asks, drain, in_time, named, outcome, secs, send, start};

const REFUSED: Fault = Fault::Refuse(BackendErrorKind::Invalid);

/// A backend with transcripts, for fleets with folders of their own.
struct Stage {
    backend: MemoryBackend,
    clis: Remembering,
    folder: TempDir,
}

impl Stage {
    fn new() -> Self {
        Self {
            backend: MemoryBackend::new(),
            clis: Remembering::default(),
            folder: tempfile::tempdir().unwrap(),
        }
    }

    /// A fleet on a host with a disk of its own.
    fn host(&self, host: &str) -> FleetBuilder {
        let clis = self.clis.clone();
        Fleet::builder()
            .backend(self.backend.clone())
            .transcripts(TranscriptsIn::Backend)
            .host(host)
            .folder(self.folder.path().join(host))
            .profile("default", move |_| clis.session())
    }

    /// A backend that decides about each append of entries.
    fn broken(&self, append: Fault) -> FaultedBackend {
        let backend = FaultedBackend::new(self.backend.clone());
        backend.plan(move |request| if request.method == "append_entries" { append } else { Fault::Pass });
        backend
    }

    async fn record(&self, name: &str) -> Option<NameRecord> {
        self.backend
            .name_record(format!("default/{}", name).parse::<greenroom_fleet::Name>().unwrap())
            .await
            .unwrap()
    }

    /// The prompts that the store has of a name.
    async fn stored(&self, name: &str) -> Vec<String> {
        let conversation = self.record(name).await.unwrap().conversation.to_string();
        let key = SessionKey::new(conversation.clone(), conversation);
        let entries = Transcripts::of(self.backend.clone()).load(&key).await.unwrap().unwrap_or_default();
        entries.iter().map(|entry| entry.value()["message"]["content"].as_str().unwrap().to_owned()).collect()
    }
}

// Guards: remembered
#[tokio::test(start_paused = true)]
async fn a_conversation_goes_on_with_its_memory_on_another_host() {
    let stage = Stage::new();
    let first = start(stage.host("one")).await;
    assert_eq!(asks(&first, "a", "green").await, "green");
    drain(&first, secs(20)).await;
    let second = start(stage.host("two")).await;
    assert_eq!(asks(&second, "a", "which?").await, "green, which?");
    let copy = stage.clis.folders().pop().unwrap();
    assert!(
        copy.starts_with(stage.folder.path().join("two")),
        "nothing outside the fleet's folder: {}",
        copy.display()
    );
    // And back: the folder that the first owner has left on this host is not read.
    drain(&second, secs(20)).await;
    let third = start(stage.host("one")).await;
    assert_eq!(asks(&third, "a", "again?").await, "green, which?, again?");
    assert_eq!(stage.stored("a").await, ["green", "which?", "again?"]);
}

// Guards: one-owner
#[tokio::test(start_paused = true)]
async fn an_append_of_an_earlier_owner_writes_nothing_and_fences_it() {
    let stage = Stage::new();
    let backend = FaultedBackend::new(stage.backend.clone());
    // The node hears that it is dead with its next renewal, and not by a look.
    backend.plan(|request| if request.method == "nodes" { Fault::Fail } else { Fault::Pass });
    let first = start(stage.host("one").backend(backend)).await;
    let log = Log::of(&first);
    asks(&first, "a", "late").await;
    // Another node has declared this one dead, and it does not know yet.
    stage.backend.reopen().await.unwrap();
    let since = Instant::now();
    let fenced =
        |event: &FleetEvent| matches!(event, FleetEvent::Fenced { name, .. } if name.session() == "a");
    let at = log.wait("the fence", fenced).await;
    assert!(
        at.duration_since(since) < secs(3),
        "before the node hears of it: {:?}",
        at.duration_since(since)
    );
    assert_eq!(stage.stored("a").await, ["late"]);
    let second = start(stage.host("two")).await;
    assert_eq!(asks(&second, "a", "next").await, "late, next");
}

#[tokio::test(start_paused = true)]
async fn a_folder_of_an_earlier_term_is_not_read_and_is_removed() {
    let stage = Stage::new();
    let fleet = start(stage.host("one")).await;
    asks(&fleet, "a", "kept").await;
    let (earlier, record) = (stage.clis.folders().remove(0), stage.record("a").await.unwrap());
    assert!(earlier.ends_with(format!("config-{}", record.term.0)), "{}", earlier.display());
    let file = transcript(&earlier, &record.conversation.to_string());
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(&file, format!("{}\n", line("refused"))).unwrap();
    in_time("sleep", named(&fleet, "a").passivate()).await.unwrap();
    assert_eq!(asks(&fleet, "a", "next").await, "kept, next");
    assert!(!earlier.exists());
}

// Guards: remembered
#[tokio::test(start_paused = true)]
async fn a_turn_whose_entries_are_lost_says_so_and_its_name_is_quarantined() {
    let stage = Stage::new();
    let fleet = start(stage.host("one").backend(stage.broken(REFUSED))).await;
    let log = Log::of(&fleet);
    let ended = outcome(send(&fleet, "a", "hello").await).await;
    assert!(matches!(ended, PromptOutcome::Completed { transcript_lost: true, .. }), "{ended:?}");
    log.wait("the quarantine", |event| matches!(event, FleetEvent::Quarantined { .. })).await;
    let state = stage.record("a").await.unwrap().state;
    let NameState::Quarantined { why, .. } = state else { panic!("{state:?}") };
    assert!(
        why.starts_with("the transcript did not get 1 entries") && why.contains("is refused as Invalid"),
        "{why}"
    );
}

// Guards: remembered
#[tokio::test(start_paused = true)]
async fn nothing_is_stored_behind_a_lost_entry() {
    let stage = Stage::new();
    let fleet = start(stage.host("one")).await;
    asks(&fleet, "a", "kept").await;
    drain(&fleet, secs(20)).await;
    // The first of two entries is lost, and the second one could be kept.
    let backend = FaultedBackend::new(stage.backend.clone());
    backend.fault_next("append_entries", REFUSED);
    let fleet = start(stage.host("one").backend(backend)).await;
    let ended = outcome(send(&fleet, "a", "two entries").await).await;
    assert!(matches!(ended, PromptOutcome::Completed { transcript_lost: true, .. }), "{ended:?}");
    assert_eq!(stage.stored("a").await, ["kept"]);
}

#[tokio::test(start_paused = true)]
async fn a_line_too_long_to_be_read_counts_as_lost_entries() {
    let stage = Stage::new();
    let clis = stage.clis.clone();
    let profile = move |_: &_| clis.session().configure(|options| options.limits.line_bytes = 32 << 10);
    let fleet = start(stage.host("one").profile("default", profile)).await;
    asks(&fleet, "a", "short").await;
    let ended = outcome(send(&fleet, "a", "long").await).await;
    assert!(matches!(ended, PromptOutcome::Completed { transcript_lost: true, .. }), "{ended:?}");
}

#[tokio::test(start_paused = true)]
async fn a_name_whose_entries_are_lost_is_quarantined_also_if_its_owner_is_lost_then() {
    let stage = Stage::new();
    let backend = FaultedBackend::new(stage.backend.clone());
    backend.plan(|request| match request.method {
        "activation_failed" => Fault::Hang,
        "append_entries" => REFUSED,
        _ => Fault::Pass,
    });
    let first = start(stage.host("one").backend(backend)).await;
    outcome(send(&first, "a", "hello").await).await;
    let record = stage.record("a").await.unwrap();
    assert!(matches!(record.state, NameState::Owned { .. }), "{record:?}");
    stage.backend.reopen().await.unwrap();
    let builder = stage.host("two");
    let log = Log::new(builder.events());
    let _second = start(builder).await;
    log.wait("the quarantine", |event| matches!(event, FleetEvent::Quarantined { .. })).await;
}

#[tokio::test(start_paused = true)]
async fn a_drain_that_cuts_a_session_off_quarantines_nobody() {
    let stage = Stage::new();
    let fleet = start(stage.host("one")).await;
    asks(&fleet, "a", "kept").await;
    drain(&fleet, secs(20)).await;
    let backend = stage.broken(Fault::Hang);
    let fleet = start(stage.host("one").backend(backend.clone())).await;
    let cut = send(&fleet, "a", "cut off").await;
    in_time("the append", backend.wait_for_hanging(1)).await;
    drain(&fleet, secs(1)).await;
    let second = start(stage.host("two")).await;
    let ended = outcome(second.operator().turn(cut.prompt_id())).await;
    assert!(matches!(ended, PromptOutcome::Interrupted { .. }), "{ended:?}");
    assert_eq!(asks(&second, "a", "next").await, "kept, next");
}

#[tokio::test(start_paused = true)]
async fn a_deletion_removes_the_transcripts_and_may_be_repeated() {
    let stage = Stage::new();
    let fleet = start(stage.host("one")).await;
    asks(&fleet, "a", "hello").await;
    asks(&fleet, "b", "hello").await;
    let all = async |conversation: uuid::Uuid| {
        let of = TranscriptsOf::project(conversation.to_string());
        stage.backend.transcripts(of, None, 10).await.unwrap().len()
    };
    let conversation = stage.record("a").await.unwrap().conversation;
    assert_eq!(all(conversation).await, 1);
    in_time("the deletion", named(&fleet, "a").delete()).await.unwrap();
    assert_eq!(all(conversation).await, 0);
    // Twice: there is nothing to remove any more.
    let of = TranscriptsOf::project(conversation.to_string());
    assert!(stage.backend.delete_transcripts(of).await.unwrap());
    assert_eq!(stage.stored("b").await, ["hello"]);
    assert_eq!(asks(&fleet, "a", "anew").await, "anew");
}

#[tokio::test(start_paused = true)]
async fn a_transcript_whose_removal_was_interrupted_is_gone_and_may_begin_anew() {
    let backend = MemoryBackend::new();
    let (store, key) = (Transcripts::of(backend.clone()), SessionKey::new("project", "session"));
    // In rows of their own, and more of them than one request removes.
    let text = "x".repeat(20_000);
    let entry = |number: u32| json!({ "uuid": number.to_string(), "text": text }).try_into().unwrap();
    let entries: Vec<_> = (0..600).map(entry).collect();
    store.append(&key, &entries).await.unwrap();
    assert_eq!(store.load(&key).await.unwrap().unwrap(), entries);
    assert!(!backend.delete_transcripts(TranscriptsOf::key(&key)).await.unwrap());
    assert!(!backend.delete_transcripts(TranscriptsOf::key(&key)).await.unwrap());
    assert_eq!(store.load(&key).await.unwrap(), None);
    store.append(&key, &entries[..2]).await.unwrap();
    assert_eq!(store.load(&key).await.unwrap().unwrap(), entries[..2]);
    store.delete(&key).await.unwrap();
    assert_eq!(store.load(&key).await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn a_page_of_entries_has_a_bounded_number_of_bytes() {
    let backend = MemoryBackend::new();
    let (store, key) = (Transcripts::of(backend.clone()), SessionKey::new("project", "session"));
    let text = "x".repeat(3 << 20);
    let entries: Vec<_> = (0..5)
        .map(|number| json!({ "uuid": number.to_string(), "text": text }).try_into().unwrap())
        .collect();
    store.append(&key, &entries).await.unwrap();
    let page = backend.entries(key.clone(), 0).await.unwrap();
    assert_eq!(
        page.iter().map(|entry| entry.number).collect::<Vec<_>>(),
        [1, 2],
        "the second one has reached 4 MiB"
    );
    assert_eq!(store.load(&key).await.unwrap().unwrap(), entries);
}

#[tokio::test(start_paused = true)]
async fn a_profile_that_chooses_the_configuration_folder_is_refused() {
    let stage = Stage::new();
    let clis = stage.clis.clone();
    let profile = move |_: &_| clis.session().env("CLAUDE_CONFIG_DIR", "/srv/claude");
    let error = stage.host("one").profile("default", profile).start().await.err().unwrap();
    assert!(error.to_string().contains("leave it out"), "{error}");
    // Where it shows with real names only, nobody is quarantined for it.
    let clis = stage.clis.clone();
    let profile = move |cx: &ActivationContext| {
        let session = clis.session();
        if cx.is_probe() { session } else { session.env("CLAUDE_CONFIG_DIR", "/srv/claude") }
    };
    let fleet = start(stage.host("one").profile("default", profile)).await;
    let log = Log::of(&fleet);
    let _waits = send(&fleet, "a", "hello").await;
    let refused = |event: &FleetEvent| matches!(event, FleetEvent::Degraded { cause: Cause::ProfileUnfit, why, .. } if why.contains("leave it out"));
    log.wait("the refusal", refused).await;
    assert_eq!(stage.clis.folders(), [""; 0].map(std::path::PathBuf::from));
}
