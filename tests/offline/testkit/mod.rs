//! The stand-ins and the tools for fault injection.

mod chaos;
mod faults;
mod scripted_cli;
mod scripts;
mod waits;
