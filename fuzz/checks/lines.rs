//! The codec, with any bytes in any chunks. The lines are those of a naive reading of the whole stream, memory is
//! bounded, and the codec reads a written line back as one line.

use arbitrary::{Arbitrary, Unstructured};
use greenroom::internals::{LineCodec, answers, into_line};

/// A line, or the length of a line over the bound.
type Line = Result<Vec<u8>, usize>;

#[derive(Arbitrary, Debug)]
struct Input {
    bound: u32,
    chunks: Vec<Chunk>,
    said: String,
}

#[derive(Arbitrary, Debug)]
enum Chunk {
    Bytes(Vec<u8>),
    /// Long lines out of short inputs.
    Repeat(u8, u16),
    End,
}

/// Bound of a stream, in bytes: strange inputs are wanted, not large ones.
const MOST: usize = 1 << 20;

/// The rules of `wire/line.rs`, without chunks and in the plainest way.
fn naive(stream: &[u8], bound: usize) -> Vec<Line> {
    let mut segments: Vec<&[u8]> = stream.split(|byte| *byte == b'\n').collect();
    if segments.last().is_some_and(|last| last.is_empty()) {
        segments.pop();
    }
    let line = |segment: &[u8]| {
        if segment.len() > bound {
            Err(segment.len())
        } else {
            Ok(segment.strip_suffix(b"\r").unwrap_or(segment).to_vec())
        }
    };
    segments.into_iter().map(line).collect()
}

pub(crate) fn check(bytes: &[u8]) {
    let Ok(input) = Input::arbitrary_take_rest(Unstructured::new(bytes)) else { return };
    let bound = input.bound as usize % MOST;
    let mut lines = LineCodec::new(bound);
    let (mut stream, mut got) = (Vec::new(), Vec::new());
    for chunk in &input.chunks {
        let bytes = match chunk {
            Chunk::Bytes(bytes) => bytes.clone(),
            Chunk::Repeat(byte, times) => vec![*byte; usize::from(*times)],
            Chunk::End => vec![b'\n'],
        };
        if stream.len() + bytes.len() > MOST {
            break;
        }
        lines.push(&bytes, |line| got.push(line.map(<[u8]>::to_vec)));
        stream.extend(bytes);
        // A line up to the bound, and one read.
        let (memory, most) = (lines.memory(), bound + (64 << 10));
        assert!(memory <= most, "{memory} bytes are held with the bound {bound}");
    }
    got.extend(lines.rest());
    assert_eq!(got, naive(&stream, bound));
    assert_eq!(lines.rest(), None, "the end comes once");

    let [at_once, by_layers] = answers(&input.said, &input.said);
    assert_eq!(at_once, by_layers);

    let json = serde_json::to_vec(&input.said).expect("a string can be written");
    let line = into_line(json);
    let mut lines = LineCodec::new(line.len());
    let mut read: Vec<Line> = Vec::new();
    lines.push(&line, |line| read.push(line.map(<[u8]>::to_vec)));
    read.extend(lines.rest());
    let [Ok(read)] = read.as_slice() else { panic!("{line:?} is not one line") };
    assert!(!String::from_utf8_lossy(read).contains(['\u{2028}', '\u{2029}', '\r']));
    assert_eq!(serde_json::from_slice::<String>(read).expect("it can be read"), input.said);
}
