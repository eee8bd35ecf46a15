//! Which operation of the API a request is.

use crate::history::SentRequest;

/// The operations that the checker knows, with the id they are about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Route<'a> {
    CreateEvent,
    PatchEvent(&'a str),
    GetEvent(&'a str),
    GetAvailability(&'a str),
    GetRefunds(&'a str),
    CreateBlock(&'a str),
    RemoveBlock(&'a str, &'a str),
    CreateHold(&'a str),
    GetHold(&'a str),
    PatchHold(&'a str),
    ReleaseHold(&'a str),
    BeginPayment(&'a str),
    PaymentFailed(&'a str),
    RevokeHold(&'a str),
    ConfirmHold(&'a str),
    GetBooking(&'a str),
    CancelBooking(&'a str),
    Other,
}

impl Route<'_> {
    pub(crate) fn of(request: &SentRequest) -> Route<'_> {
        let path = request.path.split('?').next().unwrap_or_default();
        let mut segments = path.trim_start_matches('/').split('/');
        let first = segments.next();
        let rest: Vec<&str> = segments.collect();
        if first != Some("v1") {
            return Route::Other;
        }
        match (request.method.as_str(), rest.as_slice()) {
            ("POST", ["events"]) => Route::CreateEvent,
            ("PATCH", ["events", event]) => Route::PatchEvent(event),
            ("GET", ["events", event]) => Route::GetEvent(event),
            ("GET", ["events", event, "availability"]) => Route::GetAvailability(event),
            ("GET", ["events", event, "refunds"]) => Route::GetRefunds(event),
            ("POST", ["events", event, "blocks"]) => Route::CreateBlock(event),
            ("DELETE", ["events", event, "blocks", block]) => Route::RemoveBlock(event, block),
            ("POST", ["events", event, "holds"]) => Route::CreateHold(event),
            ("GET", ["holds", hold]) => Route::GetHold(hold),
            ("PATCH", ["holds", hold]) => Route::PatchHold(hold),
            ("DELETE", ["holds", hold]) => Route::ReleaseHold(hold),
            ("POST", ["holds", hold, "payment"]) => Route::BeginPayment(hold),
            ("POST", ["holds", hold, "payment", "failed"]) => Route::PaymentFailed(hold),
            ("POST", ["holds", hold, "revoke"]) => Route::RevokeHold(hold),
            ("POST", ["holds", hold, "confirm"]) => Route::ConfirmHold(hold),
            ("GET", ["bookings", booking]) => Route::GetBooking(booking),
            ("POST", ["bookings", booking, "cancel"]) => Route::CancelBooking(booking),
            _ => Route::Other,
        }
    }
}
