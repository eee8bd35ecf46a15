//! The log: to stderr, for people on a terminal, for programs elsewhere.

use std::io::IsTerminal;

use anyhow::Context;
use tracing_subscriber::EnvFilter;

/// How a line of the log looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormat {
    /// For people
    Text,
    /// One JSON object a line
    Json,
}

/// What is logged unless told otherwise. A client of a Redis Cluster that is away says so thousands of times a second; that
/// a part of it is away, and when it is back, is said by those who ask it.
const DEFAULT: &str = "info,redis::cluster_handling=off";

/// Starts the log.
pub(crate) fn start(filter: Option<&str>, format: Option<LogFormat>) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(filter.unwrap_or(DEFAULT)).context("the log filter is not valid")?;
    let on_terminal = std::io::stderr().is_terminal();
    let format = format.unwrap_or(if on_terminal { LogFormat::Text } else { LogFormat::Json });
    let log =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(on_terminal);
    let started = match format {
        LogFormat::Text => log.try_init(),
        LogFormat::Json => log.json().try_init(),
    };
    started.map_err(|error| anyhow::anyhow!("the log could not be started: {error}"))
}
