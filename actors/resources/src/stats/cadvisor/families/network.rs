//! Network interfaces.

use logic_resources::group_stats::InterfaceCounters;
use metrics::exposition::MetricKind::Counter;

use super::{Family, GroupRow, Sink, family};

fn interfaces(row: GroupRow<'_>, to: Sink<'_>, value: fn(&InterfaceCounters) -> u64) {
    for one in row.group.network.iter().flatten() {
        to(&[("interface", &one.name)], value(one) as f64);
    }
}

/// Network interfaces.
pub(in crate::stats::cadvisor) static NETWORK: &[Family] = &[
    family(
        Counter,
        (
            "container_network_receive_bytes_total",
            "Cumulative count of bytes received",
        ),
        |row, to| interfaces(row, to, |one| one.received.bytes),
    ),
    family(
        Counter,
        (
            "container_network_receive_packets_total",
            "Cumulative count of packets received",
        ),
        |row, to| interfaces(row, to, |one| one.received.packets),
    ),
    family(
        Counter,
        (
            "container_network_receive_packets_dropped_total",
            "Cumulative count of packets dropped while receiving",
        ),
        |row, to| interfaces(row, to, |one| one.received.dropped),
    ),
    family(
        Counter,
        (
            "container_network_receive_errors_total",
            "Cumulative count of errors encountered while receiving",
        ),
        |row, to| interfaces(row, to, |one| one.received.errors),
    ),
    family(
        Counter,
        (
            "container_network_transmit_bytes_total",
            "Cumulative count of bytes transmitted",
        ),
        |row, to| interfaces(row, to, |one| one.sent.bytes),
    ),
    family(
        Counter,
        (
            "container_network_transmit_packets_total",
            "Cumulative count of packets transmitted",
        ),
        |row, to| interfaces(row, to, |one| one.sent.packets),
    ),
    family(
        Counter,
        (
            "container_network_transmit_packets_dropped_total",
            "Cumulative count of packets dropped while transmitting",
        ),
        |row, to| interfaces(row, to, |one| one.sent.dropped),
    ),
    family(
        Counter,
        (
            "container_network_transmit_errors_total",
            "Cumulative count of errors encountered while transmitting",
        ),
        |row, to| interfaces(row, to, |one| one.sent.errors),
    ),
];
