//! The table of results, in Markdown.

use std::fmt;

/// Rows of results.
#[derive(Debug, Default)]
pub(crate) struct Table {
    rows: Vec<Row>,
}

#[derive(Debug)]
struct Row {
    work: String,
    ours: String,
    peer: String,
    result: String,
    aim: String,
    reached: bool,
}

/// What a result is compared with.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Aim {
    AtLeast(f64),
    AtMost(f64),
}

impl Table {
    /// Adds a ratio of ours to a peer's.
    pub(crate) fn ratio(&mut self, work: &str, ours: String, peer: String, ratio: f64, aim: Aim) {
        let (reached, aim) = aim.judge(ratio, "");
        self.add(Row { work: work.to_owned(), ours, peer, result: format!("{ratio:.3}"), aim, reached });
    }

    /// Adds a figure that stands for itself.
    pub(crate) fn figure(&mut self, work: &str, figure: f64, unit: &str, aim: Aim) {
        let (reached, aim) = aim.judge(figure, unit);
        let ours = format!("{figure:.1} {unit}");
        self.add(Row {
            work: work.to_owned(),
            ours,
            peer: "-".to_owned(),
            result: "-".to_owned(),
            aim,
            reached,
        });
    }

    fn add(&mut self, row: Row) {
        eprintln!("{row}");
        self.rows.push(row);
    }
}

impl Aim {
    fn judge(self, value: f64, unit: &str) -> (bool, String) {
        match self {
            Aim::AtLeast(bound) => (value >= bound, format!(">= {bound} {unit}").trim_end().to_owned()),
            Aim::AtMost(bound) => (value <= bound, format!("<= {bound} {unit}").trim_end().to_owned()),
        }
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = if self.reached { "reached" } else { "missed" };
        write!(
            f,
            "| {} | {} | {} | {} | {} | {verdict} |",
            self.work, self.ours, self.peer, self.result, self.aim
        )
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| work | Leasehold | peer | ratio | aim | |")?;
        writeln!(f, "|---|---|---|---|---|---|")?;
        self.rows.iter().try_for_each(|row| writeln!(f, "{row}"))
    }
}
