//! The policy's options, by upstream's cases of policy_options_test.go and policy_static_test.go.

use super::*;

const OPEN: OptionGate = OptionGate::Open;
const CLOSED: OptionGate = OptionGate::Closed;

fn read(
    options: &[(&str, &str)],
    alpha: OptionGate,
    beta: OptionGate,
) -> Result<CpuPolicyOptions, String> {
    let gates = OptionGates { alpha, beta };
    CpuPolicyOptions::read(&string_map(options), gates).map_err(|error| error.to_string())
}

/// Upstream's TestPolicyDefaultsAvailable, TestPolicyOptionsAvailable and TestPolicyOptionsAlwaysAvailableOnceGA.
#[test]
fn an_option_may_be_used_when_its_gate_is_open() {
    let gates = OptionGates::default();
    assert_eq!((gates.alpha, gates.beta), (CLOSED, OPEN));
    for (option, alpha, beta, available) in [
        ("align-by-socket", OPEN, CLOSED, true),
        ("align-by-socket", CLOSED, OPEN, false),
        ("distribute-cpus-across-cores", OPEN, CLOSED, true),
        ("distribute-cpus-across-cores", CLOSED, OPEN, false),
        ("distribute-cpus-across-numa", CLOSED, OPEN, true),
        ("distribute-cpus-across-numa", OPEN, CLOSED, false),
        ("full-pcpus-only", CLOSED, CLOSED, true),
        ("strict-cpu-reservation", CLOSED, CLOSED, true),
        ("prefer-align-cpus-by-uncorecache", CLOSED, CLOSED, true),
    ] {
        let read = read(&[(option, "true")], alpha, beta);
        assert_eq!(read.is_ok(), available, "{option}");
    }
    for (option, refusal) in [
        (
            "align-by-socket",
            "CPU Manager Policy Alpha-level Options not enabled, but option \"align-by-socket\" \
             provided",
        ),
        (
            "distribute-cpus-across-numa",
            "CPU Manager Policy Beta-level Options not enabled, but option \
             \"distribute-cpus-across-numa\" provided",
        ),
        (
            "no-such-option",
            "unknown CPU Manager Policy option: \"no-such-option\"",
        ),
    ] {
        assert_eq!(
            read(&[(option, "false")], CLOSED, CLOSED).unwrap_err(),
            refusal
        );
    }
    assert!(read(&[("no-such-option", "true")], OPEN, OPEN).is_err());
}

/// Upstream's TestStaticPolicyOptions.
#[test]
fn options_are_read_by_their_names_and_words() {
    for options in [
        &[][..],
        &[("full-pcpus-only", "false")],
        &[("full-pcpus-only", "0")],
    ] {
        assert_eq!(read(options, OPEN, OPEN), Ok(CpuPolicyOptions::default()));
    }
    for word in ["true", "1", "T"] {
        let read = read(&[("full-pcpus-only", word)], OPEN, OPEN).unwrap();
        assert!(read.has(CpuPolicyOption::FullPhysicalCpusOnly));
        assert!(!read.has(CpuPolicyOption::StrictReservation));
    }
    for (options, refusal) in [
        (
            &[("badValue1", "")][..],
            "unknown CPU Manager Policy option: \"badValue1\"",
        ),
        (
            &[("badValue1", ""), ("badvalue2", "aaaa")],
            "unknown CPU Manager Policy option: \"badValue1\"",
        ),
        (
            &[("full-pcpus-only", "enabled!")],
            "bad value for option \"full-pcpus-only\": strconv.ParseBool: parsing \"enabled!\": \
             invalid syntax",
        ),
        (
            &[("full-pcpus-only", "1"), ("badvalue2", "lorem ipsum")],
            "unknown CPU Manager Policy option: \"badvalue2\"",
        ),
    ] {
        assert_eq!(read(options, OPEN, OPEN).unwrap_err(), refusal);
    }
}

/// Upstream's TestPolicyOptionsCompatibility.
#[test]
fn options_that_contradict_each_other_are_refused() {
    let (full, cores) = ("full-pcpus-only", "distribute-cpus-across-cores");
    let (uncore, numa) = (
        "prefer-align-cpus-by-uncorecache",
        "distribute-cpus-across-numa",
    );
    let strict = "strict-cpu-reservation";
    for on in [
        &[full][..],
        &[cores],
        &[uncore, strict],
        &[uncore, full],
        &[uncore, "align-by-socket"],
    ] {
        let options: Vec<_> = on.iter().map(|option| (*option, "true")).collect();
        assert!(read(&options, OPEN, OPEN).is_ok(), "{on:?}");
    }
    for (one, other) in [
        (full, cores),
        (uncore, cores),
        (uncore, numa),
        (numa, cores),
    ] {
        let refused = read(&[(one, "true"), (other, "true")], OPEN, OPEN);
        let words = "can not be used at the same time";
        let refusal = format!("static policy options {one} and {other} {words}");
        assert_eq!(refused.unwrap_err(), refusal);
        assert!(read(&[(one, "true"), (other, "false")], OPEN, OPEN).is_ok());
    }
}

/// Upstream's TestValidateStaticPolicyOptions.
#[test]
fn sockets_are_aligned_only_where_machine_and_topology_policy_allow() {
    let single = TopologyPolicy::SingleNumaNode;
    let sockets = "align-by-socket";
    for (option, machine, topology, refusal) in [
        ("full-pcpus-only", two_nodes_a_socket(), single, None),
        (sockets, two_nodes_a_socket(), TopologyPolicy::None, None),
        (
            sockets,
            two_nodes_a_socket(),
            TopologyPolicy::BestEffort,
            None,
        ),
        (
            sockets,
            two_nodes_a_socket(),
            TopologyPolicy::Restricted,
            None,
        ),
        (
            sockets,
            two_nodes_a_socket(),
            single,
            Some(
                "Topolgy manager single-numa-node policy is incompatible with CPUManager align-by-socket policy option",
            ),
        ),
        (
            sockets,
            two_sockets_a_node(),
            TopologyPolicy::None,
            Some(
                "Align by socket is not compatible with hardware where number of sockets are more than number of NUMA",
            ),
        ),
    ] {
        let options = read(&[(option, "true")], OPEN, OPEN).unwrap();
        let checked = options
            .check(&machine, topology)
            .map_err(|error| error.to_string());
        assert_eq!(checked.err().as_deref(), refusal);
    }
}
