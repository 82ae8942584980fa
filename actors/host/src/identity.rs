//! Identity of the machine and its operating system, read once at the start.
//!
//! Upstream: cAdvisor's machine and version, with the kubelet's default `--machine-id-file` and `--boot-id-file` (1.36).

use std::fs;
use std::path::Path;

use logic_node::node_status::{NodeHostFacts, os_image};

/// Files with the machine's UUID, in order of precedence.
const SYSTEM_UUID: [&str; 4] = [
    "sys/class/dmi/id/product_uuid",
    "proc/device-tree/system-id",
    "proc/device-tree/vm,uuid",
    "etc/machine-id",
];

/// Reads below `root`, which is `/`; `swap` is in bytes. A fact that the machine does not report is empty.
pub fn read(root: &Path, swap: u64) -> NodeHostFacts {
    let text = |names: &[&str]| {
        let mut texts = names.iter().map(|name| line(&root.join(name)));
        texts.find(|text| !text.is_empty()).unwrap_or_default()
    };
    let release = ["etc/os-release", "usr/lib/os-release"];
    let mut releases = release
        .iter()
        .filter_map(|name| fs::read_to_string(root.join(name)).ok());
    NodeHostFacts {
        machine_id: text(&["etc/machine-id", "var/lib/dbus/machine-id"]),
        system_uuid: text(&SYSTEM_UUID),
        boot_id: text(&["proc/sys/kernel/random/boot_id"]),
        kernel_version: text(&["proc/sys/kernel/osrelease"]),
        os_image: os_image(&releases.next().unwrap_or_default()),
        architecture: std::env::consts::ARCH.to_owned(),
        swap,
    }
}

fn line(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.trim_matches(['\n', '\0', ' ']).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The inputs of upstream's TestVersionInfo and TestMachineInfo.
    #[test]
    fn the_host_is_what_its_files_say_and_empty_where_they_are_silent() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("var/lib/dbus/machine-id", "m1\n");
        write("proc/device-tree/vm,uuid", "u1\0");
        write("proc/sys/kernel/random/boot_id", "b1\n");
        write(
            "usr/lib/os-release",
            "ID=x\nPRETTY_NAME=\"Example 1 (one)\"\n",
        );
        let host = read(folder.path(), 7);
        let found = [
            host.machine_id,
            host.system_uuid,
            host.boot_id,
            host.os_image,
            host.kernel_version,
        ];
        assert_eq!(found, ["m1", "u1", "b1", "Example 1 (one)", ""]);
        assert_eq!(host.swap, 7);
    }
}
