//! The text of `/metrics/cadvisor`.

use std::path::Path;

use jiff::Timestamp;
use logic_api::testing::bare;
use logic_api::types::{ContainerState, RuntimeSandbox, SandboxState};
use logic_resources::group_stats::{
    DeviceIo, GroupCpu, GroupIo, GroupMemory, GroupTasks, InterfaceCounters, IoOperation,
};

use super::*;

fn group(name: &str) -> GroupStats {
    GroupStats {
        name: name.to_owned(),
        at: Timestamp::from_millisecond(1_700_000_000_123).ok(),
        created: Timestamp::from_second(1_699_999_000).ok(),
        cpu: Some(GroupCpu {
            usage: 1_500_000_000,
            shares: 2,
            period: 100_000,
            ..GroupCpu::default()
        }),
        memory: Some(GroupMemory {
            usage: 100,
            inactive_file: 40,
            limit: u64::MAX,
            page_faults: 9,
            ..GroupMemory::default()
        }),
        io: Some(GroupIo::default()),
        ..GroupStats::default()
    }
}

/// A pod `web` in `shop` with one container, with and without what only its groups have.
fn reading(groups: Vec<GroupStats>) -> Reading {
    let mut pod = RuntimePod {
        uid: "u0".into(),
        name: "web".to_owned(),
        namespace: "shop".to_owned(),
        containers: vec![bare("c0", "s0", "app", ContainerState::Running)],
        ..RuntimePod::default()
    };
    pod.containers[0].image = "busybox:1".to_owned();
    pod.sandboxes.push(RuntimeSandbox {
        id: "s0".into(),
        attempt: 0,
        state: SandboxState::Ready,
        created_at: None,
        ips: Vec::new(),
        host_network: false,
        runtime_handler: String::new(),
    });
    Reading {
        at: SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_001),
        owners: Arc::new(Owners {
            listed: [(pod.uid.clone(), pod)].into(),
            ..Owners::default()
        }),
        groups: groups.into(),
        devices: BlockDevices::default(),
        file_systems: vec![MountedFileSystem {
            device: "/dev/sda".to_owned(),
            capacity: 10,
            free: 4,
            ..MountedFileSystem::default()
        }],
        machine: MachineDescription::default(),
        pressure: Pressure::Unknown,
    }
}

fn tree() -> Vec<GroupStats> {
    let names = [
        "/",
        "/kubepods",
        "/kubepods/podu0",
        "/kubepods/podu0/c0",
        "/kubepods/podu0/s0",
    ];
    names.map(group).into()
}

const APP: &str = r#"container="app",id="/kubepods/podu0/c0",image="busybox:1",name="c0",namespace="shop",pod="web""#;
const SANDBOX: &str =
    r#"container="",id="/kubepods/podu0/s0",image="",name="s0",namespace="shop",pod="web""#;
const POD: &str =
    r#"container="",id="/kubepods/podu0",image="",name="",namespace="shop",pod="web""#;
const ROOT: &str = r#"container="",id="/",image="",name="",namespace="",pod="""#;

/// Whether the text has this line.
fn has(text: &str, line: &str) -> bool {
    text.lines().any(|one| one == line)
}

#[test]
fn every_group_is_named_by_its_pod_and_its_container() {
    let text = text(&reading(tree()));
    let top = r#"container="",id="/kubepods",image="",name="",namespace="",pod="""#;
    for labels in [APP, SANDBOX, POD, ROOT, top] {
        let line = format!(
            "container_cpu_usage_seconds_total{{{labels},cpu=\"total\"}} 1.5 1700000000123"
        );
        assert!(has(&text, &line), "{line} in {text}");
        let line = format!("container_memory_working_set_bytes{{{labels}}} 60 1700000000123");
        assert!(has(&text, &line), "{line}");
        // What a group is given has no time of its own.
        assert!(has(
            &text,
            &format!("container_spec_cpu_shares{{{labels}}} 2")
        ));
        assert!(has(
            &text,
            &format!("container_start_time_seconds{{{labels}}} 1699999000")
        ));
        assert!(has(
            &text,
            &format!("container_last_seen{{{labels}}} 1700000001 1700000001000")
        ));
        // No limit is zero.
        assert!(has(
            &text,
            &format!("container_spec_memory_limit_bytes{{{labels}}} 0")
        ));
    }
    assert!(has(&text, "container_scrape_error 0"));
    assert!(has(
        &text,
        "# HELP container_memory_rss Size of RSS in bytes."
    ));
    assert!(has(
        &text,
        "# TYPE container_cpu_usage_seconds_total counter"
    ));
}

#[test]
fn a_family_stands_once_and_no_series_twice() {
    let mut groups = tree();
    groups[0].io = Some(GroupIo {
        devices: vec![DeviceIo {
            major: 8,
            minor: 0,
            bytes: vec![(IoOperation::Read, 7)],
            operations: vec![(IoOperation::Read, 1)],
        }],
        ..GroupIo::default()
    });
    let text = text(&reading(groups));
    let heads: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("# TYPE"))
        .collect();
    let series = text.lines().filter(|line| !line.starts_with('#'));
    let series: Vec<&str> = series.map(|line| line.split_once(" ").unwrap().0).collect();
    for all in [heads, series] {
        let distinct: BTreeSet<&str> = all.iter().copied().collect();
        assert_eq!(distinct.len(), all.len());
    }
    let blkio = format!(
        "container_blkio_device_usage_total{{{ROOT},device=\"\",major=\"8\",minor=\"0\",operation=\"Read\"}} 7 1700000000123"
    );
    assert!(has(&text, &blkio), "{text}");
}

#[test]
fn limits_stalls_interfaces_and_disks_show_where_they_are() {
    let mut groups = tree();
    groups[3].cpu.as_mut().unwrap().quota = 5;
    groups[3].tasks = GroupTasks {
        threads: 3,
        open_files: Some(-1),
        ..GroupTasks::default()
    };
    groups[4].network = Some(vec![InterfaceCounters {
        name: "eth0".to_owned(),
        ..InterfaceCounters::default()
    }]);
    groups[3].io.as_mut().unwrap().psi.full.total = 2_500_000;
    let mut reading = reading(groups);
    assert!(!text(&reading).contains("container_pressure_"));
    reading.pressure = Pressure::Measured;
    let text = text(&reading);
    let at = "1700000000123";
    for line in [
        format!("container_spec_cpu_quota{{{APP}}} 5"),
        format!("container_cpu_cfs_periods_total{{{APP}}} 0 {at}"),
        format!("container_threads{{{APP}}} 3 {at}"),
        format!("container_ulimits_soft{{{APP},ulimit=\"max_open_files\"}} -1 {at}"),
        format!("container_pressure_io_stalled_seconds_total{{{APP}}} 2.5 {at}"),
        format!("container_network_receive_bytes_total{{{SANDBOX},interface=\"eth0\"}} 0 {at}"),
        format!("container_fs_usage_bytes{{{ROOT},device=\"/dev/sda\"}} 6 {at}"),
        format!(
            "container_memory_failures_total{{{APP},failure_type=\"pgfault\",scope=\"container\"}} 9 {at}"
        ),
    ] {
        assert!(has(&text, &line), "{line} in {text}");
    }
    let quotas = text.matches("\ncontainer_spec_cpu_quota{").count();
    let disks = text.matches("\ncontainer_fs_usage_bytes{").count();
    assert_eq!((quotas, disks), (1, 1));
}

#[test]
fn with_crio_containers_have_its_names_and_sandboxes_are_called_pod() {
    let mut reading = reading(tree());
    Arc::get_mut(&mut reading.owners).unwrap().runtime = CRIO.to_owned();
    let text = text(&reading);
    let app = APP.replace("\"c0\"", "\"k8s_app_web_shop_u0_0\"");
    let sandbox = SANDBOX
        .replace("\"s0\"", "\"k8s_POD_web_shop_u0_0\"")
        .replacen("\"\"", "\"POD\"", 1);
    for labels in [app, sandbox] {
        let line = format!("container_memory_usage_bytes{{{labels}}} 100 1700000000123");
        assert!(has(&text, &line), "{line} in {text}");
    }
}

#[test]
fn an_image_that_is_listed_by_digest_is_named_by_the_pod() {
    let mut reading = reading(tree());
    let owners = Arc::get_mut(&mut reading.owners).unwrap();
    let listed = owners.listed.values_mut().next().unwrap();
    listed.containers[0].image = "sha256:0123".to_owned();
    assert_eq!(owners.by_id()["c0"].image, "sha256:0123");
    let yaml = "
metadata: {name: web, namespace: shop, uid: u0}
spec: {containers: [{name: app, image: 'busybox:2'}]}
";
    let pod = logic_api::testing::yaml::pod(yaml);
    owners.pods.insert("u0".into(), pod);
    assert_eq!(owners.by_id()["c0"].image, "busybox:2");
}

#[test]
fn a_machine_that_tells_nothing_is_an_error_of_its_own() {
    let text = text(&reading(Vec::new()));
    assert!(has(&text, "machine_scrape_error 1") && has(&text, "container_scrape_error 0"));
    let here = MachineDescription::read(Path::new("/"));
    let mut known = Exposition::default();
    here.write(&mut known, &SampleTime::new(SystemTime::UNIX_EPOCH));
    let known = known.into_text();
    for name in [
        "cpu_cores",
        "memory_bytes",
        "swap_bytes",
        "nvm_capacity",
        "cpu_sockets",
    ] {
        assert!(
            known.contains(&format!("\nmachine_{name}{{boot_id=")),
            "{name} in {known}"
        );
    }
    assert!(has(&known, "machine_scrape_error 0"));
}

#[test]
fn a_tmpfs_of_a_pod_is_none_of_the_machines_file_systems() {
    let root_dir = "/var/lib/kubelet";
    let token = "/var/lib/kubelet/pods/u0/volumes/kubernetes.io~projected/token";
    for mount in [
        token,
        "/run/containerd/io.containerd.grpc.v1.cri/sandboxes/s0/shm",
    ] {
        assert!(belongs_to_pod(mount, root_dir), "{mount}");
    }
    for mount in ["/run", "/dev/sda", "/var/lib/kubelet", "/tmp"] {
        assert!(!belongs_to_pod(mount, root_dir), "{mount}");
    }
}
