//! Protection from pages of other origins.

use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::problem::Problem;

/// The headers of each response that does not have them.
const HEADERS: [(HeaderName, HeaderValue); 3] = [
    (
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static(
            "default-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        ),
    ),
    (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
];

/// Protects a service from pages of other origins. A middleware, for the outermost layer.
///
/// It refuses each request that changes something, so with another method than `GET`, `HEAD`, `OPTIONS` or `TRACE`, if a page of another
/// origin sent it: the header `Sec-Fetch-Site` is neither `same-origin` nor `none`. The [`Problem`] is 403 `cross_origin`. A page on
/// another port or subdomain is of another origin, although the browser sends `SameSite` cookies for it. Requests without the header
/// pass, because programs send none. Browsers send it over TLS and to loopback only.
///
/// Every response gets these headers, unless it has them:
///
/// | header | value | so that |
/// |---|---|---|
/// | `Content-Security-Policy` | `default-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'` | a page runs scripts of its own origin only, and no page shows it in a frame |
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
    let mut sites = request.headers().get_all("sec-fetch-site").iter();
    let is_foreign = sites.any(|site| site != "same-origin" && site != "none");
    let mut response = if is_foreign && !request.method().is_safe() {
        Problem::cross_origin().into_response()
    } else {
        next.run(request).await
    };
    for (name, value) in HEADERS {
        response.headers_mut().entry(name).or_insert(value);
    }
    response
}
