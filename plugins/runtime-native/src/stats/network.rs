//! The counters of a pod's network devices.

use std::fs;

use proto::cri::{NetworkInterfaceUsage, NetworkUsage, UInt64Value};

use crate::clock;

const LOOPBACK: &str = "lo";
const POD_INTERFACE: &str = "eth0";

/// Reads the devices of the network namespace that a process is in; none without one beside the loopback. Blocks.
pub(super) fn of_process(pid: i32) -> Option<NetworkUsage> {
    parse(&fs::read_to_string(format!("/proc/{pid}/net/dev")).ok()?)
}

fn parse(text: &str) -> Option<NetworkUsage> {
    let interfaces: Vec<_> = read(text).into_iter().map(usage).collect();
    let default = interfaces.iter().find(|one| one.name == POD_INTERFACE);
    let default = default.or(interfaces.first())?.clone();
    Some(NetworkUsage {
        timestamp: clock::now(),
        default_interface: Some(default),
        interfaces,
    })
}

fn usage(interface: Interface) -> NetworkInterfaceUsage {
    let counter = |place| interface.counter(place).map(|value| UInt64Value { value });
    NetworkInterfaceUsage {
        rx_bytes: counter(0),
        rx_errors: counter(2),
        tx_bytes: counter(8),
        tx_errors: counter(10),
        name: interface.name,
    }
}

/// A network device with its counters, as `/proc/net/dev` has them: eight of what came in, eight of what went out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Interface {
    pub(super) name: String,
    counters: Vec<u64>,
}

impl Interface {
    pub(super) fn counter(&self, place: usize) -> Option<u64> {
        self.counters.get(place).copied()
    }
}

/// Reads the devices of the network namespace that a process is in, without the loopback. Blocks.
pub(super) fn interfaces(pid: i32) -> Vec<Interface> {
    let text = fs::read_to_string(format!("/proc/{pid}/net/dev")).unwrap_or_default();
    read(&text)
}

/// Two lines of heads, then `NAME: ` with the counters.
fn read(text: &str) -> Vec<Interface> {
    let interface = |line: &str| {
        let (name, counters) = line.split_once(':')?;
        let counters = counters.split_whitespace();
        Some(Interface {
            name: name.trim().to_owned(),
            counters: counters.filter_map(|word| word.parse().ok()).collect(),
        })
    };
    let all = text.lines().skip(2).filter_map(interface);
    all.filter(|one| one.name != LOOPBACK).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pods_own_interface_is_the_default_one() {
        let text = "head\nhead\n    lo: 1 1 0 0 0 0 0 0 1 1 0 0 0 0 0 0\n  net1: 5 0 0 0 0 0 0 0 6 0 0 0 0 0 0 0\n  eth0: 10 2 3 0 0 0 0 0 20 2 4 0 0 0 0 0\n";
        let usage = parse(text).unwrap();
        assert_eq!(usage.interfaces.len(), 2);
        let eth0 = usage.default_interface.unwrap();
        let value = |counter: Option<UInt64Value>| counter.unwrap().value;
        assert_eq!(eth0.name, "eth0");
        assert_eq!((value(eth0.rx_bytes), value(eth0.rx_errors)), (10, 3));
        assert_eq!((value(eth0.tx_bytes), value(eth0.tx_errors)), (20, 4));
        assert!(parse("head\nhead\n lo: 1 1 0 0 0 0 0 0 1 1 0 0 0 0 0 0\n").is_none());
    }
}
