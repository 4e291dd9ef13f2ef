//! The end of the storm, and what has to be true then.

use std::time::Duration;

use greenroom_fleet::PromptOutcome;

use crate::driver::{Driver, LEASE, Waiting};
use crate::journal::processes_of;
use crate::node::Trouble;
use crate::protocol::Wish;

impl Driver {
    /// Drains all nodes, and waits until no process is left.
    pub(crate) async fn end(&mut self) {
        for at in 0..self.nodes.len() {
            self.nodes[at].trouble = Trouble::Draining;
            self.ask(at, Wish::Drain, Waiting::Other);
        }
        loop {
            self.hear_until(tokio::time::Instant::now() + Duration::from_millis(20)).await;
            let mut left = processes_of(&self.scratch);
            let noted = self.journal.processes.iter().filter(|process| process.lives());
            left.extend(noted.map(|process| (*process, "noted in the journal".to_owned())));
            if left.is_empty() && self.nodes.is_empty() {
                break;
            }
        }
        self.journal.read();
    }

    pub(crate) fn check(&self) {
        println!("{}", self.summary());
        let mut wrong = self.faults();
        let twice = self.journal.uuids.iter().filter(|(_, times)| **times > 1);
        wrong.extend(twice.map(|(uuid, times)| format!("the message {uuid} came to CLIs {times} times")));
        wrong.extend(self.prompts.all.iter().filter_map(|prompt| prompt.fault(&self.journal.texts)));
        assert!(wrong.is_empty(), "{}:\n{}\n{}", self.told(), wrong.join("\n"), self.story());
        assert_eq!(self.lacks(), None, "{}", self.told());
        let completed = self.prompts.count(|outcome| matches!(outcome, PromptOutcome::Completed { .. }));
        assert!(completed * 10 >= self.prompts.all.len(), "{completed} prompts are completed");
    }

    /// What was noticed at once.
    pub(crate) fn faults(&self) -> Vec<String> {
        let mut faults = self.failures.clone();
        faults.extend(self.prompts.contradictions.iter().cloned());
        faults.extend(self.journal.faults.iter().map(|fault| format!("{fault:?}")));
        faults
    }

    pub(crate) fn told(&self) -> String {
        format!("GREENROOM_SEED={}, {} s", self.seed, self.length.as_secs())
    }

    /// The last disturbances, and the end of what the services have written to stderr.
    pub(crate) fn story(&self) -> String {
        let text = std::fs::read(self.scratch.join("stderr")).unwrap_or_default();
        let stderr = String::from_utf8_lossy(&text[text.len().saturating_sub(4000)..]).into_owned();
        format!("{}\n{stderr}", self.plan[self.plan.len().saturating_sub(40)..].join("\n"))
    }

    fn summary(&self) -> String {
        let (prompts, counts, journal) = (&self.prompts, &self.counts, &self.journal);
        let ended = |is: fn(&PromptOutcome) -> bool| prompts.count(is);
        let longest = counts.lost.iter().max().copied().unwrap_or_default();
        format!(
            "nodes of {}: {} prompts accepted, {} completed, {} interrupted, {} failed, {} unsent; {} refused, {} sent again \
             and found; {} kills of nodes, {} stops, {} cuts, {} drains, {} kills of the server, {} of CLIs; {} nodes ended by \
             themselves; {} declared dead, {:.1} s after their loss at most, with a lease of {} s; {} starts of CLIs of {} names; \
             events: {:?}",
            self.told(),
            prompts.all.iter().filter(|prompt| prompt.id().is_some()).count(),
            ended(|outcome| matches!(outcome, PromptOutcome::Completed { .. })),
            ended(|outcome| matches!(outcome, PromptOutcome::Interrupted { .. })),
            ended(|outcome| matches!(outcome, PromptOutcome::Failed { .. })),
            ended(|outcome| matches!(outcome, PromptOutcome::Unsent { .. })),
            counts.refused,
            counts.found,
            counts.kills,
            counts.stops,
            counts.cuts,
            counts.drains,
            counts.restarts_of_the_server,
            counts.cli_kills,
            counts.ended,
            counts.lost.len(),
            longest.as_secs_f64(),
            LEASE.as_secs(),
            journal.starts,
            journal.names.len(),
            counts.events,
        )
    }

    /// The disturbances of which the storm has not made enough yet.
    pub(crate) fn lacks(&self) -> Option<(&'static str, u64)> {
        let seconds = self.length.as_secs();
        let accepted = self.prompts.all.iter().filter(|prompt| prompt.id().is_some()).count() as u64;
        let counts = &self.counts;
        let disturbances = counts.kills + counts.stops + counts.cuts + counts.drains;
        let long = seconds / 300;
        let least = [
            ("disturbances of nodes", disturbances, seconds / 10),
            ("kills of CLIs", counts.cli_kills, seconds / 10),
            ("accepted prompts", accepted, seconds / 2),
            ("starts of CLIs", self.journal.starts, seconds / 2),
            ("kills of nodes", counts.kills, long),
            ("stops of nodes", counts.stops, long),
            ("cuts of nodes", counts.cuts, long),
            ("drains of nodes", counts.drains, long),
            ("kills of the server", counts.restarts_of_the_server, long),
            ("nodes that were declared dead", counts.lost.len() as u64, long),
        ];
        least.into_iter().find(|(_, count, least)| count < least).map(|(what, count, _)| (what, count))
    }
}

impl Drop for Driver {
    /// Keeps the files of a storm that has failed.
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.folder.disable_cleanup(true);
            println!("{}: the files are in {}\n{}", self.told(), self.scratch.display(), self.story());
        }
    }
}
