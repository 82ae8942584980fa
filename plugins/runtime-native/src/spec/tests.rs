//! What each field of a configuration becomes.

use proto::cri::security_profile::ProfileType;
use proto::cri::{
    Capability, HugepageLimit, KeyValue, LinuxContainerConfig, LinuxContainerResources,
    LinuxContainerSecurityContext, LinuxPodSandboxConfig, LinuxSandboxSecurityContext, Mount,
    MountPropagation, SecurityProfile,
};

use super::*;

/// A case that owns what a [`SpecInput`] borrows.
struct Case {
    sandbox: PodSandboxConfig,
    config: ContainerConfig,
    image: ImageSettings,
    user: ProcessUser,
    namespaces: NamespacePaths,
    sources: Vec<MountSource>,
    devices: Vec<DeviceNode>,
    profile: Option<String>,
    driver: CgroupDriver,
    passed_on: Vec<String>,
    recursive_read_only: bool,
    host: HostFacts,
}

fn case() -> Case {
    Case {
        sandbox: PodSandboxConfig {
            linux: Some(LinuxPodSandboxConfig {
                cgroup_parent: "/kubepods/pod1".to_owned(),
                ..Default::default()
            }),
            ..Default::default()
        },
        config: ContainerConfig {
            command: vec!["true".to_owned()],
            ..Default::default()
        },
        image: ImageSettings::default(),
        user: ProcessUser::default(),
        namespaces: NamespacePaths {
            own_pid: true,
            ..Default::default()
        },
        sources: Vec::new(),
        devices: Vec::new(),
        profile: None,
        driver: CgroupDriver::Cgroupfs,
        passed_on: Vec::new(),
        recursive_read_only: true,
        host: HostFacts {
            capabilities: capability_names(u64::MAX),
            seccomp: true,
            hostname: "node".to_owned(),
            architecture: "x86_64",
            oom_score_adj_min: -1000,
            ..Default::default()
        },
    }
}

impl Case {
    fn make(&self) -> Result<Value, SpecError> {
        container_spec(SpecInput {
            id: "c1",
            sandbox_id: "s1",
            sandbox: &self.sandbox,
            config: &self.config,
            image: &self.image,
            user: &self.user,
            namespaces: &self.namespaces,
            sandbox_mounts: &SandboxMounts {
                hosts: "/s/hosts".to_owned(),
                hostname: "/s/hostname".to_owned(),
                resolv_conf: "/s/resolv.conf".to_owned(),
                shm: "/s/shm".to_owned(),
                shm_kept: Vec::new(),
            },
            sources: &self.sources,
            devices: &self.devices,
            seccomp_profile: self.profile.as_deref(),
            rootfs: "/root",
            driver: self.driver,
            passed_on: &PassedOn {
                pod: Pattern::read_all(&self.passed_on).unwrap(),
                container: Vec::new(),
            },
            recursive_read_only: self.recursive_read_only,
            host: &self.host,
        })
    }

    fn security(mut self, edit: impl FnOnce(&mut LinuxContainerSecurityContext)) -> Case {
        let linux = self
            .config
            .linux
            .get_or_insert_with(LinuxContainerConfig::default);
        edit(linux.security_context.get_or_insert_default());
        self
    }

    fn resources(mut self, edit: impl FnOnce(&mut LinuxContainerResources)) -> Case {
        let linux = self
            .config
            .linux
            .get_or_insert_with(LinuxContainerConfig::default);
        edit(linux.resources.get_or_insert_default());
        self
    }

    fn privileged(mut self) -> Case {
        let linux = self
            .sandbox
            .linux
            .get_or_insert_with(LinuxPodSandboxConfig::default);
        linux.security_context = Some(LinuxSandboxSecurityContext {
            privileged: true,
            ..Default::default()
        });
        self.security(|context| context.privileged = true)
    }

    fn mount(mut self, mount: Mount, propagation: HostPropagation) -> Case {
        self.sources.push(MountSource {
            path: format!("/host{}", mount.container_path),
            propagation,
            kept: Vec::new(),
        });
        self.config.mounts.push(mount);
        self
    }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

fn at(path: &str) -> Mount {
    Mount {
        container_path: path.to_owned(),
        host_path: "/host".to_owned(),
        ..Default::default()
    }
}

fn destinations(spec: &Value) -> Vec<&str> {
    let mounts = spec["mounts"].as_array().unwrap();
    let paths = mounts.iter().map(|mount| mount["destination"].as_str());
    paths.map(Option::unwrap).collect()
}

fn mounted<'a>(spec: &'a Value, path: &str) -> &'a Value {
    let mut mounts = spec["mounts"].as_array().unwrap().iter();
    mounts.find(|mount| mount["destination"] == path).unwrap()
}

#[test]
fn command_and_arguments_replace_those_of_the_image() {
    for (entrypoint, command, own_command, own_args, expected) in [
        (&["e"][..], &["c"][..], &[][..], &[][..], &["e", "c"][..]),
        (&["e"], &["c"], &[], &["a"], &["e", "a"]),
        (&["e"], &["c"], &["x"], &[], &["x"]),
        (&["e"], &["c"], &["x"], &["a"], &["x", "a"]),
        (&[], &["c"], &[], &[], &["c"]),
    ] {
        let mut case = case();
        case.image.entrypoint = words(entrypoint);
        case.image.command = words(command);
        case.config.command = words(own_command);
        case.config.args = words(own_args);
        assert_eq!(case.make().unwrap()["process"]["args"], json!(expected));
    }
    let mut none = case();
    none.config.command.clear();
    assert_eq!(none.make().unwrap_err(), SpecError::NoCommand);
}

#[test]
fn a_later_variable_replaces_an_earlier_one_of_its_name() {
    let mut case = case();
    case.config.tty = true;
    case.image.env = words(&["PATH=/image", "A=1"]);
    case.config.envs = vec![KeyValue {
        key: "A".to_owned(),
        value: b"2=3".to_vec(),
    }];
    let spec = case.make().unwrap();
    let expected = ["PATH=/image", "HOSTNAME=node", "TERM=xterm", "A=2=3"];
    assert_eq!(spec["process"]["env"], json!(expected));
    assert_eq!(spec["process"]["terminal"], true);
}

#[test]
fn a_working_folder_is_the_containers_or_the_images_and_absolute() {
    let mut case = case();
    let cwd = |case: &Case| case.make().unwrap()["process"]["cwd"].clone();
    assert_eq!(cwd(&case), "/");
    case.image.working_dir = "/image".to_owned();
    assert_eq!(cwd(&case), "/image");
    case.config.working_dir = "/own".to_owned();
    assert_eq!(cwd(&case), "/own");
    case.config.working_dir = "own".to_owned();
    assert!(case.make().is_err());
}

#[test]
fn capabilities_are_added_to_and_dropped_from_the_default_set() {
    let held = |add: &[&str], drop: &[&str]| {
        let case = case().security(|context| {
            context.capabilities = Some(Capability {
                add_capabilities: words(add),
                drop_capabilities: words(drop),
                ..Default::default()
            });
        });
        let spec = case.make().unwrap();
        let sets = &spec["process"]["capabilities"];
        assert_eq!(sets["bounding"], sets["effective"]);
        assert_eq!(sets["bounding"], sets["permitted"]);
        assert!(sets["inheritable"].is_null() && sets["ambient"].is_null());
        sets["bounding"].as_array().unwrap().clone()
    };
    assert_eq!(held(&[], &[]).len(), 14);
    assert_eq!(held(&["ALL"], &[]).len(), 41);
    assert_eq!(held(&["NET_ADMIN"], &["ALL"]), [json!("CAP_NET_ADMIN")]);
    assert_eq!(
        held(&["all"], &["cap_sys_admin"]).len(),
        40,
        "names come in any case"
    );
    assert_eq!(held(&["CAP_CHOWN"], &["CHOWN"]).len(), 13);
}

#[test]
fn a_capability_that_is_unknown_or_that_the_node_lacks_is_refused_by_name() {
    let with = |name: &str| {
        let mut case = case().security(|context| {
            context.capabilities = Some(Capability {
                add_capabilities: words(&[name]),
                ..Default::default()
            });
        });
        let lacked = |held: &&str| *held != "CAP_SYS_RESOURCE";
        case.host.capabilities.retain(lacked);
        case.make().unwrap_err().to_string()
    };
    assert!(with("FLY").contains("\"FLY\""));
    assert!(with("SYS_RESOURCE").contains("\"SYS_RESOURCE\" cannot be enforced"));
}

#[test]
fn a_privileged_container_has_everything_and_only_in_a_privileged_sandbox() {
    let spec = case().privileged().make().unwrap();
    let held = spec["process"]["capabilities"]["bounding"].as_array();
    assert_eq!(held.unwrap().len(), 41);
    assert_eq!(spec["linux"]["maskedPaths"], json!([]));
    assert_eq!(
        spec["linux"]["resources"]["devices"],
        json!([{ "allow": true, "access": "rwm" }])
    );
    assert!(spec["linux"]["seccomp"].is_null());
    let options = mounted(&spec, "/sys")["options"].as_array().unwrap();
    assert!(options.contains(&json!("rw")));
    let alone = case().security(|context| context.privileged = true);
    assert!(alone.make().is_err());
}

#[test]
fn paths_are_hidden_as_the_agent_says_and_by_default_where_it_says_nothing() {
    let hidden = |case: Case| case.make().unwrap()["linux"]["maskedPaths"].clone();
    assert!(
        hidden(case())
            .as_array()
            .unwrap()
            .contains(&json!("/proc/kcore"))
    );
    let own = case().security(|context| context.masked_paths = words(&["/proc/x"]));
    assert_eq!(hidden(own), json!(["/proc/x"]));
    let unmasked = case().security(|context| context.readonly_rootfs = true);
    assert_eq!(hidden(unmasked), json!([]));
}

#[test]
fn a_mount_of_the_container_takes_the_place_of_a_default_one() {
    let case = case()
        .mount(at("/etc/hosts"), HostPropagation::Private)
        .mount(at("/dev/shm/"), HostPropagation::Private);
    let spec = case.make().unwrap();
    let paths = destinations(&spec);
    for path in ["/etc/hosts", "/dev/shm", "/etc/resolv.conf", "/proc"] {
        let times = paths.iter().filter(|own| **own == path).count();
        assert_eq!(times, 1, "{path}");
    }
    assert_eq!(mounted(&spec, "/dev/shm")["source"], "/host/dev/shm/");
}

#[test]
fn a_mount_below_another_one_comes_after_it() {
    let case = case()
        .mount(at("/a/b/c"), HostPropagation::Private)
        .mount(at("/a"), HostPropagation::Private)
        .mount(at("/a/b"), HostPropagation::Private);
    let spec = case.make().unwrap();
    let own: Vec<_> = destinations(&spec)
        .into_iter()
        .filter(|path| path.starts_with("/a"))
        .collect();
    assert_eq!(own, ["/a", "/a/b", "/a/b/c"]);
}

#[test]
fn propagation_needs_a_mount_of_the_node_that_spreads() {
    use HostPropagation::{Private, Shared, Slave};
    use MountPropagation::{PropagationBidirectional as Both, PropagationHostToContainer as In};
    for (asked, host, expected) in [
        (In, Shared, Some("rslave")),
        (In, Slave, Some("rslave")),
        (In, Private, None),
        (Both, Shared, Some("rshared")),
        (Both, Slave, None),
        (Both, Private, None),
    ] {
        let mut mount = at("/m");
        mount.set_propagation(asked);
        let spec = case().mount(mount, host).make();
        match expected {
            None => assert!(spec.is_err(), "{asked:?} {host:?}"),
            Some(expected) => {
                let spec = spec.unwrap();
                assert_eq!(spec["linux"]["rootfsPropagation"], expected);
                assert_eq!(mounted(&spec, "/m")["options"][1], expected);
            }
        }
    }
}

#[test]
fn a_recursive_read_only_mount_is_exactly_that_or_refused() {
    let rro = |readonly: bool, able: bool, propagation: MountPropagation| {
        let mut mount = at("/m");
        (mount.readonly, mount.recursive_read_only) = (readonly, true);
        mount.set_propagation(propagation);
        let mut case = case().mount(mount, HostPropagation::Shared);
        case.recursive_read_only = able;
        case.make()
            .map(|spec| mounted(&spec, "/m")["options"][2].clone())
    };
    let private = MountPropagation::PropagationPrivate;
    assert_eq!(rro(true, true, private), Ok(json!("rro")));
    assert!(rro(true, false, private).is_err());
    assert!(rro(false, true, private).is_err());
    assert!(rro(true, true, MountPropagation::PropagationHostToContainer).is_err());
}

#[test]
fn a_mount_has_the_options_that_are_asked_for_beside_its_own() {
    let mut mount = at("/m");
    mount.mount_options = words(&["noexec", "nodev", "nosuid"]);
    let spec = case()
        .mount(mount, HostPropagation::Private)
        .make()
        .unwrap();
    let options = ["rbind", "rprivate", "rw", "noexec", "nodev", "nosuid"];
    assert_eq!(mounted(&spec, "/m")["options"], json!(options));
}

#[test]
fn files_of_a_container_with_a_label_have_its_level_and_the_nodes_type_for_them() {
    let case = || {
        case().security(|context| {
            context.selinux_options = Some(proto::cri::SeLinuxOption {
                user: "u".to_owned(),
                role: "r".to_owned(),
                r#type: "t".to_owned(),
                level: "s0:c1,c2".to_owned(),
            });
        })
    };
    let mut on = case();
    on.host.selinux = true;
    on.host.selinux_file = "system_u:object_r:container_file_t:s0".to_owned();
    let spec = on.make().unwrap();
    assert_eq!(spec["process"]["selinuxLabel"], "u:r:t:s0:c1,c2");
    assert_eq!(
        spec["linux"]["mountLabel"],
        "u:object_r:container_file_t:s0:c1,c2"
    );
    let off = case().make().unwrap();
    assert!(off["process"]["selinuxLabel"].is_null());
    assert!(off["linux"]["mountLabel"].is_null());
}

#[test]
fn annotations_that_are_passed_on_never_say_who_the_container_is() {
    let mut case = case();
    case.passed_on = words(&["vendor.io.*", "io.kubernetes.cri.*"]);
    let pod = [
        ("vendor.io.size", "2"),
        ("other", "x"),
        ("io.kubernetes.cri.sandbox-id", "another"),
    ];
    let pod = pod.map(|(key, value)| (key.to_owned(), value.to_owned()));
    case.sandbox.annotations = pod.into();
    let spec = case.make().unwrap();
    let found = &spec["annotations"];
    assert_eq!(found["vendor.io.size"], "2");
    assert_eq!(found["io.kubernetes.cri.sandbox-id"], "s1");
    assert!(found["other"].is_null());
}

#[test]
fn what_cri_has_and_this_runtime_has_not_is_refused_by_name() {
    let mut mapped = at("/m");
    mapped.uid_mappings = vec![proto::cri::IdMapping::default()];
    let mut optioned = at("/m");
    optioned.mount_options = words(&["noexec", "sync"]);
    let userns = case().security(|context| {
        context.namespace_options = Some(proto::cri::NamespaceOption {
            userns_options: Some(proto::cri::UserNamespace::default()),
            ..Default::default()
        });
    });
    for (case, word) in [
        (
            case().mount(mapped, HostPropagation::Private),
            "uid_mappings",
        ),
        (
            case().mount(optioned, HostPropagation::Private),
            "mount_options",
        ),
        (userns, "userns_options"),
        (case().mount(at("m"), HostPropagation::Private), "absolute"),
        (
            case().mount(at("/a/../b"), HostPropagation::Private),
            "without ..",
        ),
    ] {
        let refusal = case.make().unwrap_err().to_string();
        assert!(refusal.contains(word), "{refusal}");
    }
}

fn own_users(mut case: Case) -> Case {
    let range = IdRange {
        inside: 0,
        outside: 65_536,
        length: 65_536,
    };
    case.namespaces.user = Some(UserNamespacePath {
        path: "/u/ns/user".to_owned(),
        ids: UserIds {
            users: range,
            groups: range,
        },
    });
    case.security(|context| {
        let line = proto::cri::IdMapping {
            container_id: 0,
            host_id: 65_536,
            length: 65_536,
        };
        context
            .namespace_options
            .get_or_insert_default()
            .userns_options = Some(proto::cri::UserNamespace {
            mode: proto::cri::NamespaceMode::Pod.into(),
            uids: vec![line],
            gids: vec![line],
        });
    })
}

#[test]
fn a_container_joins_the_user_namespace_of_its_sandbox_and_no_other() {
    let mut case = own_users(case().mount(at("/m"), HostPropagation::Private));
    case.sources[0].kept = vec!["nodev"];
    let made = case.make().unwrap();
    let user = json!({ "type": "user", "path": "/u/ns/user" });
    let namespaces = made["linux"]["namespaces"].as_array().unwrap();
    assert!(namespaces.contains(&user), "{namespaces:?}");
    let ids = json!([{ "containerID": 0, "hostID": 65_536, "size": 65_536 }]);
    assert_eq!(made["linux"]["uidMappings"], ids);
    assert_eq!(made["linux"]["gidMappings"], ids);
    let mounts = made["mounts"].as_array().unwrap();
    let mount = mounts.iter().find(|mount| mount["destination"] == "/m");
    let options = json!(["rbind", "rprivate", "rw", "nodev"]);
    assert_eq!(mount.unwrap()["options"], options);

    let mut elsewhere = own_users(self::case());
    elsewhere.namespaces.user = None;
    let mut both_ways = at("/m");
    both_ways.set_propagation(MountPropagation::PropagationBidirectional);
    let mut nothing_said = own_users(self::case());
    nothing_said.config.linux = None;
    for (case, word) in [
        (elsewhere, "userns_options"),
        (nothing_said, "userns_options"),
        (
            own_users(self::case().mount(both_ways, HostPropagation::Shared)),
            "propagation",
        ),
    ] {
        let refusal = case.make().unwrap_err().to_string();
        assert!(refusal.contains(word), "{refusal}");
    }
}

fn profile(kind: ProfileType, path: &str) -> Option<SecurityProfile> {
    Some(SecurityProfile {
        profile_type: kind.into(),
        localhost_ref: path.to_owned(),
    })
}

#[test]
fn the_default_seccomp_profile_follows_the_capabilities() {
    let calls = |case: Case| {
        let case = case.security(|context| {
            context.seccomp = profile(ProfileType::RuntimeDefault, "");
        });
        let spec = case.make().unwrap();
        let seccomp = spec["linux"]["seccomp"].clone();
        assert_eq!(seccomp["defaultAction"], "SCMP_ACT_ERRNO");
        seccomp["syscalls"].as_array().unwrap().clone()
    };
    let allowed = |calls: &[Value], name: &str| {
        let names = calls[0]["names"].as_array().unwrap();
        names.contains(&json!(name))
    };
    let plain = calls(case());
    assert!(allowed(&plain, "openat") && allowed(&plain, "arch_prctl"));
    assert!(!allowed(&plain, "mount") && !allowed(&plain, "reboot"));
    assert!(plain.iter().any(|rule| rule["names"] == json!(["clone3"])));
    let admin = calls(case().security(|context| {
        context.capabilities = Some(Capability {
            add_capabilities: words(&["SYS_ADMIN"]),
            ..Default::default()
        });
    }));
    assert!(allowed(&admin, "mount") && !allowed(&admin, "reboot"));
    assert!(!admin.iter().any(|rule| rule["names"] == json!(["clone3"])));
}

#[test]
fn a_seccomp_profile_of_the_node_is_passed_on_and_unconfined_is_none() {
    let section = |kind, text: Option<&str>| {
        let mut case = case().security(|context| context.seccomp = profile(kind, "/p.json"));
        case.profile = text.map(str::to_owned);
        case.make().map(|spec| spec["linux"]["seccomp"].clone())
    };
    let own = section(
        ProfileType::Localhost,
        Some(r#"{"defaultAction":"SCMP_ACT_LOG"}"#),
    );
    assert_eq!(own.unwrap()["defaultAction"], "SCMP_ACT_LOG");
    for wrong in [None, Some("{}"), Some("x")] {
        assert!(section(ProfileType::Localhost, wrong).is_err());
    }
    assert_eq!(section(ProfileType::Unconfined, None), Ok(Value::Null));
    let mut blind = case().security(|context| {
        context.seccomp = profile(ProfileType::RuntimeDefault, "");
    });
    blind.host.seccomp = false;
    assert!(blind.make().is_err());
}

#[test]
fn a_named_apparmor_profile_needs_apparmor_and_the_default_one_does_not() {
    let set = |kind, apparmor| {
        let mut case = case().security(|context| context.apparmor = profile(kind, "own"));
        case.host.apparmor = apparmor;
        case.make()
            .map(|spec| spec["process"]["apparmorProfile"].clone())
    };
    assert_eq!(set(ProfileType::Localhost, true), Ok(json!("own")));
    assert!(set(ProfileType::Localhost, false).is_err());
    assert_eq!(set(ProfileType::RuntimeDefault, false), Ok(Value::Null));
    assert_ne!(set(ProfileType::RuntimeDefault, true), Ok(Value::Null));
    assert_eq!(set(ProfileType::Unconfined, true), Ok(Value::Null));
}

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
