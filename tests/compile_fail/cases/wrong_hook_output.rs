// A hook that returns the answer of another event.
// says: `greenroom::hook::Output<greenroom::hook::Stop>` is no answer of this handler
// says: this handler has to return `greenroom::hook::Output<greenroom::hook::PreToolUse>`

use greenroom::hook::StopOutput;
use greenroom::{Hook, hook};

fn main() {
    let _ = Hook::on(hook::PreToolUse, async |_input, _cx| StopOutput::pass());
}
