//! The promises about holders, on each store.

use crate::holders::{die_with_their_commands, take_turns, wake_up_too_late};
use crate::stage::Store;

#[test]
fn holders_on_sqlite_take_turns() {
    take_turns(Store::sqlite());
}

#[test]
fn holders_on_sqlite_die_with_their_commands() {
    die_with_their_commands(Store::sqlite());
}

#[test]
fn holders_on_sqlite_that_wake_up_too_late_are_refused() {
    wake_up_too_late(Store::sqlite());
}

#[test]
fn holders_on_postgres_take_turns() {
    take_turns(Store::postgres());
}

#[test]
fn holders_on_postgres_die_with_their_commands() {
    die_with_their_commands(Store::postgres());
}

#[test]
fn holders_on_postgres_that_wake_up_too_late_are_refused() {
    wake_up_too_late(Store::postgres());
}

#[test]
fn holders_on_redis_take_turns() {
    take_turns(Store::redis());
}

#[test]
fn holders_on_redis_die_with_their_commands() {
    die_with_their_commands(Store::redis());
}

#[test]
fn holders_on_redis_alone_that_wake_up_too_late_have_no_fence_to_be_refused_by() {
    wake_up_too_late(Store::redis());
}

#[test]
fn holders_on_redis_with_epochs_take_turns() {
    take_turns(Store::redis_with_epochs());
}

#[test]
fn holders_on_redis_with_epochs_die_with_their_commands() {
    die_with_their_commands(Store::redis_with_epochs());
}

#[test]
fn holders_on_redis_with_epochs_that_wake_up_too_late_are_refused() {
    wake_up_too_late(Store::redis_with_epochs());
}

#[test]
fn holders_on_redlock_take_turns() {
    take_turns(Store::redlock());
}

#[test]
fn holders_on_redlock_die_with_their_commands() {
    die_with_their_commands(Store::redlock());
}

#[test]
fn holders_on_redlock_that_wake_up_too_late_are_refused() {
    wake_up_too_late(Store::redlock());
}

#[test]
fn holders_on_a_cluster_take_turns() {
    take_turns(Store::cluster());
}

#[test]
fn holders_on_a_cluster_die_with_their_commands() {
    die_with_their_commands(Store::cluster());
}

#[test]
fn holders_on_a_cluster_that_wake_up_too_late_are_refused() {
    wake_up_too_late(Store::cluster());
}

#[test]
fn holders_behind_sentinels_take_turns() {
    take_turns(Store::sentinel());
}

#[test]
fn holders_behind_sentinels_die_with_their_commands() {
    die_with_their_commands(Store::sentinel());
}

#[test]
fn holders_behind_sentinels_that_wake_up_too_late_are_refused() {
    wake_up_too_late(Store::sentinel());
}
