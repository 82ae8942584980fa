//! The families of one group: names, help texts, types and labels are those of cAdvisor's metrics/prometheus.go in the
//! version that the kubelet 1.36 has, as far as the kubelet includes them.

pub(super) mod cpu;
pub(super) mod disk;
pub(super) mod memory;
pub(super) mod network;
pub(super) mod spec;

use host::block_devices::{BlockDevices, MountedFileSystem};
use logic_resources::group_stats::{GroupCpu, GroupStats};
use metrics::exposition::MetricKind;

/// A group and what names its devices.
#[derive(Debug, Clone, Copy)]
pub(super) struct GroupRow<'a> {
    pub(super) group: &'a GroupStats,
    pub(super) devices: &'a BlockDevices,
    /// Of the machine alone.
    pub(super) file_systems: &'a [MountedFileSystem],
}

/// Takes the labels and the value of each sample.
pub(super) type Sink<'a> = &'a mut dyn FnMut(&[(&str, &str)], f64);

/// One family of samples of groups.
pub(super) struct Family {
    pub(super) kind: MetricKind,
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    pub(super) samples: fn(GroupRow<'_>, Sink<'_>),
}

const fn family(
    kind: MetricKind,
    (name, help): (&'static str, &'static str),
    samples: fn(GroupRow<'_>, Sink<'_>),
) -> Family {
    Family {
        kind,
        name,
        help,
        samples,
    }
}

/// Nanoseconds as seconds.
fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}

fn cpu(row: GroupRow<'_>, to: Sink<'_>, value: fn(&GroupCpu) -> f64) {
    to(&[], row.group.cpu.as_ref().map_or(0.0, value));
}

/// A sample of groups whose CPU time is limited.
fn quota(row: GroupRow<'_>, to: Sink<'_>, value: fn(&GroupCpu) -> f64) {
    if let Some(cpu) = row.group.cpu.as_ref().filter(|cpu| cpu.quota != 0) {
        to(&[], value(cpu));
    }
}
