//! The registry of all metrics.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use prometheus::core::Collector;
use prometheus::{
    Gauge, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, Opts,
    Registry, TextEncoder,
};

/// The default buckets of upstream's histograms in seconds.
pub(crate) const SECONDS: [f64; 11] = *prometheus::DEFAULT_BUCKETS;

/// Prefixes of metrics that are not upstream's.
const OTHERS: [&str; 2] = ["oxlet_", "process_"];

static REGISTRY: LazyLock<Registry> = LazyLock::new(Registry::new);

/// Registered metrics by stability level, in this registry or in one of their own.
static REGISTERED: [(&str, AtomicU64); 4] = [
    ("ALPHA", AtomicU64::new(0)),
    ("BETA", AtomicU64::new(0)),
    ("INTERNAL", AtomicU64::new(0)),
    ("STABLE", AtomicU64::new(0)),
];

/// Returns every metric of this registry, in the text format 0.0.4.
pub(crate) fn text() -> String {
    encode(&REGISTRY)
}

/// Returns the numbers of registered metrics by stability level.
pub(crate) fn registered() -> impl Iterator<Item = (&'static str, u64)> {
    let load = |(stability, count): &'static (&'static str, AtomicU64)| {
        (*stability, count.load(Ordering::Relaxed))
    };
    REGISTERED.iter().map(load)
}

/// Returns a registry's metrics in the text format.
pub(crate) fn encode(registry: &Registry) -> String {
    let text = TextEncoder::new().encode_to_string(&registry.gather());
    with_bounds(&text.unwrap_or_default())
}

/// Bucket bounds are labels, and so their spelling is part of a series' name: it is Go's.
fn with_bounds(text: &str) -> String {
    const LABEL: &str = "le=\"";
    let mut spelt = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(LABEL) {
        let (before, after) = rest.split_at(at + LABEL.len());
        spelt.push_str(before);
        rest = after;
        let is_label = before[..at].ends_with(['{', ',']);
        if let Some((bound, _)) = after.split_once('"').filter(|_| is_label)
            && let Ok(number) = bound.parse::<f64>()
            && number.is_finite()
        {
            spelt.push_str(&spelling(number));
            rest = &after[bound.len()..];
        }
    }
    spelt.push_str(rest);
    spelt
}

/// How Go spells a number: very small and large ones with their exponents.
fn spelling(number: f64) -> String {
    let scientific = format!("{number:e}");
    let Some((digits, exponent)) = scientific.split_once('e') else {
        return scientific;
    };
    match exponent.parse::<i32>() {
        Ok(exponent @ (..-4 | 6..)) if number != 0.0 => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", exponent.abs())
        }
        Ok(_) | Err(_) => number.to_string(),
    }
}

pub(crate) fn counter(name: &str, text: &str) -> IntCounter {
    let options = Opts::new(name, help(name, text));
    enter(IntCounter::with_opts(options).expect("names are literals"))
}

pub(crate) fn counters(name: &str, text: &str, labels: &[&str]) -> IntCounterVec {
    let options = Opts::new(name, help(name, text));
    enter(IntCounterVec::new(options, labels).expect("names and labels are literals"))
}

pub(crate) fn gauge(name: &str, text: &str) -> Gauge {
    let options = Opts::new(name, help(name, text));
    enter(Gauge::with_opts(options).expect("names are literals"))
}

pub(crate) fn gauges(name: &str, text: &str, labels: &[&str]) -> GaugeVec {
    let options = Opts::new(name, help(name, text));
    enter(GaugeVec::new(options, labels).expect("names and labels are literals"))
}

pub(crate) fn histogram(name: &str, text: &str, buckets: &[f64]) -> Histogram {
    let options = HistogramOpts::new(name, help(name, text)).buckets(buckets.to_vec());
    note_buckets(name, buckets);
    enter(Histogram::with_opts(options).expect("names are literals"))
}

pub(crate) fn histograms(name: &str, text: &str, labels: &[&str], buckets: &[f64]) -> HistogramVec {
    let options = HistogramOpts::new(name, help(name, text)).buckets(buckets.to_vec());
    note_buckets(name, buckets);
    enter(HistogramVec::new(options, labels).expect("names and labels are literals"))
}

/// Prefixes the help with the metric's stability, as upstream does; most are ALPHA, others have it in `text` already.
pub(crate) fn help(name: &str, text: &str) -> String {
    match text.starts_with('[') || OTHERS.iter().any(|other| name.starts_with(other)) {
        true => text.to_owned(),
        false => format!("[ALPHA] {text}"),
    }
}

fn enter<C: Collector + Clone + 'static>(metric: C) -> C {
    enter_in(&REGISTRY, metric)
}

/// Counts a metric by the stability that its help begins with.
fn count_stability(help: &str) {
    let stability = help.strip_prefix('[').and_then(|help| help.split_once(']'));
    let known = |word: &str| REGISTERED.iter().find(|(known, _)| *known == word);
    if let Some((_, count)) = stability.and_then(|(word, _)| known(word)) {
        count.fetch_add(1, Ordering::Relaxed);
    }
}

/// Registers a metric in a registry of its own.
pub(crate) fn enter_in<C: Collector + Clone + 'static>(registry: &Registry, metric: C) -> C {
    #[cfg(test)]
    known::note(&metric);
    for description in metric.desc() {
        count_stability(&description.help);
    }
    registry
        .register(Box::new(metric.clone()))
        .expect("each metric is made once");
    metric
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Go's TestFtoa, with the format `g` and the fewest digits.
    #[test]
    fn bounds_are_spelt_as_go_spells_them() {
        let cases = [
            (0.0, "0"),
            (1.0, "1"),
            (0.005, "0.005"),
            (0.0001, "0.0001"),
            (9.999_999_999_999_999e-5, "9.999999999999999e-05"),
            (1e-8, "1e-08"),
            (262_144.0, "262144"),
            (1_048_576.0, "1.048576e+06"),
            (124_416_000.0, "1.24416e+08"),
            (745.058_059_692_382_8, "745.0580596923828"),
        ];
        for (number, spelt) in cases {
            assert_eq!(spelling(number), spelt);
        }
        let text = "a_bucket{le=\"1048576\"} 1\na_bucket{x=\"y\",le=\"+Inf\"} 1000000\nb{role=\"1000000\",z=\",le=\\\"1000000\"} 1000000\n";
        let expected = text.replace("le=\"1048576\"", "le=\"1.048576e+06\"");
        assert_eq!(with_bounds(text), expected);
    }
}

#[cfg(not(test))]
fn note_buckets(_name: &str, _buckets: &[f64]) {}

#[cfg(test)]
use known::note_buckets;

/// The registered metrics, for comparison with upstream's reference.
#[cfg(test)]
pub(crate) mod known {
    use std::collections::BTreeMap;
    use std::sync::Mutex;

    use prometheus::core::Collector;

    /// By name: the labels in their order.
    pub(crate) static LABELS: Mutex<BTreeMap<String, Vec<String>>> = Mutex::new(BTreeMap::new());
    /// By name: the type and the help.
    pub(crate) static HEADS: Mutex<BTreeMap<String, (&'static str, String)>> =
        Mutex::new(BTreeMap::new());
    pub(crate) static BUCKETS: Mutex<BTreeMap<String, Vec<f64>>> = Mutex::new(BTreeMap::new());

    /// The type of a metric, which its collector tells only once it has a sample.
    fn kind<C>() -> &'static str {
        let name = std::any::type_name::<C>();
        let kinds = [
            ("Counter", "counter"),
            ("Gauge", "gauge"),
            ("Histogram", "histogram"),
        ];
        let found = kinds.iter().find(|(word, _)| name.contains(word));
        found.expect("a metric of a known type").1
    }

    pub(crate) fn note<C: Collector>(metric: &C) {
        for description in metric.desc() {
            let head = (kind::<C>(), description.help.clone());
            let name = description.fq_name.clone();
            HEADS.lock().unwrap().insert(name, head);
            let labels = description.variable_labels.clone();
            let name = description.fq_name.clone();
            LABELS.lock().unwrap().insert(name, labels);
        }
    }

    pub(crate) fn note_buckets(name: &str, buckets: &[f64]) {
        let buckets = buckets.to_vec();
        BUCKETS.lock().unwrap().insert(name.to_owned(), buckets);
    }
}
