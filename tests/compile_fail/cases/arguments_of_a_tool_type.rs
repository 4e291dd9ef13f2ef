// A tool as a type, whose arguments have no `JsonSchema`.
// says: the trait bound `Roll: schemars::JsonSchema` is not satisfied

use greenroom::ToolContext;
use greenroom::tool::Tool;

struct Dice;

#[derive(serde::Deserialize)]
struct Roll {
    count: u32,
}

impl Tool for Dice {
    type Args = Roll;
    type Output = u32;

    fn name(&self) -> String {
        "roll".into()
    }

    fn description(&self) -> String {
        "Roll dice".into()
    }

    async fn call(&self, args: Roll, _cx: ToolContext) -> u32 {
        args.count
    }
}

fn main() {}
