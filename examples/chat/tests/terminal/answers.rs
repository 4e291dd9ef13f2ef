//! The answer and all that comes with it: wrapping, bars, questions, commands, errors, escape sequences.

use greenroom_testkit::{ModelTurn, Script};
use serde_json::json;

use crate::person::{CTRL_C, CTRL_D, ENTER, Person};

fn says(text: &str) -> ModelTurn {
    ModelTurn::new().text(text)
}

async fn asked(script: Script) -> Person {
    let mut person = Person::with(&script).await;
    person.types("go").await;
    person.types(ENTER).await;
    person
}

#[tokio::test]
async fn a_narrow_window_wraps_between_words_and_wide_characters() {
    let script = Script::new()
        .turn(says("Words are not cut in two here, and 日本語の文章も折り返されます。 The end."))
        .turn(says("A wider window has longer rows."));
    let mut person = Person::with_window(&script, 21, 24, &[]).await;
    person.types("a question that is longer than a row").await;
    person
        .until_rows("the typed rows", |rows| {
            rows.ends_with(&["you > a question tha", "t is longer than a r", "ow"].map(str::to_owned))
        })
        .await;
    person.types(ENTER).await;
    person.until_row("end.").await;
    let rows = person.rows();
    let answer =
        ["model > Words are", "not cut in two here,", "and 日本語の文章も折", "り返されます。 The", "end."];
    assert!(rows.windows(answer.len()).any(|rows| rows == answer), "{rows:#?}");
    person.until("so far)").await;
    person.resizes(40, 24);
    person.types("wider").await;
    person.types(ENTER).await;
    person.until_row("model > A wider window has longer rows.").await;
}

#[tokio::test]
async fn calls_that_run_at_once_have_a_bar_each() {
    let script = Script::new().turn(
        says("Both hands.")
            .call("mcp__kitchen__count", json!({ "to": 1000 }))
            .call("mcp__kitchen__count", json!({ "to": 2000 })),
    );
    let mut person = asked(script).await;
    person
        .until_rows("two bars", |rows| {
            rows.iter().any(|row| row.starts_with("  [") && row.ends_with("/1000"))
                && rows.iter().any(|row| row.starts_with("  [") && row.ends_with("/2000"))
        })
        .await;
    assert!(person.rows().iter().any(|row| row.contains("thinking, ")), "the spinner");
    person.types(CTRL_C).await;
    person.until_row("(interrupted)").await;
}

#[tokio::test]
async fn the_person_decides_which_calls_run() {
    let bake = |cake: &str| ModelTurn::new().call("mcp__kitchen__bake", json!({ "cake": cake }));
    let script = Script::new()
        .turn(bake("apple pie"))
        .turn(bake("mud cake"))
        .turn(bake("carrot cake"))
        .turn(bake("lemon cake"))
        .turn(says("Done."));
    let mut person = asked(script).await;
    let label = "yes, no, always? >";
    for (shown, answer) in [
        ("{\"cake\":\"apple pie\"}", "y"),
        ("{\"cake\":\"mud cake\"}", "maybe"),
        ("(type one of the words, or its first letter)", "no"),
        ("{\"cake\":\"carrot cake\"}", "always"),
    ] {
        person.until_question(shown, label).await;
        person.types(answer).await;
        person.until_rows("the answer", |rows| rows.last().unwrap() == &format!("{label} {answer}")).await;
        person.types(ENTER).await;
    }
    person.until_row("model > Done.").await;
    let text = person.rows().join("\n");
    for expected in [
        "May mcp__kitchen__bake run?",
        "\"always\" also means: allow mcp__kitchen__bake (localSettings)",
        "result mcp__kitchen__bake: a apple pie, still warm",
        "(type one of the words, or its first letter)",
        "error  mcp__kitchen__bake: the user said no",
        "result mcp__kitchen__bake: a carrot cake, still warm",
        // Not asked about: it was always allowed.
        "result mcp__kitchen__bake: a lemon cake, still warm",
    ] {
        assert!(text.contains(expected), "{expected} is missing:\n{text}");
    }
    // The terminal still gives every key to the chat.
    person.until("so far)").await;
    person.types(CTRL_D).await;
    assert!(person.until_end().await.success());
}

#[tokio::test]
async fn an_interrupt_withdraws_the_question() {
    let script = Script::new()
        .turn(ModelTurn::new().call("mcp__kitchen__bake", json!({ "cake": "pie" })))
        .turn(says("Something else, then."));
    let mut person = Person::with(&script).await;
    person.types("bake").await;
    person.types(ENTER).await;
    person.until("yes, no, always? >").await;
    person.types("ye").await;
    person.types(CTRL_C).await;
    person.until_row("(the question was withdrawn)").await;
    person.until_row("(interrupted)").await;
    person.types("go on").await;
    person.until_rows("the line", |rows| rows.last().unwrap() == "you > go on").await;
    person.types(ENTER).await;
    person.until_row("model > Something else, then.").await;
}

#[tokio::test]
async fn the_model_asks_and_reads_the_answers() {
    let questions = json!([
        { "question": "Which colour?", "header": "Colour", "multiSelect": false,
          "options": [{ "label": "red", "description": "as a rose" }, { "label": "blue", "description": "" }] },
        { "question": "Which size?", "header": "Size", "multiSelect": false,
          "options": [{ "label": "small", "description": "" }, { "label": "large", "description": "" }] },
    ]);
    let script = Script::new()
        .turn(ModelTurn::new().call("AskUserQuestion", json!({ "questions": questions })))
        .turn(says("Thank you."));
    let mut person = asked(script).await;
    person.until_row("  1 red as a rose").await;
    person.types("2").await;
    person.types(ENTER).await;
    person.until_row("Which size?").await;
    person.types("as large as it gets").await;
    person.types(ENTER).await;
    person.until_row("model > Thank you.").await;
    let text = person.rows().concat();
    let result = text.split("result AskUserQuestion").nth(1).unwrap();
    assert!(result.contains("blue") && result.contains("as large as it gets"), "{text}");
}

#[tokio::test]
async fn commands_of_the_cli_are_shown_like_an_answer() {
    let script = Script::new().local_command("cost", "Estimated cost: $0.0000\nTotal duration: 0s");
    let mut person = Person::with(&script).await;
    person.types("/cost").await;
    person.types(ENTER).await;
    person.until_row("model > Estimated cost: $0.0000").await;
    person.until_row("Total duration: 0s").await;
    person.types("/help").await;
    person.types(ENTER).await;
    person.until("/quit           leaves").await;
    person.types("/model").await;
    person.types(ENTER).await;
    person.until("This CLI names no models").await;
    person.types("/model opus").await;
    person.types(ENTER).await;
    person.until_row("From now on: opus.").await;
    assert!(!person.rows().concat().contains("so far)"), "commands cost nothing");
}

#[tokio::test]
async fn an_error_is_a_sentence_and_the_chat_goes_on() {
    let script = Script::new()
        .turn(ModelTurn::new().final_error(401, "authentication_error", "invalid x-api-key"))
        .turn(ModelTurn::new().final_error(429, "rate_limit_error", "slow down"))
        .turn(says("Here I am again."));
    let mut person = asked(script).await;
    person.until("The CLI is not logged in: run `claude /login`, or set ANTHROPIC_API_KEY.").await;
    person.types("again").await;
    person.types(ENTER).await;
    person.until("Send it again later (arrow up). (API Error: 429 slow down)").await;
    person.types("again").await;
    person.types(ENTER).await;
    person.until_row("model > Here I am again.").await;
}

#[tokio::test]
async fn escape_sequences_never_reach_the_terminal() {
    let evil = "\u{1b}]0;evil\u{7}\u{1b}[2J\u{1b}[1;1H\u{1b}[35mevil\u{9b}5m\u{90}q\u{9c}\u{8}\rover";
    let call = |name: &str| ModelTurn::new().call(name, json!({ "cake": format!("pie{evil}") }));
    let question =
        json!([{ "question": format!("Which{evil}?"), "options": [{ "label": format!("red{evil}") }] }]);
    let script = Script::new()
        .turn(says(&format!("Before{evil} after")))
        .turn(call("mcp__kitchen__bake"))
        .turn(call(&format!("tool{evil}")))
        .turn(ModelTurn::new().call("AskUserQuestion", json!({ "questions": question })))
        .turn(ModelTurn::new().final_error(500, "api_error", format!("broken{evil}")))
        .local_command("cost", format!("Free{evil}"));
    let mut person = Person::with_window(&script, 150, 60, &[]).await;
    // A person may paste a sequence too.
    person.pastes("go\u{1b}[35m there").await;
    person.types(ENTER).await;
    person.until("model > Before").await;
    person.until("so far)").await;
    person.types("bake").await;
    for (shown, label) in [
        ("May mcp__kitchen__bake run?", "yes, no, always? >"),
        ("May toolevil", "yes, no, always? >"),
        ("Whichevil", "answer >"),
    ] {
        person.types(ENTER).await;
        person.until_question(shown, label).await;
        person.types("y").await;
        person.until_rows("the answer", |rows| rows.last().unwrap() == &format!("{label} y")).await;
    }
    person.types(ENTER).await;
    person.until("API Error: 500 broken").await;
    person.types("/cost").await;
    person.types(ENTER).await;
    person.until("model > Free").await;
    let written = String::from_utf8(person.written.clone()).unwrap();
    for sequence in
        ["\u{1b}]", "\u{1b}[35m", "\u{1b}[2J", "\u{1b}[1;1H", "\u{7}", "\u{8}", "\u{9b}", "\u{90}"]
    {
        assert!(!written.contains(sequence), "{sequence:?} was written");
    }
    // The words around the sequences are there, and nothing was overwritten.
    let text = person.rows().join("\n");
    for words in ["/help lists", "Beforeevil", "over after", "tool", "Which", "red", "pieevil"] {
        assert!(text.contains(words), "{words} is missing:\n{text}");
    }
}

#[tokio::test]
async fn colours_are_left_out_with_no_color() {
    let script = Script::new().turn(says("Plain."));
    for (env, coloured) in [(&[][..], true), (&[("NO_COLOR", "1")][..], false)] {
        let mut person = Person::with_window(&script, 80, 24, env).await;
        person.types("go").await;
        person.types(ENTER).await;
        person.until("so far)").await;
        let row = person.rows().iter().position(|row| row == "model > Plain.").unwrap();
        let cell = person.screen().cell(row as u16, 0).unwrap();
        assert_eq!(cell.fgcolor() != vt100::Color::Default, coloured);
        let person_row = person.rows().iter().position(|row| row == "you > go").unwrap();
        let other = person.screen().cell(person_row as u16, 0).unwrap();
        assert_eq!(cell.fgcolor() != other.fgcolor(), coloured, "model and person differ");
    }
}
