//! Values of a wrong type, out of range, too many or too few: kinds 8 to 12 and 22.

use leasehold_api::{Code, HoldView};

use crate::venue::Venue;

/// Where a number stands: the request with `#` in its place.
fn number_places(hold: &str) -> Vec<(&'static str, String, &'static str)> {
    vec![
        ("POST", "/v1/events/gala/holds".into(), r#"{"items":[{"seat":"A-3"}],"ttl_ms":#}"#),
        ("POST", "/v1/events/gala/holds".into(), r#"{"items":[{"pool":"floor","quantity":#}]}"#),
        ("POST", "/v1/events/gala/holds".into(), r#"{"items":[{"best":{"count":#}}]}"#),
        ("PATCH", format!("/v1/holds/{hold}"), r#"{"extend_ms":#}"#),
        ("PATCH", format!("/v1/holds/{hold}"), r#"{"add":[{"pool":"floor","quantity":#}]}"#),
        ("PATCH", format!("/v1/holds/{hold}"), r#"{"add":[{"best":{"count":#}}]}"#),
        (
            "PATCH",
            format!("/v1/holds/{hold}"),
            r#"{"add":[{"seat":"A-3"}],"remove":[{"pool":"floor","quantity":#}]}"#,
        ),
        ("POST", format!("/v1/holds/{hold}/confirm"), r#"{"items":[{"pool":"floor","quantity":#}]}"#),
        ("POST", format!("/v1/holds/{hold}/payment"), r#"{"payment_ref":"pay-1","max_wait_ms":#}"#),
        ("POST", "/v1/events/gala/blocks".into(), r#"{"seats":[],"pools":[{"id":"floor","quantity":#}]}"#),
        (
            "POST",
            "/v1/events".into(),
            r#"{"id":"n","layout":{"sections":[{"name":"A","rows":#,"seats_per_row":1}]}}"#,
        ),
        (
            "POST",
            "/v1/events".into(),
            r#"{"id":"n","layout":{"sections":[{"name":"A","rows":1,"seats_per_row":#}]}}"#,
        ),
        ("POST", "/v1/events".into(), r#"{"id":"n","seats":["B-1"],"policy":{"hold_ttl_ms":#}}"#),
        ("PATCH", "/v1/events/gala".into(), r#"{"policy":{"hold_ttl_ms":#}}"#),
        ("PATCH", "/v1/events/gala".into(), r#"{"policy":{"hold_total_max_ms":#}}"#),
        ("PATCH", "/v1/events/gala".into(), r#"{"policy":{"payment_max_ms":#}}"#),
        ("POST", "/v1/locks/new".into(), r#"{"ttl_ms":#}"#),
        ("PATCH", "/v1/locks/job".into(), r#"{"ttl_ms":#}"#),
    ]
}

/// The same where 0 is a number like others.
const COUNT_PLACES: [(&str, &str, &str); 6] = [
    ("POST", "/v1/events", r#"{"id":"n","pools":[{"id":"p","capacity":#}]}"#),
    ("PATCH", "/v1/events/gala", r#"{"pools":[{"id":"floor","capacity":#}]}"#),
    ("PATCH", "/v1/events/gala", r#"{"policy":{"extends_max":#}}"#),
    ("PATCH", "/v1/events/gala", r#"{"policy":{"units_per_holder_max":#}}"#),
    ("POST", "/v1/events", r#"{"id":"n","seats":["B-1"],"policy":{"units_per_holder_max":#}}"#),
    ("PATCH", "/v1/events/gala", r#"{"policy":{"payments_in_flight_max":#}}"#),
];

/// Kinds 8 and 9.
#[tokio::test(flavor = "multi_thread")]
async fn a_number_of_a_wrong_type_or_out_of_range_is_invalid() {
    let venue = Venue::open().await;
    let wrong = [
        "\"60000\"",
        "60000.5",
        "1e309",
        "-1e309",
        "true",
        "null",
        "{}",
        "[]",
        "[60000]",
        "0",
        "-1",
        "-0",
        "-60000",
        "9007199254740993",
        "9223372036854775808",
        "18446744073709551616",
        "18446744073709551615",
        "100000000000000000000000000000000000000000",
    ];
    for (method, path, template) in number_places(&venue.hold.id) {
        for value in wrong {
            let bad = venue.bad(method, &path, template.replace('#', value), value);
            venue.assert_refused(&bad, &[Code::Invalid]);
        }
        let not_json = venue.bad(method, &path, template.replace('#', "NaN"), "NaN");
        venue.assert_refused(&not_json, &[Code::BadRequest]);
    }
    for (method, path, template) in COUNT_PLACES {
        for value in wrong.into_iter().filter(|value| *value != "0") {
            let bad = venue.bad(method, path, template.replace('#', value), value);
            venue.assert_refused(&bad, &[Code::Invalid]);
        }
    }
}

/// Kind 8, for what is not a number.
#[tokio::test(flavor = "multi_thread")]
async fn a_text_or_a_list_of_a_wrong_type_is_invalid() {
    let venue = Venue::open().await;
    let hold = &venue.hold.id;
    let places = [
        ("POST", "/v1/events".to_owned(), r#"{"id":#,"seats":["B-1"]}"#),
        ("POST", "/v1/events/gala/holds".to_owned(), r#"{"items":#}"#),
        ("POST", "/v1/events/gala/holds".to_owned(), r#"{"items":[#]}"#),
        ("POST", format!("/v1/holds/{hold}/payment"), r#"{"payment_ref":#}"#),
        ("POST", format!("/v1/holds/{hold}/payment/failed"), r#"{"payment_ref":#}"#),
        ("POST", "/v1/locks/new".to_owned(), r#"{"label":#}"#),
        ("POST", "/v1/locks/new".to_owned(), r#"{"order":#}"#),
    ];
    for (method, path, template) in places {
        for value in ["1", "1.5", "true", "null"] {
            let bad = venue.bad(method, &path, template.replace('#', value), value);
            venue.assert_refused(&bad, &[Code::Invalid]);
        }
    }
    for write in venue.writes() {
        for value in ["1", "\"text\"", "null", "[]", "true"] {
            let bad = venue.bad(write.method, &write.path, value, "a body that is no object");
            venue.assert_refused(&bad, &[Code::Invalid, Code::BadRequest]);
        }
    }
}

/// Kind 10.
#[tokio::test(flavor = "multi_thread")]
async fn a_time_outside_its_bounds_is_invalid() {
    let venue = Venue::open().await;
    for ttl_ms in ["1", "999", "86400001", "9223372036854775807", "18446744073709551614"] {
        let body = format!(r#"{{"items":[{{"seat":"A-3"}}],"ttl_ms":{ttl_ms}}}"#);
        let bad = venue.bad("POST", "/v1/events/gala/holds", body, "ttl_ms");
        venue.assert_refused(&bad, &[Code::Invalid]);
        let body = format!(r#"{{"policy":{{"hold_ttl_ms":{ttl_ms}}}}}"#);
        venue.assert_refused(&venue.bad("PATCH", "/v1/events/gala", body, "hold_ttl_ms"), &[Code::Invalid]);
        let body = format!(r#"{{"policy":{{"hold_total_max_ms":{ttl_ms}}}}}"#);
        venue.assert_refused(
            &venue.bad("PATCH", "/v1/events/gala", body, "hold_total_max_ms"),
            &[Code::Invalid],
        );
    }
    let payment = format!("/v1/holds/{}/payment", venue.hold.id);
    // The event's own most is a quarter of an hour.
    for wait_ms in ["1", "999", "900001", "9223372036854775807", "18446744073709551614"] {
        let body = format!(r#"{{"payment_ref":"pay-1","max_wait_ms":{wait_ms}}}"#);
        venue.assert_refused(&venue.bad("POST", &payment, body, "max_wait_ms"), &[Code::Invalid]);
    }
    for payment_ms in ["1", "999", "604800001", "9223372036854775807", "18446744073709551614"] {
        let body = format!(r#"{{"policy":{{"payment_max_ms":{payment_ms}}}}}"#);
        venue
            .assert_refused(&venue.bad("PATCH", "/v1/events/gala", body, "payment_max_ms"), &[Code::Invalid]);
    }
    for ttl_ms in ["1", "9", "86400001", "9223372036854775807", "18446744073709551614"] {
        let body = format!(r#"{{"ttl_ms":{ttl_ms}}}"#);
        venue.assert_refused(&venue.bad("POST", "/v1/locks/new", body.clone(), "ttl_ms"), &[Code::Invalid]);
        venue.assert_refused(&venue.bad("PATCH", "/v1/locks/job", body, "ttl_ms"), &[Code::Invalid]);
    }
    for wait_ms in ["-1", "0.5", "60001", "\"1\"", "null", "18446744073709551616"] {
        let body = format!(r#"{{"wait_ms":{wait_ms}}}"#);
        venue.assert_refused(&venue.bad("POST", "/v1/locks/new", body, "wait_ms"), &[Code::Invalid]);
    }
    let body = r#"{"order":"lifo"}"#;
    venue.assert_refused(&venue.bad("POST", "/v1/locks/new", body, "unknown word"), &[Code::Invalid]);
    let body = r#"{"policy":{"at_payment_deadline":"explode"}}"#;
    venue.assert_refused(&venue.bad("PATCH", "/v1/events/gala", body, "unknown word"), &[Code::Invalid]);
    let body = r#"{"state":"ajar"}"#;
    venue.assert_refused(&venue.bad("PATCH", "/v1/events/gala", body, "unknown word"), &[Code::Invalid]);
}

/// Kind 11.
#[tokio::test(flavor = "multi_thread")]
async fn no_items_too_many_items_and_one_item_twice_are_invalid() {
    let venue = Venue::open().await;
    let many = |count: usize| {
        let items: Vec<String> = (0..count).map(|number| format!(r#"{{"seat":"A-{number}"}}"#)).collect();
        format!(r#"{{"items":[{}]}}"#, items.join(","))
    };
    for (what, body) in [
        ("no items", r#"{"items":[]}"#.to_owned()),
        ("101 items", many(101)),
        ("one seat twice", r#"{"items":[{"seat":"A-3"},{"seat":"A-3"}]}"#.to_owned()),
        ("an empty item", r#"{"items":[{}]}"#.to_owned()),
        ("a seat and a pool in one item", r#"{"items":[{"seat":"A-3","pool":"floor"}]}"#.to_owned()),
        ("a seat with a quantity", r#"{"items":[{"seat":"A-3","quantity":2}]}"#.to_owned()),
        ("a quantity of nothing", r#"{"items":[{"quantity":2}]}"#.to_owned()),
    ] {
        let bad = venue.bad("POST", "/v1/events/gala/holds", body, what);
        venue.assert_refused(&bad, &[Code::Invalid]);
    }
    let hold = format!("/v1/holds/{}", venue.hold.id);
    let many_added = many(101).replace("items", "add");
    for (what, body) in [
        ("nothing to change", "{}"),
        ("no items", r#"{"add":[],"remove":[]}"#),
        ("101 items", &many_added),
        ("one seat twice", r#"{"add":[{"seat":"A-3"},{"seat":"A-3"}]}"#),
        ("one seat removed twice", r#"{"add":[{"seat":"A-3"}],"remove":[{"seat":"A-1"},{"seat":"A-1"}]}"#),
        ("added and removed", r#"{"add":[{"seat":"A-3"}],"remove":[{"seat":"A-3"}]}"#),
        ("the last item", r#"{"remove":[{"seat":"A-1"}]}"#),
        ("an empty item", r#"{"add":[{}]}"#),
        ("the best removed", r#"{"remove":[{"best":{"count":1}}]}"#),
    ] {
        venue.assert_refused(&venue.bad("PATCH", &hold, body, what), &[Code::Invalid]);
    }
    let many_sold = many(101);
    for (what, body) in [
        ("no items", r#"{"items":[]}"#),
        ("101 items", &many_sold),
        ("one seat twice", r#"{"items":[{"seat":"A-1"},{"seat":"A-1"}]}"#),
        ("an empty item", r#"{"items":[{}]}"#),
        ("the best", r#"{"items":[{"best":{"count":1}}]}"#),
    ] {
        venue.assert_refused(&venue.bad("POST", &format!("{hold}/confirm"), body, what), &[Code::Invalid]);
    }
    for (what, body) in [
        ("one seat twice", r#"{"id":"new","seats":["B-1","B-1"]}"#),
        (
            "one row twice",
            r#"{"id":"new","seats":[{"id":"B-1","row":"1"},{"id":"B-2","row":"2"},{"id":"B-3","row":"1"}]}"#,
        ),
        ("one pool twice", r#"{"id":"new","pools":[{"id":"p","capacity":1},{"id":"p","capacity":2}]}"#),
        (
            "seats and a layout",
            r#"{"id":"new","seats":["B-1"],"layout":{"sections":[{"name":"A","rows":1,"seats_per_row":1}]}}"#,
        ),
        (
            "4 billion seats",
            r#"{"id":"new","layout":{"sections":[{"name":"A","rows":65536,"seats_per_row":65536}]}}"#,
        ),
    ] {
        venue.assert_refused(&venue.bad("POST", "/v1/events", body, what), &[Code::Invalid]);
    }
    let seat = "A-3";
    let body = format!(r#"{{"seats":["{seat}","{seat}"]}}"#);
    venue.assert_refused(
        &venue.bad("POST", "/v1/events/gala/blocks", body, "one seat twice"),
        &[Code::Invalid],
    );
}

/// Kind 12.
#[tokio::test(flavor = "multi_thread")]
async fn one_unknown_item_among_good_ones_takes_nothing() {
    let mut venue = Venue::open().await;
    let other = leasehold_api::CreateEvent {
        id: "other".to_owned(),
        seats: vec![leasehold_api::SeatSpec::Id("Z-1".to_owned())],
        ..Default::default()
    };
    venue.desk.create_event(&other).await;
    for (what, body) in [
        ("an unknown seat", r#"{"items":[{"seat":"A-99"}]}"#),
        ("a seat of another event", r#"{"items":[{"seat":"Z-1"}]}"#),
        ("one unknown among good ones", r#"{"items":[{"seat":"A-3"},{"seat":"A-99"},{"seat":"A-4"}]}"#),
        ("an unknown pool", r#"{"items":[{"seat":"A-3"},{"pool":"roof","quantity":1}]}"#),
        ("an unknown section", r#"{"items":[{"seat":"A-3"},{"best":{"count":1,"section":"Q"}}]}"#),
    ] {
        let bad = venue.bad("POST", "/v1/events/gala/holds", body, what);
        venue.assert_refused(&bad, &[Code::NotFound, Code::Invalid, Code::SoldOut]);
    }
    let hold = format!("/v1/holds/{}", venue.hold.id);
    let confirm = format!("{hold}/confirm");
    let blocks = "/v1/events/gala/blocks";
    for (method, path, what, body, code) in [
        ("PATCH", &*hold, "an unknown seat", r#"{"add":[{"seat":"A-3"},{"seat":"A-99"}]}"#, Code::NotFound),
        ("PATCH", &hold, "another event's", r#"{"add":[{"seat":"A-3"},{"seat":"Z-1"}]}"#, Code::NotFound),
        ("PATCH", &hold, "an unknown pool", r#"{"add":[{"seat":"A-3"},{"pool":"roof"}]}"#, Code::NotFound),
        ("PATCH", &hold, "not held", r#"{"add":[{"seat":"A-3"}],"remove":[{"seat":"A-4"}]}"#, Code::Invalid),
        ("PATCH", &hold, "taken", r#"{"add":[{"seat":"A-3"},{"seat":"A-2"}]}"#, Code::SeatTaken),
        ("POST", &confirm, "unknown", r#"{"items":[{"seat":"A-1"},{"seat":"A-99"}]}"#, Code::NotFound),
        ("POST", &confirm, "not held", r#"{"items":[{"seat":"A-1"},{"seat":"A-3"}]}"#, Code::Invalid),
        ("POST", &confirm, "no units", r#"{"items":[{"seat":"A-1"},{"pool":"floor"}]}"#, Code::Invalid),
        ("POST", blocks, "an unknown seat", r#"{"seats":["A-3","A-99"]}"#, Code::NotFound),
        ("POST", blocks, "another event's", r#"{"seats":["A-3","Z-1"]}"#, Code::NotFound),
        (
            "POST",
            blocks,
            "unknown",
            r#"{"seats":["A-3"],"pools":[{"id":"roof","quantity":1}]}"#,
            Code::NotFound,
        ),
        ("POST", blocks, "taken", r#"{"seats":["A-3","A-1"]}"#, Code::SeatTaken),
        (
            "POST",
            blocks,
            "too much",
            r#"{"seats":["A-3"],"pools":[{"id":"floor","quantity":11}]}"#,
            Code::SoldOut,
        ),
    ] {
        venue.assert_refused(&venue.bad(method, path, body, what), &[code]);
    }
    for (what, body) in [
        ("nothing", serde_json::json!({})),
        ("no seats", serde_json::json!({"seats": [], "pools": []})),
        ("too many seats", serde_json::json!({ "seats": vec!["A"; 10_001] })),
    ] {
        venue.assert_refused(&venue.bad("POST", blocks, body.to_string(), what), &[Code::Invalid]);
    }
    let taken =
        venue.bad("POST", "/v1/events/gala/holds", r#"{"items":[{"seat":"A-3"},{"seat":"A-1"}]}"#, "taken");
    venue.assert_refused(&taken, &[Code::SeatTaken]);
    let short = r#"{"items":[{"seat":"A-3"},{"pool":"floor","quantity":11}]}"#;
    venue.assert_refused(&venue.bad("POST", "/v1/events/gala/holds", short, "too much"), &[Code::SoldOut]);
}

/// Kind 22: the number that guards a hold against stale writers is its version.
#[tokio::test(flavor = "multi_thread")]
async fn a_stale_or_impossible_version_is_refused() {
    let mut venue = Venue::open().await;
    let path = format!("/v1/holds/{}", venue.hold.id);
    let stale = venue.hold.view.version;
    let extended = venue.desk.extend(&venue.hold, 650_000).await;
    assert_eq!(extended.view::<HoldView>().map(|view| view.version), Some(stale + 1), "{extended:?}");
    for (what, version) in [("stale", stale), ("none", 0), ("never issued", stale + 2)] {
        let body = format!(r#"{{"extend_ms":700000,"version":{version}}}"#);
        venue.assert_refused(&venue.bad("PATCH", &path, body, what), &[Code::VersionMismatch]);
    }
    for version in ["-1", "1.5", "\"1\"", "4294967296", "18446744073709551615"] {
        let body = format!(r#"{{"extend_ms":700000,"version":{version}}}"#);
        venue.assert_refused(&venue.bad("PATCH", &path, body, "no version"), &[Code::Invalid]);
    }
}
