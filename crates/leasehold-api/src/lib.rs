//! The wire: what requests and answers of the HTTP API look like as JSON.
//!
//! Nothing here decides anything. The server converts these types to and from the rules in
//! `leasehold-core`; clients of any language can read the same shapes at `/openapi.json`.
//! Requests refuse unknown fields, so a typo in `ttl_ms` never silently means "the default".

mod availability;
mod booking;
mod event;
mod hold;
mod lock;
mod log;
mod problem;

pub use availability::{
    Availability, PoolCount, SeatChange, SeatCounts, StreamChange, StreamHello, StreamPing, StreamReset,
};
pub use booking::{BookingView, CancelBooking, ConfirmHold};
pub use event::{
    BlockList, BlockView, BlockedUnits, CreateBlock, CreateEvent, EventList, EventView, LayoutSpec,
    PatchEvent, PlacedSeat, PolicySpec, PolicyView, PoolCapacity, PoolSpec, PoolView, RowView, SeatSpec,
    SectionSpec, SectionView, VenueView,
};
pub use hold::{
    BeginPayment, BestSpec, CreateHold, HoldList, HoldView, ItemSpec, ItemView, PatchHold, PaymentFailed,
    PaymentView, RefundList, RefundView, RevokeHold,
};
pub use lock::{AcquireLock, LockGrant, LockList, LockRelease, LockRenewal, LockView, RenewLock, TtlAdvice};
pub use log::{LogEntryView, LogView, ReplicaList, ReplicaView, SeatOwnerView, TroubleList, TroubleView};
pub use problem::{Code, Problem};

/// The header that carries a hold's secret.
pub const HOLD_SECRET: &str = "hold-secret";
/// The header that carries a lock's owner token.
pub const LOCK_OWNER: &str = "lock-owner";
/// The header that makes a write repeatable.
pub const IDEMPOTENCY_KEY: &str = "idempotency-key";
/// The header that marks an answer given before, and now given again.
pub const IDEMPOTENCY_REPLAYED: &str = "idempotency-replayed";

/// Reads a field that is there. `null` is not the same as absent: a client that sends it is told so.
fn given<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: serde::Deserializer<'de>,
    T: serde::Deserialize<'de>,
{
    T::deserialize(deserializer).map(Some)
}

/// Reads an object and nothing else. A derived reader also takes a list, field by field, and nobody means that.
fn object<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: serde::Deserialize<'de>,
{
    struct Fields<T>(std::marker::PhantomData<T>);

    impl<'de, T: serde::Deserialize<'de>> serde::de::Visitor<'de> for Fields<T> {
        type Value = T;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: serde::de::MapAccess<'de>>(self, fields: A) -> Result<T, A::Error> {
            T::deserialize(serde::de::value::MapAccessDeserializer::new(fields))
        }
    }

    deserializer.deserialize_map(Fields(std::marker::PhantomData))
}

/// An object and nothing else: a body, an element of a list, the value of an option.
#[derive(Debug)]
pub struct Object<T>(pub T);

impl<'de, T: serde::Deserialize<'de>> serde::Deserialize<'de> for Object<T> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        object(deserializer).map(Self)
    }
}

/// Reads a list of objects.
fn objects<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: serde::Deserializer<'de>,
    T: serde::Deserialize<'de>,
{
    let list: Vec<Object<T>> = serde::Deserialize::deserialize(deserializer)?;
    Ok(list.into_iter().map(|Object(value)| value).collect())
}

/// Reads a list of objects that is there.
fn given_objects<'de, D, T>(deserializer: D) -> Result<Option<Vec<T>>, D::Error>
where
    D: serde::Deserializer<'de>,
    T: serde::Deserialize<'de>,
{
    objects(deserializer).map(Some)
}

/// Reads an object that is there.
fn given_object<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: serde::Deserializer<'de>,
    T: serde::Deserialize<'de>,
{
    object(deserializer).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_never_taken_for_an_object() {
        for body in [r#"{"items":[["A-1"]]}"#, r#"{"items":[{"best":[2]}]}"#, r#"{"items":[[]]}"#] {
            assert!(serde_json::from_str::<CreateHold>(body).is_err(), "{body}");
        }
        for body in [
            r#"{"id":"x","policy":[]}"#,
            r#"{"id":"x","layout":[[]]}"#,
            r#"{"id":"x","layout":{"sections":[["A",1,1]]}}"#,
            r#"{"id":"x","pools":[["floor",5]]}"#,
            r#"{"id":"x","seats":[["A-1","A","1"]]}"#,
        ] {
            assert!(serde_json::from_str::<CreateEvent>(body).is_err(), "{body}");
        }
        assert!(serde_json::from_str::<PatchEvent>(r#"{"policy":[]}"#).is_err());
        assert!(serde_json::from_str::<PatchHold>(r#"{"add":[["A-1"]]}"#).is_err());
        assert!(serde_json::from_str::<ConfirmHold>(r#"{"items":[["A-1"]]}"#).is_err());
        assert!(serde_json::from_str::<CreateBlock>(r#"{"pools":[["floor",1]]}"#).is_err());
    }

    #[test]
    fn what_is_meant_is_still_read() {
        let hold = r#"{"items":[{"seat":"A-1"},{"best":{"count":2}},{"pool":"floor","quantity":3}]}"#;
        assert_eq!(serde_json::from_str::<CreateHold>(hold).unwrap().items.len(), 3);
        let event = r#"{"id":"x","seats":["A-1",{"id":"A-2","row":"1"}],"pools":[{"id":"p","capacity":1}],
                        "policy":{"hold_ttl_ms":1000}}"#;
        let event = serde_json::from_str::<CreateEvent>(event).unwrap();
        assert_eq!((event.seats.len(), event.pools.len(), event.policy.is_some()), (2, 1, true));
        let absent = serde_json::from_str::<CreateHold>(r#"{"holder":"u"}"#).unwrap_err();
        assert!(absent.to_string().starts_with("missing field `items`"), "{absent}");
    }
}
