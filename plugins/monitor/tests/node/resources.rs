//! A container's limits and devices, on whichever version of cgroups the machine has.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::rig::{Box, Rig, oxlet_oci, sh, with_each_runtime, within};

/// The files of a group that say a limit, of both versions.
const LIMITS: [&str; 16] = [
    "cpu.max",
    "cpu.weight",
    "cpu.cfs_quota_us",
    "cpu.cfs_period_us",
    "cpu.shares",
    "cpuset.cpus",
    "hugetlb.2MB.max",
    "hugetlb.2MB.limit_in_bytes",
    "memory.high",
    "memory.low",
    "memory.max",
    "memory.limit_in_bytes",
    "memory.memsw.limit_in_bytes",
    "memory.swap.max",
    "memory.soft_limit_in_bytes",
    "pids.max",
];

fn limits(folders: &[PathBuf]) -> BTreeMap<&'static str, String> {
    let read = |name: &&'static str| {
        let mut texts = folders
            .iter()
            .map(|folder| fs::read_to_string(folder.join(name)));
        Some((*name, texts.find_map(Result::ok)?.trim().to_owned()))
    };
    LIMITS.iter().filter_map(read).collect()
}

/// A container whose runtime makes nodes for it, of numbers that no driver has (60 to 63 are for experiments), and that
/// may read the first alone of them.
fn with_devices(id: &'static str) -> Box {
    let mut container = sh(id, "sleep 1000");
    container.spec = |spec| {
        let node = |kind: &str, major: u32| {
            let path = format!("/dev/{kind}{major}");
            json!({"path": path, "type": kind, "major": major, "minor": 1, "fileMode": 0o666})
        };
        spec["linux"]["devices"] = json!([node("c", 60), node("c", 61), node("b", 60)]);
        spec["linux"]["resources"]["devices"] = rules("r");
    };
    container
}

/// Everything refused, but some access to c60.
fn rules(access: &str) -> Value {
    json!([
        {"allow": false, "access": "rwm"},
        {"allow": true, "type": "c", "major": 60, "minor": 1, "access": access},
    ])
}

/// In which ways the cgroup lets a device be opened, `r`, `w`, both or none. What is let through ends at the driver
/// that isn't there, with another error.
async fn opened(rig: &Rig, device: &str) -> String {
    let script = format!(
        "[ -c /dev/{device} -o -b /dev/{device} ] || exit 3
         case $( (: </dev/{device}) 2>&1) in *'not permitted'*) ;; *) printf r ;; esac
         case $( (: >>/dev/{device}) 2>&1) in *'not permitted'*) ;; *) printf w ;; esac"
    );
    rig.ask("box", &script).await
}

#[tokio::test]
async fn devices_are_those_of_the_rules_and_what_every_container_has() {
    with_each_runtime(|rig| async move {
        rig.run(&with_devices("box")).await;
        assert_eq!(opened(&rig, "null").await, "rw");
        assert_eq!(opened(&rig, "c60").await, "r");
        assert_eq!(opened(&rig, "c61").await, "");
        assert_eq!(opened(&rig, "b60").await, "");
        rig.end().await;
    })
    .await;
}

/// runc leaves device rules out of an update.
#[tokio::test]
async fn an_update_with_rules_takes_the_place_of_those_before() {
    let rig = Rig::with(&oxlet_oci()).await;
    rig.run(&with_devices("box")).await;
    for (access, expected) in [("w", "w"), ("rw", "rw"), ("m", "")] {
        let resources = json!({"devices": rules(access)});
        within(rig.monitor.update("box", resources)).await.unwrap();
        assert_eq!(opened(&rig, "c60").await, expected);
    }
    let limits = json!({"pids": {"limit": 50}});
    within(rig.monitor.update("box", limits)).await.unwrap();
    assert_eq!(opened(&rig, "c60").await, "");
    rig.end().await;
}

#[tokio::test]
async fn each_runtime_writes_the_same_limits() {
    let mut found = Vec::new();
    for program in ["/usr/sbin/runc".into(), oxlet_oci()] {
        let rig = Rig::with(&program).await;
        let mut container = sh("box", "sleep 1000");
        container.spec = |spec| {
            let resources = &mut spec["linux"]["resources"];
            // The weights of the ends of the scale: those between were other ones before runc 1.3.2.
            resources["cpu"] =
                json!({"shares": 262_144, "quota": 50_000, "period": 100_000, "cpus": "0"});
            resources["memory"] =
                json!({"limit": 64 << 20, "swap": 64 << 20, "reservation": 32 << 20});
            resources["pids"] = json!({"limit": 40});
        };
        rig.run(&container).await;
        let made = limits(&rig.cgroups("box"));
        let more = json!({
            "cpu": {"shares": 2, "quota": -1},
            "memory": {"limit": 96 << 20, "swap": 128 << 20},
            "pids": {"limit": 60},
        });
        within(rig.monitor.update("box", more)).await.unwrap();
        found.push((made, limits(&rig.cgroups("box"))));
        rig.end().await;
    }
    let [runc, own] = found.try_into().unwrap();
    assert_eq!(own, runc);
    assert_eq!(own.0["pids.max"], "40");
    if own.0.contains_key("memory.max") {
        assert_eq!(
            (&*own.0["memory.max"], &*own.0["memory.swap.max"]),
            ("67108864", "0")
        );
        assert_eq!(
            (&*own.1["memory.max"], &*own.1["memory.swap.max"]),
            ("100663296", "33554432")
        );
    }
}

/// The same containers as scopes of systemd, where that is the first process and cgroups are v2; elsewhere there is
/// nothing that could be asked for them, and oxlet-oci refuses it (below).
#[tokio::test]
async fn each_runtime_has_scopes_of_systemd_with_the_same_limits() {
    if !Path::new("/run/systemd/system").exists() || !is_unified() {
        eprintln!("skipped: scopes take systemd as the first process and cgroups of version 2");
        return;
    }
    let mut found = Vec::new();
    for program in ["/usr/sbin/runc".into(), oxlet_oci()] {
        let mut rig = Rig::with(&program).await;
        rig.handler.systemd_cgroup = true;
        let mut container = sh("box", "sleep 1000");
        container.spec = |spec| {
            (with_devices("box").spec)(spec);
            spec["linux"]["cgroupsPath"] = json!("system.slice:oxlet-test:box");
            let resources = &mut spec["linux"]["resources"];
            resources["memory"] = json!({"limit": 64 << 20, "swap": 64 << 20});
            resources["cpu"] = json!({"shares": 2, "quota": 50_000, "period": 100_000});
            resources["pids"] = json!({"limit": 40});
            resources["unified"] = json!({"memory.high": "62914560"});
            resources["hugepageLimits"] = json!([{"pageSize": "2MB", "limit": 4 << 20}]);
        };
        rig.run(&container).await;
        assert_eq!(opened(&rig, "null").await, "rw");
        assert_eq!(opened(&rig, "c60").await, "r");
        assert_eq!(opened(&rig, "c61").await, "");
        let group = "/sys/fs/cgroup/system.slice/oxlet-test-box.scope";
        let made = limits(&[group.into()]);
        let more =
            json!({"cpu": {"shares": 262_144}, "memory": {"limit": 96 << 20, "swap": 128 << 20}});
        within(rig.monitor.update("box", more)).await.unwrap();
        found.push((made, limits(&[group.into()])));
        rig.end().await;
        crate::rig::wait_until(|| !Path::new(group).exists()).await;
    }
    let [runc, own] = found.try_into().unwrap();
    assert_eq!(own, runc);
    assert_eq!(
        (&*own.0["memory.max"], &*own.0["memory.swap.max"]),
        ("67108864", "0")
    );
    assert_eq!(
        (&*own.1["cpu.max"], &*own.1["cpu.weight"]),
        ("50000 100000", "10000")
    );
}

#[tokio::test]
async fn scopes_of_systemd_are_refused_on_cgroup_v1() {
    if is_unified() {
        eprintln!("skipped: cgroups are of version 2 here");
        return;
    }
    let mut rig = Rig::with(&oxlet_oci()).await;
    rig.handler.systemd_cgroup = true;
    let created = within(rig.monitor.create(rig.bundle(&sh("box", "true")))).await;
    let error = created.unwrap_err().to_string();
    assert!(error.contains("--systemd-cgroup on cgroup v1"), "{error}");
    rig.end().await;
}

fn is_unified() -> bool {
    Path::new("/sys/fs/cgroup/cgroup.controllers").exists()
}
