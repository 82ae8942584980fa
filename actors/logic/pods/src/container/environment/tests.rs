//! The cases of upstream's TestMakeEnvironmentVariables.

use std::sync::Arc;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{
    ConfigMap, ConfigMapEnvSource, ConfigMapKeySelector, EnvFromSource, EnvVar, EnvVarSource,
    FileKeySelector, ObjectFieldSelector, ResourceFieldSelector, Secret, SecretEnvSource,
    SecretKeySelector, Service, ServicePort, ServiceSpec,
};
use logic_api::objects::StaticObjects;
use logic_api::testing::*;
use logic_api::text::env_file::EnvFile;

use super::*;

/// A pod's environment in the making.
struct Case {
    namespace: &'static str,
    links: Option<bool>,
    env: Vec<EnvVar>,
    env_from: Vec<EnvFromSource>,
    objects: StaticObjects,
    files: EnvFiles,
}

impl Default for Case {
    fn default() -> Self {
        Self {
            namespace: "test1",
            links: Some(false),
            env: Vec::new(),
            env_from: Vec::new(),
            objects: StaticObjects::default(),
            files: EnvFiles::default(),
        }
    }
}

impl Case {
    fn made(self) -> Result<Vec<String>, String> {
        let mut pod = pod("dapi-test-pod-name").app_with("c", |c| {
            c.env = Some(self.env);
            c.env_from = Some(self.env_from);
        });
        pod.metadata.namespace = Some(self.namespace.into());
        pod.spec.as_mut().unwrap().enable_service_links = self.links;
        let node = NodePolicy {
            allocatable: quantities(&[("cpu", "4")]),
            ..NodePolicy::default()
        };
        let made = variables(&EnvironmentInput {
            pod: &pod,
            container: &pod.app_containers()[0],
            pod_ips: &[],
            node: &node,
            objects: &self.objects,
            env_files: &self.files,
        });
        let line = |(name, value)| format!("{name}={value}");
        let lines = |list: Variables| list.into_iter().map(line).collect();
        made.map(lines).map_err(|error| error.to_string())
    }
}

fn literal(name: &str, value: &str) -> EnvVar {
    EnvVar {
        name: name.into(),
        value: Some(value.into()),
        value_from: None,
    }
}

fn from(name: &str, source: EnvVarSource) -> EnvVar {
    EnvVar {
        name: name.into(),
        value: None,
        value_from: Some(source),
    }
}

fn map_key(name: &str, key: &str, optional: Option<bool>) -> EnvVarSource {
    EnvVarSource {
        config_map_key_ref: Some(ConfigMapKeySelector {
            key: key.into(),
            name: name.into(),
            optional,
        }),
        ..EnvVarSource::default()
    }
}

fn secret_key(name: &str, key: &str, optional: Option<bool>) -> EnvVarSource {
    EnvVarSource {
        secret_key_ref: Some(SecretKeySelector {
            key: key.into(),
            name: name.into(),
            optional,
        }),
        ..EnvVarSource::default()
    }
}

fn file_key(volume: &str, key: &str, optional: Option<bool>) -> EnvVarSource {
    EnvVarSource {
        file_key_ref: Some(FileKeySelector {
            volume_name: volume.into(),
            path: "a.env".into(),
            key: key.into(),
            optional,
        }),
        ..EnvVarSource::default()
    }
}

fn pod_name() -> EnvVarSource {
    EnvVarSource {
        field_ref: Some(ObjectFieldSelector {
            api_version: Some("v1".into()),
            field_path: "metadata.name".into(),
        }),
        ..EnvVarSource::default()
    }
}

fn map_source(prefix: &str, name: &str, optional: Option<bool>) -> EnvFromSource {
    EnvFromSource {
        prefix: Some(prefix.into()),
        config_map_ref: Some(ConfigMapEnvSource {
            name: name.into(),
            optional,
        }),
        secret_ref: None,
    }
}

fn secret_source(prefix: &str, name: &str, optional: Option<bool>) -> EnvFromSource {
    EnvFromSource {
        prefix: Some(prefix.into()),
        config_map_ref: None,
        secret_ref: Some(SecretEnvSource {
            name: name.into(),
            optional,
        }),
    }
}

/// A ConfigMap and a Secret of the same words, in the namespace `test1`.
fn stored(data: &[(&str, &str)]) -> StaticObjects {
    let map = ConfigMap {
        data: Some(string_map(data)),
        ..ConfigMap::default()
    };
    let bytes =
        |(key, value): &(&str, &str)| ((*key).into(), ByteString(value.as_bytes().to_vec()));
    let secret = Secret {
        data: Some(data.iter().map(bytes).collect()),
        ..Secret::default()
    };
    let mut objects = StaticObjects::default();
    let key = |name: &str| ("test1".to_owned(), name.to_owned());
    objects.config_maps.insert(key("test-map"), Arc::new(map));
    objects.secrets.insert(key("test-secret"), Arc::new(secret));
    objects
}

fn service(namespace: &str, name: &str, address: &str, port: i32) -> Arc<Service> {
    let mut service = Service::default();
    service.metadata.name = Some(name.into());
    service.metadata.namespace = Some(namespace.into());
    service.spec = Some(ServiceSpec {
        cluster_ip: Some(address.into()),
        ports: Some(vec![ServicePort {
            port,
            protocol: Some("TCP".into()),
            ..ServicePort::default()
        }]),
        ..ServiceSpec::default()
    });
    Arc::new(service)
}

fn served() -> StaticObjects {
    let list = [
        service("default", "kubernetes", "1.2.3.1", 8081),
        service("test1", "test", "1.2.3.3", 8083),
        service("test2", "kubernetes", "1.2.3.4", 8084),
        service("test2", "test", "1.2.3.5", 8085),
        service("test2", "headless", "None", 8085),
        service("test2", "without-address", "", 8085),
        service("default", "not-special", "1.2.3.8", 8088),
        service("default", "headless", "None", 8088),
    ];
    let mut objects = StaticObjects::default();
    for service in list {
        let meta = &service.metadata;
        let key = (meta.namespace.clone().unwrap(), meta.name.clone().unwrap());
        objects.services.insert(key, service);
    }
    objects
}

/// The seven variables of a service with one port.
fn told(name: &str, address: &str, port: i32) -> Vec<String> {
    vec![
        format!("{name}_SERVICE_HOST={address}"),
        format!("{name}_SERVICE_PORT={port}"),
        format!("{name}_PORT=tcp://{address}:{port}"),
        format!("{name}_PORT_{port}_TCP=tcp://{address}:{port}"),
        format!("{name}_PORT_{port}_TCP_PROTO=tcp"),
        format!("{name}_PORT_{port}_TCP_PORT={port}"),
        format!("{name}_PORT_{port}_TCP_ADDR={address}"),
    ]
}

/// Upstream's TestMakeEnvironmentVariables: services.
#[test]
fn a_pod_is_told_of_the_api_and_of_the_services_of_its_namespace() {
    let api = || told("KUBERNETES", "1.2.3.1", 8081);
    let both = |other: Vec<String>, second: Vec<String>| [other, second].concat();
    let cases = [
        ("test1", Some(false), api()),
        (
            "test1",
            Some(true),
            both(api(), told("TEST", "1.2.3.3", 8083)),
        ),
        ("test1", None, both(api(), told("TEST", "1.2.3.3", 8083))),
        ("test2", Some(false), api()),
        (
            "test2",
            Some(true),
            both(
                told("KUBERNETES", "1.2.3.4", 8084),
                told("TEST", "1.2.3.5", 8085),
            ),
        ),
        ("default", Some(false), api()),
        (
            "default",
            Some(true),
            both(api(), told("NOT_SPECIAL", "1.2.3.8", 8088)),
        ),
        ("elsewhere", Some(true), api()),
    ];
    for (namespace, links, services) in cases {
        let made = Case {
            namespace,
            links,
            env: vec![literal("FOO", "BAR")],
            objects: served(),
            ..Case::default()
        };
        let expected = [vec!["FOO=BAR".to_owned()], services].concat();
        assert_eq!(made.made(), Ok(expected), "{namespace} {links:?}");
    }
}

#[test]
fn a_services_variable_gives_way_to_the_containers_own() {
    let made = Case {
        links: Some(true),
        env: vec![
            literal("TEST_SERVICE_HOST", "here"),
            literal("WHERE", "$(TEST_SERVICE_HOST):$(TEST_SERVICE_PORT)"),
        ],
        objects: served(),
        ..Case::default()
    };
    let made = made.made().unwrap();
    assert_eq!(made[..2], ["TEST_SERVICE_HOST=here", "WHERE=here:8083"]);
    assert_eq!(
        made.iter()
            .filter(|line| line.starts_with("TEST_SERVICE_HOST="))
            .count(),
        1
    );
}

/// Upstream's TestMakeEnvironmentVariables: "env expansion".
#[test]
fn a_value_sees_the_variables_before_it_and_those_of_services() {
    let made = Case {
        links: Some(true),
        env: vec![
            literal("TEST_LITERAL", "test-test-test"),
            from("POD_NAME", pod_name()),
            literal("OUT_OF_ORDER_TEST", "$(OUT_OF_ORDER_TARGET)"),
            literal("OUT_OF_ORDER_TARGET", "FOO"),
            EnvVar {
                name: "EMPTY_VAR".into(),
                ..EnvVar::default()
            },
            literal("EMPTY_TEST", "foo-$(EMPTY_VAR)"),
            literal("POD_NAME_TEST2", "test2-$(POD_NAME)"),
            literal("POD_NAME_TEST3", "$(POD_NAME_TEST2)-3"),
            literal("LITERAL_TEST", "literal-$(TEST_LITERAL)"),
            literal(
                "SERVICE_VAR_TEST",
                "$(TEST_SERVICE_HOST):$(TEST_SERVICE_PORT)",
            ),
            literal("TEST_UNDEFINED", "$(UNDEFINED_VAR)"),
            literal("TEST_LITERAL", "$(TEST_LITERAL)!"),
        ],
        objects: served(),
        ..Case::default()
    };
    let expected = [
        "TEST_LITERAL=test-test-test!",
        "POD_NAME=dapi-test-pod-name",
        "OUT_OF_ORDER_TEST=$(OUT_OF_ORDER_TARGET)",
        "OUT_OF_ORDER_TARGET=FOO",
        "EMPTY_VAR=",
        "EMPTY_TEST=foo-",
        "POD_NAME_TEST2=test2-dapi-test-pod-name",
        "POD_NAME_TEST3=test2-dapi-test-pod-name-3",
        "LITERAL_TEST=literal-test-test-test",
        "SERVICE_VAR_TEST=1.2.3.3:8083",
        "TEST_UNDEFINED=$(UNDEFINED_VAR)",
    ];
    assert_eq!(made.made().unwrap()[..11], expected);
}

/// Upstream's TestMakeEnvironmentVariables: "configmapkeyref_missing_..." and "secretkeyref_missing_...".
#[test]
fn a_missing_object_or_key_is_an_error_unless_it_is_optional() {
    let yes = Some(true);
    let cases = [
        (map_key("test-map", "a", None), Ok(vec!["X=b".to_owned()])),
        (map_key("missing", "a", yes), Ok(vec![])),
        (map_key("test-map", "none", yes), Ok(vec![])),
        (
            map_key("missing", "a", None),
            Err("configmap \"missing\" not found"),
        ),
        (
            map_key("test-map", "none", Some(false)),
            Err("couldn't find key none in ConfigMap test1/test-map"),
        ),
        (
            secret_key("test-secret", "a", None),
            Ok(vec!["X=b".to_owned()]),
        ),
        (secret_key("missing", "a", yes), Ok(vec![])),
        (secret_key("test-secret", "none", yes), Ok(vec![])),
        (
            secret_key("missing", "a", None),
            Err("secret \"missing\" not found"),
        ),
        (
            secret_key("test-secret", "none", None),
            Err("couldn't find key none in Secret test1/test-secret"),
        ),
        (EnvVarSource::default(), Ok(vec!["X=".to_owned()])),
    ];
    for (source, expected) in cases {
        let made = Case {
            env: vec![from("X", source)],
            objects: stored(&[("a", "b")]),
            ..Case::default()
        };
        assert_eq!(made.made(), expected.map_err(str::to_owned));
    }
}

/// Upstream's TestMakeEnvironmentVariables: "configmap", "secret" and their prefixes.
#[test]
fn whole_objects_come_first_with_their_prefix_and_the_definition_goes_over_them() {
    let data = [
        ("REPLACE_ME", "FROM_STORE"),
        ("DUPE_TEST", "STORE"),
        ("1.x", "kept"),
    ];
    for (plain, prefixed) in [
        (
            map_source("", "test-map", None),
            map_source("1_", "test-map", None),
        ),
        (
            secret_source("", "test-secret", None),
            secret_source("1_", "test-secret", None),
        ),
    ] {
        let made = Case {
            env_from: vec![plain, prefixed, EnvFromSource::default()],
            env: vec![
                literal("TEST_LITERAL", "test-test-test"),
                literal("EXPANSION_TEST", "$(REPLACE_ME)"),
                literal("DUPE_TEST", "ENV_VAR"),
            ],
            objects: stored(&data),
            ..Case::default()
        };
        let expected = [
            "1.x=kept",
            "DUPE_TEST=ENV_VAR",
            "REPLACE_ME=FROM_STORE",
            "1_1.x=kept",
            "1_DUPE_TEST=STORE",
            "1_REPLACE_ME=FROM_STORE",
            "TEST_LITERAL=test-test-test",
            "EXPANSION_TEST=FROM_STORE",
        ];
        assert_eq!(made.made().unwrap(), expected);
    }
}

/// Upstream's TestMakeEnvironmentVariables: "configmap_missing", "secret_missing" and the optional ones.
#[test]
fn a_missing_whole_object_is_an_error_unless_it_is_optional() {
    let cases = [
        (
            map_source("", "missing", None),
            Err("configmap \"missing\" not found"),
        ),
        (map_source("", "missing", Some(true)), Ok(vec![])),
        (
            secret_source("", "missing", None),
            Err("secret \"missing\" not found"),
        ),
        (secret_source("", "missing", Some(true)), Ok(vec![])),
    ];
    for (source, expected) in cases {
        let made = Case {
            env_from: vec![source],
            ..Case::default()
        };
        assert_eq!(made.made(), expected.map_err(str::to_owned));
    }
}

#[test]
fn a_secret_that_is_no_text_is_refused_and_never_mangled() {
    let mut objects = stored(&[]);
    let secret = Secret {
        data: Some([("k".to_owned(), ByteString(vec![0xff, 0xfe]))].into()),
        ..Secret::default()
    };
    let key = ("test1".to_owned(), "test-secret".to_owned());
    objects.secrets.insert(key, Arc::new(secret));
    let refused = Err("key k of Secret test1/test-secret is not UTF-8".to_owned());
    let by_key = Case {
        env: vec![from("X", secret_key("test-secret", "k", Some(true)))],
        objects: objects.clone(),
        ..Case::default()
    };
    assert_eq!(by_key.made(), refused);
    let whole = Case {
        env_from: vec![secret_source("", "test-secret", None)],
        objects,
        ..Case::default()
    };
    assert_eq!(whole.made(), refused);
}

/// Upstream's TestMakeEnvironmentVariables: file key references.
#[test]
fn a_key_of_a_file_is_found_or_missing_and_a_bad_file_is_never_optional() {
    let file = |text: Option<&str>| EnvFile {
        host_path: "/pods/p/volumes/v/a.env".into(),
        text: text.map(str::to_owned),
    };
    let place = |volume: &str| (volume.to_owned(), "a.env".to_owned());
    let files = EnvFiles {
        files: [
            (place("good"), file(Some("KEY='value'\nEMPTY=''\n"))),
            (place("bad"), file(Some("KEY=value\n"))),
            (place("gone"), file(None)),
        ]
        .into(),
    };
    let none = "environment variable key \"NONE\" not found in file \"/pods/p/volumes/v/a.env\"";
    let cases = [
        (
            file_key("good", "KEY", None),
            Ok(vec!["X=value".to_owned()]),
        ),
        (file_key("good", "NONE", Some(true)), Ok(vec![])),
        (file_key("good", "EMPTY", Some(true)), Ok(vec![])),
        (file_key("good", "NONE", None), Err(none)),
        (
            file_key("bad", "KEY", Some(true)),
            Err("couldn't parse env file"),
        ),
        (
            file_key("gone", "KEY", Some(true)),
            Err("couldn't parse env file"),
        ),
        (
            file_key("other", "KEY", Some(true)),
            Err("cannot find the volume \"other\" referenced by FileKeyRef"),
        ),
    ];
    for (source, expected) in cases {
        let made = Case {
            env: vec![from("X", source)],
            files: files.clone(),
            ..Case::default()
        };
        assert_eq!(made.made(), expected.map_err(str::to_owned));
    }
}

#[test]
fn a_resource_is_a_number_and_an_unknown_one_an_error() {
    let resource = |name: &str| EnvVarSource {
        resource_field_ref: Some(ResourceFieldSelector {
            resource: name.into(),
            ..ResourceFieldSelector::default()
        }),
        ..EnvVarSource::default()
    };
    let with = |name: &str| Case {
        env: vec![from("X", resource(name))],
        ..Case::default()
    };
    assert_eq!(with("limits.cpu").made(), Ok(vec!["X=4".to_owned()]));
    let unknown = "unsupported container resource : limits.gpu".to_owned();
    assert_eq!(with("limits.gpu").made(), Err(unknown));
}

/// Ten references to the variable before, eight times: a kilobyte of a definition that would be a gigabyte.
#[test]
fn a_chain_of_variables_ends_at_the_kernels_bound() {
    let mut env = vec![literal("V0", &"a".repeat(10))];
    for n in 1..=8 {
        let references = format!("$(V{})", n - 1).repeat(10);
        env.push(literal(&format!("V{n}"), &references));
    }
    let refused = Case {
        env,
        ..Case::default()
    };
    assert_eq!(
        refused.made().unwrap_err(),
        "environment variable \"V5\" is too long: reached 200004 bytes, at most 131072 can be passed to a program"
    );
}

/// Each source alone is small enough, and memory is never taken for all of them.
#[test]
fn all_variables_together_end_at_the_kernels_bound() {
    let value = "x".repeat(100_000);
    let stored = || stored(&[("a", &value)]);
    let prefixes: Vec<String> = (0..20_000).map(|n| format!("p{n}_")).collect();
    let of_maps = |prefix: &String| map_source(prefix, "test-map", None);
    let of_secrets = |prefix: &String| secret_source(prefix, "test-secret", None);
    let copies = (0..20_000).map(|n| from(&format!("p{n}_a"), map_key("test-map", "a", None)));
    let cases = [
        Case {
            env_from: prefixes.iter().map(of_maps).collect(),
            ..Case::default()
        },
        Case {
            env_from: prefixes.iter().map(of_secrets).collect(),
            ..Case::default()
        },
        Case {
            env: copies.collect(),
            ..Case::default()
        },
    ];
    for case in cases {
        let refused = Case {
            objects: stored(),
            ..case
        };
        assert_eq!(
            refused.made().unwrap_err(),
            "environment and arguments up to environment variable \"p20_a\" are too long: \
             reached 2100305 bytes, at most 2097152 can be passed to a program"
        );
    }
    // A name that is set again counts once.
    let again = Case {
        env_from: vec![map_source("", "test-map", None); 1_000],
        objects: stored(),
        ..Case::default()
    };
    assert_eq!(again.made().unwrap().len(), 1);
}
