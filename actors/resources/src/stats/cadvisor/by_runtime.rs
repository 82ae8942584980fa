//! The runtime's own metrics of pods and containers, in the place of those from cgroups.
//!
//! Upstream: pkg/kubelet/metrics/collectors/cri_metrics.go (1.36). The families are asked for with each scrape, for the
//! runtime may have been exchanged.

use std::collections::{BTreeMap, BTreeSet};

use clients::runtime::{MetricDescriptor, MetricSample, RuntimeError};
use metrics::exposition::{Exposition, MetricKind, SampleTime};

use super::super::{StatsSource, SummaryProvider};
use super::write_error;

/// Families that are the machine's, whoever tells of them.
const OF_MACHINE: &str = "machine_";

impl SummaryProvider {
    /// The text where the runtime is to be asked and has metrics; none where cgroups are read.
    pub(super) async fn runtime_metrics(&self) -> Option<String> {
        match self.0.peers.source {
            StatsSource::Groups => return None,
            StatsSource::Runtime => {}
        }
        let mut text = Exposition::default();
        match self.ask_metrics().await {
            Ok(None) => return None,
            Ok(Some((descriptors, samples))) => write(&mut text, &descriptors, &samples),
            Err(error) => {
                tracing::warn!("no metrics of the runtime: {}", error.describe());
                write_error(&mut text, 1.0);
            }
        }
        self.0
            .description
            .write(&mut text, &SampleTime::new(kernel::wall()));
        Some(text.into_text())
    }

    /// None of a runtime that makes no metrics.
    async fn ask_metrics(
        &self,
    ) -> Result<Option<(Vec<MetricDescriptor>, Vec<MetricSample>)>, RuntimeError> {
        let runtime = &self.0.peers.runtime;
        let descriptors = match runtime.metric_descriptors().await {
            Ok(descriptors) => descriptors,
            Err(error) if error.is_unimplemented() => return Ok(None),
            Err(error) => return Err(error),
        };
        let samples = runtime.container_metrics().await?;
        Ok(Some((descriptors, samples)))
    }
}

/// Writes each family with its samples; what does not fit its family is left out, and so is a series that was there.
fn write(text: &mut Exposition, descriptors: &[MetricDescriptor], samples: &[MetricSample]) {
    let mut by_name: BTreeMap<&str, Vec<&MetricSample>> = BTreeMap::new();
    for sample in samples {
        by_name.entry(&sample.name).or_default().push(sample);
    }
    let mut written = BTreeSet::new();
    for family in descriptors.iter().filter(|family| is_sound(family)) {
        let (true, Some(samples)) = (
            written.insert(family.name.as_str()),
            by_name.get(family.name.as_str()),
        ) else {
            continue;
        };
        let kind = samples
            .first()
            .map_or(MetricKind::Gauge, |first| first.kind);
        text.foreign_family(kind, &family.name, &family.help);
        let mut series = BTreeSet::new();
        for sample in samples {
            let values = &sample.label_values;
            let fits = sample.kind == kind && values.len() == family.label_keys.len();
            if !fits || !series.insert(values) {
                continue;
            }
            let keys = family.label_keys.iter().map(String::as_str);
            let labels: Vec<(&str, &str)> = keys.zip(values.iter().map(String::as_str)).collect();
            text.sample_at(&labels, sample.value as f64, sample.at);
        }
    }
}

/// Whether names are such as Prometheus reads, and none comes twice.
fn is_sound(family: &MetricDescriptor) -> bool {
    let keys: BTreeSet<&String> = family.label_keys.iter().collect();
    let are_names = family.label_keys.iter().all(|key| is_name(key, "_"));
    let is_foreign = !family.name.starts_with(OF_MACHINE);
    is_foreign && is_name(&family.name, "_:") && are_names && keys.len() == family.label_keys.len()
}

fn is_name(text: &str, marks: &str) -> bool {
    let is_sound = |letter: char| letter.is_ascii_alphanumeric() || marks.contains(letter);
    let begins_well = !text.starts_with(|letter: char| letter.is_ascii_digit());
    !text.is_empty() && begins_well && text.chars().all(is_sound)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn family(name: &str, keys: &[&str]) -> MetricDescriptor {
        MetricDescriptor {
            name: name.to_owned(),
            help: "Things.".to_owned(),
            label_keys: keys.iter().map(|key| (*key).to_owned()).collect(),
        }
    }

    fn gauge(name: &str, values: &[&str], value: u64) -> MetricSample {
        MetricSample {
            name: name.to_owned(),
            kind: MetricKind::Gauge,
            label_values: values.iter().map(|value| (*value).to_owned()).collect(),
            value,
            at: None,
        }
    }

    /// Upstream's criMetricToProm, and a runtime that lies: one bad metric costs no other.
    #[test]
    fn only_what_fits_its_family_is_told_and_each_series_once() {
        let descriptors = [
            family("things", &["id"]),
            family("things", &["id"]),
            family("bad name", &[]),
            family("machine_memory_bytes", &[]),
            family("twice", &["id", "id"]),
            family("no_samples", &[]),
            family("total", &[]),
        ];
        let counter = MetricSample {
            kind: MetricKind::Counter,
            at: Some(std::time::SystemTime::UNIX_EPOCH),
            ..gauge("total", &[], 7)
        };
        let samples = [
            gauge("things", &["a\"\n"], 1),
            counter,
            gauge("things", &["b"], u64::MAX),
            gauge("things", &["b"], 3),
            gauge("things", &[], 4),
            gauge("unknown", &[], 5),
            gauge("bad name", &[], 6),
            gauge("machine_memory_bytes", &[], 6),
            gauge("twice", &["a", "b"], 6),
            gauge("total", &[], 8),
        ];
        let mut text = Exposition::default();
        write(&mut text, &descriptors, &samples);
        let expected = "# HELP things Things.\n# TYPE things gauge\nthings{id=\"a\\\"\\n\"} 1\nthings{id=\"b\"} 18446744073709552000\n# HELP total Things.\n# TYPE total counter\ntotal 7 0\n";
        assert_eq!(text.into_text(), expected);
    }
}
