//! The families of the machine: cAdvisor's metrics/prometheus_machine.go in the version that the kubelet 1.36 has, as
//! far as the kubelet includes them, without memory modules.

use std::path::Path;

use host::meminfo::MemInfo;
use host::{cpus, identity};
use metrics::exposition::{Exposition, LabelSet, MetricKind, SampleTime};

/// Facts of the machine that stay the same while it runs.
#[derive(Debug, Clone, Default, PartialEq)]
pub(in crate::stats) struct MachineDescription {
    kernel_version: String,
    os_image: String,
    machine_id: String,
    system_uuid: String,
    boot_id: String,
    cores: usize,
    physical_cores: usize,
    sockets: usize,
    /// Bytes.
    pub(super) memory: u64,
    /// Bytes.
    pub(super) swap: u64,
}

impl MachineDescription {
    /// Reads below `root`, which is `/`.
    pub(in crate::stats) fn read(root: &Path) -> Self {
        let memory = MemInfo::read(&root.join("proc")).unwrap_or_default();
        let amount = |line: &str| memory.get(line).unwrap_or(0);
        let identity = identity::read(root, amount("SwapTotal"));
        let online = cpus::online(&root.join("sys"));
        let online = online.and_then(|list| cpus::count(&list)).unwrap_or(0);
        MachineDescription {
            kernel_version: identity.kernel_version,
            os_image: identity.os_image,
            machine_id: identity.machine_id,
            system_uuid: identity.system_uuid,
            boot_id: identity.boot_id,
            cores: usize::try_from(online).unwrap_or(0),
            physical_cores: cpus::distinct(root, "core id", "core_id"),
            sockets: cpus::distinct(root, "physical id", "physical_package_id"),
            memory: amount("MemTotal"),
            swap: amount("SwapTotal"),
        }
    }

    /// Writes the machine's families, sampled at a time.
    pub(super) fn write(&self, text: &mut Exposition, at: &SampleTime) {
        let ids = LabelSet::new(&[
            ("boot_id", &self.boot_id),
            ("machine_id", &self.machine_id),
            ("system_uuid", &self.system_uuid),
        ]);
        let one = |text: &mut Exposition, name: &str, help: &str, value: f64| {
            text.foreign_family(MetricKind::Gauge, name, help);
            text.sample_of(&ids, &[], value, at);
        };
        let count = |number: usize| number as f64;
        one(text, "machine_cpu_books", "Number of CPU books.", 0.0);
        one(
            text,
            "machine_cpu_cores",
            "Number of logical CPU cores.",
            count(self.cores),
        );
        one(text, "machine_cpu_drawers", "Number of CPU drawers.", 0.0);
        one(
            text,
            "machine_cpu_physical_cores",
            "Number of physical CPU cores.",
            count(self.physical_cores),
        );
        one(
            text,
            "machine_cpu_sockets",
            "Number of CPU sockets.",
            count(self.sockets),
        );
        one(
            text,
            "machine_memory_bytes",
            "Amount of memory installed on the machine.",
            self.memory as f64,
        );
        one(
            text,
            "machine_nvm_avg_power_budget_watts",
            "NVM power budget.",
            0.0,
        );
        one(
            text,
            "machine_swap_bytes",
            "Amount of swap memory available on the machine.",
            self.swap as f64,
        );
        let help = "NVM capacity value labeled by NVM mode (memory mode or app direct mode).";
        text.foreign_family(MetricKind::Gauge, "machine_nvm_capacity", help);
        for mode in ["app_direct_mode", "memory_mode"] {
            text.sample_of(&ids, &[("mode", mode)], 0.0, at);
        }
        let help = "1 if there was an error while getting machine metrics, 0 otherwise.";
        text.foreign_family(MetricKind::Gauge, "machine_scrape_error", help);
        let known = self.cores > 0 && self.memory > 0;
        text.sample(&[], if known { 0.0 } else { 1.0 });
    }

    /// Writes the versions of the machine's kernel and system.
    pub(super) fn write_versions(&self, text: &mut Exposition) {
        let help = "A metric with a constant '1' value labeled by kernel version, OS version, docker version, cadvisor version & cadvisor revision.";
        text.foreign_family(MetricKind::Gauge, "cadvisor_version_info", help);
        let labels = [
            ("cadvisorRevision", ""),
            ("cadvisorVersion", ""),
            ("dockerVersion", ""),
            ("kernelVersion", self.kernel_version.as_str()),
            ("osVersion", &self.os_image),
        ];
        text.sample(&labels, 1.0);
    }
}
