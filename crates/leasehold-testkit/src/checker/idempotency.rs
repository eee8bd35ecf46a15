//! One idempotency key has one effect, and every repetition gets the same bytes: above all it is never refused because of
//! its own effect.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::{Findings, Rule};
use crate::facts::Facts;
use crate::history::Operation;

pub(super) fn check(facts: &Facts, findings: &mut Findings) {
    let mut by_key: BTreeMap<(&str, &str, &str), Vec<&Operation>> = BTreeMap::new();
    for operation in facts.operations.iter().filter(|operation| operation.answer().is_some()) {
        let request = &operation.request;
        if let Some(key) = request.header(leasehold_api::IDEMPOTENCY_KEY) {
            by_key.entry((&request.method, &request.path, key)).or_default().push(operation);
        }
    }
    for ((method, path, key), answers) in by_key {
        let name = format!("{method} {path} with key {key}");
        let (answers, others): (Vec<_>, Vec<_>) =
            answers.into_iter().partition(|operation| operation.acknowledged());
        refused_afterwards(&name, &answers, &others, findings);
        different_answers(&name, &answers, findings);
        different_effects(&name, &answers, findings);
    }
}

fn different_answers(name: &str, answers: &[&Operation], findings: &mut Findings) {
    let mut first: BTreeMap<&Bytes, &Bytes> = BTreeMap::new();
    for operation in answers {
        let Some(answer) = operation.answer() else { continue };
        let known = first.entry(&operation.request.body).or_insert(&answer.body);
        if **known != answer.body {
            let (one, other) = (String::from_utf8_lossy(known), String::from_utf8_lossy(&answer.body));
            findings.report(Rule::KeysOnce, format!("{name} was answered with {one} and with {other}"));
            return;
        }
    }
}

/// What was granted is granted to whoever asks again, whatever became of it since.
fn refused_afterwards(name: &str, granted: &[&Operation], others: &[&Operation], findings: &mut Findings) {
    let is_taken = |operation: &&&Operation| {
        let code = operation.answer().and_then(|answer| answer.code());
        matches!(code.as_deref(), Some("seat-taken" | "sold-out"))
    };
    for refused in others.iter().filter(is_taken) {
        let before = |granted: &&&Operation| {
            granted.request.body == refused.request.body
                && granted.ended.is_some_and(|ended| ended <= refused.started)
        };
        if granted.iter().any(|granted| before(&granted)) {
            findings.report(Rule::KeysOnce, format!("{name} was refused after it had been granted"));
            return;
        }
    }
}

fn different_effects(name: &str, answers: &[&Operation], findings: &mut Findings) {
    for field in ["hold_id", "booking_id", "block_id"] {
        let id = |operation: &&Operation| {
            let body = operation.answer()?.json();
            body.get(field)?.as_str().map(str::to_owned)
        };
        let mut ids: Vec<String> = answers.iter().filter_map(id).collect();
        ids.sort_unstable();
        ids.dedup();
        if ids.len() > 1 {
            findings.report(Rule::KeysOnce, format!("{name} had {} effects: {}", ids.len(), ids.join(", ")));
        }
    }
}
