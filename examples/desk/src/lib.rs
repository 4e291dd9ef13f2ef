//! A support desk. Start a service of your own from the template: see `docs/service.md`.
//!
//! The people of several tenants talk with an agent about their customers. Each customer has a session with a memory of its own, and
//! tools that know the customer. What the agent may not do by a rule it asks the people of the tenant.
//!
//! | request | answer |
//! |---|---|
//! | `GET /`, `GET /desk/CUSTOMER` | the page, a client of the requests below |
//! | `POST /customers/CUSTOMER/prompts`, the prompt as the body | 202 with the id of the turn and its events as `Location`. With the header `Idempotency-Key` a prompt that is sent again is not asked again |
//! | `GET /customers/CUSTOMER/turns` | the turns of a customer, the newest first |
//! | `POST /customers/CUSTOMER/turns/ID/interrupt` | ends the turn early |
//! | `GET /turns/ID/events` | the turn as server-sent events, with `Last-Event-ID` from there on |
//! | `GET /questions` | the open questions of the tenant |
//! | `POST /questions/ID`, such as `{"choice":"allow"}` | decides one of them |
//! | `GET /health/live`, `GET /health/ready` | for a load balancer |
//!
//! All but the page and the last two need the login of a person (`login.rs`), who reaches what is of their tenant and nothing else.
//! Pages of other origins can send `GET` only, and cannot read the answers or show the desk in a frame (`web::harden`).

pub mod login;

use std::time::Duration;

use axum::extract::Path;
use axum::http::{StatusCode, header};
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::IntoResponse;
use axum::routing::{get, post};
use axum::{Json, Router};
use greenroom::options::{BuiltInTools, EnvPolicy};
use greenroom::{NoArgs, Session, SessionBuilder, ToolServer};
use greenroom_fleet::web::{self, Choice, IdempotencyKey, Login, Problem};
use greenroom_fleet::{Access, Action, ActivationContext, Denied, Fleet, FleetBuilder, FleetSession, Quota};
use greenroom_fleet::{FleetTenant, FleetTurn, Name, PromptQuery, QuestionId, QuestionQuery, QuestionRecord};
use serde_json::{Value, json};

use login::Logins;

/// Gives the session of a customer its CLI, or a stand-in.
pub type Connect = Box<dyn Fn(SessionBuilder, &Name) -> SessionBuilder + Send + Sync>;

/// The fleet of the customers' sessions. At most `most` are awake, each with a CLI process of about 200 MB; one without work sleeps
/// when `idle` has passed. Tenants take turns, and each has a budget for a day.
pub fn desk(most: usize, idle: Duration, connect: Connect) -> FleetBuilder {
    let builder = Fleet::builder().default_quota(Quota::default().budget_usd(50.0)).configure(|limits| {
        limits.live = most;
        limits.idle_after = idle;
        limits.queue.name = 4;
    });
    let builder = builder.profile("default", move |cx| connect(session(cx), &cx.name));
    builder.authoriser(|access: Access<'_>| match access.action {
        Action::Read | Action::Prompt | Action::Interrupt | Action::Answer => Ok(()),
        _ => Err(Denied::new("the desk has no such request")),
    })
}

/// The session of a customer, in folders that the fleet has made.
fn session(cx: &ActivationContext) -> SessionBuilder {
    let mut options = cx.isolated_options();
    options.env_policy = EnvPolicy::service_and(["ANTHROPIC_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN"]);
    options.tools = Some(BuiltInTools::only(["AskUserQuestion"]));
    options.include_partial_messages = true;
    // Longer than a question waits for a person.
    options.timeouts.turn = Some(Duration::from_secs(900));
    // Every other call is a question to a person.
    Session::builder().options(options).mcp_server(orders(&cx.name)).allow_tool("mcp__orders__list")
}

/// The tools of a session, which know the customer, whatever the model says.
fn orders(customer: &Name) -> ToolServer {
    let (who, shop) = (customer.session().to_owned(), customer.tenant().to_string());
    let found = format!("{who}'s lamp from {shop} arrives on Monday");
    let gone = format!("{who} gets no lamp");
    let cancel = move |_: NoArgs| std::future::ready(gone.clone());
    ToolServer::new("orders", "1.0.0")
        .tool("list", "The customer's orders", move |_: NoArgs| std::future::ready(found.clone()))
        .tool("cancel", "Cancels the customer's orders", cancel)
        .always_load(true)
}

pub fn router(fleet: Fleet, logins: Logins) -> Router {
    let file = |kind, text: &'static str| get(async move || ([(header::CONTENT_TYPE, kind)], text));
    let page = file("text/html; charset=utf-8", include_str!("page/index.html"));
    Router::new()
        .route("/me", get(me))
        .route("/customers/{session}/prompts", post(prompt))
        .route("/customers/{session}/turns", get(turns))
        .route("/customers/{session}/turns/{turn}/interrupt", post(interrupt))
        .route("/turns/{turn}/events", get(web::events))
        .route("/questions", get(questions))
        .route("/questions/{question}", post(answer))
        .layer(from_fn_with_state(logins.clone(), login::check))
        .route("/", page.clone())
        .route("/desk/{customer}", page)
        .route("/desk.js", file("text/javascript", include_str!("page/desk.js")))
        .route("/desk.css", file("text/css", include_str!("page/desk.css")))
        .merge(web::health())
        .with_state(fleet)
        .merge(login::routes(logins))
        .layer(from_fn(web::harden))
}

type Answer<T> = Result<T, Problem>;

async fn me(login: Login) -> Json<Value> {
    Json(json!({ "tenant": login.tenant, "user": login.person }))
}

/// Accepts a prompt. The client reads its turn by its events, now or later.
async fn prompt(session: FleetSession, key: IdempotencyKey, text: String) -> Answer<impl IntoResponse> {
    let id = session.prompt(key.of(text)).await?.prompt_id();
    let location = [(header::LOCATION, format!("/turns/{id}/events"))];
    Ok((StatusCode::ACCEPTED, location, Json(json!({ "turn": id }))))
}

/// The last turns of a customer, the newest first.
async fn turns(session: FleetSession) -> Answer<Json<Value>> {
    let page = session.prompts(PromptQuery::new().limit(50)).await?;
    let turns = page.prompts.iter().map(|one| {
        let (state, outcome) = (json!(one.record.state), one.outcome.as_ref());
        let state = outcome.map_or(state["is"].clone(), |outcome| outcome.word().into());
        json!({ "id": one.record.id, "text": one.text(), "state": state, "answer": outcome.and_then(|one| one.text()) })
    });
    Ok(Json(json!({ "turns": turns.collect::<Vec<_>>() })))
}

async fn interrupt(session: FleetSession, turn: FleetTurn) -> Answer<Json<Value>> {
    Ok(Json(json!({ "interrupted": session.interrupt_turn(turn.prompt_id()).await? })))
}

async fn questions(tenant: FleetTenant) -> Answer<Json<Vec<QuestionRecord>>> {
    Ok(Json(tenant.questions(QuestionQuery::new()).await?))
}

/// The first answer decides.
async fn answer(tenant: FleetTenant, Path(id): Path<QuestionId>, Json(choice): Json<Choice>) -> Answer<()> {
    Ok(tenant.answer(id, choice).await?)
}
