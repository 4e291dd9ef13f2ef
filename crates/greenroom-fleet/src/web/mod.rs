//! A fleet behind [`axum`]: what every service with sessions needs between its routes and its fleet.
//!
//! The application has the routes, the login and the texts of its pages. This module has the rest:
//!
//! | part | use |
//! |---|---|
//! | [`Login`] | the middleware of your login puts it on each request; nothing else says which tenant a request is of |
//! | [`FleetTenant`](crate::FleetTenant), [`FleetSession`](crate::FleetSession) and [`FleetTurn`](crate::FleetTurn) as extractors | what the login may reach, in the arguments of a handler |
//! | [`Problem`] | the error of a handler: `?` turns each error of a fleet into a status, a text for customers and `Retry-After` |
//! | [`events`] | a turn as server-sent events, which a browser reads on where it was cut off ([`LastEventId`]) |
//! | [`IdempotencyKey`] | the key of a prompt, so that sending it again is harmless |
//! | [`Choice`] | the decision of a person on a question, as a page sends it |
//! | [`health`] | the routes `/health/live` and `/health/ready` |
//! | [`harden`] | a middleware that refuses requests of pages of other origins, and sets security headers |
//!
//! ```
//! use axum::extract::Request;
//! use axum::middleware::{Next, from_fn};
//! use axum::response::Response;
//! use axum::routing::{get, post};
//! use axum::Router;
//! use greenroom_fleet::web::{self, Login, Problem};
//! use greenroom_fleet::{Fleet, FleetSession, Tenant};
//!
//! /// Stands for your login.
//! async fn login(mut request: Request, next: Next) -> Response {
//!     if request.headers().get("x-key").is_some_and(|key| key == "made-up") {
//!         let tenant = Tenant::new("acme").expect("a name of a tenant");
//!         request.extensions_mut().insert(Login::new(tenant).person("anna"));
//!     }
//!     next.run(request).await
//! }
//!
//! async fn prompt(session: FleetSession, text: String) -> Result<String, Problem> {
//!     Ok(session.prompt(text).await?.prompt_id().to_string())
//! }
//!
//! fn service(fleet: Fleet) -> Router {
//!     Router::new()
//!         .route("/sessions/{session}/prompts", post(prompt))
//!         .route("/turns/{turn}/events", get(web::events))
//!         .layer(from_fn(login))
//!         // Below the login: load balancers have none.
//!         .merge(web::health())
//!         .layer(from_fn(web::harden))
//!         .with_state(fleet)
//! }
//! # let _ = service;
//! ```
//!
//! # Statuses
//!
//! A [`Problem`] is `application/problem+json` (RFC 9457) with the fields `title`, `status`, `code` and `detail`. Its `code` is for
//! programs and stays; its `detail` is for customers and names no path, no node and no text of an error. The log has the error
//! itself, at WARN from 500 on and at DEBUG below.
//!
#![doc = include_str!("statuses.md")]

mod choice;
mod events;
mod harden;
mod headers;
mod health;
mod login;
mod problem;

pub use choice::Choice;
pub use events::events;
pub use harden::harden;
pub use headers::{IdempotencyKey, LastEventId};
pub use health::health;
pub use login::Login;
pub use problem::Problem;
