//! The OpenAPI document, gathered from the handlers and the wire types.

use leasehold_api as api;
use leasehold_api::IDEMPOTENCY_KEY;
use serde_json::{Value, json};
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

/// What anybody may be answered, whatever is asked.
const ANSWERS: [(&str, &str); 3] = [
    ("400", "`bad-request`: the request is not what the API reads"),
    ("429", "`quota-exceeded`: too many requests; `Retry-After` says when to come back"),
    (
        "503",
        "`overloaded`: come back after `Retry-After`. `outcome-unknown`: it may have taken effect; ask again",
    ),
];
/// The same for writes.
const ANSWERS_TO_WRITES: [(&str, &str); 6] = [
    ("400", "`bad-request`, `idempotency-missing`, `idempotency-invalid`"),
    ("408", "`timeout`: the body took too long to arrive"),
    ("409", "`idempotency-in-flight`: the first request with this key is still being worked on"),
    ("413", "`too-large`"),
    ("415", "`unsupported-media-type`: a body is JSON in UTF-8"),
    ("422", "`invalid`; `idempotency-mismatch`: the key was used for another request"),
];
/// To renew a lock twice is to renew it.
const WITHOUT_KEY: (&str, &str) = ("/v1/locks/{name}", "patch");

/// The document as JSON.
pub fn openapi() -> String {
    let mut document = serde_json::to_value(Document::openapi()).expect("the document has string keys");
    add_common(&mut document);
    serde_json::to_string_pretty(&document).expect("it is JSON")
}

/// Says for every operation what is true of all of them, and stands at none of the handlers.
fn add_common(document: &mut Value) {
    let reference = |kind: &str, name: &str| json!({ "$ref": format!("#/components/{kind}/{name}") });
    let components = &mut document["components"];
    components["parameters"]["IdempotencyKey"] = json!({
        "name": IDEMPOTENCY_KEY, "in": "header", "required": false,
        "description": "repeated with the same key, the request has one effect and one answer",
        "schema": { "type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$" },
    });
    let paths = document["paths"].as_object_mut().into_iter().flatten();
    for (path, methods) in paths.filter(|(path, _)| path.starts_with("/v1/")) {
        for (method, operation) in methods.as_object_mut().into_iter().flatten() {
            let answers = &mut operation["responses"];
            for (status, answer) in answers.as_object_mut().into_iter().flatten() {
                if status.as_str() >= "400" {
                    let schema = reference("schemas", "Problem");
                    answer["content"] = json!({ "application/problem+json": { "schema": schema } });
                }
                if status == "404" {
                    answer["description"] = json!("`not-found`: there is none, or it is somebody else's");
                }
            }
            let is_write = method != "get";
            let to_writes = ANSWERS_TO_WRITES.iter().filter(|_| is_write);
            for &(status, description) in to_writes.chain(&ANSWERS) {
                if answers.get(status).is_none() {
                    let content =
                        json!({ "application/problem+json": { "schema": reference("schemas", "Problem") } });
                    answers[status] = json!({ "description": description, "content": content });
                }
            }
            if is_write && (path.as_str(), method.as_str()) != WITHOUT_KEY {
                let parameters = operation.as_object_mut().expect("an operation is an object");
                let parameters = parameters.entry("parameters").or_insert_with(|| json!([]));
                let parameters = parameters.as_array_mut().expect("parameters are a list");
                parameters.push(reference("parameters", "IdempotencyKey"));
            }
        }
    }
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

    #[test]
    fn every_write_is_described_with_its_key_and_every_refusal_as_a_problem() {
        let document: Value = serde_json::from_str(&openapi()).unwrap();
        let key = json!({ "$ref": "#/components/parameters/IdempotencyKey" });
        assert!(document["components"]["parameters"]["IdempotencyKey"].is_object());
        let mut writes = 0;
        for (path, methods) in document["paths"].as_object().unwrap() {
            for (method, operation) in methods.as_object().unwrap() {
                let operation_name = (path.as_str(), method.as_str());
                let keys =
                    operation["parameters"].as_array().into_iter().flatten().filter(|one| **one == key);
                let expected = path.starts_with("/v1/") && method != "get" && operation_name != WITHOUT_KEY;
                assert_eq!(keys.count(), usize::from(expected), "{operation_name:?}");
                writes += usize::from(expected);
                for (status, answer) in operation["responses"].as_object().unwrap() {
                    let is_problem = answer["content"]["application/problem+json"].is_object();
                    let refused = path.starts_with("/v1/") && status.as_str() >= "400";
                    assert_eq!(is_problem, refused, "{operation_name:?} {status}");
                    let is_explained = answer["description"].as_str().is_some_and(|text| !text.is_empty());
                    assert!(is_explained || !refused, "{operation_name:?} {status}");
                }
            }
        }
        assert!(writes >= 13, "{writes}");
    }
}
