//! Tests of a name's actor alone, for moments that no fleet can be stopped at.

use std::time::Duration;

use ractor::Actor;
use tokio::sync::oneshot;

use super::{NameActor, NameArguments, NameMessage};
use crate::actor::admitter::{AdmissionLink, Admitter, AdmitterArguments, Holder};
use crate::actor::cell::NameCell;
use crate::actor::stage::{accept, joined};
use crate::backend::MemoryBackend;
use crate::face::event::FleetEvent;
use crate::face::limits::FleetLimits;
use crate::id::Name;
use crate::request::Accepted;

/// The new admission reads who holds a slot, then the name frees its slot, and only then admission can be told.
#[tokio::test(start_paused = true)]
async fn a_slot_that_is_freed_while_admission_restarts_is_not_lost() {
    let shared = joined(MemoryBackend::new(), FleetLimits { live: 1, ..FleetLimits::default() }).await;
    let accepted = shared.backend.accept(accept("a", Duration::from_secs(3600))).await.unwrap();
    assert!(matches!(accepted, Accepted::New(_)), "{accepted:?}");
    let mut events = shared.events.subscribe();
    let (name, admission) = (Name::new("a").unwrap(), AdmissionLink::default());
    let generation = admission.next_generation();
    let holder = Holder { name: name.clone(), tenant: "acme".into(), starting: false };

    // The name holds nothing any more, and nobody hears it ask.
    let cell = NameCell::new(name.clone());
    let arguments = NameArguments { shared: shared.clone(), cell, admission: admission.clone(), next: None };
    let (actor, _) = Actor::spawn(None, NameActor, arguments).await.unwrap();
    loop {
        let (reply, report) = oneshot::channel();
        actor.cast(NameMessage::Report(reply)).unwrap();
        if report.await.unwrap().stage == "waiting" {
            break;
        }
        tokio::task::yield_now().await;
    }

    let arguments = AdmitterArguments { shared, generation, holders: vec![holder] };
    let (admitter, _) = Actor::spawn(None, Admitter, arguments).await.unwrap();
    admission.connect(admitter.clone());
    actor.cast(NameMessage::AskAgain).unwrap();
    let starts = async {
        while !matches!(events.recv().await.unwrap(), FleetEvent::Activating { name: of, .. } if of == name) {
        }
    };
    tokio::time::timeout(Duration::from_secs(60), starts).await.expect("the name gets its slot again");
    actor.stop(None);
    admitter.stop(None);
}
