//! The typed line: history, pastes, interrupts, and how the chat is left.

use greenroom_testkit::{ModelTurn, Script};
use serde_json::json;

use crate::person::{CTRL_C, CTRL_D, CTRL_U, ENTER, LEFT, Person, UP};

fn says(text: &str) -> ModelTurn {
    ModelTurn::new().text(text)
}

/// A call that lasts far longer than a test waits.
fn counts_for_ever() -> ModelTurn {
    ModelTurn::new().text("Slowly.").call("mcp__kitchen__count", json!({ "to": 100_000 }))
}

#[tokio::test]
async fn a_line_is_typed_answered_and_paid_for() {
    let mut person = Person::with(&Script::new().turn(says("Hello to you."))).await;
    assert!(person.screen().bracketed_paste());
    person.types("helo").await;
    person.types(LEFT).await;
    person.types("l").await;
    person.until_row("you > hello").await;
    assert_eq!(person.screen().cursor_position().1, "you > hell".len() as u16);
    person.types(ENTER).await;
    person.until_row("model > Hello to you.").await;
    person.until("(1 step, $0.0000; $0.0000 so far)").await;
    // The prompt is empty again, below the answer.
    person.until_rows("an empty line", |rows| rows.last().is_some_and(|row| row == "you >")).await;
    person.types(CTRL_D).await;
    assert!(person.until_end().await.success());
    assert!(!person.screen().bracketed_paste() && !person.screen().hide_cursor());
    assert_eq!(person.rows().last().unwrap(), "good-bye: 1 answer for $0.0000");
}

#[tokio::test]
async fn arrow_up_brings_earlier_lines_back() {
    let script = Script::new().turn(says("One.")).turn(says("Two.")).turn(says("Three."));
    let mut person = Person::with(&script).await;
    for (line, answer) in [("first line", "model > One."), ("second line", "model > Two.")] {
        person.types(line).await;
        person.types(ENTER).await;
        person.until_row(answer).await;
    }
    person.types(UP).await;
    person.until_rows("the second line", |rows| rows.last().unwrap() == "you > second line").await;
    person.types(UP).await;
    person.until_rows("the first line", |rows| rows.last().unwrap() == "you > first line").await;
    person.types("!").await;
    person.types(ENTER).await;
    person.until_row("model > Three.").await;
    assert!(person.rows().contains(&"you > first line!".to_owned()));
}

/// The last key before a pause is the key that would be lost: nothing comes after it.
#[tokio::test]
async fn keys_are_taken_while_the_window_changes_its_size() {
    let mut person = Person::with(&Script::new()).await;
    for round in 1..=200 {
        person.resizes(60 + round % 20, 24);
        person.types("k").await;
        let typed = format!("you > {}", "k".repeat(1 + usize::from(round - 1) % 20));
        person.until_rows(&typed, |rows| rows.last().is_some_and(|row| *row == typed)).await;
        if round % 20 == 0 {
            person.types(CTRL_U).await;
            person.until_rows("an empty line", |rows| rows.last().is_some_and(|row| row == "you >")).await;
        }
    }
}

#[tokio::test]
async fn pasted_lines_wait_for_enter_and_are_one_prompt() {
    let script = Script::new().turn(says("All three.")).otherwise(says("One too many."));
    let mut person = Person::with(&script).await;
    person.pastes("one\r\ntwo\n  three").await;
    let pasted = ["you > one", "      two", "        three"];
    person.until_rows("the pasted lines", |rows| rows.ends_with(&pasted.map(str::to_owned))).await;
    assert!(!person.rows().concat().contains("All three."));
    person.types(ENTER).await;
    person.until_row("model > All three.").await;
    person.until("so far)").await;
    person.types("/quit").await;
    person.types(ENTER).await;
    assert!(person.until_end().await.success());
    assert!(!person.rows().concat().contains("One too many."));
    assert!(person.rows().concat().contains("good-bye: 1 answer "));
}

#[tokio::test]
async fn ctrl_c_ends_the_turn_and_keeps_the_typed_text() {
    let mut person = Person::with(&Script::new().turn(counts_for_ever()).turn(says("Go on."))).await;
    person.types("count").await;
    person.types(ENTER).await;
    person.until("count 2/100000").await;
    person.types("half typed").await;
    person.until_row("you > half typed").await;
    person.types(CTRL_C).await;
    person.until_row("(interrupted)").await;
    person.until_rows("the typed text", |rows| rows.last().unwrap() == "you > half typed").await;
    assert!(!person.rows().concat().contains("/100000"), "the bar is gone");
    person.types(" text").await;
    person.types(ENTER).await;
    person.until_row("model > Go on.").await;
    assert!(person.rows().contains(&"you > half typed text".to_owned()));
}

#[tokio::test]
async fn a_line_that_is_typed_ahead_waits_for_the_answer() {
    let script = Script::new()
        .turn(ModelTurn::new().call("mcp__kitchen__count", json!({ "to": 5 })))
        .turn(says("Counted."))
        .turn(says("And the next."));
    let mut person = Person::with(&script).await;
    person.types("count").await;
    person.types(ENTER).await;
    person.until("thinking").await;
    person.types("then this").await;
    person.types(ENTER).await;
    person.until_row("model > And the next.").await;
    let rows = person.rows();
    let at =
        |text: &str| rows.iter().position(|row| row == text).unwrap_or_else(|| panic!("{text}: {rows:?}"));
    assert!(at("model > Counted.") < at("you > then this"));
    assert!(at("you > then this") < at("model > And the next."));
}

#[tokio::test]
async fn two_ctrl_c_leave_while_nothing_runs() {
    let mut person = Person::with(&Script::new()).await;
    person.types("a thought").await;
    person.until_row("you > a thought").await;
    person.types(CTRL_C).await;
    person.until_row("(Ctrl-C again, or Ctrl-D, leaves)").await;
    // The thought is not lost, and typing takes the first Ctrl-C back.
    person.types(UP).await;
    person.until_rows("the thought", |rows| rows.last().unwrap() == "you > a thought").await;
    person.types(CTRL_C).await;
    person
        .until_rows("a second hint", |rows| rows.iter().filter(|row| row.starts_with("(Ctrl-C")).count() == 2)
        .await;
    person.types(CTRL_C).await;
    assert!(person.until_end().await.success());
}

#[tokio::test]
async fn ctrl_d_during_a_turn_ends_the_turn_and_the_chat() {
    let mut person = Person::with(&Script::new().turn(counts_for_ever())).await;
    person.types("count").await;
    person.types(ENTER).await;
    person.until("count 2/100000").await;
    person.types(CTRL_D).await;
    assert!(person.until_end().await.success());
    assert!(person.rows().contains(&"(interrupted)".to_owned()));
}
