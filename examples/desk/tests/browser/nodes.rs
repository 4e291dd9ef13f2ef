//! Two nodes over PostgreSQL behind one address: the page of a turn that runs on the other node.

use std::path::Path;

use greenroom::SessionBuilder;
use greenroom::transport::MemoryTransport;
use greenroom_fleet::Name;
use greenroom_fleet::backend::{PostgresBackend, PostgresOptions};
use greenroom_testkit::ScriptedCli;
use serde_json::json;

use crate::browser::Browser;
use crate::page::SAID;
use crate::person::Person;
use crate::postgres;
use crate::questions::ask;
use crate::support::*;
use crate::wait::in_time;

/// A node on a host of its own, whose CLIs are the test's.
async fn node(options: &PostgresOptions, folder: &Path, host: &str, transport: &MemoryTransport) -> Service {
    let backend = PostgresBackend::connect(options.clone()).await.unwrap();
    let transport = transport.clone();
    let connect = move |builder: SessionBuilder, _: &Name| builder.transport(transport.clone());
    // A session on the test's CLI has no process, so nothing needs a watchdog.
    Service::on(
        |desk| desk.without_watchdog().backend(backend).host(host).folder(folder.join(host)),
        1,
        connect,
    )
    .await
}

/// Waits until the page shows the text as the one that is being written, and no other.
async fn is_writing(anna: &mut Person, text: &str) {
    let all = "[...document.querySelectorAll('.writing')].map((one) => one.textContent).join('|')";
    anna.until(format!("the writing of {text:?}"), &format!("{all} === {}", json!(text))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_loaded_again_on_the_other_node_shows_all_pieces_from_then_on_and_each_text_once() {
    let Some(browser) = Browser::start().await else { return };
    let Some(postgres) = postgres::scratch().await else { return browser.close().await };
    let (options, folder) = (postgres.options().await.unwrap(), tempfile::tempdir().unwrap());
    let (transport, mut listener) = ScriptedCli::by_hand();
    let owner = node(&options, folder.path(), "one", &transport).await;
    let mut anna = Person::with(browser, &owner, "ada").await;
    anna.send("Tell me a story.").await;
    let mut end = accept(&mut listener).await;
    let prompt = end.expect("user").await;
    end.begin_turn();
    say(&mut end, "Once upon a time.");
    anna.sees("Once upon a time.").await;
    piece(&mut end, "Then ", true);
    is_writing(&mut anna, "Then ").await;

    // The owner runs the turn already, so the other node cannot claim it.
    let other = node(&options, folder.path(), "other", &transport).await;
    anna.move_to(&other);
    anna.reload().await;
    anna.sees("Once upon a time.").await;
    // The owner hears of the reader after a moment. Pieces before that are lost.
    let (mut count, mut first) = (0, String::new());
    in_time("the first piece", async {
        while first.is_empty() {
            piece(&mut end, &format!("{count} "), false);
            count += 1;
            let writing = "document.querySelector('.writing')?.textContent ?? ''";
            first = anna.run(writing).await.as_str().unwrap().to_owned();
        }
    })
    .await;
    let heard: u32 = first.split(' ').next().unwrap().parse().unwrap();
    for _ in 0..3 {
        let shown: String = (heard..count).map(|number| format!("{number} ")).collect();
        is_writing(&mut anna, &shown).await;
        piece(&mut end, &format!("{count} "), false);
        count += 1;
    }
    let counted: String = (0..count).map(|number| format!("{number} ")).collect();
    let counted = format!("Then {counted}and so on.");
    say(&mut end, &counted);
    anna.sees("and so on.").await;
    assert_eq!(anna.texts(SAID).await, ["Once upon a time.", &counted]);

    // The next text is shown from its first piece on.
    piece(&mut end, "At last ", true);
    is_writing(&mut anna, "At last ").await;
    piece(&mut end, "it ", false);
    is_writing(&mut anna, "At last it ").await;
    assert_eq!(anna.texts("#turns .state").await, ["running"]);

    // The owner's CLI asks, and the person answers on the other node.
    let asked = ask(&mut end, "mcp__orders__cancel", json!({ "order": 17 }));
    anna.click("button", "Allow").await;
    assert_eq!(in_time("the answer", end.answer_to(&asked)).await["behavior"], "allow");
    anna.sees("Allowed – anna").await;
    piece(&mut end, "shone.", false);
    is_writing(&mut anna, "At last it shone.").await;
    anna.reload().await;
    anna.sees("Allowed – anna").await;
    assert_eq!(anna.texts(SAID).await, ["Once upon a time.", &counted]);
    say(&mut end, "At last it shone.");
    anna.sees("At last it shone.").await;
    end.finish_turn(&prompt, "At last it shone.");
    anna.sees("The agent has answered.").await;
    let texts = ["Once upon a time.", &counted, "At last it shone."];
    assert_eq!(anna.texts(SAID).await, texts);
    assert_eq!(anna.texts(".ask").await.len(), 1);

    // Both nodes show the same turn when it has ended.
    for node in [&other, &owner] {
        anna.move_to(node);
        anna.reload().await;
        anna.click("button", "Tell me a story. done").await;
        anna.sees("The agent has answered.").await;
        assert_eq!(anna.texts(SAID).await, texts);
        assert_eq!(anna.texts(".ask").await.len(), 1);
        assert_eq!(anna.texts("#turns .state").await, ["done"]);
    }
    anna.leave().await;
    tokio::join!(owner.stop(), other.stop(), end.run_out());
}
