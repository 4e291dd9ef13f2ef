//! What the CLIs have written down, read as it grows, and the processes of the storm.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use greenroom_fleet::Name;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::protocol::{self, Dice, Entry, SCRATCH, started};

/// A process that a CLI's entry names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    pub(crate) started: u64,
}

impl Process {
    pub(crate) fn lives(self) -> bool {
        started(self.pid) == Some(self.started)
    }

    /// Kills the process. `false`: it has ended.
    pub(crate) fn kill(self) -> bool {
        self.signal(Signal::KILL)
    }

    /// Signals the process, and no other one that has got its id meanwhile. `false`: it has ended.
    pub(crate) fn signal(self, signal: Signal) -> bool {
        let pid = Pid::from_raw(self.pid.cast_signed()).unwrap();
        let Ok(held) = pidfd_open(pid, PidfdFlags::empty()) else { return false };
        // The start is read after the process was opened, so it is the start of what is signalled.
        self.lives() && pidfd_send_signal(held, signal).is_ok()
    }
}

#[derive(Debug, Default)]
pub(crate) struct Journal {
    path: PathBuf,
    read: u64,
    /// CLIs that may live.
    clis: Vec<Process>,
    pub(crate) processes: Vec<Process>,
    /// How often each text was given to a CLI, and each id of a message.
    pub(crate) texts: BTreeMap<String, u32>,
    pub(crate) uuids: BTreeMap<String, u32>,
    pub(crate) starts: u64,
    /// Starts of each name.
    pub(crate) names: BTreeMap<Name, u64>,
    /// The most slots that were held at a time, as far as the numbers of the slots tell.
    pub(crate) slots: usize,
    /// Entries that must not be there.
    pub(crate) faults: Vec<Entry>,
}

impl Journal {
    pub(crate) fn new(scratch: &Path) -> Self {
        Self { path: protocol::journal(scratch), ..Self::default() }
    }

    /// Reads the entries that are new.
    pub(crate) fn read(&mut self) {
        let Ok(mut file) = File::open(&self.path) else { return };
        file.seek(SeekFrom::Start(self.read)).unwrap();
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        // A line may be on its way.
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        self.read += whole as u64;
        for line in text[..whole].lines() {
            self.take(serde_json::from_str(line).expect(line));
        }
    }

    fn take(&mut self, entry: Entry) {
        match entry {
            Entry::Started { pid, started, name, slot, .. } => {
                let process = Process { pid, started };
                self.clis.push(process);
                self.processes.push(process);
                self.starts += 1;
                *self.names.entry(name).or_default() += 1;
                self.slots = self.slots.max(slot + 1);
            }
            Entry::Child { pid, started } => self.processes.push(Process { pid, started }),
            Entry::Prompted { uuid, text, .. } => {
                *self.uuids.entry(uuid).or_default() += 1;
                *self.texts.entry(text).or_default() += 1;
            }
            fault => self.faults.push(fault),
        }
    }

    /// Kills a CLI. `false`: none lives.
    pub(crate) fn kill_one(&mut self, dice: &mut Dice) -> bool {
        self.read();
        self.clis.retain(|process| process.lives());
        let Some(bound) = (self.clis.len() as u64).checked_sub(1) else { return false };
        self.clis.swap_remove(dice.below(bound + 1) as usize).kill()
    }
}

/// The guardian of a service.
pub(crate) fn guardian_of(service: u32) -> Option<Process> {
    let is_guardian = |pid: u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let parent: u32 = stat[stat.rfind(')')? + 1..].split_ascii_whitespace().nth(1)?.parse().ok()?;
        let command = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).ok()?;
        (parent == service && command.contains("greenroom-guardian")).then_some(())
    };
    let pid = pids().find(|pid| is_guardian(*pid).is_some())?;
    Some(Process { pid, started: started(pid)? })
}

/// All processes with the scratch folder in their environment: the service, its CLIs, and whatever these have started.
pub(crate) fn processes_of(scratch: &Path) -> Vec<(Process, String)> {
    let wanted = format!("{SCRATCH}={}", scratch.display());
    let has = |pid: u32| {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == wanted.as_bytes())
    };
    let found = pids().filter(|pid| has(*pid));
    found
        .filter_map(|pid| {
            let command = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            Some((Process { pid, started: started(pid)? }, command.replace('\0', " ")))
        })
        .collect()
}

fn pids() -> impl Iterator<Item = u32> {
    std::fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}
