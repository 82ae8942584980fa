//! The plugin file: its fields, and how its errors are reported.

use kernel::error_chain;
use proptest::prelude::*;

use super::*;

const HEAD: &str = "apiVersion: oxlet.dev/v1alpha1\nkind: PluginConfiguration\n";

fn folders() -> PluginFolders<'static> {
    PluginFolders {
        program: Path::new("/opt/oxlet"),
        file: Path::new("/etc/oxlet"),
    }
}

fn read(body: &str) -> Result<PluginFile, PluginError> {
    parse(&format!("{HEAD}{body}"), folders())
}

#[test]
fn a_plugin_file_is_read_with_its_defaults() {
    let file = read(
        "runtime: b\n\
         plugins:\n\
         - {name: a, kind: runtime, command: runtime-a, args: [-x], configuration: {k: 1}}\n\
         - {name: b, kind: runtime, endpoint: 'unix:///run/b.sock', healthInterval: 500ms, startWithin: 2s, restarts: 9, restartsWithin: 1s}\n\
         - {name: c, kind: runtime, command: ./c, healthInterval: null}\n",
    )
    .unwrap();
    assert_eq!(file.runtime, "b");
    let [a, b, c, local, csi] = file.plugins.as_slice() else {
        panic!("three plugins and the two for storage")
    };
    let managed = |command: &str, args: &[&str]| PluginStart::Managed {
        command: command.into(),
        args: args.iter().map(|arg| (*arg).to_owned()).collect(),
    };
    assert_eq!(a.start, managed("/opt/oxlet/runtime-a", &["-x"]));
    assert_eq!(a.configuration, json!({"k": 1}));
    assert_eq!(
        (a.health_interval, a.start_within),
        (Duration::from_secs(3), Duration::from_secs(10))
    );
    assert_eq!(
        b.start,
        PluginStart::External {
            endpoint: "/run/b.sock".into()
        }
    );
    assert_eq!(
        (b.health_interval, b.start_within),
        (Duration::from_millis(500), Duration::from_secs(2))
    );
    assert_eq!(
        (a.restarts, a.restarts_within),
        (5, Duration::from_secs(60))
    );
    assert_eq!((b.restarts, b.restarts_within), (9, Duration::from_secs(1)));
    assert_eq!(c.start, managed("/etc/oxlet/./c", &[]));
    for (plugin, name) in [(local, "storage-local"), (csi, "storage-csi")] {
        assert_eq!(
            (plugin.name.as_str(), plugin.kind),
            (name, PluginKind::Storage)
        );
        assert_eq!(plugin.start, managed("/opt/oxlet/oxlet-plugins", &[name]));
        assert_eq!(plugin.configuration, Value::Null);
    }
}

#[test]
fn a_storage_plugin_is_as_the_file_declares_it() {
    let file = read(
        "runtime: a\n\
         plugins:\n\
         - {name: storage-csi, kind: storage, command: ./csi, healthInterval: 1s, configuration: {registrationDir: /run/csi}}\n\
         - {name: a, kind: runtime, command: a}\n",
    )
    .unwrap();
    let names: Vec<_> = file
        .plugins
        .iter()
        .map(|plugin| plugin.name.as_str())
        .collect();
    assert_eq!(names, ["storage-csi", "a", "storage-local"]);
    let csi = &file.plugins[0];
    let start = PluginStart::Managed {
        command: "/etc/oxlet/./csi".into(),
        args: Vec::new(),
    };
    assert_eq!((csi.kind, &csi.start), (PluginKind::Storage, &start));
    assert_eq!(csi.health_interval, Duration::from_secs(1));
    assert_eq!(csi.configuration, json!({"registrationDir": "/run/csi"}));
}

#[test]
fn each_mistake_is_named_with_its_field() {
    for (body, message) in [
        (
            "runtime: a\nplugins: []\n",
            "field runtime: no runtime plugin is named \"a\"; declared are: ",
        ),
        (
            "runtime: a\nplugins:\n- {name: A, kind: runtime, command: a}\n",
            "field plugins[0].name: ",
        ),
        (
            "runtime: a\nplugins:\n- {kind: runtime, command: a}\n",
            "field plugins[0].name: ",
        ),
        (
            "runtime: a\nplugins:\n- {name: ../a, kind: runtime, command: a}\n",
            "field plugins[0].name: ",
        ),
        (
            "runtime: a\nplugins:\n- {name: a, kind: volume, command: a}\n",
            "field plugins[0].kind: ",
        ),
        (
            "runtime: a\nplugins:\n- {name: a, kind: runtime}\n",
            "field plugins[0].command: ",
        ),
        (
            "runtime: a\nplugins:\n- {name: a, kind: runtime, command: ''}\n",
            "field plugins[0].command: ",
        ),
        (
            "runtime: a\nplugins:\n- {name: a, kind: runtime, command: a, endpoint: /a}\n",
            "field plugins[0].command: ",
        ),
        (
            "runtime: a\nplugins:\n- {name: a, kind: runtime, endpoint: 'tcp://a'}\n",
            "field plugins[0].endpoint: ",
        ),
        (
            "runtime: a\nplugins:\n- {name: a, kind: runtime, endpoint: /a, args: [b]}\n",
            "field plugins[0].args: ",
        ),
        (
            "runtime: a\nplugins:\n- {name: a, kind: runtime, command: a, configuration: [b]}\n",
            "field plugins[0].configuration: ",
        ),
        (
            "runtime: a\nplugins:\n- {name: a, kind: runtime, command: a, startWithin: 0s}\n",
            "field plugins[0].startWithin: ",
        ),
        (
            "runtime: a\nplugins:\n- {name: a, kind: runtime, command: a, startWithin: 5}\n",
            "field plugins[0].startWithin: invalid type",
        ),
        (
            "runtime: a\nplugins:\n- {name: a, kind: runtime, comand: a}\n",
            "field plugins[0].comand: unknown field `comand`",
        ),
        (
            "runtime: a\nplugins:\n- {name: a, kind: runtime, command: a, memoryLimit: 1Ti, pidsLimit: -1}\n",
            "field plugins[0].pidsLimit: -1 is no limit",
        ),
        (
            "runtime: a\nplugins:\n- {name: a, kind: runtime, endpoint: /a, memoryLimit: 64Mi}\n",
            "field plugins[0].memoryLimit: an endpoint's process is not the agent's to confine",
        ),
        (
            "runtime: a\nplugin: []\n",
            "field plugin: unknown field `plugin`",
        ),
        (
            "runtime: a\nplugins:\n- {name: a, kind: runtime, command: a}\n- {name: a, kind: runtime, command: b}\n",
            "field plugins: two are named \"a\"",
        ),
        ("runtime: a\nruntime: b\n", "a field stands twice: "),
    ] {
        let error = error_chain(&read(body).unwrap_err());
        assert!(error.contains(message), "{body}: {error}");
    }
}

#[test]
fn mistakes_about_storage_plugins_are_named() {
    for (body, message) in [
        (
            "runtime: storage-csi\nplugins:\n- {name: a, kind: runtime, command: a}\n- {name: storage-csi, kind: storage, command: a}\n",
            "field runtime: no runtime plugin is named \"storage-csi\"; declared are: a",
        ),
        (
            "runtime: a\nplugins:\n- {name: a, kind: runtime, command: a}\n- {name: ceph, kind: storage, command: a}\n",
            "field plugins[1].name: \"ceph\" is no storage plugin that this version knows; \
             expected storage-local or storage-csi",
        ),
        (
            "runtime: storage-local\nplugins:\n- {name: storage-local, kind: runtime, command: a}\n",
            "field plugins[0].name: \"storage-local\" is the name of a storage plugin; \
             expected another one, or kind \"storage\"",
        ),
    ] {
        let error = error_chain(&read(body).unwrap_err());
        assert!(error.contains(message), "{body}: {error}");
    }
}

#[test]
fn native_runtime_needs_no_declaration_and_brings_a_network() {
    let names = |body: &str| {
        let file = read(body).unwrap();
        let native = |plugin: &PluginConfig| !plugin.name.starts_with("storage-");
        let named = |plugin: &PluginConfig| {
            let PluginStart::Managed { command, args } = &plugin.start else {
                panic!("{plugin:?}")
            };
            assert_eq!(command, Path::new("/opt/oxlet/oxlet-plugins"));
            format!("{}={}", plugin.name, args.join(" "))
        };
        let plugins = file.plugins.iter().filter(|plugin| native(plugin));
        plugins.map(named).collect::<Vec<_>>()
    };
    let runtime = "native=runtime-native";
    assert_eq!(
        names("runtime: native\n"),
        [runtime, "network=network-native"]
    );
    let declared = [
        (
            "- {name: pods, kind: network, command: network-cni}",
            vec!["pods=network-cni", runtime],
        ),
        (
            "- {name: native, kind: runtime, command: runtime-native}",
            vec![runtime],
        ),
    ];
    for (line, expected) in declared {
        assert_eq!(
            names(&format!("runtime: native\nplugins:\n{line}\n")),
            expected
        );
    }
    let other = read("runtime: natives\n").unwrap_err();
    assert!(error_chain(&other).contains("no runtime plugin is named"));
}

#[test]
fn there_is_one_network_plugin_at_most() {
    let runtime = "runtime: a\nplugins:\n- {name: a, kind: runtime, command: a}\n";
    let file = read(&format!(
        "{runtime}- {{name: network, kind: network, command: network-cni, configuration: {{confDir: /n}}}}\n"
    ))
    .unwrap();
    let network = &file.plugins[1];
    assert_eq!(network.kind, PluginKind::Network);
    let start = PluginStart::Managed {
        command: "/opt/oxlet/oxlet-plugins".into(),
        args: vec!["network-cni".to_owned()],
    };
    assert_eq!(network.start, start);
    let none = read(runtime).unwrap();
    assert!(
        none.plugins
            .iter()
            .all(|plugin| plugin.kind != PluginKind::Network)
    );
    for (more, message) in [
        (
            "- {name: b, kind: network, command: b}\n- {name: c, kind: network, command: c}\n",
            "field plugins: expected at most one of kind \"network\", found b, c",
        ),
        (
            "- {name: runtime, kind: network, command: b}\n",
            "field plugins: a network plugin cannot be named \"runtime\"",
        ),
        (
            "- {name: storage-csi, kind: network, command: b}\n",
            "field plugins[1].name: \"storage-csi\" is the name of a storage plugin",
        ),
    ] {
        let error = error_chain(&read(&format!("{runtime}{more}")).unwrap_err());
        assert!(error.contains(message), "{more}: {error}");
    }
}

#[test]
fn another_kind_of_document_is_refused() {
    for text in [
        "{}",
        "kind: PluginConfiguration",
        "apiVersion: v1\nkind: Pod\n",
        "[]",
        "",
        "a: [",
        "\u{0}",
    ] {
        assert!(parse(text, folders()).is_err(), "{text:?}");
    }
}

#[test]
fn a_kubelets_endpoint_tells_the_plugin() {
    let program = Path::new("/opt/oxlet");
    for (endpoint, name, plugin) in [
        (
            "unix:///run/containerd/containerd.sock",
            "containerd",
            "runtime-containerd",
        ),
        (
            "/run/containerd/containerd.sock",
            "containerd",
            "runtime-containerd",
        ),
        ("unix:///var/run/crio/crio.sock", "crio", "runtime-crio"),
    ] {
        let file = from_endpoint(endpoint, program).unwrap();
        assert_eq!((file.runtime.as_str(), file.plugins.len()), (name, 3));
        assert_eq!(
            file.plugins[0].start,
            PluginStart::Managed {
                command: "/opt/oxlet/oxlet-plugins".into(),
                args: vec![plugin.to_owned()]
            }
        );
        let endpoint = file.plugins[0].configuration["endpoint"].as_str().unwrap();
        assert!(endpoint.starts_with("unix:///"), "{endpoint}");
    }
    let other = from_endpoint("unix:///run/other.sock", program).unwrap();
    assert_eq!(
        other.plugins[0].start,
        PluginStart::External {
            endpoint: "/run/other.sock".into()
        }
    );
    assert!(from_endpoint("tcp://127.0.0.1:1", program).is_err());
}

/// Else containerd at a socket of an odd name would be listed each second instead of telling its events.
#[test]
fn a_runtime_at_a_socket_of_another_name_is_known_by_its_process() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("cri.sock");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let endpoint = socket.to_str().unwrap();
    let runtime = || from_endpoint(endpoint, Path::new("/opt")).unwrap().runtime;
    assert_eq!(runtime(), "cri");
    let own_name = format!("/proc/self/task/{}/comm", std::process::id());
    for name in ["containerd", "crio"] {
        std::fs::write(&own_name, name).unwrap();
        assert_eq!(runtime(), name);
    }
}

#[test]
fn a_shipped_plugin_is_a_name_of_one_program_and_a_path_is_any_other() {
    let start = |command: &str| {
        let body = format!(
            "runtime: a\nplugins:\n- {{name: a, kind: runtime, command: {command}, args: [-x]}}\n"
        );
        read(&body).unwrap().plugins[0].start.clone()
    };
    let managed = |command: &str, args: &[&str]| PluginStart::Managed {
        command: command.into(),
        args: args.iter().map(|arg| (*arg).to_owned()).collect(),
    };
    let shipped = managed("/opt/oxlet/oxlet-plugins", &["runtime-crio", "-x"]);
    assert_eq!(start("runtime-crio"), shipped);
    let other = managed("/etc/oxlet/./runtime-crio", &["-x"]);
    assert_eq!(start("./runtime-crio"), other);
    let fake = managed("/opt/oxlet/runtime-fake", &["-x"]);
    assert_eq!(start("runtime-fake"), fake);
}

#[test]
fn the_shipped_plugin_file_is_sound() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("plugins.yaml");
    let file = load(&path, Path::new("/opt/oxlet")).unwrap();
    let names: Vec<_> = file
        .plugins
        .iter()
        .map(|plugin| plugin.name.as_str())
        .collect();
    assert_eq!(
        (file.runtime.as_str(), names),
        (
            "containerd",
            vec![
                "containerd",
                "crio",
                "native",
                "fake",
                "storage-local",
                "storage-csi"
            ]
        )
    );
}

proptest! {
    #[test]
    fn no_text_panics(body in "[-a-z{}\\[\\]:, \n\"']{0,80}") {
        if let Err(error) = read(&body) {
            prop_assert!(!error.to_string().is_empty());
        }
    }
}
