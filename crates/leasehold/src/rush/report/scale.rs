//! The arithmetic of the charts: where a value stands on an axis, and how figures are written.

use super::super::tally::Second;

/// The last percentile on the axis is 99.99: four decades, each with one more nine.
pub(super) const DECADES: f64 = 4.0;
/// Steps of the curve in each decade.
const STEPS_PER_DECADE: u32 = 40;
/// The most bars in the chart over time.
const BARS_MAX: usize = 60;
/// A last second shorter than this is drawn with the one before it: a rate over a moment says nothing.
const LAST_SECOND_MIN: f64 = 0.25;

/// Where a percentile stands on the axis, from 0 (the fastest) to 1 (99.99): each nine takes the same width.
pub(super) fn percentile_position(percentile: f64) -> f64 {
    let slower_share = 1.0 - percentile / 100.0;
    (-slower_share.log10() / DECADES).clamp(0.0, 1.0)
}

/// The percentiles to draw for so many values: none that fewer than one value lies above.
pub(super) fn curve_percentiles(values: u64) -> Vec<f64> {
    if values == 0 {
        return Vec::new();
    }
    let decades = (values as f64).log10().min(DECADES);
    let steps = (decades * f64::from(STEPS_PER_DECADE)).floor() as u32;
    let nines = (0..=steps).map(|step| f64::from(step) / f64::from(STEPS_PER_DECADE));
    nines.map(|nines| 100.0 * (1.0 - 10f64.powf(-nines))).collect()
}

/// Round values from 0 to at least `max`, about five of them: steps of 1, 2 or 5 times a power of ten.
pub(super) fn ticks(max: f64) -> Vec<f64> {
    let max = if max.is_finite() && max > 0.0 { max } else { 1.0 };
    let rough = max / 5.0;
    let power = 10f64.powf(rough.log10().floor());
    let step =
        [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power).into_iter().find(|step| *step >= rough * 0.999);
    let step = step.unwrap_or(10.0 * power);
    let count = (max / step - 1e-9).ceil().max(1.0) as u32;
    (0..=count).map(|index| f64::from(index) * step).collect()
}

/// A tick's label, with as many decimals as the step needs.
pub(super) fn tick_label(value: f64, step: f64) -> String {
    if step >= 1.0 {
        return thousands(value.round() as u64);
    }
    let decimals = (-step.log10()).ceil().clamp(0.0, 6.0) as usize;
    format!("{value:.decimals$}")
}

/// A bar of the chart over time: requests per second from one instant to another.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Bar {
    /// Seconds from the start of the run.
    pub(super) from: f64,
    /// Seconds it covers.
    pub(super) width: f64,
    /// Requests that ended in it.
    pub(super) requests: Second,
}

impl Bar {
    /// Requests per second.
    pub(super) fn rate(&self, requests: u64) -> f64 {
        requests as f64 / self.width
    }
}

/// The seconds of a run as bars, not more than fit.
pub(super) fn bars(seconds: &[Second], elapsed_seconds: f64) -> Vec<Bar> {
    let seconds_per_bar = seconds.len().div_ceil(BARS_MAX).max(1);
    let mut bars: Vec<Bar> = Vec::new();
    for (index, chunk) in seconds.chunks(seconds_per_bar).enumerate() {
        let from = (index * seconds_per_bar) as f64;
        let width = (elapsed_seconds - from).clamp(0.001, chunk.len() as f64);
        let mut requests = Second::default();
        chunk.iter().for_each(|second| requests.add(second));
        match bars.last_mut() {
            Some(last) if width < LAST_SECOND_MIN => {
                last.width += width;
                last.requests.add(&requests);
            }
            Some(_) | None => bars.push(Bar { from, width, requests }),
        }
    }
    bars
}

/// A count with commas: `5,718`.
pub(crate) fn thousands(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Milliseconds with three significant digits: `0.42`, `3.17`, `14.4`, `144`, `1,440`.
pub(super) fn milliseconds(ms: f64) -> String {
    match ms {
        ms if ms < 9.995 => format!("{ms:.2}"),
        ms if ms < 99.95 => format!("{ms:.1}"),
        ms => thousands(ms.round() as u64),
    }
}

/// A ratio: `0.85x`, `12.3x`, `1,234x`.
pub(super) fn times(ratio: f64) -> String {
    format!("{}x", milliseconds(ratio))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_nine_takes_the_same_width() {
        let positions = [0.0, 90.0, 99.0, 99.9, 99.99].map(percentile_position);
        for (position, wanted) in positions.into_iter().zip([0.0, 0.25, 0.5, 0.75, 1.0]) {
            assert!((position - wanted).abs() < 1e-9, "{position} is not {wanted}");
        }
        assert_eq!(percentile_position(100.0), 1.0);
    }

    #[test]
    fn a_curve_ends_where_its_values_end() {
        assert!(curve_percentiles(0).is_empty());
        assert_eq!(curve_percentiles(1), [0.0]);
        let last = |values| *curve_percentiles(values).last().unwrap();
        assert!((last(100) - 99.0).abs() < 1e-9);
        assert!((last(1_000_000_000) - 99.99).abs() < 1e-9);
        assert!(curve_percentiles(5_000).is_sorted());
    }

    #[test]
    fn ticks_are_round_and_reach_the_maximum() {
        assert_eq!(ticks(10.0), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        assert_eq!(ticks(144.0), [0.0, 50.0, 100.0, 150.0]);
        assert_eq!(ticks(0.0), [0.0, 0.2, 0.4, 0.6000000000000001, 0.8, 1.0]);
        for max in [0.003, 0.7, 1.0, 3.3, 49.0, 51.0, 999.0, 12_345.6] {
            let ticks = ticks(max);
            assert!((2..=8).contains(&ticks.len()), "{max}: {ticks:?}");
            assert!(ticks[ticks.len() - 1] >= max * 0.999, "{max}: {ticks:?}");
        }
        assert_eq!(ticks(f64::NAN), ticks(1.0));
        assert_eq!(tick_label(0.4, 0.2), "0.4");
        assert_eq!(tick_label(20_000.0, 5_000.0), "20,000");
    }

    #[test]
    fn a_last_moment_is_drawn_with_the_second_before() {
        let second = Second { refused: 100, ..Second::default() };
        let tail = Second { refused: 3, ..Second::default() };
        let drawn = bars(&[second, second, tail], 2.01);
        assert_eq!(drawn.len(), 2);
        assert_eq!(drawn[1].requests.refused, 103);
        assert!((drawn[1].width - 1.01).abs() < 1e-9);
        assert_eq!(bars(&[second, second], 1.5)[1].rate(100), 200.0);
    }

    #[test]
    fn a_long_run_has_as_many_bars_as_fit() {
        let drawn = bars(&[Second { granted: 1, ..Second::default() }; 601], 601.0);
        assert!(drawn.len() <= BARS_MAX);
        assert_eq!(drawn.iter().map(|bar| bar.requests.granted).sum::<u64>(), 601);
    }

    #[test]
    fn figures_are_written_for_people() {
        assert_eq!(["0", "999", "5,718", "1,234,567"], [0, 999, 5_718, 1_234_567].map(thousands));
        assert_eq!(["0.42", "14.4", "144", "1,440"], [0.42, 14.4, 144.0, 1440.0].map(milliseconds));
        assert_eq!(times(12.34), "12.3x");
    }
}
