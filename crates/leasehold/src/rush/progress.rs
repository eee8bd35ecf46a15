//! The bar on the terminal while the run goes on.

use std::io::IsTerminal;
use std::sync::atomic::Ordering;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::time::Instant;

use super::report::thousands;
use super::user::Plan;

/// How often the bar is drawn.
const REDRAW: Duration = Duration::from_millis(200);

/// Draws the bar until it is dropped. Where standard error is no terminal, it only waits.
pub(crate) async fn watch(plan: &Plan, duration: Duration) {
    if !std::io::stderr().is_terminal() {
        return std::future::pending().await;
    }
    let bar = ProgressBar::with_draw_target(Some(duration.as_millis() as u64), ProgressDrawTarget::stderr());
    let style =
        ProgressStyle::with_template("{wide_bar:.cyan/dim} {msg}").expect("the template is a constant");
    bar.set_style(style.progress_chars("━╸─"));
    let _cleared = Cleared(&bar);
    let mut ticks = tokio::time::interval_at(Instant::now() + REDRAW, REDRAW);
    let mut last = (Instant::now(), 0);
    loop {
        let now = ticks.tick().await;
        let requests = plan.live.requests.load(Ordering::Relaxed);
        let passed = (now - last.0).as_secs_f64().max(0.001);
        let rate = (requests - last.1) as f64 / passed;
        last = (now, requests);
        let sold = plan.live.sold.load(Ordering::Relaxed);
        let rate = thousands(rate as u64);
        bar.set_message(format!("{} requests  {rate}/s  {} sold", thousands(requests), thousands(sold)));
        bar.set_position((now - plan.pace.start()).as_millis() as u64);
    }
}

/// Takes the bar away when the run is over, so that the report stands alone.
struct Cleared<'a>(&'a ProgressBar);

impl Drop for Cleared<'_> {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
