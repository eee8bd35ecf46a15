//! Somebody else's hold looks exactly like one that does not exist: kinds 19 and 20.

use std::time::Duration;

use leasehold_api::Code;
use leasehold_testkit::{exchange, request_bytes};

use crate::venue::{Bad, Venue};

/// An answer takes no longer, also on a busy machine.
const PATIENCE: Duration = Duration::from_secs(10);

/// Every operation that needs the secret, on this hold.
fn owned(venue: &Venue, hold: &str) -> Vec<Bad> {
    let bad =
        |method, path: String, body: &str| Bad { headers: Vec::new(), ..venue.bad(method, &path, body, "") };
    vec![
        bad("GET", format!("/v1/holds/{hold}"), ""),
        bad("PATCH", format!("/v1/holds/{hold}"), r#"{"extend_ms":700000}"#),
        bad("DELETE", format!("/v1/holds/{hold}"), ""),
        bad("POST", format!("/v1/holds/{hold}/payment"), r#"{"payment_ref":"pay-1"}"#),
        bad("POST", format!("/v1/holds/{hold}/payment/failed"), r#"{"payment_ref":"pay-1"}"#),
        bad("POST", format!("/v1/holds/{hold}/confirm"), "{}"),
        bad("POST", format!("/v1/holds/{hold}/confirm"), r#"{"items":[{"seat":"A-1"}]}"#),
    ]
}

/// An id of the same form that nobody has: the last letter is another one.
fn another_id(hold: &str) -> String {
    let mut other = hold.to_owned();
    let last = other.pop().expect("an id is not empty");
    other.push(if last == '0' { '1' } else { '0' });
    other
}

#[tokio::test(flavor = "multi_thread")]
async fn without_its_secret_a_hold_does_not_exist() {
    let mut venue = Venue::open().await;
    let other = venue.desk.granted("gala", "A-5", 600_000).await;
    let nobody = another_id(&venue.hold.id);
    let real = venue.hold.secret.clone();
    let mut tampered = real.clone();
    let last = tampered.pop().expect("a secret is not empty");
    tampered.push(if last == 'A' { 'B' } else { 'A' });
    let long = "a".repeat(10_000);
    let secrets: [Option<&str>; 8] = [
        None,
        Some(""),
        Some("wrong"),
        Some("%%% not base64 %%%"),
        Some(&other.secret),
        Some(&tampered),
        Some(&real[..real.len() - 1]),
        Some(&long),
    ];
    for secret in secrets {
        for (mine, absent) in owned(&venue, &venue.hold.id).into_iter().zip(owned(&venue, &nobody)) {
            let with = |mut bad: Bad| {
                bad.what = format!("secret {:?}", secret.map(|secret| &secret[..secret.len().min(20)]));
                bad.headers.extend(secret.map(|secret| ("hold-secret".to_owned(), secret.to_owned())));
                bad
            };
            let mine = venue.assert_refused(&with(mine), &[Code::NotFound]);
            let absent = venue.assert_refused(&with(absent), &[Code::NotFound]);
            if mine.body != absent.body {
                venue.complain("the answer tells that the hold exists".to_owned());
            }
        }
    }
    let twice = owned(&venue, &venue.hold.id);
    for bad in twice {
        let bad = bad.header("hold-secret", "wrong").header("hold-secret", &real);
        venue.assert_refused(&bad, &[Code::NotFound, Code::BadRequest]);
    }
}

/// Kind 20: whoever goes on guessing is told to wait, whether there is such a hold or not. Its owner is not.
#[tokio::test(flavor = "multi_thread")]
async fn guesses_at_a_secret_are_limited_and_do_not_keep_the_owner_out() {
    let venue = Venue::open().await;
    let absent = another_id(&venue.hold.id);
    for hold in [&venue.hold.id, &absent] {
        let guesses: Vec<Bad> =
            owned(&venue, hold).into_iter().map(|bad| bad.header("hold-secret", "wrong")).collect();
        let limited = guesses.iter().cycle().take(2_000).find_map(|guess| {
            let answer = venue.assert_refused(guess, &[Code::NotFound, Code::QuotaExceeded]);
            (answer.status == 429).then_some(answer)
        });
        let limited = limited.expect("so many guesses are too many");
        for (header, begins) in
            [("retry-after", ""), ("ratelimit", "\"secret\";r=0"), ("ratelimit-policy", "\"secret\";")]
        {
            let value = limited.header(header).unwrap_or_else(|| panic!("no {header}"));
            assert!(value.starts_with(begins), "{header}: {value}");
        }
        for guess in guesses {
            venue.assert_refused(&guess, &[Code::NotFound, Code::QuotaExceeded]);
        }
    }
    let Bad { method, path, headers, body, .. } =
        venue.bad("GET", &format!("/v1/holds/{}", venue.hold.id), "", "the owner's own request");
    let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (&**name, &**value)).collect();
    let answer = exchange(venue.stage.address(), &request_bytes(method, &path, &headers, &body), PATIENCE);
    assert_eq!(answer.status, 200, "the owner was kept out by guesses of others");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_exist_is_not_found() {
    let venue = Venue::open().await;
    for (method, path, body) in [
        ("GET", "/v1/events/nothing", ""),
        ("GET", "/v1/events/nothing/availability", ""),
        ("GET", "/v1/events/nothing/stream", ""),
        ("GET", "/v1/events/nothing/venue", ""),
        ("GET", "/v1/operator/events/nothing/log", ""),
        ("GET", "/v1/operator/events/gala/log?seat=Z-1", ""),
        ("GET", "/v1/operator/events/gala/log?seat=", ""),
        ("GET", "/v1/operator/events/gala/log?hold=nothing", ""),
        ("GET", "/v1/operator/nothing", ""),
        ("GET", "/console/nothing", ""),
        ("GET", "/console/rush", ""),
        ("POST", "/console/rush", ""),
        ("PATCH", "/v1/events/nothing", r#"{"state":"closed"}"#),
        ("POST", "/v1/events/nothing/holds", r#"{"items":[{"seat":"A-3"}]}"#),
        ("GET", "/v1/events/nothing/blocks", ""),
        ("POST", "/v1/events/nothing/blocks", r#"{"seats":["A-3"]}"#),
        ("DELETE", "/v1/events/gala/blocks/nothing", ""),
        ("POST", "/v1/holds/nothing/revoke", "{}"),
        ("POST", "/v1/holds/nothing/payment/failed", r#"{"payment_ref":"pay-1"}"#),
        ("GET", "/v1/bookings/nothing", ""),
        ("POST", "/v1/bookings/nothing/cancel", "{}"),
    ] {
        venue.assert_refused(&venue.bad(method, path, body, "does not exist"), &[Code::NotFound]);
    }
}

/// Kinds 19 and 20, for locks: without its owner token a lock is not held.
#[tokio::test(flavor = "multi_thread")]
async fn without_its_owner_a_lock_is_not_held() {
    let venue = Venue::open().await;
    let real = venue.lock.owner.clone();
    let mut tampered = real.clone();
    let first = tampered.remove(0);
    tampered.insert(0, if first == '0' { '1' } else { '0' });
    let long = "a".repeat(10_000);
    for owner in [
        "",
        "wrong",
        "%%% no token %%%",
        "a-token-of-nobody-at-all",
        &tampered,
        &real[..real.len() - 1],
        &long,
    ] {
        for (method, body) in [("PATCH", r#"{"ttl_ms":7200000}"#), ("DELETE", "")] {
            let with = |path: &str| {
                let bad = Bad { headers: Vec::new(), ..venue.bad(method, path, body, "owner") };
                bad.header("lock-owner", owner)
            };
            let mine = venue.assert_refused(&with("/v1/locks/job"), &[Code::LockLost]);
            let absent = venue.assert_refused(&with("/v1/locks/nobodys"), &[Code::LockLost]);
            if mine.body != absent.body {
                venue.complain("the answer tells that the lock is held".to_owned());
            }
        }
    }
    for (method, body) in [("PATCH", r#"{"ttl_ms":7200000}"#), ("DELETE", "")] {
        let twice = venue.bad(method, "/v1/locks/job", body, "two owners").header("lock-owner", "wrong");
        venue.assert_refused(&twice, &[Code::LockLost]);
    }
    let hold = format!("/v1/holds/{}", venue.hold.id);
    for path in ["/v1/locks/job", hold.as_str(), "/v1/events/gala/blocks/any"] {
        let body = venue.bad("DELETE", path, "{}", "a release with a body");
        venue.assert_refused(&body, &[Code::BadRequest]);
    }
}
