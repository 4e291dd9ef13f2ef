//! The fields of `/proc/PID/stat`.

use std::io;

use rustix::process::Pid;

use crate::numbers::is_ours;

/// The line of a process in `/proc/PID/stat`, proc_pid_stat(5).
pub(super) struct Stat(Vec<String>);

impl Stat {
    /// `None` if there is no such process, or it may not be looked at.
    ///
    /// # Errors
    /// This process has no file descriptor left, or no memory.
    pub(super) fn of(pid: Pid) -> io::Result<Option<Self>> {
        match std::fs::read(format!("/proc/{}/stat", pid.as_raw_pid())) {
            Err(error) if is_ours(&error) => Err(error),
            stat => Ok(stat.ok().and_then(|stat| Self::parse(&stat))),
        }
    }

    pub(super) fn parse(stat: &[u8]) -> Option<Self> {
        // `PID (NAME) STATE …`: the name may have spaces and brackets, and need not be UTF-8.
        let after_name = stat.iter().rposition(|byte| *byte == b')')? + 1;
        let fields = String::from_utf8_lossy(&stat[after_name..]);
        Some(Self(fields.split_ascii_whitespace().map(str::to_owned).collect()))
    }

    /// The number in this field, counted from 1 as the manual does. The name is field 2.
    pub(super) fn number(&self, field: usize) -> Option<u64> {
        self.0.get(field - 3)?.parse().ok()
    }

    /// True for a process that is dead, and perhaps a zombie.
    pub(super) fn has_ended(&self) -> bool {
        self.0.first().is_none_or(|state| matches!(state.as_str(), "Z" | "X" | "x"))
    }

    /// The start of the process, in clock ticks of the system since its boot.
    pub(super) fn started(&self) -> Option<u64> {
        self.number(22)
    }
}
