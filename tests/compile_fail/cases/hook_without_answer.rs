// A hook that returns nothing.
// says: `()` is no answer of this handler
// says: return a `greenroom::hook::Output<greenroom::hook::PostToolUse>`, or a `Result` of it

use greenroom::{Hook, hook};

fn main() {
    let _ = Hook::on(hook::PostToolUse, async |input, _cx| {
        println!("{}", input.tool_name);
    });
}
