//! The stand-ins and the tools for fault injection.

mod chaos;
mod conversations;
mod faults;
mod scripted_cli;
mod scripts;
mod waits;
