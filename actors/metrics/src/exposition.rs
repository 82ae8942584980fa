//! Metrics that are made when they are scraped, written in the text format 0.0.4.

use std::time::{Duration, SystemTime};

/// The type of a metric family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    Counter,
    Gauge,
}

impl MetricKind {
    fn as_str(self) -> &'static str {
        match self {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
        }
    }
}

/// A text of metrics, written family by family.
#[derive(Debug, Default)]
pub struct Exposition {
    text: String,
    /// The current family, and whether its head is written.
    family: MetricFamily,
}

#[derive(Debug, Default)]
struct MetricFamily {
    name: &'static str,
    head: String,
}

impl Exposition {
    /// Begins a family. Its head is written with its first sample: a family without samples does not show.
    pub fn family(&mut self, kind: MetricKind, name: &'static str, help: &str) {
        let help = crate::registry::help(name, help);
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
        let head = format!("# HELP {name} {help}\n# TYPE {name} {}\n", kind.as_str());
        self.family = MetricFamily { name, head };
    }

    /// Adds a sample to the family.
    pub fn sample(&mut self, labels: &[(&str, &str)], value: f64) {
        self.sample_at(labels, value, None);
    }

    /// Adds a sample with the time at which it was taken; none is the time of the scrape.
    pub fn sample_at(&mut self, labels: &[(&str, &str)], value: f64, at: Option<SystemTime>) {
        let MetricFamily { name, head } = &mut self.family;
        self.text.push_str(&std::mem::take(head));
        self.text.push_str(name);
        write_labels(&mut self.text, labels);
        self.text.push(' ');
        write_value(&mut self.text, value);
        if let Some(at) = at {
            let since = at.duration_since(SystemTime::UNIX_EPOCH);
            let milliseconds = since.unwrap_or(Duration::ZERO).as_millis();
            self.text.push(' ');
            self.text.push_str(&milliseconds.to_string());
        }
        self.text.push('\n');
    }

    /// Returns the whole text.
    pub fn into_text(self) -> String {
        self.text
    }
}

fn write_labels(text: &mut String, labels: &[(&str, &str)]) {
    let mut before = '{';
    for (name, value) in labels {
        text.push(before);
        text.push_str(name);
        text.push_str("=\"");
        for letter in value.chars() {
            match letter {
                '\\' => text.push_str("\\\\"),
                '"' => text.push_str("\\\""),
                '\n' => text.push_str("\\n"),
                letter => text.push(letter),
            }
        }
        text.push('"');
        before = ',';
    }
    if !labels.is_empty() {
        text.push('}');
    }
}

fn write_value(text: &mut String, value: f64) {
    if value.is_infinite() {
        text.push_str(if value > 0.0 { "+Inf" } else { "-Inf" });
    } else {
        text.push_str(&value.to_string());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_shows_with_its_samples_and_hostile_labels_stay_labels() {
        let mut exposition = Exposition::default();
        exposition.family(MetricKind::Gauge, "nothing", "Never seen.");
        exposition.family(MetricKind::Counter, "oxlet_things_total", "Things \\ done.");
        exposition.sample(&[], 1.5);
        let at = SystemTime::UNIX_EPOCH + Duration::from_millis(1234);
        let labels = [("a", "x\"} 9\n\\"), ("b", "")];
        exposition.sample_at(&labels, f64::INFINITY, Some(at));
        let expected = "# HELP oxlet_things_total Things \\\\ done.\n# TYPE oxlet_things_total counter\noxlet_things_total 1.5\noxlet_things_total{a=\"x\\\"} 9\\n\\\\\",b=\"\"} +Inf 1234\n";
        assert_eq!(exposition.into_text(), expected);
    }
}
