//! A web service with an agent session for each user: copy it as the start of your own.
//!
//! | request | answer |
//! |---|---|
//! | `POST /users/NAME/prompts`, the prompt as the body | the turn as a stream of events, and its address as `Location`. With the header `Idempotency-Key` a prompt that is sent again is not asked again |
//! | `GET /turns/ID` | the turn again, with the header `Last-Event-ID` from there on; 404 for a turn that is not known, or not kept any more |
//! | `GET /questions` | the calls that wait for a person |
//! | `POST /questions/ID`, such as `{"kind":"allowed"}`, as JSON | the answer of the person |
//! | `GET /status` | the state of the fleet, and of each user whose session is awake |
//! | `GET /health` | 200, or 503 when the service stops |
//!
//! | event | id | data |
//! |---|---|---|
//! | `delta` | – | a piece of a text, while the model writes it |
//! | `text` | its number | a whole text. It takes the place of the deltas since the last one |
//! | `outcome` | – | the last event: `outcome` is `completed`, `failed`, `interrupted` or `unsent`; `text` is the whole answer, `error` the kind of the error |
//!
//! The name in the path stands for your authentication. In your service take the user from the login, hand out a turn only to
//! its user, and keep users away from `/status` and `/questions`.

use std::future::ready;
use std::time::Duration;

use axum::extract::{Json, Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response, Result, Sse, sse::Event, sse::KeepAlive};
use axum::{Router, routing::get, routing::post};
use futures_util::stream::{self, StreamExt};
use greenroom::callback::InquiryAnswer;
use greenroom::options::{BuiltInTools, EnvPolicy};
use greenroom::{Message, NoArgs, Session, SessionBuilder, ToolServer};
use greenroom_fleet::{ActivationContext, AnswerError, Fleet, FleetBuilder, FleetError, FleetPrompt};
use greenroom_fleet::{PromptError, PromptId, PromptOutcome, Query, QuestionId, QuestionQuery, Quota};
use greenroom_fleet::{Refused, Tenant, TurnItem};
use serde_json::{Value, json};

/// Gives the session of a user its CLI, or a stand-in.
pub type Connect = Box<dyn Fn(SessionBuilder, &Tenant) -> SessionBuilder + Send + Sync>;

/// The fleet of the users' sessions. At most `most` are awake, each with a CLI process of about 200 MB; one without work sleeps
/// when `idle` has passed. Each user is a tenant: users take turns, and have a budget for each day.
pub fn users(most: usize, idle: Duration, connect: Connect) -> FleetBuilder {
    let builder = Fleet::builder().default_quota(Quota::default().budget_usd(5.0)).configure(|limits| {
        limits.live = most;
        limits.idle_after = idle;
        limits.queue.name = 4;
    });
    builder.profile("default", move |cx| connect(session(cx), cx.name.tenant()))
}

/// The session of a user, in folders that the fleet has made.
fn session(cx: &ActivationContext) -> SessionBuilder {
    let mut options = cx.isolated_options();
    options.env_policy = EnvPolicy::service_and(["ANTHROPIC_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN"]);
    options.tools = Some(BuiltInTools::none());
    options.include_partial_messages = true;
    // Longer than a question waits for a person.
    options.timeouts.turn = Some(Duration::from_secs(900));
    // Every other call is a question to a person.
    Session::builder().options(options).mcp_server(orders(cx.name.tenant())).allow_tool("mcp__orders__list")
}

/// The tools of a session, which know the user, whatever the model says.
fn orders(user: &Tenant) -> ToolServer {
    let (found, cancelled) = (format!("{user}'s lamp arrives on Monday"), format!("{user} gets no lamp"));
    ToolServer::new("orders", "1.0.0")
        .tool("list", "The user's orders", move |_: NoArgs| ready(found.clone()))
        .tool("cancel", "Cancels the user's orders", move |_: NoArgs| ready(cancelled.clone()))
        .always_load(true)
}

pub fn router(fleet: Fleet) -> Router {
    Router::new()
        .route("/users/{name}/prompts", post(send))
        .route("/turns/{id}", get(read))
        .route("/questions", get(questions))
        .route("/questions/{id}", post(answer))
        .route("/status", get(status))
        .route("/health", get(health))
        .with_state(fleet)
}

/// Accepts a prompt, and streams its turn. A client that goes away changes nothing: the turn goes on, and can be read again.
async fn send(fleet: State<Fleet>, name: Path<String>, headers: HeaderMap, text: String) -> Result<Response> {
    // The same text for the same bytes.
    let key = headers.get("idempotency-key").map(|key| key.as_bytes().escape_ascii().to_string());
    let prompt = key.into_iter().fold(FleetPrompt::new(text), FleetPrompt::key);
    let session = fleet.tenant(name.as_str()).and_then(|user| user.session("chat")).map_err(unavailable)?;
    let id = session.prompt(prompt).await.map_err(refusal)?.prompt_id();
    Ok(([(header::LOCATION, format!("/turns/{id}"))], events(&fleet, id, &headers)).into_response())
}

async fn read(fleet: State<Fleet>, id: Path<PromptId>, headers: HeaderMap) -> Result<impl IntoResponse> {
    match fleet.operator().turn(*id).record().await {
        Err(error @ FleetError::NotFound { .. }) => Err((StatusCode::NOT_FOUND, error.to_string()))?,
        known => Ok(known.map(|_| events(&fleet, *id, &headers)).map_err(unavailable)?),
    }
}

/// The events of a turn, after the last one that the client has seen.
fn events(fleet: &Fleet, id: PromptId, headers: &HeaderMap) -> impl IntoResponse + use<> {
    let seen = headers.get("last-event-id").and_then(|id| id.to_str().ok()?.parse::<u64>().ok());
    let turn = fleet.operator().turn(id).messages_from(seen.unwrap_or(0).saturating_add(1));
    let mut end = fleet.operator().turn(id);
    let texts = turn.into_stream().filter_map(|item| ready(item.ok().as_ref().and_then(text)));
    let end = stream::once(async move { outcome(end.outcome().await) }).filter_map(ready);
    Sse::new(texts.chain(end)).keep_alive(KeepAlive::default())
}

/// What a user reads of a turn: the texts of the model, without the work of subagents.
fn text(item: &TurnItem) -> Option<Result<Event, axum::Error>> {
    let message = item.message().filter(|message| message.is_main_thread())?;
    // JSON, because a line break would end the event.
    match (item.seq(), message) {
        (Some(seq), _) => Some(Event::default().event("text").id(seq.to_string()).json_data(message.text()?)),
        (None, Message::StreamEvent(part)) => {
            Some(Event::default().event("delta").json_data(part.text_delta()?))
        }
        _ => None,
    }
}

/// The outcome as the client sees it. The log has the rest, which is not for users: the CLI's stderr, and what to do.
fn outcome(end: Result<PromptOutcome, FleetError>) -> Option<Result<Event, axum::Error>> {
    // An error: the service ends before the turn, and the client reads on from the next process.
    let end = end.inspect_err(|error| tracing::warn!(%error, "a turn was not read to its end")).ok()?;
    if !end.is_completed() {
        tracing::warn!(?end, "a turn was not completed");
    }
    let said = json!({ "outcome": json!(end)["is"], "text": end.text(), "error": json!(end)["kind"] });
    Some(Event::default().event("outcome").json_data(said))
}

/// The answer to a prompt that was not accepted, with the time after which another attempt may succeed.
fn refusal(error: PromptError) -> Response {
    tracing::warn!(%error, "a prompt was not accepted");
    let (status, after) = match &error {
        PromptError::Refused(why) => match (why, why.retry_after()) {
            (_, None) => (StatusCode::CONFLICT, None),
            (Refused::Draining, after) => (StatusCode::SERVICE_UNAVAILABLE, after),
            (_, after) => (StatusCode::TOO_MANY_REQUESTS, after),
        },
        _ => (StatusCode::SERVICE_UNAVAILABLE, Some(Duration::from_secs(1))),
    };
    let after = after.map(|after| [(header::RETRY_AFTER, after.as_secs_f64().ceil().to_string())]);
    (status, after, error.to_string()).into_response()
}

async fn questions(fleet: State<Fleet>) -> Result<Json<Value>> {
    let open = fleet.operator().questions(QuestionQuery::new()).await.map_err(unavailable)?.into_iter();
    Ok(Json(
        open.map(|one| json!({ "id": one.id, "user": one.name.tenant(), "inquiry": one.body })).collect(),
    ))
}

/// The first answer decides.
async fn answer(fleet: State<Fleet>, id: Path<QuestionId>, answer: Json<InquiryAnswer>) -> Result<()> {
    let answered = fleet.operator().answer(*id, answer.0).await;
    Ok(answered.map_err(|error| match &error {
        AnswerError::Unknown { .. } | AnswerError::Backend(_) => unavailable(error),
        _ => (StatusCode::CONFLICT, error.to_string()),
    })?)
}

async fn status(fleet: State<Fleet>) -> Result<impl IntoResponse> {
    Ok(fleet.operator().snapshot(Query::active()).await.map(Json).map_err(unavailable)?)
}

async fn health(fleet: State<Fleet>) -> Result<&'static str> {
    let fleet = fleet.operator().snapshot(Query::active().limit(0)).await.map_err(unavailable)?;
    if fleet.draining { Err(unavailable("stopping"))? } else { Ok("ok") }
}

fn unavailable(error: impl std::fmt::Display) -> (StatusCode, String) {
    (StatusCode::SERVICE_UNAVAILABLE, error.to_string())
}
