//! The servers on a ledger: each names itself in the connection that follows the log, and PostgreSQL knows who is
//! connected.
//!
//! There is no list to keep up: a server that is killed is gone with its connection.

use std::time::Duration;

use tokio_postgres::Client;
use uuid::Uuid;

use super::connection::{CALL_TIME_MAX, CallError, within};
use crate::Replica;

/// Only those who may see it are told when a connection last did something.
const SQL: &str = "
SELECT application_name, host(client_addr),
       (extract(epoch FROM clock_timestamp() - state_change) * 1000)::bigint
FROM pg_stat_activity
WHERE datname = current_database() AND application_name LIKE 'leasehold/%'
ORDER BY application_name";

/// What a server calls itself: its version, a name for this life of it, and where it listens.
pub(crate) fn name_of_this_server(listens_on: Option<&str>) -> String {
    let life = Uuid::new_v4().as_fields().0;
    // PostgreSQL cuts what is longer than 63 bytes, and spells what is not ASCII in its own way.
    let listens_on: String =
        listens_on.unwrap_or("-").chars().filter(char::is_ascii_graphic).take(40).collect();
    format!("leasehold/{} {life:08x} {listens_on}", env!("CARGO_PKG_VERSION"))
}

/// The servers that follow the log, this one among them.
pub(crate) async fn connected(client: &Client, this: &str) -> Result<Vec<Replica>, CallError> {
    let rows = within(CALL_TIME_MAX, client.query(SQL, &[])).await?;
    let replicas = rows.iter().filter_map(|row| {
        let name: &str = row.get(0);
        let mut parts = name.strip_prefix("leasehold/")?.split(' ');
        let (version, life, listens_on) = (parts.next()?, parts.next()?, parts.next()?);
        let quiet_ms: Option<i64> = row.get(2);
        Some(Replica {
            id: life.to_owned(),
            version: version.to_owned(),
            listens_on: Some(listens_on).filter(|address| *address != "-").map(str::to_owned),
            connects_from: row.get(1),
            quiet_for: quiet_ms.map(|quiet| Duration::from_millis(u64::try_from(quiet).unwrap_or(0))),
            is_this: name == this,
        })
    });
    Ok(replicas.collect())
}
