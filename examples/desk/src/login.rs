//! Stands for the login of your service: whoever has the link of a person is that person.

use std::collections::HashMap;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use greenroom_fleet::web::Login;

/// The logins by the secrets of their links.
pub type Logins = Arc<HashMap<String, Login>>;

/// The link of each login: `/login/SECRET` keeps the secret in a cookie.
pub(crate) fn routes(logins: Logins) -> Router {
    Router::new().route("/login/{secret}", get(enter)).with_state(logins)
}

async fn enter(State(logins): State<Logins>, Path(secret): Path<String>) -> Response {
    if !logins.contains_key(&secret) {
        return (StatusCode::NOT_FOUND, "this link is not known").into_response();
    }
    // `Strict`: the page needs no login, so links of other sites work without the cookie. Behind TLS add `Secure`.
    let cookie = format!("login={secret}; Path=/; HttpOnly; SameSite=Strict");
    ([(header::SET_COOKIE, cookie)], Redirect::to("/")).into_response()
}

/// Puts the login on the request. Without one, the handlers answer 401.
pub(crate) async fn check(State(logins): State<Logins>, mut request: Request, next: Next) -> Response {
    let cookies = request.headers().get_all(header::COOKIE).into_iter();
    let mut cookies = cookies.filter_map(|all| all.to_str().ok()).flat_map(|all| all.split("; "));
    let secret = cookies.find_map(|cookie| cookie.strip_prefix("login="));
    if let Some(login) = secret.and_then(|secret| logins.get(secret)).cloned() {
        request.extensions_mut().insert(login);
    }
    next.run(request).await
}
