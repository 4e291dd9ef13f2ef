// A hook whose error has no text.
// says: `Broken` doesn't implement `std::fmt::Display`

use greenroom::hook::PreToolUseOutput;
use greenroom::{Hook, hook};

#[derive(Debug)]
struct Broken;

fn main() {
    let _ = Hook::on(hook::PreToolUse, async |_input, _cx| Err::<PreToolUseOutput, _>(Broken));
}
