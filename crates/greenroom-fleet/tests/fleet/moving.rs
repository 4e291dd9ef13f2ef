//! A tenant moves to another backend.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use greenroom::store::SessionKey;
use greenroom_fleet::admin::{Admin, MoveError};
use greenroom_fleet::backend::{
    Backend, Channels, Commit, Committed, Lane, MemoryBackend, Part, Range, Reply, Requests, Rows, Wanted,
};
use greenroom_fleet::{
    Accepted, AttemptId, BackendError, BackendErrorKind, Begin, Budget, Claim, Claimed, Departure, Fleet,
    NameFilter, NameQuery, NameState, Ownership, Quota, Refused, TenantRecord, Timestamp,
};
use uuid::Uuid;

use crate::tenants::{Kept, Tenants, accept, joined, name, tenant, turn};

#[tokio::test(start_paused = true)]
async fn a_tenant_moves_with_all_that_it_has() {
    let (from, to) = (MemoryBackend::new(), MemoryBackend::new());
    let tenants = Tenants::on(&from).await;
    let (acme, other) = (tenants.acme(&from).await, tenants.other(&from).await);
    let moved = Admin::new(from.clone()).move_tenant(&tenant("acme"), &Admin::new(to.clone())).await.unwrap();
    assert_eq!((moved.names, moved.prompts), (2, 4));
    assert_eq!(tenants.acme(&to).await, acme);
    assert_eq!((tenants.acme(&from).await, tenants.other(&from).await), (Kept::default(), other));
    // It goes on there, with later terms.
    let node = joined(&to).await;
    let before = to.name_record(name("a")).await.unwrap().unwrap();
    turn(&to, node, accept("a", before.conversation), 1).await;
    let after = to.name_record(name("a")).await.unwrap().unwrap();
    assert!(after.term > before.term, "{before:?}, {after:?}");
    // Retention removes the prompts there, as it would have done here.
    while to.forget(Timestamp(u64::MAX), 100).await.unwrap() > 0 {}
    let prompts = tenants.prompts();
    for prompt in prompts {
        assert_eq!(to.prompt_record(prompt).await.unwrap(), None);
        assert_eq!(to.messages(prompt, 0, 10).await.unwrap(), []);
    }
    let again = Admin::new(from).move_tenant(&tenant("acme"), &Admin::new(to)).await.unwrap();
    assert_eq!((again.names, again.prompts), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_tenant_that_is_awake_or_whose_name_is_taken_stays() {
    let (from, to) = (MemoryBackend::new(), MemoryBackend::new());
    let tenants = Tenants::on(&from).await;
    let (acme, admin, there) = (tenants.acme(&from).await, Admin::new(from.clone()), Admin::new(to.clone()));
    let waits = accept("a", Uuid::new_v4());
    assert!(matches!(from.accept(waits.clone()).await.unwrap(), Accepted::New(_)));
    let error = admin.move_tenant(&tenant("acme"), &there).await.unwrap_err();
    assert!(matches!(&error, MoveError::NotAtRest(at) if *at == name("a")), "{error}");
    let _unsent = from.withdraw(waits.prompt).await.unwrap();

    let node = joined(&to).await;
    turn(&to, node, accept("b", Uuid::new_v4()), 1).await;
    let error = admin.move_tenant(&tenant("acme"), &there).await.unwrap_err();
    assert!(matches!(&error, MoveError::Taken(at) if *at == name("b")), "{error}");
    assert_eq!(tenants.acme(&from).await, acme, "nothing was marked");
    assert_eq!(to.name_record(name("a")).await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn a_name_that_somebody_has_to_look_at_is_listed_where_it_arrives() {
    let (from, to) = (MemoryBackend::new(), MemoryBackend::new());
    Tenants::on(&from).await;
    let (here, there) = (Admin::new(from), Admin::new(to));
    let stuck = async |at: &Admin| {
        let names = at.names(NameQuery::new().only(NameFilter::Stuck)).await.unwrap().names;
        names.into_iter().map(|record| record.name.session().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!((stuck(&here).await, stuck(&there).await), (vec!["b".to_owned()], vec![]));
    here.move_tenant(&tenant("acme"), &there).await.unwrap();
    assert_eq!((stuck(&here).await, stuck(&there).await), (vec![], vec!["b".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn a_deletion_where_a_name_has_arrived_knows_the_hosts_with_files_of_it() {
    let (from, to) = (MemoryBackend::new(), MemoryBackend::new());
    Tenants::on(&from).await;
    Admin::new(from.clone()).move_tenant(&tenant("acme"), &Admin::new(to.clone())).await.unwrap();
    let _marked = to.delete(name("a")).await.unwrap();
    assert_eq!(to.erasure(name("a")).await.unwrap().unwrap().hosts, ["here"]);
    turn(&from, joined(&from).await, accept("a", Uuid::new_v4()), 1).await;
    let _marked = from.delete(name("a")).await.unwrap();
    assert_eq!(from.files_left(None, 10).await.unwrap().len(), 1, "only those of the new session");
}

#[tokio::test(start_paused = true)]
async fn a_name_that_departs_is_claimed_by_nobody_and_accepts_nothing() {
    let from = MemoryBackend::new();
    Tenants::on(&from).await;
    let node = joined(&from).await;
    let _marked = from.depart(name("a"), Uuid::new_v4()).await.unwrap();
    let again = accept("a", Uuid::new_v4());
    assert_eq!(from.accept(again).await.unwrap(), Accepted::Refused(Refused::Moving));
    let claim = Claim {
        name: name("a"),
        node,
        attempt: AttemptId::new(),
        losses: 3,
        quota: greenroom_fleet::Quota::default(),
    };
    assert_eq!(from.claim(claim).await.unwrap(), Claimed::Gone);
    assert!(!from.unquarantine(name("a")).await.unwrap());
    for error in [
        from.delete(name("a")).await.unwrap_err(),
        from.quarantine(name("a"), "why".into()).await.unwrap_err(),
    ] {
        assert!(error.to_string().contains("moves to another backend"), "{error}");
    }
    let folder = tempfile::tempdir().unwrap();
    let fleet = Fleet::builder().backend(from.clone()).folder(folder.path()).start().await.unwrap();
    let error = fleet.operator().session(name("a")).quarantine("why").await.unwrap_err();
    assert!(error.to_string().contains("moves to another backend"), "{error}");
    // Only to where it was sent first.
    assert_eq!(from.depart(name("a"), Uuid::new_v4()).await.unwrap(), Departure::Elsewhere);
    assert_eq!(from.depart(name("other/a"), Uuid::new_v4()).await.unwrap(), Departure::Gone);
}

#[tokio::test(start_paused = true)]
async fn a_tenant_moves_one_way_and_never_to_itself() {
    let (one, two, three) = (MemoryBackend::new(), MemoryBackend::new(), MemoryBackend::new());
    let tenants = Tenants::on(&one).await;
    let [first, second, third] = [&one, &two, &three].map(|backend| Admin::new(backend.clone()));
    let acme = tenants.acme(&one).await;
    let error = first.move_tenant(&tenant("acme"), &first).await.unwrap_err();
    assert!(matches!(error, MoveError::SameBackend), "{error}");
    assert_eq!(tenants.acme(&one).await, acme);
    // A move that was killed when the first session had arrived.
    let target = two.identify(Uuid::new_v4()).await.unwrap();
    let Departure::Marked(record) = one.depart(name("a"), target).await.unwrap() else { panic!() };
    assert!(two.arrive(record).await.unwrap());
    let error = second.move_tenant(&tenant("acme"), &first).await.unwrap_err();
    assert!(matches!(&error, MoveError::Taken(at) if *at == name("a")), "{error}");
    let error = first.move_tenant(&tenant("acme"), &third).await.unwrap_err();
    assert!(matches!(&error, MoveError::Elsewhere(at) if *at == name("a")), "{error}");
    first.move_tenant(&tenant("acme"), &second).await.unwrap();
    assert_eq!(tenants.acme(&one).await, Kept::default());
}

/// A turn that was lost with its node has cost its reserve.
#[tokio::test(start_paused = true)]
async fn a_tenant_takes_its_spent_and_lost_money_along() {
    let (from, to) = (MemoryBackend::new(), MemoryBackend::new());
    let node = joined(&from).await;
    let lost = accept("a", Uuid::new_v4());
    assert!(matches!(from.accept(lost.clone()).await.unwrap(), Accepted::New(_)));
    let claim = Claim {
        name: name("a"),
        node,
        attempt: AttemptId::new(),
        losses: 3,
        quota: greenroom_fleet::Quota::default(),
    };
    let Claimed::Won(record) = from.claim(claim).await.unwrap() else { panic!("not won") };
    let owner = Ownership { name: name("a"), node, term: record.term };
    let mut quota = Quota::default();
    quota.budget = Some(Budget { amount: 100, period: Duration::from_secs(24 * 3600), reserve: 7 });
    let begin = Begin { owner, prompt: lost.prompt, attempt: AttemptId::new(), quota, credential: None };
    assert!(from.begin(begin).await.unwrap().done().is_some());
    from.leave(node).await.unwrap();
    from.recover(10, 3).await.unwrap();
    let account = from.tenant(tenant("acme")).await.unwrap();
    assert_eq!((account.spent, account.reserved), (7, 0));
    let period = account.period;
    // An account of an earlier period does not count any more.
    assert!(to.open_account(tenant("acme"), Timestamp::default(), 50).await.unwrap());
    Admin::new(from.clone()).move_tenant(&tenant("acme"), &Admin::new(to.clone())).await.unwrap();
    let account = to.tenant(tenant("acme")).await.unwrap();
    assert_eq!((account.spent, account.reserved, account.period), (7, 0, period));
    assert_eq!(from.tenant(tenant("acme")).await.unwrap(), TenantRecord::default());
}

/// A backend that fails at a read or a commit, which was carried out or not, and at all after it.
#[derive(Clone)]
struct Failing {
    backend: MemoryBackend,
    left: Arc<AtomicUsize>,
    loses_the_reply: bool,
}

impl Failing {
    fn fails(&self) -> bool {
        self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_err()
    }
}

fn killed() -> BackendError {
    BackendError::new(BackendErrorKind::Unavailable, "the process was killed")
}

impl Backend for Failing {
    fn now(&self) -> Timestamp {
        Backend::now(&self.backend)
    }

    fn read(&self, lane: Lane, wanted: Wanted) -> Reply<'_, Rows> {
        if self.fails() { Box::pin(async { Err(killed()) }) } else { self.backend.read(lane, wanted) }
    }

    fn commit(&self, lane: Lane, commit: Commit) -> Reply<'_, Committed> {
        Box::pin(async move {
            let fails = self.fails();
            if fails && !self.loses_the_reply {
                return Err(killed());
            }
            let committed = self.backend.commit(lane, commit).await;
            if fails { Err(killed()) } else { committed }
        })
    }

    fn channels(&self) -> &Channels {
        self.backend.channels()
    }
}

/// Rows of a backend that have a prompt of `acme`, its name or one of its conversations in the key or the value.
async fn leftovers(backend: &MemoryBackend, tenants: &Tenants) -> Vec<String> {
    let range = Range { from: vec![1], to: vec![255], limit: usize::MAX, part: Part::Values };
    let wanted = Wanted { ranges: [range.clone()].into(), ..Wanted::default() };
    let rows = backend.read(Lane::Requests, wanted).await.unwrap().ranges.remove(&range).unwrap();
    let mut signs: Vec<Vec<u8>> =
        tenants.conversations().iter().map(|id| id.to_string().into_bytes()).collect();
    for prompt in tenants.prompts() {
        signs.extend([prompt.0.as_bytes().to_vec(), prompt.to_string().into_bytes()]);
    }
    signs.push(b"acme".to_vec());
    let has = |bytes: &[u8]| signs.iter().any(|sign| bytes.windows(sign.len()).any(|part| part == sign));
    // The highest term of the tenant's names stays: an owner that was stopped must not act for a name that is made anew.
    let terms = |key: &[u8]| key == b"\x22acme\0\0";
    let left = rows.into_iter().filter(|(key, value)| !terms(key) && (has(key) || has(value)));
    left.map(|(key, value)| format!("{key:?} {}", String::from_utf8_lossy(&value))).collect()
}

#[tokio::test(start_paused = true)]
async fn a_move_that_is_killed_anywhere_and_run_again_loses_and_doubles_nothing() {
    for loses_the_reply in [false, true] {
        let (mut calls, mut arrivals) = (0, 0);
        loop {
            let (from, to) = (MemoryBackend::new(), MemoryBackend::new());
            let tenants = Tenants::on(&from).await;
            let (acme, other) = (tenants.acme(&from).await, tenants.other(&from).await);
            let left = Arc::new(AtomicUsize::new(calls));
            let failing = |backend: &MemoryBackend| {
                Admin::new(Failing { backend: backend.clone(), left: left.clone(), loses_the_reply })
            };
            let killed = failing(&from).move_tenant(&tenant("acme"), &failing(&to)).await;
            // Meanwhile both forget what is old, which is nothing of this, and a session that has arrived runs.
            for backend in [&from, &to] {
                backend.forget(Timestamp(1), 100).await.unwrap();
            }
            let arrived = to.name_record(name("a")).await.unwrap().filter(|_| killed.is_err());
            let mut late = None;
            if let Some(record) = arrived {
                let node = joined(&to).await;
                let accept = accept("a", record.conversation);
                late = Some(accept.prompt);
                turn(&to, node, accept, 0).await;
            }
            let again = Admin::new(from.clone()).move_tenant(&tenant("acme"), &Admin::new(to.clone())).await;
            again.unwrap();
            match late {
                None => assert_eq!(tenants.acme(&to).await, acme, "killed at call {calls}"),
                Some(late) => {
                    assert_eq!(to.messages(late, 0, 10).await.unwrap().len(), 3, "killed at call {calls}");
                    let record = to.name_record(name("a")).await.unwrap().unwrap();
                    assert_eq!((record.state, record.term.0), (NameState::Free, 3), "killed at call {calls}");
                    let own =
                        SessionKey::new(record.conversation.to_string(), record.conversation.to_string());
                    assert_eq!(to.entries(own, 0).await.unwrap().len(), 9, "killed at call {calls}");
                    arrivals += 1;
                }
            }
            assert_eq!(leftovers(&from, &tenants).await, [""; 0], "killed at call {calls}");
            assert_eq!(tenants.acme(&from).await, Kept::default(), "killed at call {calls}");
            assert_eq!(tenants.other(&from).await, other, "killed at call {calls}");
            if killed.is_ok() {
                break;
            }
            calls += 1;
        }
        assert!(calls > 40 && arrivals > 5, "{calls} calls, {arrivals} after an arrival");
    }
}
