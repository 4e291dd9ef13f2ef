//! The end of a process that is killed, or that another one takes over while it runs.

use std::collections::BTreeMap;

use super::*;
use crate::cli::Taken;

/// The time after which a fleet whose node is dead has ended: it finds out at a renewal, or gives its lease up after four fifths.
const NOTICES: Duration = Duration::from_secs(30);

impl Life<'_> {
    /// The node of the fleet is declared dead while the fleet runs, as after a long pause of its machine. Another fleet owns the
    /// names from now on, and the first one must not act any more.
    pub(super) async fn take_over(&mut self) {
        let (Some(fleet), Some(mut events)) = (self.fleet.take(), self.events.take()) else { return };
        let backend = in_time("the other process", self.case.store.open()).await.unwrap();
        for node in nodes(&*backend).await {
            in_time("the end of a node", repeated(|| backend.leave(node.id))).await;
        }
        // The lost owners begin nothing from now on, and nobody has claimed a name since.
        let begun = self.case.model.may_have_begun(&*backend).await;
        let mut terms = BTreeMap::new();
        for number in 0..NAMES {
            let name = full_name(number);
            if let Some(record) = repeated(|| backend.name_record(name.clone())).await {
                terms.insert(name_of(number), record.term);
            }
        }
        self.case.journal.take_over(Taken { begun, terms });
        let (journal, notices) = (self.case.journal.clone(), self.limit(NOTICES));
        self.lost.spawn(async move {
            if timeout(notices, &mut events).await.is_err() {
                journal.violate(format!(
                    "one-owner: a fleet whose node is dead has not ended after {notices:?}"
                ));
            }
            drop(fleet);
        });
    }

    /// The process is killed. The next one opens a file as it is at this moment, without what a closing would still write. Commits that
    /// are on their way to a server may be carried out.
    pub(super) async fn kill(&mut self) {
        let (Some(file), Some(backend)) = (&self.case.store.file, self.backend.clone()) else { return };
        // From now on nothing is asked. The writer carries requests out in their order, so all others were answered before this one.
        let faults = std::mem::replace(&mut *self.case.faults.lock().unwrap(), Faults::Hang(false));
        backend.queued().await.unwrap();
        let mut path = file.lock().unwrap();
        let left = path.with_extension(format!("{}", self.case.openings.load(Ordering::Relaxed)));
        std::fs::copy(&*path, &left).unwrap();
        *path = left;
        *self.case.faults.lock().unwrap() = faults;
    }
}
