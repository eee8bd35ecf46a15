//! Lengths of time as people type them: `500ms`, `10s`, `1.5m`.

use std::time::Duration;

use anyhow::{Context, bail, ensure};

/// The longest time that can be asked for.
const DURATION_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// Reads a number with its unit: `ms`, `s`, `m` or `h`. More than nothing, and at most a day.
pub(crate) fn parse(text: &str) -> anyhow::Result<Duration> {
    let unit_at = text.find(|letter: char| letter.is_ascii_alphabetic());
    let (number, unit) = text.split_at(unit_at.context("a unit is missing: write 500ms, 10s, 2m or 1h")?);
    let unit_seconds = match unit {
        "ms" => 0.001,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => bail!("`{unit}` is not a unit: write 500ms, 10s, 2m or 1h"),
    };
    // Rust reads signs, exponents and `inf` as numbers too; nobody types those here.
    let plain = number.chars().all(|letter| letter.is_ascii_digit() || letter == '.');
    ensure!(plain, "`{number}` is not a number");
    let count: f64 = number.parse().with_context(|| format!("`{number}` is not a number"))?;
    let duration = Duration::try_from_secs_f64(count * unit_seconds).context("that is too long")?;
    ensure!(!duration.is_zero(), "it must be more than nothing");
    ensure!(duration <= DURATION_MAX, "it can be a day at most");
    Ok(duration)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_with_units_are_read() {
        assert_eq!(parse("10s").unwrap(), Duration::from_secs(10));
        assert_eq!(parse("500ms").unwrap(), Duration::from_millis(500));
        assert_eq!(parse("2m").unwrap(), Duration::from_secs(120));
        assert_eq!(parse("1h").unwrap(), Duration::from_secs(3600));
        assert_eq!(parse("1.5s").unwrap(), Duration::from_millis(1500));
    }

    #[test]
    fn anything_else_is_refused() {
        for text in ["", "10", "s", "ten s", "-1s", "1e3s", "0s", "0ms", "5 s", "3d", "inf s", "25h", "1..2s"]
        {
            assert!(parse(text).is_err(), "{text:?} was read");
        }
        assert!(parse(&format!("{}s", "9".repeat(400))).is_err());
    }
}
