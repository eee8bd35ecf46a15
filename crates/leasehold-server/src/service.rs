//! What happens to every request before and after its handler.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use axum::Router;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::{HeaderName, HeaderValue, Method, Request};
use hyper::body::Incoming;
use leasehold_api::Code;
use tower::Service;

use crate::address::client_address;
use crate::app::App;
use crate::connection::Phases;
use crate::http::locks::LOCK_PATH;
use crate::operators::{self, Ends};
use crate::problem::{ApiError, GivenCode};
use crate::recent::{Trouble, shortened};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Requests that take longer than this are worth a line in the log.
const SLOW_SECONDS: f64 = 1.0;

/// Marks an answer that goes on for as long as the client listens.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Streaming;

/// Marks an answer that took as long as its client was willing to wait.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Waited;

/// The service of one connection.
pub(crate) struct RequestService(Arc<Inside>);

/// What the requests of a connection share.
struct Inside {
    app: App,
    phases: Arc<Phases>,
    router: Router,
    ends: Ends,
}

impl RequestService {
    pub(crate) fn new(app: &App, router: &Router, ends: Ends, phases: Arc<Phases>) -> Self {
        Self(Arc::new(Inside { app: Arc::clone(app), phases, router: router.clone(), ends }))
    }

    pub(crate) fn app(&self) -> &App {
        &self.0.app
    }

    pub(crate) fn phases(&self) -> &Arc<Phases> {
        &self.0.phases
    }
}

impl Inside {
    /// What can be refused without looking at the route.
    fn refuse_early(&self, request: &Request<Incoming>) -> Result<crate::app::Permit, ApiError> {
        let Some(permit) = self.app.request_permit() else {
            self.app.meters.turned_away.inc();
            return Err(ApiError::new(Code::Overloaded));
        };
        // Our ids need no escapes. Refusing them means that no id has two spellings. Names of locks are the
        // callers' own, in any letters.
        let path = request.uri().path();
        if path.contains('%') && !path.starts_with(LOCK_PATH) {
            return Err(ApiError::not_found());
        }
        operators::check(&self.app.config, self.ends, request)?;
        // A probe is not load.
        if matches!(request.uri().path(), "/healthz" | "/readyz" | "/metrics") {
            return Ok(permit);
        }
        let client = client_address(self.ends.peer, request.headers(), &self.app.config.trusted_proxies);
        self.app.limits.check_address(client)?;
        Ok(permit)
    }
}

impl hyper::service::Service<Request<Incoming>> for RequestService {
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        self.0.phases.head_complete();
        let began = Instant::now();
        let service = Arc::clone(&self.0);
        let request_id = request_id(&request);
        let permit = self.0.refuse_early(&request);
        Box::pin(async move {
            let (method, path) = (request.method().clone(), request.uri().clone());
            let result = match permit {
                Ok(_permit) => {
                    let request = request.map(Body::new);
                    let mut router = service.router.clone();
                    match router.call(request).await {
                        Ok(response) => response,
                        Err(impossible) => match impossible {},
                    }
                }
                Err(refusal) => refusal.into_response(),
            };
            let mut response = result;
            let streams = method == Method::GET && response.extensions().get::<Streaming>().is_some();
            if !streams {
                service.phases.answered();
            }
            let (status, seconds) = (response.status(), began.elapsed().as_secs_f64());
            let waited = response.extensions().get::<Waited>().is_some();
            service.app.meters.answered(status, (!waited && !streams).then_some(seconds));
            if status.is_server_error() || (seconds > SLOW_SECONDS && !waited) {
                let id = request_id.to_str().unwrap_or_default();
                service.app.troubles.add(Trouble {
                    at: service.app.engine.now(),
                    method: method.to_string(),
                    path: shortened(path.path()),
                    status: status.as_u16(),
                    code: response.extensions().get::<GivenCode>().map(|given| given.0.as_str()),
                    seconds,
                    request_id: id.to_owned(),
                });
                tracing::warn!(request_id = id, %method, path = path.path(), status = status.as_u16(), seconds, "answered");
            } else {
                tracing::debug!(request_id = request_id.to_str().unwrap_or_default(), %method, path = path.path(), status = status.as_u16(), seconds, "answered");
            }
            response.headers_mut().insert(REQUEST_ID, request_id);
            Ok(response)
        })
    }
}

/// The caller's id for the request if it is a decent one, else a new one.
fn request_id(request: &Request<Incoming>) -> HeaderValue {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    if let Some(given) = request.headers().get(REQUEST_ID)
        && given.len() <= 128
        && !given.is_empty()
        && given.as_bytes().iter().all(u8::is_ascii_graphic)
    {
        return given.clone();
    }
    static START: OnceLock<u32> = OnceLock::new();
    let start = START.get_or_init(|| uuid::Uuid::new_v4().as_fields().0);
    let number = u64::from(*start) << 32 | NEXT.fetch_add(1, Ordering::Relaxed) & u64::from(u32::MAX);
    let mut digits = [0; 16];
    for (place, digit) in digits.iter_mut().enumerate() {
        *digit = b"0123456789abcdef"[(number >> (60 - 4 * place)) as usize & 15];
    }
    HeaderValue::from_bytes(&digits).expect("hexadecimal digits are a header value")
}
