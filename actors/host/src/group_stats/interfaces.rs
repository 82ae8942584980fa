//! Network interfaces, from a `net/dev` of `/proc`.

use logic_resources::group_stats::{InterfaceCounters, TrafficCounters};

/// Prefixes of interfaces that are not counted: the loopback, and the host's ends of pods' interfaces.
const IGNORED: [&str; 4] = ["lo", "veth", "docker", "nerdctl"];
/// Interfaces of one namespace that are counted.
const MAX_INTERFACES: usize = 1024;

/// The counted interfaces, in the file's order. A line that makes no sense costs its own interface.
pub fn interfaces(text: &str) -> Vec<InterfaceCounters> {
    let lines = text.lines().filter_map(interface);
    lines.take(MAX_INTERFACES).collect()
}

/// A line such as `eth0: BYTES PACKETS ERRORS DROPPED ...`, eight figures received and then eight sent.
fn interface(line: &str) -> Option<InterfaceCounters> {
    let (name, numbers) = line.rsplit_once(':')?;
    let name = name.trim();
    let lower = name.to_ascii_lowercase();
    if IGNORED.iter().any(|prefix| lower.starts_with(prefix)) {
        return None;
    }
    let numbers: Option<Vec<u64>> = numbers
        .split_whitespace()
        .map(|number| number.parse().ok())
        .collect();
    let numbers = numbers.filter(|numbers| numbers.len() == 16)?;
    let traffic = |first: usize| TrafficCounters {
        bytes: numbers[first],
        packets: numbers[first + 1],
        errors: numbers[first + 2],
        dropped: numbers[first + 3],
    };
    Some(InterfaceCounters {
        name: name.to_owned(),
        received: traffic(0),
        sent: traffic(8),
    })
}
