//! The sessions, the login and the requests.
//!
//! | request | answer |
//! |---|---|
//! | `POST /sessions/NAME/prompts`, the prompt as the body | 202 with the events of the turn as `Location`. A prompt that is sent again with its `Idempotency-Key` runs once |
//! | `GET /turns/ID/events` | the turn as server-sent events; with `Last-Event-ID` from there on |
//! | `GET /health/live`, `GET /health/ready` | for the platform: these need no login |

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use greenroom::options::{BuiltInTools, EnvPolicy};
use greenroom::{NoArgs, PermissionMode, Session, SessionBuilder, ToolServer};
use greenroom_fleet::web::{self, IdempotencyKey, Login, Problem};
use greenroom_fleet::{ActivationContext, Fleet, FleetBuilder, FleetSession, Name, Quota, Tenant};

use crate::Result;

/// The logins by their keys.
pub(crate) type Logins = Arc<HashMap<String, Login>>;

/// The fleet, without its backend. The memory of the machine or container decides how many sessions are awake.
pub(crate) fn sessions() -> FleetBuilder {
    Fleet::builder()
        .default_quota(Quota::default().budget_usd(50.0))
        .profile("default", session)
}

/// The session of a customer, in folders that the fleet has made for it.
pub(crate) fn session(cx: &ActivationContext) -> SessionBuilder {
    let mut options = cx.isolated_options();
    // The CLI does not get the other variables of this service, such as `DATABASE_URL`.
    options.env_policy = EnvPolicy::service_and([
        "ANTHROPIC_API_KEY",
        "CLAUDE_CODE_OAUTH_TOKEN",
        "DISABLE_AUTOUPDATER",
    ]);
    options.tools = Some(BuiltInTools::none());
    // Nobody is asked: a call that no rule allows is denied.
    options.permission_mode = Some(PermissionMode::DontAsk);
    options.include_partial_messages = true;
    options.timeouts.turn = Some(Duration::from_secs(600));
    options.timeouts.tool = Some(Duration::from_secs(60));
    Session::builder()
        .options(options)
        .mcp_server(account(&cx.name))
        .allow_server_tools("account")
}

/// Your tools. They know the customer, whatever the model says.
fn account(name: &Name) -> ToolServer {
    let owner = name.session().to_owned();
    ToolServer::new("account", "1.0.0")
        .tool("owner", "The name of the customer", move |_: NoArgs| {
            std::future::ready(owner.clone())
        })
        .always_load(true)
}

/// Reads `TENANT:KEY`, more than once with spaces between. Put your login here: nothing else says which tenant a request is of.
/// Each key opens all sessions of its tenant.
pub(crate) fn logins(keys: &str) -> Result<Logins> {
    let mut logins = HashMap::new();
    // The errors show no part of the value: it has secrets.
    for login in keys.split_whitespace() {
        let parts = login.split_once(':').filter(|(_, key)| !key.is_empty());
        let (tenant, key) = parts.ok_or("a login of `API_KEYS` is not TENANT:KEY")?;
        let tenant = Tenant::new(tenant).map_err(|_| "`API_KEYS` has an invalid tenant")?;
        if logins.insert(key.to_owned(), Login::new(tenant)).is_some() {
            return Err("`API_KEYS` has the same key twice".into());
        }
    }
    Ok(Arc::new(logins))
}

/// Puts the login on the request. A request without one is answered 401.
async fn login(State(logins): State<Logins>, mut request: Request, next: Next) -> Response {
    let key = request
        .headers()
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok());
    let key = key.and_then(|value| value.strip_prefix("Bearer "));
    if let Some(login) = key.and_then(|key| logins.get(key)).cloned() {
        request.extensions_mut().insert(login);
    }
    next.run(request).await
}

pub(crate) fn router(fleet: Fleet, logins: Logins) -> Router {
    Router::new()
        .route("/sessions/{session}/prompts", post(prompt))
        .route("/turns/{turn}/events", get(web::events))
        .layer(from_fn_with_state(logins, login))
        // Below the login: the platform has none.
        .merge(web::health())
        .layer(from_fn(web::harden))
        .with_state(fleet)
}

/// The prompt that goes on with a turn which the end of the process has cut off.
pub(crate) const GO_ON: &str = "You were interrupted. Look at what you have done, and go on.";

/// Accepts a prompt. The client reads its turn by its events, now or later.
async fn prompt(
    session: FleetSession,
    key: IdempotencyKey,
    text: String,
) -> std::result::Result<impl IntoResponse, Problem> {
    let turn = session.prompt(key.of(text).continue_with(GO_ON, 1)).await?;
    let events = format!("/turns/{}/events", turn.prompt_id());
    Ok((StatusCode::ACCEPTED, [(header::LOCATION, events)]))
}
