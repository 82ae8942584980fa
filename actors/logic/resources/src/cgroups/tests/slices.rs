//! Limits as systemd has them.

use super::*;

fn v1() -> Hierarchy {
    Hierarchy::V1(BTreeMap::new())
}

fn v2() -> Hierarchy {
    Hierarchy::V2(PathBuf::new())
}

fn number(name: &'static str, value: u64) -> (&'static str, PropertyValue) {
    (name, PropertyValue::Number(value))
}

/// Upstream's TestParseSystemdToCgroupName and TestNewCgroupName.
#[test]
fn a_slices_name_tells_its_ancestors_and_is_read_back() {
    for (path, unit) in [
        ("/", "-.slice"),
        ("/test", "test.slice"),
        ("/test/a-b", "test-a_b.slice"),
        (
            "/kubepods/burstable/pod1-2",
            "kubepods-burstable-pod1_2.slice",
        ),
    ] {
        let name = CgroupName::parse(path);
        assert_eq!(slice_name(&name), unit);
        let slices = name.path(CgroupDriver::Systemd);
        assert_eq!(CgroupName::parse_as(CgroupDriver::Systemd, &slices), name);
    }
    let system = CgroupName::parse_as(CgroupDriver::Systemd, "/system.slice");
    assert_eq!(system.path(CgroupDriver::Systemd), "/system.slice");
    let own = CgroupName::parse_as(CgroupDriver::Cgroupfs, "/own/system.slice");
    assert_eq!(own.path(CgroupDriver::Cgroupfs), "/own/system.slice");
}

#[test]
fn a_slice_wants_the_one_above_it() {
    for (path, parent) in [("/test", "-.slice"), ("/test/a/b", "test-a.slice")] {
        let made = made_with(&CgroupName::parse(path), &v2());
        let wants = made.iter().find(|(name, _)| *name == "Wants").unwrap();
        assert_eq!(wants.1, PropertyValue::Names(vec![parent.to_owned()]));
        let accounts = |name| made.contains(&(name, PropertyValue::Flag(true)));
        assert!(accounts("IOAccounting") && accounts("MemoryAccounting"));
    }
    let old = made_with(&CgroupName::parse("/test"), &v1());
    assert!(old.iter().any(|(name, _)| *name == "BlockIOAccounting"));
}

#[test]
fn limits_become_properties_of_either_version() {
    let limits = CgroupLimits {
        cpu_shares: Some(1024),
        cpu: Some(CpuQuota {
            quota: 20_000,
            period: 100_000,
        }),
        cpus: Some("0-2,8".to_owned()),
        memory: Some(4096),
        pids: Some(64),
        unified: [
            ("memory.low", "40"),
            ("memory.high", "max"),
            ("cpu.idle", "0"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into(),
        ..CgroupLimits::default()
    };
    let cpus = ("AllowedCPUs", PropertyValue::Bits(vec![0b111, 1]));
    assert_eq!(
        slice_properties(&limits, &v1(), 252),
        [
            number("MemoryLimit", 4096),
            number("CPUShares", 1024),
            number("CPUQuotaPeriodUSec", 100_000),
            number("CPUQuotaPerSecUSec", 200_000),
            number("TasksMax", 64),
            cpus.clone(),
        ]
    );
    assert_eq!(
        slice_properties(&limits, &v2(), 252),
        [
            number("MemoryMax", 4096),
            number("CPUWeight", 39),
            number("CPUQuotaPeriodUSec", 100_000),
            number("CPUQuotaPerSecUSec", 200_000),
            number("TasksMax", 64),
            number("MemoryHigh", u64::MAX),
            number("MemoryLow", 40),
            cpus,
        ]
    );
    let old = slice_properties(&limits, &v2(), 241);
    let names: Vec<&str> = old.iter().map(|(name, _)| *name).collect();
    assert!(!names.contains(&"CPUQuotaPeriodUSec") && !names.contains(&"AllowedCPUs"));
}

#[test]
fn a_quota_is_rounded_up_to_a_percent_in_both_places() {
    for (quota, period, per_second, written) in [
        (20_000, 100_000, 200_000, 20_000),
        (20_001, 100_000, 210_000, 21_000),
        (1_000, 100_000, 10_000, 1_000),
        (1_500, 5_000, 300_000, 1_500),
        (-1, 100_000, u64::MAX, -1),
    ] {
        let limits = CgroupLimits {
            cpu: Some(CpuQuota { quota, period }),
            ..CgroupLimits::default()
        };
        let properties = slice_properties(&limits, &v2(), 252);
        assert!(
            properties.contains(&number("CPUQuotaPerSecUSec", per_second)),
            "{properties:?}"
        );
        assert_eq!(rounded(&limits).cpu.unwrap().quota, written);
    }
}

#[test]
fn what_makes_no_sense_is_no_property() {
    for cpus in ["", "x", "3-1", "0-99999999", ",,"] {
        let limits = CgroupLimits {
            cpus: Some(cpus.to_owned()),
            unified: [("memory.low".to_owned(), "much".to_owned())].into(),
            memory: Some(-1),
            ..CgroupLimits::default()
        };
        assert_eq!(slice_properties(&limits, &v2(), 252), [], "{cpus:?}");
    }
    for (pids, expected) in [(0, 1), (-1, u64::MAX), (7, 7)] {
        let limits = CgroupLimits {
            pids: Some(pids),
            ..CgroupLimits::default()
        };
        assert_eq!(
            slice_properties(&limits, &v1(), 252),
            [number("TasksMax", expected)]
        );
    }
}
