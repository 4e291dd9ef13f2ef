//! Executes a program by `execve(2)` alone.
//!
//! [`Command`] uses `execvp(3)`. If the system refuses a file as no program (`ENOEXEC`), the C library runs `/bin/sh` with the
//! file in its place. The shell would read a truncated program, or one of another machine, as a script.

use std::ffi::{CString, OsStr, c_char};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// A program with its arguments and its environment, as `execve` takes them.
struct Image {
    program: CString,
    /// Pointers into `strings`, with a null pointer at the end.
    arguments: Vec<*const c_char>,
    environment: Vec<*const c_char>,
    /// Owns the text that the pointers point to. Never changed.
    _strings: Vec<CString>,
}

// SAFETY: the pointers point into `_strings`, which nobody changes and which is dropped together with them.
unsafe impl Send for Image {}
// SAFETY: as above; a shared image is only read.
unsafe impl Sync for Image {}

impl Image {
    /// The program, arguments and environment of `command`. `inherits`: the environment of this process belongs to it.
    fn of(command: &Command, inherits: bool) -> io::Result<Self> {
        let mut variables: std::collections::BTreeMap<_, _> =
            std::env::vars_os().filter(|_| inherits).collect();
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => variables.insert(name.to_owned(), value.to_owned()),
                None => variables.remove(name),
            };
        }
        let mut strings = Vec::new();
        let mut point = |text: &[u8]| {
            strings.push(CString::new(text)?);
            Ok::<_, io::Error>(strings.last().map_or(std::ptr::null(), |text| text.as_ptr()))
        };
        let mut arguments = Vec::new();
        for argument in [command.get_program()].into_iter().chain(command.get_args()) {
            arguments.push(point(argument.as_bytes())?);
        }
        let mut environment = Vec::new();
        for (name, value) in &variables {
            environment.push(point(&[name.as_bytes(), b"=", value.as_bytes()].concat())?);
        }
        arguments.push(std::ptr::null());
        environment.push(std::ptr::null());
        let program = CString::new(OsStr::as_bytes(command.get_program()))?;
        Ok(Self { program, arguments, environment, _strings: strings })
    }

    /// Executes the program in this process. Returns only if that fails.
    fn execute(&self) -> io::Error {
        // SAFETY: the program is a C string, and both lists are C strings with a null pointer at the end; all of them live
        // as long as `self`.
        unsafe {
            libc::execve(self.program.as_ptr(), self.arguments.as_ptr(), self.environment.as_ptr());
        }
        io::Error::last_os_error()
    }
}

/// Has the child of `command` execute its program without the help of a shell. Call it last: what is added to the command
/// later has no effect. The program is a path. `inherits`: the environment of this process was not cleared.
///
/// # Errors
/// An argument or a variable has a zero byte.
pub(super) fn without_shell(command: &mut Command, inherits: bool) -> io::Result<()> {
    let image = Image::of(command, inherits)?;
    // SAFETY: only async-signal-safe code may run between fork and exec. `execve` is, and the error is built from a number;
    // nothing allocates or takes a lock.
    unsafe {
        command.pre_exec(move || Err(image.execute()));
    }
    Ok(())
}
