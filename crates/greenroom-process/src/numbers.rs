//! The numbers that the system gives to processes and threads, one after another.

use std::fs::{self, File};
use std::io::{self, Read};

use rustix::io::Errno;
use rustix::process::Pid;

/// Numbers of the look before that a look begins with, and numbers beyond the last one.
pub(super) const AHEAD: i32 = 128;

/// The numbers from some before `before`, in rising order.
pub(super) fn numbers_from(before: i32, ahead: i32) -> Vec<Pid> {
    ((before - AHEAD).max(1)..=ahead).filter_map(Pid::from_raw).collect()
}

/// The processes of this machine.
pub(super) fn listed() -> io::Result<Vec<Pid>> {
    let processes = match fs::read_dir("/proc") {
        Err(error) if is_absent(&error) => return Ok(Vec::new()),
        processes => processes?.flatten(),
    };
    let number = |name: &str| Pid::from_raw(name.parse().ok()?);
    Ok(processes.filter_map(|entry| number(entry.file_name().to_str()?)).collect())
}

/// The number of the process or thread that was started last. `None` where the file is not one of the system's `/proc`, as in
/// containers in which lxcfs makes it: it may have the number of another PID namespace.
///
/// # Errors
/// This process has no file descriptor left, or no memory.
#[cfg(target_os = "linux")]
pub(super) fn last_number() -> io::Result<Option<i32>> {
    let mut file = match File::open("/proc/loadavg") {
        Err(error) if is_ours(&error) => return Err(error),
        Err(_) => return Ok(None),
        Ok(file) => file,
    };
    let is_of_the_system =
        rustix::fs::fstatfs(&file).is_ok_and(|system| system.f_type == rustix::fs::PROC_SUPER_MAGIC);
    let mut text = String::new();
    if !is_of_the_system || file.read_to_string(&mut text).is_err() {
        return Ok(None);
    }
    let number = text.split_ascii_whitespace().nth(4).and_then(|number| number.parse().ok());
    // 0: gVisor, which does not know it.
    Ok(number.filter(|number| *number > 0))
}

#[cfg(not(target_os = "linux"))]
pub(super) fn last_number() -> io::Result<Option<i32>> {
    Ok(None)
}

/// True for the error of a file that does not exist.
pub(super) fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// True for an error of this process, such as too many open files: it says nothing about the process that is looked at.
pub(super) fn is_ours(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_of_a_new_container_begin_with_one() {
        let numbers: Vec<_> = numbers_from(7, 9).into_iter().map(Pid::as_raw_pid).collect();
        assert_eq!(numbers, (1..=9).collect::<Vec<_>>());
        assert_eq!(numbers_from(1000, 1001).len(), 130);
    }
}
