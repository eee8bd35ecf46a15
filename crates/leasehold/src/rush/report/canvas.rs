//! Shapes and text as SVG. All text is escaped here, and nowhere else.

use std::fmt::Write as _;

/// Where a text's position is.
#[derive(Debug, Clone, Copy)]
pub(super) enum Anchor {
    /// At its left end.
    Start,
    /// In its middle.
    Middle,
    /// At its right end.
    End,
}

/// A point on the picture, in pixels from its top left corner.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Point {
    /// To the right.
    pub(super) x: f64,
    /// Down.
    pub(super) y: f64,
}

/// A rectangle on the picture.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Area {
    /// Its left edge.
    pub(super) left: f64,
    /// Its upper edge.
    pub(super) top: f64,
    /// How wide it is.
    pub(super) width: f64,
    /// How high it is.
    pub(super) height: f64,
}

/// A picture being drawn. Classes name the colours and fonts that the page's style sheet defines.
#[derive(Debug, Default)]
pub(super) struct Canvas {
    elements: String,
}

/// A point.
pub(super) fn at(x: f64, y: f64) -> Point {
    Point { x, y }
}

impl Area {
    /// The right edge.
    pub(super) fn right(&self) -> f64 {
        self.left + self.width
    }

    /// The lower edge.
    pub(super) fn bottom(&self) -> f64 {
        self.top + self.height
    }
}

impl Canvas {
    /// A line of text with its baseline at `point`.
    pub(super) fn text(&mut self, point: Point, anchor: Anchor, class: &str, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let Point { x, y } = point;
        let text = escape(text);
        self.element(format_args!(
            r#"<text x="{x:.1}" y="{y:.1}" text-anchor="{anchor}" class="{class}">{text}</text>"#
        ));
    }

    /// A filled rectangle with rounded corners.
    pub(super) fn rectangle(&mut self, area: Area, radius: f64, class: &str) {
        let Area { left, top, width, height } = area;
        self.element(format_args!(
            r#"<rect x="{left:.2}" y="{top:.2}" width="{width:.2}" height="{height:.2}" rx="{radius}" class="{class}"/>"#
        ));
    }

    /// A straight line.
    pub(super) fn line(&mut self, from: Point, to: Point, class: &str) {
        self.element(format_args!(
            r#"<line x1="{:.1}" y1="{:.1}" x2="{:.1}" y2="{:.1}" class="{class}"/>"#,
            from.x, from.y, to.x, to.y
        ));
    }

    /// A line through several points.
    pub(super) fn path(&mut self, points: &[Point], class: &str) {
        let mut list = String::new();
        for point in points {
            write!(list, "{:.1},{:.1} ", point.x, point.y).expect("a String takes all that is written");
        }
        self.element(format_args!(r#"<polyline points="{}" class="{class}"/>"#, list.trim_end()));
    }

    /// Everything drawn so far.
    pub(super) fn into_elements(self) -> String {
        self.elements
    }

    fn element(&mut self, element: std::fmt::Arguments<'_>) {
        writeln!(self.elements, "{element}").expect("a String takes all that is written");
    }
}

/// The text with all that means something in XML replaced, and what XML cannot hold left out.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            letter if letter.is_control() || matches!(letter, '\u{fffe}' | '\u{ffff}') => escaped.push(' '),
            letter => escaped.push(letter),
        }
    }
    escaped
}

/// The text cut to so many letters, with a mark where it was cut.
pub(super) fn clipped(text: &str, letters_max: usize) -> String {
    if text.chars().count() <= letters_max {
        return text.to_owned();
    }
    let kept: String = text.chars().take(letters_max.saturating_sub(1)).collect();
    format!("{}…", kept.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_leave_its_place() {
        let mut canvas = Canvas::default();
        canvas.text(at(1.0, 2.0), Anchor::Start, "ink", "</text><script>\"a\" & 'b'\u{0}");
        let drawn = canvas.into_elements();
        assert!(
            drawn.contains("&lt;/text&gt;&lt;script&gt;&quot;a&quot; &amp; &#39;b&#39; </text>"),
            "{drawn}"
        );
    }

    #[test]
    fn long_text_is_cut() {
        assert_eq!(clipped("short", 5), "short");
        assert_eq!(clipped("too long", 5), "too…");
        assert_eq!(clipped("größer", 4), "grö…");
    }
}
