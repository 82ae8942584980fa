//! A node alone: what the machine decides, what goes before it, and what cannot be.

use serde_json::json;

use super::*;
use crate::alone::StandaloneRuntime;
use crate::plugins::{PluginKind, PluginStart};

const OWN_ENDPOINT: &str = "unix:///var/lib/kubelet/oxlet/plugins/runtime.sock";

fn names(node: &NodeConfig) -> Vec<&str> {
    let plugins = node.plugins.plugins.iter();
    plugins.map(|plugin| plugin.name.as_str()).collect()
}

/// The runtime that a machine with these daemons gets, its first life in this folder.
fn chosen(rig: &mut Rig, daemons: &[StandaloneRuntime]) -> NodeConfig {
    rig.host.standalone.daemons = daemons.to_vec();
    rig.run(&format!("--alone --root-dir={}", rig.at("root")))
}

#[test]
fn alone_takes_no_further_word_and_opens_nothing_to_the_network() {
    let rig = rig();
    let node = rig.run("--alone");
    assert_eq!(node.warnings, Vec::<String>::new());
    let kubelet = &node.kubelet;
    assert_eq!(kubelet.static_pod_path, "/etc/oxlet/manifests");
    assert_eq!((kubelet.enable_server, kubelet.read_only_port), (false, 0));
    assert_eq!(kubelet.healthz_bind_address, "127.0.0.1");
    assert_eq!(kubelet.container_runtime_endpoint, OWN_ENDPOINT);
    assert!(!kubelet.authentication.anonymous.enabled);
    // Where a port is opened after all, it is on this machine, and nobody is let in unknown.
    let node = rig.run("--alone --enable-server --read-only-port=10255");
    assert_eq!(node.kubelet.address, "127.0.0.1");
    assert!(!node.kubelet.authentication.anonymous.enabled);
    assert_eq!(node.flags.root_dir, "/var/lib/kubelet");
    assert_eq!(node.node_name, "host-1");
    // Thresholds are those of a kubelet with a file.
    let hard = kubelet.eviction_hard.as_ref().unwrap();
    assert_eq!(hard["memory.available"], "100Mi");
    assert!(rig.run("").alone.is_none() && rig.run("--alone=false").alone.is_none());
}

#[test]
fn the_machine_decides_about_the_runtime_and_each_brings_what_it_needs() {
    use StandaloneRuntime::{Containerd, Crio, Native};
    let mut rig = rig();
    let cases: [(&[StandaloneRuntime], _, Option<&str>); 4] = [
        (
            &[Containerd, Crio],
            Containerd,
            Some("unix:///run/containerd/containerd.sock"),
        ),
        (
            &[Containerd],
            Containerd,
            Some("unix:///run/containerd/containerd.sock"),
        ),
        (&[Crio], Crio, Some("unix:///run/crio/crio.sock")),
        (&[], Native, None),
    ];
    for (daemons, runtime, endpoint) in cases {
        let node = chosen(&mut rig, daemons);
        assert_eq!(node.plugins.runtime, runtime.name());
        let kept = node.alone.clone().unwrap().runtime.unwrap();
        assert_eq!(kept.runtime, runtime);
        assert_eq!(kept.file, Path::new(&rig.at("root/oxlet/runtime-choice")));
        let plugin = &node.plugins.plugins[0];
        let start = PluginStart::Managed {
            command: "/opt/oxlet/oxlet-plugins".into(),
            args: vec![format!("runtime-{}", runtime.name())],
        };
        assert_eq!((&plugin.start, plugin.kind), (&start, PluginKind::Runtime));
        match endpoint {
            Some(endpoint) => assert_eq!(plugin.configuration, json!({ "endpoint": endpoint })),
            None => assert_eq!(
                names(&node),
                ["native", "network", "storage-local", "storage-csi"]
            ),
        }
    }
}

#[test]
fn pods_of_the_runtime_without_a_daemon_have_the_machines_networks_or_else_the_agents_own() {
    let mut rig = rig();
    let folder = |node: &NodeConfig| node.plugins.plugins[1].configuration["confDir"].clone();
    let own = rig.run("--alone --root-dir=/srv/node");
    assert_eq!(folder(&own), "/srv/node/oxlet/net.d");
    let networks = own.alone.unwrap().networks;
    assert_eq!(networks, Some("/srv/node/oxlet/net.d".into()));
    rig.host.standalone.networks = Some("/etc/cni/net.d".into());
    let given = rig.run("--alone");
    assert_eq!(folder(&given), "/etc/cni/net.d");
    assert_eq!(given.alone.unwrap().networks, None);
}

#[test]
fn a_node_keeps_its_first_runtime_whatever_daemons_come_and_go() {
    use StandaloneRuntime::{Containerd, Crio, Native};
    let mut rig = rig();
    for kept in [Containerd, Crio, Native] {
        rig.file("root/oxlet/runtime-choice", &format!("{}\n", kept.name()));
        for daemons in [&[][..], &[Containerd], &[Crio], &[Containerd, Crio]] {
            let node = chosen(&mut rig, daemons);
            assert_eq!(node.plugins.runtime, kept.name(), "{daemons:?}");
        }
    }
    let damaged = [
        ("cont", "containerd"),
        ("nat", "native"),
        ("native\nxyz", "native"),
        ("crio\n\0\0", "crio"),
        ("", "crio"),
    ];
    for (text, expected) in damaged {
        rig.file("root/oxlet/runtime-choice", text);
        assert_eq!(
            chosen(&mut rig, &[Crio]).plugins.runtime,
            expected,
            "{text:?}"
        );
    }
    rig.file("root/oxlet/runtime-choice", "c");
    let why = rig.refused(&format!("--alone --root-dir={}", rig.at("root")));
    assert!(why.contains("\"c\""), "{why}");
    let file = rig.file("root/oxlet/runtime-choice", "docker\n");
    let why = rig.refused(&format!("--alone --root-dir={}", rig.at("root")));
    assert!(why.contains(&file) && why.contains("\"docker\""), "{why}");
    assert!(why.contains("containerd, crio or native"), "{why}");
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    let why = rig.refused(&format!("--alone --root-dir={}", rig.at("root")));
    assert!(why.contains(&file), "{why}");
}

#[test]
fn groups_are_systemds_where_systemd_and_cgroup_v2_are_and_the_runtime_takes_them() {
    use StandaloneRuntime::{Containerd, Crio};
    let (v1, v2) = (CgroupVersion::V1, CgroupVersion::V2);
    let cases: [(&[StandaloneRuntime], bool, CgroupVersion, &str); 6] = [
        (&[], true, v2, "systemd"),
        (&[], false, v2, "cgroupfs"),
        (&[], true, v1, "cgroupfs"),
        (&[Crio], true, v2, "systemd"),
        (&[Crio], false, v2, "cgroupfs"),
        (&[Containerd], true, v2, "cgroupfs"),
    ];
    let mut rig = rig();
    for (daemons, is_systemd, cgroup, driver) in cases {
        rig.host.cgroup = cgroup;
        rig.host.standalone.is_systemd = is_systemd;
        let node = chosen(&mut rig, daemons);
        assert_eq!(
            node.kubelet.cgroup_driver, driver,
            "{daemons:?} {is_systemd}"
        );
    }
}

#[test]
fn pods_get_servers_that_they_can_reach() {
    let (machine, resolved) = ("/etc/resolv.conf", "/run/systemd/resolve/resolv.conf");
    let stub = "# stub\nnameserver 127.0.0.53\noptions edns0\n";
    let mut rig = rig();
    for (text, has_resolved, file) in [
        (None, true, ""),
        (Some("nameserver 192.0.2.1\n"), true, machine),
        (Some(stub), true, resolved),
        (Some(stub), false, machine),
        (
            Some("nameserver 127.0.0.1\nnameserver 192.0.2.1\n"),
            true,
            machine,
        ),
        (Some("nameserver ::1\n"), true, resolved),
        (Some("search example.org\nnameserver\n"), true, machine),
    ] {
        rig.host.standalone.resolv_conf = text.map(str::to_owned);
        rig.host.standalone.has_resolved = has_resolved;
        assert_eq!(rig.run("--alone").kubelet.resolver_config, file, "{text:?}");
    }
}

#[test]
fn a_machine_without_a_name_is_a_node_all_the_same() {
    let mut rig = rig();
    for (hostname, name) in [
        ("", "localhost"),
        ("(none)\n", "localhost"),
        ("Edge-7", "edge-7"),
    ] {
        hostname.clone_into(&mut rig.host.hostname);
        assert_eq!(rig.run("--alone").node_name, name);
    }
    assert_eq!(
        rig.run("--alone --hostname-override=kiosk").node_name,
        "kiosk"
    );
}

#[test]
fn drop_ins_and_flags_go_before_what_the_machine_decides() {
    let mut rig = rig();
    rig.host.standalone.daemons = vec![StandaloneRuntime::Containerd];
    let said = "{staticPodPath: /srv/pods, maxPods: 7, cgroupDriver: systemd, resolvConf: '',\
                 containerRuntimeEndpoint: 'unix:///run/crio/crio.sock'}";
    rig.config("conf.d/10-site.conf", said);
    let line = format!("--alone --config-dir={}", rig.at("conf.d"));
    let node = rig.run(&line);
    assert_eq!(node.kubelet.static_pod_path, "/srv/pods");
    assert_eq!(
        (node.kubelet.max_pods, &*node.kubelet.cgroup_driver),
        (7, "systemd")
    );
    assert_eq!(node.kubelet.resolver_config, "");
    // What is said is nothing that the node would have to keep.
    assert_eq!(
        (&*node.plugins.runtime, &node.alone),
        ("crio", &Some(Standalone::default()))
    );
    assert!(!node.kubelet.enable_server && node.kubelet.read_only_port == 0);
    let node = rig.run(&format!("{line} --pod-manifest-path=/flag --max-pods=8"));
    assert_eq!(
        (&*node.kubelet.static_pod_path, node.kubelet.max_pods),
        ("/flag", 8)
    );
    assert_eq!(node.warnings, Vec::<String>::new());

    // The default of a kubelet is a word like any other, said in a file or by a flag.
    rig.host.standalone.daemons.clear();
    let default = "unix:///run/containerd/containerd.sock";
    let flag = format!("--alone --container-runtime-endpoint={default}");
    assert_eq!(rig.run(&flag).plugins.runtime, "containerd");
    rig.config(
        "said.d/10-site.conf",
        &format!("{{containerRuntimeEndpoint: '{default}'}}"),
    );
    let node = rig.run(&format!("--alone --config-dir={}", rig.at("said.d")));
    assert_eq!(node.plugins.runtime, "containerd");

    let plugins = rig.file(
        "plugins.yaml",
        "apiVersion: oxlet.dev/v1alpha1\nkind: PluginConfiguration\nruntime: native\nplugins: []\n",
    );
    let node = rig.run(&format!("--alone --plugins={plugins}"));
    assert_eq!(
        (&*node.plugins.runtime, &node.alone),
        ("native", &Some(Standalone::default()))
    );
    assert_eq!(node.warnings, Vec::<String>::new());
    let node = rig.run(&format!("{line} --plugins={plugins}"));
    assert_eq!(node.warnings.len(), 1, "{:?}", node.warnings);
}

/// Where there is no API server, only a folder can have what pods refer to.
#[test]
fn static_pods_may_refer_to_objects_where_a_folder_has_them() {
    let rig = rig();
    let gate = "PreventStaticPodAPIReferences";
    assert!(rig.run("--alone").gates.enabled(gate));
    let with_objects = "--alone --object-manifests=/etc/oxlet/objects";
    assert!(!rig.run(with_objects).gates.enabled(gate));
    let said = format!("{with_objects} --feature-gates={gate}=true");
    assert!(rig.run(&said).gates.enabled(gate));
}

#[test]
fn what_contradicts_a_node_alone_is_refused_by_its_name() {
    let rig = rig();
    let file = rig.config("k.yaml", "{maxPods: 5}");
    for (line, words) in [
        ("--kubeconfig=/k", ["--kubeconfig", "API server"]),
        (
            "--bootstrap-kubeconfig=/k",
            ["--bootstrap-kubeconfig", "API server"],
        ),
        (
            "--cloud-provider=external",
            ["--cloud-provider", "API server"],
        ),
        (&format!("--config={file}"), ["--config ", "--config-dir"]),
        (
            "--authentication-token-webhook",
            ["authentication.webhook.enabled", "API server"],
        ),
        (
            "--authorization-mode=Webhook",
            ["authorization.mode", "API server"],
        ),
        (
            "--rotate-certificates",
            ["rotateCertificates", "API server"],
        ),
        (
            "--rotate-server-certificates --feature-gates=RotateKubeletServerCertificate=true",
            ["serverTLSBootstrap", "API server"],
        ),
        (
            "--enable-server --anonymous-auth --address=0.0.0.0",
            ["authentication.anonymous.enabled", "127.0.0.1"],
        ),
    ] {
        let why = rig.refused(&format!("--alone {line}"));
        assert!(words.iter().all(|word| why.contains(word)), "{line}: {why}");
        assert!(why.contains("--alone"), "{line}: {why}");
    }
    // Nobody but this machine's own users, or those with a certificate.
    rig.run("--alone --enable-server --anonymous-auth");
    rig.run("--alone --enable-server --address=0.0.0.0 --client-ca-file=/ca.crt");
    rig.run("--alone --kubeconfig=");
}
