//! Servers on a ledger, with or without a gate: what the settings of both mean for what is sold.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use leasehold_engine::{LEDGER_CONNECTIONS_MAX, LedgerFacts, OpenLedgerError, ledger_facts};
use leasehold_lock::doctor::{Finding, Level, examine_gate};

use super::{PROBLEMS, UNREACHABLE, as_json, print_findings};
use crate::lock_store::{Failure, REFUSED};

/// The version that the tests run on; older ones may do.
const VERSION_TESTED: u32 = 15_00_00;
/// A clock that is further off is worth a word.
const CLOCK_DIFFERENCE_MAX_MS: u64 = 1_000;
/// A ledger that is further away makes every commit wait.
const ROUND_TRIP_MAX: Duration = Duration::from_millis(10);

/// Looks at both, says what was found, and gives the code to exit with.
pub(super) async fn examine(
    ledger: &str,
    gate: Option<&str>,
    quiet: bool,
    json: bool,
) -> Result<ExitCode, Failure> {
    let place = place(ledger);
    let (mut findings, is_reachable) = match ledger_facts(ledger).await {
        Ok(facts) => (judge(&facts, &place), true),
        Err(error @ OpenLedgerError::Address(_)) => {
            return Err(Failure { code: REFUSED, error: anyhow::Error::new(error).context("--ledger") });
        }
        Err(error) => {
            let text = format!(
                "{error}. Nothing is sold meanwhile: writes are answered 503 with Retry-After, and availability goes \
                 on from memory"
            );
            (
                vec![Finding {
                    level: Level::Problem,
                    topic: "ledger-reachable",
                    place: place.clone(),
                    text,
                }],
                false,
            )
        }
    };
    match gate {
        Some(gate) => findings.extend(examine_gate(gate).await.context("--gate")?),
        None => {
            let text = "none: everything goes straight to the ledger, and each buyer who comes too late costs it a \
                        look. Name a Redis with --gate when many want the same seats";
            findings.push(Finding {
                level: Level::Ok,
                topic: "gate",
                place: "gate".to_owned(),
                text: text.to_owned(),
            });
        }
    }
    let verdict = verdict(&findings, is_reachable);
    if json {
        let document = serde_json::json!({
            "reachable": is_reachable,
            "verdict": verdict,
            "findings": as_json(&findings),
        });
        println!("{document}");
    } else {
        print_findings(&findings, quiet);
        println!("\n{verdict}");
    }
    let has_problem = findings.iter().any(|finding| finding.level == Level::Problem);
    Ok(match (is_reachable, has_problem) {
        (false, _) => ExitCode::from(UNREACHABLE),
        (true, true) => ExitCode::from(PROBLEMS),
        (true, false) => ExitCode::SUCCESS,
    })
}

/// What holds there, in a sentence or two.
fn verdict(findings: &[Finding], is_reachable: bool) -> &'static str {
    let problem = |is_of_gate: bool| {
        let problems = findings.iter().filter(|finding| finding.level == Level::Problem);
        problems.filter(|finding| finding.topic.starts_with("gate") == is_of_gate).count() > 0
    };
    if !is_reachable {
        "The ledger does not answer, so no server can sell."
    } else if problem(false) {
        "With the problems above the ledger cannot be used, or what it acknowledges can be lost."
    } else if problem(true) {
        "Nothing is sold twice and nothing acknowledged is lost: that rests on the ledger. The gate does not work as it \
         should, so buyers who come too late cost the ledger more than they need to."
    } else {
        "Nothing is sold twice and nothing acknowledged is lost: that rests on the ledger alone, under the conditions \
         that warnings name."
    }
}

/// Findings about one database.
struct Notes<'a> {
    place: &'a str,
    findings: Vec<Finding>,
}

impl Notes<'_> {
    fn note(&mut self, level: Level, topic: &'static str, text: impl Into<String>) {
        self.findings.push(Finding { level, topic, place: self.place.to_owned(), text: text.into() });
    }

    /// One text when all is well and another when not.
    fn either(&mut self, topic: &'static str, is_well: bool, well: &str, otherwise: (Level, &str)) {
        let (level, text) = if is_well { (Level::Ok, well) } else { otherwise };
        self.note(level, topic, text);
    }
}

fn judge(facts: &LedgerFacts, place: &str) -> Vec<Finding> {
    let mut notes = Notes { place, findings: Vec::new() };
    notes.note(Level::Ok, "ledger-reachable", format!("PostgreSQL {} answers", facts.version));
    if facts.version_number < VERSION_TESTED {
        notes.note(Level::Warning, "ledger-version", "older than 15, on which the tests run");
    }
    if facts.in_recovery {
        notes.note(Level::Problem, "ledger-role", "a standby: it takes no writes. Name the primary");
    }
    notes.either(
        "ledger-encryption",
        facts.encrypted || facts.on_this_machine,
        if facts.encrypted { "encrypted" } else { "not encrypted, and does not leave this machine" },
        (
            Level::Warning,
            "not encrypted: whoever is on the way can read the password and change what is sold. Use \
             sslmode=require, or see to it that the network is private",
        ),
    );
    tables(facts, &mut notes);
    notes.either(
        "ledger-fsync",
        facts.fsync,
        "fsync is on: a crash forgets nothing that was acknowledged",
        (
            Level::Problem,
            "fsync is off: a crash can lose sales that were acknowledged, and damage the database. Switch it \
             on",
        ),
    );
    notes.either(
        "ledger-full-page-writes",
        facts.full_page_writes,
        "full_page_writes is on: a page that was half written in a crash is mended",
        (
            Level::Problem,
            "full_page_writes is off: a crash can damage pages for good, unless the file system writes them \
             whole. Switch it on",
        ),
    );
    let text = format!("synchronous_commit is {} there, and `on` in every server", facts.synchronous_commit);
    notes.note(Level::Ok, "ledger-commit", text);
    notes.either(
        "ledger-autovacuum",
        facts.autovacuum,
        "autovacuum is on: what holds leave behind is cleared away",
        (
            Level::Warning,
            "autovacuum is off: every hold leaves rows behind, and the ledger gets slower all the time. \
             Switch it on",
        ),
    );
    standbys(facts, &mut notes);
    connections(facts, &mut notes);
    clock(facts, &mut notes);
    notes.findings
}

/// The tables, and whether this user may use them.
fn tables(facts: &LedgerFacts, notes: &mut Notes<'_>) {
    let known = facts.migrations_known;
    match facts.migrations {
        Some(found) if found > known => {
            let text = format!(
                "it has {found} migrations and this program knows {known}: it is older than a server that \
                 was here, and would not start"
            );
            notes.note(Level::Problem, "ledger-migrations", text);
        }
        Some(found) if found == known => {
            notes.note(Level::Ok, "ledger-migrations", format!("up to date: {found} migrations"));
        }
        Some(found) if facts.may_create => {
            let text =
                format!("it has {found} of {known} migrations: the first server that starts adds the others");
            notes.note(Level::Ok, "ledger-migrations", text);
        }
        Some(found) => {
            let text = format!(
                "it has {found} of {known} migrations, and this user may not add the others: start one \
                 server as a user with CREATE on the database"
            );
            notes.note(Level::Problem, "ledger-migrations", text);
        }
        None if facts.may_create && !facts.has_tables => {
            notes.note(
                Level::Ok,
                "ledger-migrations",
                "no tables yet: the first server that starts makes them",
            );
        }
        None if !facts.has_tables => {
            let text = "no tables yet, and this user may not make them: GRANT CREATE ON DATABASE, or start the first \
                        server as somebody who may";
            notes.note(Level::Problem, "ledger-migrations", text);
        }
        None => {}
    }
    if facts.has_tables {
        notes.either(
            "ledger-rights",
            facts.may_use,
            "this user may read and write the tables",
            (
                Level::Problem,
                "this user may not read and write all tables: GRANT USAGE ON SCHEMA leasehold, and SELECT, \
                 INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA leasehold",
            ),
        );
    }
    if let Some(epoch) = facts.epoch {
        let text = format!(
            "epoch {epoch}; to be raised after a restore from a backup, before the first server starts"
        );
        notes.note(Level::Ok, "ledger-epoch", text);
    }
}

fn standbys(facts: &LedgerFacts, notes: &mut Notes<'_>) {
    let topic = "ledger-standby";
    let is_named = !facts.synchronous_standby_names.is_empty();
    match (facts.standbys, facts.synchronous_standbys) {
        _ if !facts.may_see_standbys => {
            let text = "this user may not see whether a commit waits for a standby: GRANT pg_read_all_stats, or ask as \
                        somebody else. Without a synchronous standby a failover can lose what was acknowledged last";
            notes.note(Level::Warning, topic, text);
        }
        (_, 0) if is_named => {
            let text = "synchronous_standby_names is set and no such standby is connected: every commit waits for one, \
                        and nothing is sold. Bring it back, or empty the setting";
            notes.note(Level::Problem, topic, text);
        }
        (0, _) => {
            let text = "no standby: if its disk is lost, so is everything since the last backup; while it is down, \
                        nothing is sold";
            notes.note(Level::Warning, topic, text);
        }
        (_, 0) => {
            let text = "its standbys are asynchronous: a failover to one can lose what was acknowledged last. Set \
                        synchronous_standby_names, or do not fail over to them";
            notes.note(Level::Warning, topic, text);
        }
        (all, synchronous) => {
            let text = format!("{synchronous} of {all} standbys are synchronous: fail over only to those");
            notes.note(Level::Ok, topic, text);
        }
    }
}

fn connections(facts: &LedgerFacts, notes: &mut Notes<'_>) {
    let (all, used) = (facts.connections_max, facts.connections);
    let room = all.saturating_sub(used) / LEDGER_CONNECTIONS_MAX;
    let text = format!(
        "{used} of {all} connections are in use; a server takes up to {LEDGER_CONNECTIONS_MAX}, and the one that sweeps \
         two more, so there is room for {room} more; six less for each that keeps locks here"
    );
    match room {
        // A rolling upgrade has one more for a moment.
        0 | 1 => {
            let text = format!("{text}. Raise max_connections, or a restart finds none free");
            notes.note(Level::Warning, "ledger-connections", text);
        }
        _ => notes.note(Level::Ok, "ledger-connections", text),
    }
}

fn clock(facts: &LedgerFacts, notes: &mut Notes<'_>) {
    let round_trip_ms = facts.round_trip.as_secs_f64() * 1_000.0;
    let text = format!("a question takes {round_trip_ms:.2} ms");
    notes.either(
        "ledger-distance",
        facts.round_trip <= ROUND_TRIP_MAX,
        &text,
        (
            Level::Warning,
            &format!("{text}: every commit waits for at least one. Put the servers beside the ledger"),
        ),
    );
    let ahead = facts.clock_ahead_ms;
    let is_close = ahead.unsigned_abs() <= CLOCK_DIFFERENCE_MAX_MS + facts.round_trip.as_millis() as u64;
    let way = if ahead < 0 { "behind" } else { "ahead of" };
    let text = format!("its clock is {:.3} s {way} this machine's", ahead.unsigned_abs() as f64 / 1_000.0);
    notes.either(
        "ledger-clock",
        is_close,
        &format!("{text}; it alone decides when a hold ends"),
        (
            Level::Warning,
            &format!(
                "{text}. It alone decides when a hold ends, so nothing is wrong now; but when somebody \
                 corrects it, holds end too early or too late. Keep it with NTP"
            ),
        ),
    );
}

/// The address without user and password.
fn place(url: &str) -> String {
    let Some((_, rest)) = url.split_once("://") else { return "ledger".to_owned() };
    let host = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
    host.split('?').next().unwrap_or_default().to_owned()
}
