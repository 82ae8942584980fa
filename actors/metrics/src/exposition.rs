//! Metrics that are made when they are scraped, written in the text format 0.0.4.

use std::fmt::Write;
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

/// Labels that are written once and shared by many samples.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSet(String);

impl LabelSet {
    pub fn new(labels: &[(&str, &str)]) -> Self {
        let mut text = String::new();
        write_labels(&mut text, false, labels);
        // The bracket closes after a sample's own labels.
        text.pop();
        LabelSet(text)
    }
}

/// When samples were taken, written once and shared by many; by default the time of the scrape, which is not written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SampleTime(String);

impl SampleTime {
    pub fn new(at: SystemTime) -> Self {
        let since = at.duration_since(SystemTime::UNIX_EPOCH);
        let milliseconds = since.unwrap_or(Duration::ZERO).as_millis();
        SampleTime(format!(" {milliseconds}"))
    }
}

#[derive(Debug, Default)]
struct MetricFamily {
    name: String,
    head: String,
}

impl Exposition {
    /// Begins a family. Its head is written with its first sample: a family without samples does not show.
    pub fn family(&mut self, kind: MetricKind, name: &'static str, help: &str) {
        let help = crate::registry::help(name, help);
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
        let head = format!("# HELP {name} {help}\n# TYPE {name} {}\n", kind.as_str());
        let name = name.to_owned();
        self.family = MetricFamily { name, head };
    }

    /// Begins a family that is not the kubelet's own, as cAdvisor's: its help tells no stability.
    pub fn foreign_family(&mut self, kind: MetricKind, name: &str, help: &str) {
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
        let head = format!("# HELP {name} {help}\n# TYPE {name} {}\n", kind.as_str());
        let name = name.to_owned();
        self.family = MetricFamily { name, head };
    }

    /// Adds a sample to the family.
    pub fn sample(&mut self, labels: &[(&str, &str)], value: f64) {
        self.sample_at(labels, value, None);
    }

    /// Adds a sample with the time at which it was taken; none is the time of the scrape.
    pub fn sample_at(&mut self, labels: &[(&str, &str)], value: f64, at: Option<SystemTime>) {
        let at = at.map(SampleTime::new).unwrap_or_default();
        self.sample_of(&LabelSet::default(), labels, value, &at);
    }

    /// Adds a sample with labels and a time that many samples share, and with some labels of its own.
    pub fn sample_of(
        &mut self,
        shared: &LabelSet,
        labels: &[(&str, &str)],
        value: f64,
        at: &SampleTime,
    ) {
        let MetricFamily { name, head } = &mut self.family;
        self.text.push_str(&std::mem::take(head));
        self.text.push_str(name);
        self.text.push_str(&shared.0);
        write_labels(&mut self.text, !shared.0.is_empty(), labels);
        self.text.push(' ');
        write_value(&mut self.text, value);
        self.text.push_str(&at.0);
        self.text.push('\n');
    }

    /// Returns the whole text.
    pub fn into_text(self) -> String {
        self.text
    }
}

/// Writes labels, after others where the bracket is open.
fn write_labels(text: &mut String, open: bool, labels: &[(&str, &str)]) {
    let mut before = if open { ',' } else { '{' };
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
    if open || !labels.is_empty() {
        text.push('}');
    }
}

fn write_value(text: &mut String, value: f64) {
    if value == 0.0 {
        // The most frequent one.
        text.push('0');
    } else if value.is_infinite() {
        text.push_str(if value > 0.0 { "+Inf" } else { "-Inf" });
    } else {
        write!(text, "{value}").expect("a string takes all");
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

    #[test]
    fn numbers_are_written_in_full() {
        let mut exposition = Exposition::default();
        exposition.foreign_family(MetricKind::Gauge, "n", "N.");
        for value in [0.0, -1.0, 4096.0, 0.25, 9_007_199_254_740_993.0, 1e19, 1e-7] {
            exposition.sample(&[], value);
        }
        let text = exposition.into_text();
        let numbers: Vec<&str> = text.lines().skip(2).map(|line| &line[2..]).collect();
        let expected = [
            "0",
            "-1",
            "4096",
            "0.25",
            "9007199254740992",
            "10000000000000000000",
            "0.0000001",
        ];
        assert_eq!(numbers, expected);
    }

    #[test]
    fn labels_that_are_shared_come_before_a_samples_own_and_the_time_after_its_value() {
        let mut exposition = Exposition::default();
        exposition.foreign_family(MetricKind::Gauge, "container_things", "Things.");
        let shared = LabelSet::new(&[("id", "/\""), ("pod", "")]);
        let at = SampleTime::new(SystemTime::UNIX_EPOCH + Duration::from_millis(1234));
        exposition.sample_of(&shared, &[], 1.0, &SampleTime::default());
        exposition.sample_of(&shared, &[("device", "d")], 2.0, &at);
        let expected = "# HELP container_things Things.\n# TYPE container_things gauge\ncontainer_things{id=\"/\\\"\",pod=\"\"} 1\ncontainer_things{id=\"/\\\"\",pod=\"\",device=\"d\"} 2 1234\n";
        assert_eq!(exposition.into_text(), expected);
    }
}
