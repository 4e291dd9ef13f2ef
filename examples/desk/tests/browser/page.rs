//! The chat: texts that are written, turns that have ended, and a page that is loaded again.

use greenroom_testkit::{ModelTurn, Script};
use serde_json::json;

use crate::person::Person;
use crate::support::*;

/// The texts of the agent, those that are being written included.
pub(crate) const SAID: &str = ".said:not(.mine)";

#[tokio::test]
async fn text_arrives_while_the_agent_writes_it() {
    let (service, mut listener) = Service::by_hand(1).await;
    let Some(mut anna) = Person::at(&service, "ada").await else { return service.stop().await };
    anna.send("Where is my lamp?").await;
    let mut end = accept(&mut listener).await;
    let prompt = end.expect("user").await;
    end.begin_turn();
    // The page reads the turn when it shows a whole text: pieces before that are not kept.
    say(&mut end, "Let me look.");
    anna.sees("Let me look.").await;
    piece(&mut end, "Your lamp ", true);
    anna.sees("Your lamp").await;
    piece(&mut end, "arrives ", false);
    anna.sees("Your lamp arrives").await;
    assert_eq!(anna.texts("#turns .state").await, ["running"]);
    assert_eq!(anna.texts("article.said, .writing").await.len(), 1);
    say(&mut end, "Your lamp arrives on Monday.");
    anna.sees("arrives on Monday.").await;
    end.finish_turn(&prompt, "Your lamp arrives on Monday.");
    anna.sees("The agent has answered.").await;
    assert_eq!(anna.texts(SAID).await, ["Let me look.", "Your lamp arrives on Monday."]);
    assert_eq!(anna.texts("#turns .state").await, ["done"]);
    anna.leave().await;
    tokio::join!(service.stop(), end.run_out());
}

#[tokio::test]
async fn a_page_that_is_loaded_again_in_a_turn_shows_each_text_once_and_all_pieces_from_then_on() {
    let (service, mut listener) = Service::by_hand(1).await;
    let Some(mut anna) = Person::at(&service, "ada").await else { return service.stop().await };
    anna.send("Tell me a story.").await;
    let mut end = accept(&mut listener).await;
    let prompt = end.expect("user").await;
    end.begin_turn();
    piece(&mut end, "Once ", true);
    say(&mut end, "Once upon a time.");
    anna.sees("Once upon a time.").await;
    piece(&mut end, "Then ", true);
    anna.sees("Then").await;

    anna.reload().await;
    anna.sees("Once upon a time.").await;
    for (text, shown) in [("the ", "the"), ("lamp ", "the lamp"), ("came", "the lamp came")] {
        piece(&mut end, text, false);
        anna.until(
            shown,
            &format!("document.querySelector('.writing')?.innerText.includes({})", json!(shown)),
        )
        .await;
    }
    assert_eq!(anna.texts(SAID).await.len(), 2);
    say(&mut end, "Then the lamp came.");
    anna.sees("Then the lamp came.").await;
    end.finish_turn(&prompt, "Then the lamp came.");
    anna.sees("The agent has answered.").await;
    assert_eq!(anna.texts(SAID).await, ["Once upon a time.", "Then the lamp came."]);
    anna.reload().await;
    anna.click("button", "Tell me a story. done").await;
    anna.sees("Once upon a time.").await;
    anna.sees("The agent has answered.").await;
    assert_eq!(anna.texts(SAID).await, ["Once upon a time.", "Then the lamp came."]);
    anna.leave().await;
    tokio::join!(service.stop(), end.run_out());
}

#[tokio::test]
async fn past_turns_are_listed_and_read_again() {
    let script =
        looks_and_says("On Monday.").turn(ModelTurn::new().final_error(400, "invalid_request_error", "no"));
    let (service, _) = Service::scripted(script).await;
    let Some(mut anna) = Person::at(&service, "ada").await else { return service.stop().await };
    anna.send("Where is my lamp?").await;
    anna.sees("On Monday.").await;
    anna.sees("orders: list").await;
    anna.send("And the shade?").await;
    anna.sees("The agent could not answer (turn_failed).").await;

    anna.reload().await;
    anna.sees("On Monday.").await;
    assert_eq!(anna.texts("#turns .what").await, ["And the shade?", "Where is my lamp?"]);
    assert_eq!(anna.texts("#turns .state").await, ["failed", "done"]);
    // The whole turn, with its calls, is read when it is wanted.
    assert_eq!(anna.texts(".call").await, [""; 0]);
    anna.click("button", "Where is my lamp? done").await;
    anna.sees("orders: list – done").await;
    anna.visit("bob").await;
    anna.sees("No turns yet.").await;
    anna.leave().await;
    service.stop().await;
}

#[tokio::test]
async fn markup_in_any_text_is_text() {
    let evil =
        "<img src=x onerror=\"document.title='hit'\"><script>document.title='hit'</script></p><b>bold</b>";
    let script = Script::new()
        .turn(ModelTurn::new().text(evil).call("mcp__orders__cancel", json!({ "why": evil, evil: 1 })))
        .turn(ModelTurn::new().text(evil));
    let (service, _) = Service::scripted(script).await;
    let customer = "%3Cimg%20src%3Dx%20onerror%3Ddocument.title%3D1%3E";
    let Some(mut anna) = Person::at(&service, customer).await else { return service.stop().await };
    anna.send(evil).await;
    anna.sees("May the agent run orders: cancel?").await;
    anna.click("button", "Allow").await;
    anna.sees("The agent has answered.").await;
    anna.reload().await;
    anna.sees("bold").await;
    let shown = anna.texts(".said").await;
    assert_eq!(shown, [evil, evil]);
    let made = "document.querySelectorAll('article img, article script, article b, nav img, nav script, header img').length";
    assert_eq!(anna.run(made).await, 0);
    assert_ne!(anna.run("document.title").await, "hit");
    anna.leave().await;
    service.stop().await;
}

#[tokio::test]
async fn a_message_that_is_refused_stays_to_be_sent_again() {
    let (service, _) = Service::scripted(looks_and_says("On Monday.")).await;
    let Some(mut anna) = Person::at(&service, "ada").await else { return };
    service.stop().await;
    anna.send("Where is my lamp?").await;
    anna.sees("The service is restarting. Try again in a moment.").await;
    assert_eq!(anna.run("document.getElementById('text').value").await, "Where is my lamp?");
    // Chromium itself logs the status.
    anna.errors.retain(|error| !error.contains("503"));
    anna.leave().await;
}
