//! Settings as a command line makes them.

use std::ffi::OsString;

use config::{CgroupVersion, HostFacts, Invocation, NodeConfig, StandaloneFacts};

/// The configuration of these flags, on a host with cgroup v2.
pub(crate) fn load(line: &str) -> NodeConfig {
    let host = HostFacts {
        hostname: "node".to_owned(),
        cgroup: CgroupVersion::V2,
        program_folder: "/opt/oxlet".into(),
        standalone: StandaloneFacts::default(),
    };
    match config::load(line.split_whitespace().map(OsString::from), &host).unwrap() {
        Invocation::Run(config) => *config,
        Invocation::Print(text) => panic!("{text}"),
    }
}
