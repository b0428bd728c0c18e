//! The endpoint that Prometheus reads: HTTP, `/metrics`, off unless `cluster.toml` says where.

mod text;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::CONTENT_TYPE;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use super::meter::Report;

/// Scrapers that are served at once; more wait.
const AT_ONCE: usize = 8;
/// How long one connection is kept: longer than the usual time between two scrapes.
const KEPT: Duration = Duration::from_secs(120);
/// How long a scraper may take to say what it wants.
const SAYS_WITHIN: Duration = Duration::from_secs(5);

const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Opens an endpoint at `at` (port 0: any that is free), and serves there what `reports` gives: one report for each value
/// of the label `node`. It lives as long as the thread's `LocalSet`. Returns where it listens.
///
/// # Errors
/// In words, where it cannot listen: the process goes on without.
pub(crate) async fn serve<F>(
    at: SocketAddr,
    reports: impl Fn() -> F + 'static,
) -> Result<SocketAddr, String>
where
    F: Future<Output = Vec<(String, Report)>> + 'static,
{
    let failed = |e: std::io::Error| {
        format!(
            "cannot serve metrics on TCP {at}: {e}; choose another `metrics` address in cluster.toml, or stop what uses it"
        )
    };
    let listener = TcpListener::bind(at).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let reports = Rc::new(reports);
    let room = std::sync::Arc::new(Semaphore::new(AT_ONCE));
    actix_rt::spawn(async move {
        loop {
            let Ok(place) = room.clone().acquire_owned().await else {
                return;
            };
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                Err(e) => {
                    // Out of files, most likely: to try again at once would only spin.
                    tracing::warn!(error = %e, "a scraper cannot be served");
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    continue;
                }
            };
            let reports = reports.clone();
            actix_rt::spawn(async move {
                let _place = place;
                let service = service_fn(move |request| answer(request, reports.clone()));
                let connection = hyper::server::conn::http1::Builder::new()
                    .timer(TokioTimer::new())
                    .header_read_timeout(SAYS_WITHIN)
                    .serve_connection(TokioIo::new(stream), service);
                if let Ok(Err(e)) = tokio::time::timeout(KEPT, connection).await {
                    tracing::debug!(error = %e, "a scraper went away");
                }
            });
        }
    });
    Ok(address)
}

async fn answer<F>(
    request: Request<Incoming>,
    reports: Rc<impl Fn() -> F>,
) -> Result<Response<Full<Bytes>>, Infallible>
where
    F: Future<Output = Vec<(String, Report)>>,
{
    let known = request.uri().path() == "/metrics";
    let may = request.method() == Method::GET || request.method() == Method::HEAD;
    let (status, kind, body) = match (known, may) {
        (false, _) => (
            StatusCode::NOT_FOUND,
            "text/plain",
            "metrics are at /metrics\n".to_owned(),
        ),
        (true, false) => (
            StatusCode::METHOD_NOT_ALLOWED,
            "text/plain",
            "metrics are only read: GET\n".to_owned(),
        ),
        (true, true) => (StatusCode::OK, OPENMETRICS, text::render(reports().await)),
    };
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    let kind = hyper::header::HeaderValue::from_static(kind);
    response.headers_mut().insert(CONTENT_TYPE, kind);
    Ok(response)
}
