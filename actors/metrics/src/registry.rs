//! Where every metric is entered, and how all are read.

use std::sync::LazyLock;

use prometheus::core::Collector;
use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, Opts, Registry, TextEncoder};

static REGISTRY: LazyLock<Registry> = LazyLock::new(Registry::new);

/// Returns every metric in the text format 0.0.4.
pub fn text() -> String {
    crate::rest_client::declare();
    TextEncoder::new()
        .encode_to_string(&REGISTRY.gather())
        .unwrap_or_default()
}

pub(crate) fn counters(name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
    enter(IntCounterVec::new(Opts::new(name, help), labels).expect("names and labels are literals"))
}

pub(crate) fn histograms(name: &str, help: &str, labels: &[&str], buckets: &[f64]) -> HistogramVec {
    let options = HistogramOpts::new(name, help).buckets(buckets.to_vec());
    enter(HistogramVec::new(options, labels).expect("names and labels are literals"))
}

fn enter<C: Collector + Clone + 'static>(metric: C) -> C {
    REGISTRY
        .register(Box::new(metric.clone()))
        .expect("each metric is made once");
    metric
}
