//! The frames of a connection.

use std::io::{Error, ErrorKind, Result};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::error::BackendErrorKind;
use crate::id::Timestamp;
use crate::registry::{Commit, Committed, FORMAT, Lane, Rows, Wanted};
use crate::request::Change;

/// The first bytes of both sides: a mark, the version of the frames, and the version of the rows.
pub(super) const GREETING: [u8; 8] = [b'f', b'l', b'e', b'e', b't', 0, 1, FORMAT as u8];

/// The longest frame, in bytes.
pub(super) const LONGEST: usize = 64 << 20;

/// A frame of the client.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Asked {
    /// Reads rows. The answer is `Rows` or `Failed`.
    Read(Lane, Wanted),
    /// Carries a commit out, and tells its changes. The answer is `Committed` or `Failed`.
    Commit(Lane, Commit, Vec<Change>),
    /// Tells all changes from now on. The answers are `Change`s without an end.
    Changes,
}

/// A frame of the server.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Answer {
    /// Rows, and the moment at which they were read.
    Rows(Timestamp, Rows),
    Committed(Committed),
    Failed(BackendErrorKind, String),
    Change(Change),
}

/// Exchanges the greetings. `false`: the other side has another version, or is something else.
pub(super) async fn greet(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> Result<bool> {
    stream.write_all(&GREETING).await?;
    let mut theirs = [0; GREETING.len()];
    stream.read_exact(&mut theirs).await?;
    Ok(theirs == GREETING)
}

/// The bytes of a frame. [`ErrorKind::InvalidInput`]: it would be too long.
pub(super) fn bytes(frame: &impl Serialize) -> Result<Vec<u8>> {
    let mut bytes = postcard::to_extend(frame, vec![0; 4]).map_err(Error::other)?;
    let length = bytes.len() - 4;
    if length > LONGEST {
        let text =
            format!("it has {length} bytes, and {LONGEST} are the most: read or write fewer rows at once");
        return Err(Error::new(ErrorKind::InvalidInput, text));
    }
    bytes[..4].copy_from_slice(&(length as u32).to_le_bytes());
    Ok(bytes)
}

/// Receives a frame. `None`: the other side has ended.
pub(super) async fn receive<T: DeserializeOwned>(stream: &mut (impl AsyncRead + Unpin)) -> Result<Option<T>> {
    let mut length = [0; 4];
    match stream.read_exact(&mut length).await {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    };
    let length = u32::from_le_bytes(length) as usize;
    if length > LONGEST {
        return Err(Error::new(ErrorKind::InvalidData, format!("a frame of {length} bytes")));
    }
    // The buffer grows with what has come.
    let mut bytes = Vec::new();
    if stream.take(length as u64).read_to_end(&mut bytes).await? < length {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    let frame = postcard::from_bytes(&bytes).map_err(|error| Error::new(ErrorKind::InvalidData, error))?;
    Ok(Some(frame))
}
