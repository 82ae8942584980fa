//! Limits, namespaces and devices.

use super::*;

#[test]
fn limits_are_what_was_said_and_nothing_else() {
    let case = case().resources(|resources| {
        resources.cpu_shares = 512;
        resources.cpu_quota = -1;
        resources.memory_limit_in_bytes = 1 << 20;
        resources.cpuset_cpus = "0-1".to_owned();
    });
    let limits = case.make().unwrap()["linux"]["resources"].clone();
    assert_eq!(
        limits["cpu"],
        json!({ "shares": 512, "quota": -1, "cpus": "0-1" })
    );
    assert_eq!(limits["memory"], json!({ "limit": 1 << 20 }));
}

#[test]
fn memory_without_a_word_of_swap_does_not_swap_where_swap_is_counted() {
    let memory = |limit, swap, counted| {
        let mut case = case().resources(|resources| {
            resources.memory_limit_in_bytes = limit;
            resources.memory_swap_limit_in_bytes = swap;
        });
        case.host.swap_limit = counted;
        case.make()
            .map(|spec| spec["linux"]["resources"]["memory"].clone())
    };
    assert_eq!(memory(8, 0, true), Ok(json!({ "limit": 8, "swap": 8 })));
    assert_eq!(memory(8, 16, true), Ok(json!({ "limit": 8, "swap": 16 })));
    assert_eq!(memory(8, 8, false), Ok(json!({ "limit": 8 })));
    assert!(memory(8, 16, false).is_err());
}

#[test]
fn limits_that_the_nodes_cgroups_lack_are_refused_unless_they_are_none() {
    let pages = |limit| {
        case().resources(|resources| {
            resources.hugepage_limits = vec![HugepageLimit {
                page_size: "2MB".to_owned(),
                limit,
            }];
        })
    };
    assert!(pages(0).make().is_ok());
    assert!(pages(1).make().is_err());
    let unified = |v2| {
        let mut case = case().resources(|resources| {
            resources.unified = [("memory.high".to_owned(), "1".to_owned())].into();
        });
        case.host.unified = v2;
        case.make()
    };
    assert!(unified(false).is_err());
    let spec = unified(true).unwrap();
    assert_eq!(spec["linux"]["resources"]["unified"]["memory.high"], "1");
}

#[test]
fn an_oom_score_is_raised_to_what_the_machine_allows() {
    let adjusted = |asked, lowest| {
        let mut case = case().resources(|resources| resources.oom_score_adj = asked);
        case.host.oom_score_adj_min = lowest;
        case.make().unwrap()["process"]["oomScoreAdj"].clone()
    };
    assert_eq!(adjusted(-997, -1000), -997);
    assert_eq!(adjusted(-997, 0), 0);
    assert_eq!(adjusted(500, 0), 500);
}

#[test]
fn cgroup_paths_have_the_form_of_their_driver() {
    let mut case = case();
    let path = |case: &Case| case.make().unwrap()["linux"]["cgroupsPath"].clone();
    assert_eq!(path(&case), "/kubepods/pod1/c1");
    case.driver = CgroupDriver::Systemd;
    let linux = case.sandbox.linux.as_mut().unwrap();
    linux.cgroup_parent = "/kubepods.slice/kubepods-pod1.slice".to_owned();
    assert_eq!(path(&case), "kubepods-pod1.slice:oxlet:c1");
}

#[test]
fn namespaces_are_joined_where_there_is_a_path_and_new_or_absent_elsewhere() {
    let mut case = case();
    case.namespaces.network = Some("/ns/net".to_owned());
    let kinds = |case: &Case| -> Vec<String> {
        let spec = case.make().unwrap();
        let all = spec["linux"]["namespaces"].as_array().unwrap().clone();
        let of = |one: &Value| {
            let path = one["path"].as_str().unwrap_or("new");
            format!("{}={path}", one["type"].as_str().unwrap())
        };
        all.iter().map(of).collect()
    };
    assert_eq!(kinds(&case), ["mount=new", "network=/ns/net", "pid=new"]);
    case.namespaces.own_pid = false;
    case.host.unified = true;
    assert_eq!(kinds(&case), ["mount=new", "network=/ns/net", "cgroup=new"]);
    case.namespaces.pid = Some("/proc/7/ns/pid".to_owned());
    assert!(kinds(&case).contains(&"pid=/proc/7/ns/pid".to_owned()));
}

#[test]
fn only_devices_that_were_asked_for_are_allowed() {
    let mut case = case();
    case.devices = vec![DeviceNode {
        path: "/dev/x".to_owned(),
        kind: 'c',
        major: 1,
        minor: 3,
        mode: 0o666,
        uid: 0,
        gid: 0,
        permissions: "r".to_owned(),
    }];
    let spec = case.make().unwrap();
    let rules = spec["linux"]["resources"]["devices"].as_array().unwrap();
    assert_eq!(rules[0], json!({ "allow": false, "access": "rwm" }));
    assert_eq!(rules[1]["access"], "r");
    assert_eq!(spec["linux"]["devices"][0]["path"], "/dev/x");
}

#[test]
fn an_update_changes_what_it_names_and_keeps_the_rest() {
    let before = LinuxContainerResources {
        cpu_shares: 2,
        memory_limit_in_bytes: 8,
        ..Default::default()
    };
    let asked = LinuxContainerResources {
        cpu_quota: 5,
        memory_limit_in_bytes: 16,
        ..Default::default()
    };
    let (merged, document) = update_resources(&before, &asked, &case().host).unwrap();
    assert_eq!(
        (
            merged.cpu_shares,
            merged.cpu_quota,
            merged.memory_limit_in_bytes
        ),
        (2, 5, 16)
    );
    assert_eq!(document["cpu"], json!({ "shares": 2, "quota": 5 }));
}
