//! Pages of other origins: they can link to the desk, but not show it in a frame or send it a prompt.

use axum::Router;
use axum::response::Html;
use axum::routing::get;
use greenroom_testkit::Script;
use serde_json::json;
use tokio::task::JoinSet;

use crate::person::{Person, serve};
use crate::support::*;

#[tokio::test]
async fn a_page_of_another_origin_shows_no_page_of_the_desk_and_sends_no_prompt() {
    let (service, _) = Service::scripted(Script::new()).await;
    let Some(mut anna) = Person::at(&service, "ada").await else { return service.stop().await };
    // Another port is another origin of one site: the browser sends the cookie of the desk with each request.
    let page = format!(
        "<link rel='icon' href='data:,'><iframe src='{0}/desk/ada'></iframe><form method='post' enctype='text/plain' \
         action='{0}/customers/ada/prompts'><button name='a' value='b'>Win a lamp</button></form>",
        anna.address
    );
    let mut serving = JoinSet::new();
    let other = serve(Router::new().route("/", get(async || Html(page))), &mut serving).await;
    anna.open(&other).await;
    anna.click("button", "Win a lamp").await;
    anna.sees("A page of another site sent this request.").await;
    // Chromium logs both refusals, and nothing else.
    anna.logs("frame-ancestors 'none'").await;
    anna.logs("the server responded with a status of 403 (Forbidden)").await;
    assert_eq!(service.json("/customers/ada/turns").await, json!({ "turns": [] }));
    anna.leave().await;
    service.stop().await;
}

#[tokio::test]
async fn a_link_on_another_site_logs_in_and_opens_a_customer() {
    let (service, _) = Service::scripted(Script::new()).await;
    let Some(mut anna) = Person::at(&service, "ada").await else { return service.stop().await };
    for (path, seen) in
        [(format!("login/{BELA}"), "bela at umbrella"), ("desk/ada".to_owned(), "No turns yet.")]
    {
        let link = format!("data:text/html,<a href='{}/{path}'>Support</a>", anna.address);
        anna.open(&link).await;
        anna.click("link", "Support").await;
        anna.sees("bela at umbrella").await;
        anna.sees(seen).await;
    }
    anna.leave().await;
    service.stop().await;
}
