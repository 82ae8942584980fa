//! What each field of a configuration becomes.

mod limits;
mod security;

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
        (&["e"], &[], &[""], &[], &[""]),
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
    case.image.env = words(&["PATH=/image", "A=1", "NOVALUE"]);
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
fn dots_of_a_mounts_path_lead_nowhere_above_the_root() {
    for (asked, expected) in [("/a/../b", "/b"), ("/../../c", "/c"), ("/./d//e/", "/d/e")] {
        let case = case().mount(at(asked), HostPropagation::Private);
        let spec = case.make().unwrap();
        assert_eq!(mounted(&spec, expected)["type"], "bind", "{asked}");
    }
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

/// As containerd orders them: the pod's files stand in a folder that the container mounts, and `/dev` has what its mount has.
#[test]
fn the_pods_files_are_mounted_in_folders_of_the_container() {
    let case = case()
        .mount(at("/etc"), HostPropagation::Private)
        .mount(at("/dev"), HostPropagation::Private);
    let spec = case.make().unwrap();
    let paths = destinations(&spec);
    let place = |path: &str| paths.iter().position(|own| *own == path);
    assert!(place("/etc") < place("/etc/hosts"), "{paths:?}");
    assert!(place("/dev") < place("/dev/shm"), "{paths:?}");
    for path in ["/dev/pts", "/dev/mqueue"] {
        assert_eq!(place(path), None, "{paths:?}");
    }
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
    ] {
        let refusal = case.make().unwrap_err().to_string();
        assert!(refusal.contains(word), "{refusal}");
    }
}
