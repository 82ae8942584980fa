//! The registered drivers, and the versions that they speak.

use std::path::Path;

use super::*;

fn socket(registry: &DriverRegistry) -> Result<String, String> {
    let endpoint = registry.get(&"driver".into());
    endpoint
        .map(|endpoint| endpoint.socket.display().to_string())
        .map_err(|error| error.to_string())
}

#[test]
fn the_first_known_version_that_a_driver_lists_is_spoken() {
    let driver = DriverName::from("pluginB");
    let cases: [(&[&str], Result<NodeService, &str>); 7] = [
        (&["v1.DRAPlugin"], Ok(NodeService::V1)),
        (&["v1beta1.DRAPlugin"], Ok(NodeService::V1Beta1)),
        (
            &["v1beta1.DRAPlugin", "v1.DRAPlugin"],
            Ok(NodeService::V1Beta1),
        ),
        (&["v1.DRAPlugin", "v1beta1.DRAPlugin"], Ok(NodeService::V1)),
        (
            &["v1alpha1.NodeHealth", "v1beta1.DRAPlugin"],
            Ok(NodeService::V1Beta1),
        ),
        (
            &[],
            Err("empty list of supported gRPC services (aka supported versions)"),
        ),
        (
            &["1.0.0", "2"],
            Err(
                "none of services supported by the plugin ([\"1.0.0\" \"2\"]) are supported by the kubelet ([\"v1.DRAPlugin\" \"v1beta1.DRAPlugin\"])",
            ),
        ),
    ];
    for (versions, expected) in cases {
        let list: Vec<String> = versions.iter().map(|name| (*name).to_owned()).collect();
        let found = validate_driver(&driver, Path::new("/b.sock"), &list);
        let prefix =
            "invalid supported gRPC versions of DRA driver plugin pluginB at endpoint /b.sock: ";
        let expected = expected.map_err(|why| format!("{prefix}{why}"));
        assert!(found.as_ref().is_ok() || !found.as_ref().unwrap_err().transient());
        assert_eq!(
            found.map_err(|error| error.to_string()),
            expected,
            "{versions:?}"
        );
    }
}

#[test]
fn a_driver_is_called_at_its_last_socket_that_is_connected() {
    let mut registry = DriverRegistry::default();
    let driver = DriverName::from("driver");
    let (old, new) = (Path::new("/old.sock"), Path::new("/new.sock"));
    let not_registered = Err("DRA driver driver is not registered".to_owned());
    assert_eq!(socket(&registry), not_registered);
    let nameless = registry.get(&"".into()).unwrap_err();
    assert_eq!(nameless.to_string(), "DRA driver name is empty");
    registry.add(&driver, old, NodeService::V1).unwrap();
    let taken = registry.add(&driver, old, NodeService::V1).unwrap_err();
    assert_eq!(
        taken.to_string(),
        "endpoint /old.sock already registered for DRA driver plugin driver"
    );
    registry.add(&driver, new, NodeService::V1Beta1).unwrap();
    assert_eq!(socket(&registry), Ok("/new.sock".to_owned()));
    assert!(!registry.is_usable(&driver));
    registry.set_connection(&driver, old, Connection::Connected);
    assert_eq!(socket(&registry), Ok("/old.sock".to_owned()));
    assert!(registry.is_usable(&driver));
    registry.set_connection(&driver, new, Connection::Connected);
    assert_eq!(socket(&registry), Ok("/new.sock".to_owned()));
    registry.set_connection(&driver, new, Connection::Disconnected);
    assert_eq!(socket(&registry), Ok("/old.sock".to_owned()));
    registry.remove(&driver, old);
    assert_eq!(socket(&registry), Ok("/new.sock".to_owned()));
    assert_eq!(registry.get(&driver).unwrap().service, NodeService::V1Beta1);
    registry.remove(&driver, Path::new("/strange.sock"));
    registry.remove(&driver, new);
    registry.remove(&driver, new);
    assert_eq!(socket(&registry), not_registered);
    assert!(registry.drivers().is_empty());
}

#[test]
fn slices_are_selected_by_the_node_and_the_driver() {
    let selector = |driver: Option<&str>| ResourceSliceSelector {
        node: "worker".to_owned(),
        driver: driver.map(DriverName::from),
    };
    assert_eq!(selector(None).field_selector(), "spec.nodeName=worker");
    let own = "spec.driver=gpu.example.com,spec.nodeName=worker";
    assert_eq!(selector(Some("gpu.example.com")).field_selector(), own);
}
