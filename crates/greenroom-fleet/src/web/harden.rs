//! Protection from pages of other origins.

use axum::extract::Request;
use axum::http::uri::Authority;
use axum::http::{HeaderName, HeaderValue, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::problem::Problem;

/// The headers of each response that does not have them.
const HEADERS: [(HeaderName, HeaderValue); 3] = [
    (
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static(
            "default-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
        ),
    ),
    (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
];

/// Protects a service from pages of other origins. A middleware, for the outermost layer.
///
/// It refuses two kinds of requests if a page of another origin sent them: those with another method than `GET`, `HEAD`, `OPTIONS` or
/// `TRACE`, and upgrades to WebSocket. The [`Problem`] is 403 `cross_origin`. So pages of other origins can send `GET` only, and cannot
/// read the answers. A page on another port or subdomain is of another origin, although the browser sends `SameSite` cookies for it.
///
/// | the request has | it comes from another origin if |
/// |---|---|
/// | `Sec-Fetch-Site`, which browsers send over TLS and to loopback | the value is neither `same-origin` nor `none` |
/// | only `Origin`, which browsers send with such a request everywhere | its host and port are not those of `Host`; `null` is another origin |
/// | neither | never: a program sent it |
///
/// A proxy in front of the service has to pass on `Host`.
///
/// Every response gets these headers, unless it has them:
///
/// | header | value | so that |
/// |---|---|---|
/// | `Content-Security-Policy` | `default-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'` | a page runs scripts of its own origin only and sends forms to it only, and no page shows it in a frame |
/// | `X-Content-Type-Options` | `nosniff` | a browser takes a text for no script |
/// | `Referrer-Policy` | `no-referrer` | other sites see no path, such as that of a login link |
///
/// ```
/// use axum::Router;
/// use axum::middleware::from_fn;
/// use axum::routing::post;
/// use greenroom_fleet::web;
///
/// let service: Router = Router::new().route("/hello", post("hello")).layer(from_fn(web::harden));
/// # let _ = service;
/// ```
pub async fn harden(request: Request, next: Next) -> Response {
    let mut response = if (!request.method().is_safe() || is_websocket(&request)) && is_foreign(&request) {
        Problem::cross_origin().into_response()
    } else {
        next.run(request).await
    };
    for (name, value) in HEADERS {
        response.headers_mut().entry(name).or_insert(value);
    }
    response
}

/// Browsers let any page open a WebSocket to another origin, with its cookies.
fn is_websocket(request: &Request) -> bool {
    let upgrades = request.headers().get_all(header::UPGRADE).iter();
    let mut protocols = upgrades.filter_map(|all| all.to_str().ok()).flat_map(|all| all.split(','));
    protocols.any(|protocol| protocol.trim().eq_ignore_ascii_case("websocket"))
}

/// True if a page of another origin sent the request.
fn is_foreign(request: &Request) -> bool {
    let headers = request.headers();
    if headers.contains_key("sec-fetch-site") {
        let mut sites = headers.get_all("sec-fetch-site").iter();
        return sites.any(|site| site != "same-origin" && site != "none");
    }
    // HTTP/2 has the host in the URI.
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let host = request.uri().authority().map(Authority::as_str).or(host);
    let authority = |origin: &HeaderValue| Some(origin.to_str().ok()?.split_once("://")?.1.to_owned());
    let mut origins = headers.get_all(header::ORIGIN).iter();
    origins.any(|origin| host.is_none() || authority(origin).as_deref() != host)
}
