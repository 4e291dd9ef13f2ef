//! Questions to a person, by mouse and by keyboard, and the looks of the page.

use greenroom_testkit::CliEnd;
use serde_json::{Value, json};

use crate::browser::Browser;
use crate::person::Person;
use crate::support::*;
use crate::wait::in_time;

/// The CLI asks for a permission, or asks the model's questions. Returns the id of the request.
pub(crate) fn ask(end: &mut CliEnd, tool: &str, input: Value) -> String {
    end.request(json!({ "subtype": "can_use_tool", "tool_name": tool, "input": input, "tool_use_id": tool }))
}

fn question(text: &str, labels: &[&str], multi: bool) -> Value {
    let options: Vec<_> = labels.iter().map(|label| json!({ "label": label, "description": "" })).collect();
    json!({ "question": text, "header": "", "options": options, "multiSelect": multi })
}

/// The agent calls a tool.
fn call(end: &mut CliEnd, id: &str, tool: &str, input: Value) {
    let content = json!([{ "type": "tool_use", "id": id, "name": tool, "input": input }]);
    end.message(json!({ "type": "assistant", "message": { "id": id, "content": content } }));
}

#[tokio::test]
async fn a_click_answers_a_question() {
    let (service, mut listener) = Service::by_hand(1).await;
    let Some(mut anna) = Person::at(&service, "ada").await else { return service.stop().await };
    anna.send("I want no lamp.").await;
    let mut end = accept(&mut listener).await;
    let prompt = end.expect("user").await;
    end.begin_turn();
    let first = ask(&mut end, "mcp__orders__cancel", json!({ "order": 17 }));
    anna.sees("May the agent run orders: cancel?").await;
    anna.sees("\"order\": 17").await;
    anna.click("button", "Allow").await;
    let answer = in_time("the answer", end.answer_to(&first)).await;
    assert_eq!(answer["behavior"], "allow");
    anna.sees("Allowed – anna").await;
    assert!(anna.found("button", "Allow").await.is_empty());

    let one = json!({ "questions": [question("Which colour?", &["Blue", "Red"], false)] });
    let second = ask(&mut end, "AskUserQuestion", one);
    anna.sees("Which colour?").await;
    anna.click("button", "Red").await;
    let answer = in_time("the answer", end.answer_to(&second)).await;
    assert_eq!(answer["updatedInput"]["answers"], json!({ "Which colour?": "Red" }));

    let two = [
        question("Which days?", &["Monday", "Friday"], true),
        question("Where?", &["Door", "Garden"], false),
    ];
    let third = ask(&mut end, "AskUserQuestion", json!({ "questions": two }));
    for label in ["Monday", "Friday", "Door", "Garden", "Send answers"] {
        anna.click("button", label).await;
    }
    let answer = in_time("the answer", end.answer_to(&third)).await;
    let expected = json!({ "Which days?": "Monday, Friday", "Where?": "Garden" });
    assert_eq!(answer["updatedInput"]["answers"], expected);
    end.finish_turn(&prompt, "Cancelled.");
    anna.sees("The agent has answered.").await;
    anna.leave().await;
    tokio::join!(service.stop(), end.run_out());
}

#[tokio::test]
async fn a_keyboard_is_enough() {
    let (service, mut listener) = Service::by_hand(1).await;
    let Some(mut anna) = Person::at(&service, "ada").await else { return service.stop().await };
    anna.tab_to("textbox", "Message").await;
    anna.type_text("I want no lamp.").await;
    anna.press("Enter").await;
    let mut end = accept(&mut listener).await;
    let prompt = end.expect("user").await;
    end.begin_turn();
    let asked = ask(&mut end, "mcp__orders__cancel", json!({}));
    // A screen reader says so.
    anna.until(
        "the announcement",
        "document.querySelector('[role=status]').innerText.startsWith('A question waits')",
    )
    .await;
    anna.tab_to("button", "Deny").await;
    anna.press("Space").await;
    let answer = in_time("the answer", end.answer_to(&asked)).await;
    assert_eq!(answer["behavior"], "deny");
    anna.sees("Denied – anna").await;
    assert_eq!(anna.run("document.activeElement.id").await, "text");

    piece(&mut end, "Then I ", true);
    anna.sees("Then I").await;
    anna.tab_to("button", "Stop").await;
    anna.press("Enter").await;
    let interrupt = in_time("the interrupt", end.expect_request("interrupt")).await;
    end.answer(&interrupt, json!({}));
    end.fail_turn(&prompt, "aborted_streaming", "");
    anna.sees("The turn was stopped.").await;
    anna.tab_to("button", "I want no lamp. stopped").await;
    anna.press("Enter").await;
    anna.until("the turn", "document.activeElement.tagName === 'ARTICLE'").await;
    anna.leave().await;
    tokio::join!(service.stop(), end.run_out());
}

#[tokio::test]
async fn questions_of_other_customers_are_shown() {
    let (service, mut listener) = Service::by_hand(2).await;
    let Some(mut anna) = Person::at(&service, "bob").await else { return service.stop().await };
    anna.send("I want no lamp.").await;
    let mut end = accept(&mut listener).await;
    let prompt = end.expect("user").await;
    end.begin_turn();
    let asked = ask(&mut end, "mcp__orders__cancel", json!({}));
    anna.sees("May the agent run").await;
    anna.visit("ada").await;
    anna.click("link", "bob has a question").await;
    anna.click("button", "Allow").await;
    assert_eq!(in_time("the answer", end.answer_to(&asked)).await["behavior"], "allow");
    end.finish_turn(&prompt, "Cancelled.");
    anna.sees("The agent has answered.").await;
    anna.leave().await;
    tokio::join!(service.stop(), end.run_out());
}

/// Looks at all parts of the chat at once, at both widths and in both colours.
#[tokio::test]
async fn the_page_fits_a_phone_and_a_screen() {
    let (service, mut listener) = Service::by_hand(1).await;
    let Some(mut anna) = Person::at(&service, "ada").await else { return service.stop().await };
    anna.send("Where is my lamp? I have waited for two weeks, and nobody has told me a thing.").await;
    let mut end = accept(&mut listener).await;
    let prompt = end.expect("user").await;
    end.begin_turn();
    let word = "Donaudampfschifffahrtsgesellschaftskapitänsmützenabzeichenverordnung".repeat(2);
    say(&mut end, &format!("Let me look.\n\n- your order\n- {word}"));
    end.finish_turn(&prompt, "Let me look.");
    anna.sees("The agent has answered.").await;
    anna.send("Cancel it.").await;
    let prompt = end.expect("user").await;
    end.begin_turn();
    say(&mut end, "I have found two orders:");
    call(&mut end, "toolu_1", "mcp__orders__list", json!({ "customer": "ada" }));
    let result =
        json!([{ "type": "tool_result", "tool_use_id": "toolu_1", "content": word, "is_error": false }]);
    end.message(json!({ "type": "user", "message": { "role": "user", "content": result } }));
    let arguments = json!({ "order": 17, "why": word });
    call(&mut end, "toolu_2", "mcp__orders__cancel", arguments.clone());
    let asked = ask(&mut end, "mcp__orders__cancel", arguments);
    let questions = [
        question("Which days?", &["Monday", "Friday, in the afternoon"], true),
        question("Where?", &[&word, "Door"], false),
    ];
    let more = ask(&mut end, "AskUserQuestion", json!({ "questions": questions }));
    anna.sees("Which days?").await;
    piece(&mut end, "In the meantime I look for", true);
    anna.sees("In the meantime").await;
    anna.run("document.querySelectorAll('.call').forEach((one) => (one.open = true))").await;

    for (name, width, height, dark) in [
        ("wide", 1200, 800, false),
        ("wide-dark", 1200, 800, true),
        ("narrow", 360, 740, false),
        ("narrow-dark", 360, 740, true),
    ] {
        anna.look(width, height, dark).await;
        for (part, end) in [("begin", 0), ("end", 1_000_000)] {
            anna.run(&format!("document.getElementById('chat').scrollTop = {end}")).await;
            anna.fits().await;
            is_readable(&mut anna).await;
            anna.picture(&format!("desk-{name}-{part}")).await;
        }
    }
    anna.click("button", "Allow").await;
    in_time("the answer", end.answer_to(&asked)).await;
    anna.click("button", "Skip").await;
    in_time("the answer", end.answer_to(&more)).await;
    end.finish_turn(&prompt, "Cancelled.");
    anna.sees("The agent has answered.").await;
    anna.leave().await;
    tokio::join!(service.stop(), end.run_out());
}

/// Fails if a text has too little contrast (WCAG AA: 4.5), or a button is too small for a finger.
async fn is_readable(browser: &mut Browser) {
    let pale = "(() => {
        const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
        const light = (colour, below) => {
            canvas.fillStyle = below; canvas.fillRect(0, 0, 1, 1);
            canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
            const part = (byte) => (byte /= 255) <= 0.04045 ? byte / 12.92 : ((byte + 0.055) / 1.055) ** 2.4;
            const [red, green, blue] = canvas.getImageData(0, 0, 1, 1).data;
            return 0.2126 * part(red) + 0.7152 * part(green) + 0.0722 * part(blue);
        };
        const ground = (one) => {
            for (; one; one = one.parentElement) {
                const colour = getComputedStyle(one).backgroundColor;
                if (colour !== 'rgba(0, 0, 0, 0)') return colour;
            }
            return 'white';
        };
        const texts = [...document.querySelectorAll('body *')].filter((one) =>
            !one.disabled && one.checkVisibility() && [...one.childNodes].some((node) => node.nodeType === 3 && node.data.trim()));
        return texts.map((one) => {
            const below = ground(one);
            const [a, b] = [light(getComputedStyle(one).color, below), light(below, below)];
            return [(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), one.outerHTML.slice(0, 80)];
        }).filter(([contrast]) => contrast < 4.5);
    })()";
    assert_eq!(browser.run(pale).await, json!([]), "these texts are pale");
    let small = "[...document.querySelectorAll('button, input, textarea')]
        .filter((one) => one.checkVisibility() && one.getBoundingClientRect().height < 24)
        .map((one) => one.outerHTML.slice(0, 80))";
    assert_eq!(browser.run(small).await, json!([]), "these are too small");
}
