//! What has to be true after the storm.

use std::collections::BTreeSet;
use std::path::Path;

use greenroom_fleet::PromptOutcome;

use crate::journal::{Process, processes_of};
use crate::protocol::LIVE;
use crate::storm::Storm;
use crate::wait::found;

/// Waits until no process is left: a CLI, what a CLI has started, a service or a guardian. `noted`: processes of the
/// journal.
pub(crate) async fn wait_for_processes(scratch: &Path, noted: &[Process]) {
    // The end of a process that is not a child is no event.
    found("the end of all processes", || {
        let noted = noted.iter().any(|process| process.lives());
        (!noted && processes_of(scratch).is_empty()).then_some(())
    })
    .await;
}

impl Storm {
    pub(crate) fn check(&self) {
        println!("{}", self.summary());
        let wrong = self.wrong();
        assert!(wrong.is_empty(), "{}:\n{}\n{}", self.told(), wrong.join("\n"), self.stderr());
        self.check_files();
        assert_eq!(self.lacks(), None, "{}", self.told());
        let completed = self.prompts.count(|outcome| matches!(outcome, PromptOutcome::Completed { .. }));
        assert!(completed * 10 >= self.prompts.all.len(), "{completed} prompts are completed");
        assert!(self.counts.deletions >= 200, "{} names are deleted", self.counts.deletions);
    }

    pub(crate) fn told(&self) -> String {
        format!("GREENROOM_SEED={}, {} s", self.seed, self.length.as_secs())
    }

    fn summary(&self) -> String {
        let (prompts, counts, journal) = (&self.prompts, &self.counts, &self.journal);
        let ended = |is: fn(&PromptOutcome) -> bool| prompts.count(is);
        format!(
            "storm of {}: {} prompts accepted, {} completed, {} interrupted, {} failed, {} unsent; {} refused, \
             {} sent again and found; {} kills of CLIs, {} of the service, {} of its guardian; {} starts of CLIs of {} \
             names, {} with slots at a time; {} names deleted; events: {:?}",
            self.told(),
            prompts.all.iter().filter(|prompt| prompt.id().is_some()).count(),
            ended(|outcome| matches!(outcome, PromptOutcome::Completed { .. })),
            ended(|outcome| matches!(outcome, PromptOutcome::Interrupted { .. })),
            ended(|outcome| matches!(outcome, PromptOutcome::Failed { .. })),
            ended(|outcome| matches!(outcome, PromptOutcome::Unsent { .. })),
            counts.refused,
            counts.found,
            counts.cli_kills,
            counts.service_kills,
            counts.guardian_kills,
            journal.starts,
            journal.names.len(),
            journal.slots,
            counts.deletions,
            counts.events,
        )
    }

    /// The end of what the service has written to stderr.
    pub(crate) fn stderr(&self) -> String {
        let text = std::fs::read(self.scratch.join("stderr")).unwrap_or_default();
        String::from_utf8_lossy(&text[text.len().saturating_sub(4000)..]).into_owned()
    }

    /// What was noticed at once.
    pub(crate) fn faults(&self) -> Vec<String> {
        let mut faults = self.failures.clone();
        faults.extend(self.prompts.contradictions.iter().cloned());
        faults.extend(self.journal.faults.iter().map(|fault| format!("{fault:?}")));
        faults
    }

    /// Everything that contradicts a promise.
    fn wrong(&self) -> Vec<String> {
        let mut wrong = self.faults();
        let twice = self.journal.uuids.iter().filter(|(_, times)| **times > 1);
        wrong.extend(twice.map(|(uuid, times)| format!("the message {uuid} came to CLIs {times} times")));
        let mut known = BTreeSet::new();
        for prompt in &self.prompts.all {
            wrong.extend(prompt.fault(&self.journal.texts));
            known.extend([prompt.text.clone(), prompt.continuation()]);
        }
        let strange = self.journal.texts.keys().filter(|text| !known.contains(*text));
        wrong.extend(strange.map(|text| format!("a CLI was told {text:?}, which nobody has sent")));
        wrong
    }

    /// The registry is left, with the empty folder for the sessions' files, and what belongs to the test.
    fn check_files(&self) {
        const OF_THE_TEST: [&str; 4] = ["journal", "names", "slots", "stderr"];
        let mut left = files_below(&self.scratch);
        left.retain(|path| !OF_THE_TEST.iter().any(|own| path.starts_with(own)));
        let documented = ["fleet.redb", "fleet.redb.sessions/", "locks/", "tmp/"];
        assert_eq!(left, documented, "{}: files are left", self.told());
    }

    /// The disturbances of which the storm has not made enough yet.
    pub(crate) fn lacks(&self) -> Option<(&'static str, u64)> {
        let seconds = self.length.as_secs();
        let accepted = self.prompts.all.iter().filter(|prompt| prompt.id().is_some()).count() as u64;
        let counts = [
            ("kills of the service", self.counts.service_kills, (seconds / 15).max(2)),
            ("kills of CLIs", self.counts.cli_kills, seconds / 5),
            ("accepted prompts", accepted, seconds),
            ("starts of CLIs", self.journal.starts, seconds),
            ("slots at a time", self.journal.slots as u64, (LIVE as u64).min(4 + seconds / 30)),
        ];
        counts.into_iter().find(|(_, count, least)| count < least).map(|(what, count, _)| (what, count))
    }
}

impl Drop for Storm {
    /// Keeps the files of a storm that has failed.
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.folder.disable_cleanup(true);
            println!("{}: the files are in {}\n{}", self.told(), self.scratch.display(), self.stderr());
        }
    }
}

/// The files below a folder, relative to it, and empty folders with a slash.
fn files_below(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        let entries: Vec<_> = std::fs::read_dir(&next).unwrap().map(|entry| entry.unwrap().path()).collect();
        if entries.is_empty() {
            found.push(format!("{}/", next.strip_prefix(folder).unwrap().display()));
        }
        for path in entries {
            if path.is_dir() {
                folders.push(path);
            } else {
                found.push(path.strip_prefix(folder).unwrap().display().to_string());
            }
        }
    }
    found.sort();
    found
}
