//! The calls of the API in the words of a box office, for tests that expect every call to be answered.

use leasehold_api::{
    Availability, BeginPayment, BookingView, CancelBooking, ConfirmHold, CreateEvent, CreateHold, EventView,
    HoldView, ItemSpec, PatchHold, PaymentFailed,
};
use leasehold_client::Request;

use crate::history::{Answer, History};
use crate::recording::RecordingClient;

/// One recording client with the API's calls as functions.
#[derive(Debug)]
pub struct Desk {
    client: RecordingClient,
}

/// A hold that was granted.
#[derive(Debug, Clone)]
pub struct Granted {
    /// Its id.
    pub id: String,
    /// Its secret.
    pub secret: String,
    /// The whole answer.
    pub view: HoldView,
}

impl Desk {
    /// Desk `number` of the server at `address`.
    pub fn new(address: &str, number: usize, history: &History) -> Self {
        Self { client: RecordingClient::new(address, number, history) }
    }

    /// Sends any request; panics when no answer comes.
    pub async fn send(&mut self, request: Request) -> Answer {
        let what = format!("{} {}", request.method, request.path);
        self.client.send(request).await.answered(&what)
    }

    /// Creates an event; panics when it is refused.
    pub async fn create_event(&mut self, event: &CreateEvent) -> EventView {
        self.expect(201, Request::post("/v1/events", event)).await
    }

    /// Asks for a hold.
    pub async fn hold(&mut self, event: &str, items: Vec<ItemSpec>, ttl_ms: u64) -> Answer {
        let body = CreateHold { items, holder: None, ttl_ms: Some(ttl_ms) };
        self.send(Request::post(format!("/v1/events/{event}/holds"), &body)).await
    }

    /// Asks for a hold of one seat, and panics unless it is granted.
    pub async fn granted(&mut self, event: &str, seat: &str, ttl_ms: u64) -> Granted {
        let answer = self.hold(event, vec![ItemSpec::seat(seat)], ttl_ms).await;
        Granted::of(&answer).unwrap_or_else(|| panic!("hold of {seat} was refused: {answer:?}"))
    }

    /// Extends a hold.
    pub async fn extend(&mut self, hold: &Granted, extend_ms: u64) -> Answer {
        let body = PatchHold { extend_ms: Some(extend_ms), ..PatchHold::default() };
        self.send(Request::patch(format!("/v1/holds/{}", hold.id), &body).secret(&hold.secret)).await
    }

    /// Releases a hold.
    pub async fn release(&mut self, hold: &Granted) -> Answer {
        self.send(Request::delete(format!("/v1/holds/{}", hold.id)).secret(&hold.secret)).await
    }

    /// Begins a payment.
    pub async fn begin_payment(&mut self, hold: &Granted, payment_ref: &str, max_wait_ms: u64) -> Answer {
        let body = BeginPayment { payment_ref: payment_ref.to_owned(), max_wait_ms: Some(max_wait_ms) };
        self.send(Request::post(format!("/v1/holds/{}/payment", hold.id), &body).secret(&hold.secret)).await
    }

    /// Reports a payment as failed.
    pub async fn payment_failed(&mut self, hold: &Granted, payment_ref: &str) -> Answer {
        let body = PaymentFailed { payment_ref: payment_ref.to_owned() };
        self.send(Request::post(format!("/v1/holds/{}/payment/failed", hold.id), &body).secret(&hold.secret))
            .await
    }

    /// Confirms a hold, with a payment or without.
    pub async fn confirm(&mut self, hold: &Granted, payment_ref: Option<&str>) -> Answer {
        let body = ConfirmHold { payment_ref: payment_ref.map(str::to_owned), ..ConfirmHold::default() };
        self.send(Request::post(format!("/v1/holds/{}/confirm", hold.id), &body).secret(&hold.secret)).await
    }

    /// Confirms a hold, and panics unless it is sold.
    pub async fn sold(&mut self, hold: &Granted, payment_ref: Option<&str>) -> BookingView {
        let answer = self.confirm(hold, payment_ref).await;
        assert_eq!(answer.status, 201, "confirm of {} was refused: {answer:?}", hold.id);
        answer.view().expect("a 201 of confirm carries a booking")
    }

    /// Cancels a booking.
    pub async fn cancel(&mut self, booking: &str) -> Answer {
        self.send(Request::post(format!("/v1/bookings/{booking}/cancel"), &CancelBooking::default())).await
    }

    /// The hold as it stands.
    pub async fn show_hold(&mut self, hold: &Granted) -> HoldView {
        self.expect(200, Request::get(format!("/v1/holds/{}", hold.id)).secret(&hold.secret)).await
    }

    /// The booking as it stands.
    pub async fn show_booking(&mut self, booking: &str) -> BookingView {
        self.expect(200, Request::get(format!("/v1/bookings/{booking}"))).await
    }

    /// The event as it stands.
    pub async fn show_event(&mut self, event: &str) -> EventView {
        self.expect(200, Request::get(format!("/v1/events/{event}"))).await
    }

    /// How every seat of the event stands.
    pub async fn availability(&mut self, event: &str) -> Availability {
        self.expect(200, Request::get(format!("/v1/events/{event}/availability"))).await
    }

    async fn expect<T: serde::de::DeserializeOwned>(&mut self, status: u16, request: Request) -> T {
        let what = format!("{} {}", request.method, request.path);
        let answer = self.send(request).await;
        assert_eq!(answer.status, status, "{what}: {answer:?}");
        answer.view().unwrap_or_else(|| panic!("{what}: cannot read {answer:?}"))
    }
}

impl Granted {
    /// What a 201 of a hold grants; `None` for every other answer.
    pub fn of(answer: &Answer) -> Option<Self> {
        let view: HoldView = answer.view().filter(|_| answer.status == 201)?;
        Some(Self { id: view.hold_id.clone(), secret: view.secret.clone()?, view })
    }
}
