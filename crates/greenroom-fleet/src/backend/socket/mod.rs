//! A backend of a service for other programs of its host, over a Unix socket: a file of a `LocalBackend` serves one process.
//!
//! ```text
//!  the service                                    another program, such as the command `greenroom`
//!
//!  Backend ◄─── reads and commits, one at a time ─── connection ◄─── SocketBackend, under Requests and Admin
//!     └──────── changes, as hints ────────────────── connection ───► its channels
//! ```
//!
//! Rows go over the socket, not requests: the rules run in the other program, as they do over PostgreSQL. So a commit from there is told to
//! the service's fleet like its own commits.
//!
//! Each connection begins with a [greeting](frame::GREETING) of both sides. Then frames follow: a length of four bytes and a value of
//! [`Asked`](frame::Asked) or [`Answer`](frame::Answer). A frame has 64 MiB at most, and a server 64 connections; later ones wait.
//!
//! The socket is a file of mode 0600 in a folder that nobody else can write. A connection of another user than the service's or root is closed.
//! The client checks the user of the server before it sends anything.

mod client;
mod folder;
mod frame;
mod server;
#[cfg(test)]
mod tests;

pub use client::SocketBackend;
pub use server::SocketServer;
