//! The OpenAPI document, gathered from the handlers and the wire types.

use leasehold_api as api;
use utoipa::OpenApi;

use crate::http::{
    availability, blocks, bookings, events, health, holds, locks, operator, payments, stream, venues,
};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Leasehold",
        description = "Sells seats and counted stock without selling anything twice: hold, pay, confirm, release.\n\n\
            Errors are RFC 9457 problem documents with a stable `code`. Every write may carry an `Idempotency-Key`: \
            repeated with the same key, it has one effect and one answer.\n\n\
            Also leases names to one owner at a time, with a fencing token."
    ),
    paths(
        events::create,
        events::list,
        events::read,
        events::update,
        venues::read,
        availability::read,
        stream::read,
        holds::create,
        holds::read,
        holds::amend,
        holds::release,
        holds::list,
        holds::revoke,
        payments::begin,
        payments::failed,
        payments::refunds,
        bookings::confirm,
        bookings::read,
        bookings::cancel,
        blocks::create,
        blocks::list,
        blocks::remove,
        locks::acquire,
        locks::read,
        locks::renew,
        locks::release,
        locks::list,
        operator::log,
        operator::problems,
        operator::replicas,
        health::alive,
        health::ready,
        health::metrics,
    ),
    tags(
        (name = "events", description = "What is for sale, and how it stands."),
        (name = "holds", description = "Seats and units kept for a buyer who has not paid yet."),
        (name = "payment", description = "A hold's time stands still while its buyer pays."),
        (name = "bookings", description = "Sales."),
        (name = "locks", description = "Names leased to one owner at a time, with a fence."),
        (name = "operating", description = "For whoever runs the sale."),
        (name = "health", description = "For whoever runs the server."),
    ),
    components(schemas(api::StreamHello, api::StreamPing, api::StreamReset))
)]
struct Document;

/// The document as JSON.
pub fn openapi() -> String {
    Document::openapi().to_pretty_json().expect("the document has string keys")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// What people look at, and the document itself.
    const NOT_OF_THE_API: [&str; 9] = [
        "get /",
        "get /console",
        "get /console/rush",
        "get /docs",
        "get /docs/reference.js",
        "get /events/{event}",
        "get /openapi.json",
        "get /web/{file}",
        "post /console/rush",
    ];

    /// The routes as the router's own text has them: axum does not tell its routes.
    fn routes() -> BTreeSet<String> {
        let mut routes = BTreeSet::new();
        for route in include_str!("router.rs").split(".route(").skip(1) {
            let (path, rest) = route.trim_start().trim_start_matches('"').split_once('"').unwrap();
            let handlers = rest.split("\n        .").next().unwrap();
            for method in ["get", "post", "put", "patch", "delete"] {
                if handlers.contains(&format!("{method}(")) {
                    routes.insert(format!("{method} {path}"));
                }
            }
        }
        routes
    }

    #[test]
    fn every_route_of_the_api_is_described_and_no_other() {
        let document: serde_json::Value = serde_json::from_str(&openapi()).unwrap();
        let mut described = BTreeSet::new();
        for (path, methods) in document["paths"].as_object().unwrap() {
            described.extend(methods.as_object().unwrap().keys().map(|method| format!("{method} {path}")));
        }
        let mut routes = routes();
        for route in NOT_OF_THE_API {
            assert!(routes.remove(route), "{route} is gone");
        }
        assert_eq!(routes, described);
    }
}
