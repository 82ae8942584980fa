//! Who may register.

use super::*;

#[test]
fn a_plugin_registers_for_an_extended_resource_in_the_version_that_there_is() {
    let why = |version: &str, resource: &str, endpoint: &str| {
        let registration = Registration {
            version: version.to_owned(),
            resource: resource.to_owned(),
            endpoint: endpoint.to_owned(),
        };
        let refused = registration.check().err();
        assert!(refused.as_ref().is_none_or(|refused| !refused.transient()));
        refused.map(|refused| refused.to_string())
    };
    let no_socket = |endpoint: &str| {
        format!("the endpoint {endpoint:?} names no socket below the folder of device plugins")
    };
    for (version, resource, endpoint, refused) in [
        (API_VERSION, RESOURCE, "plugin.sock", None),
        (API_VERSION, RESOURCE, "vendor/plugin.sock", None),
        (API_VERSION, RESOURCE, "/plugin.sock", None),
        (
            "v1alpha1",
            RESOURCE,
            "plugin.sock",
            Some(
                "requested API version \"v1alpha1\" is not supported by kubelet. Supported version is [\"v1beta1\"]"
                    .to_owned(),
            ),
        ),
        (API_VERSION, "gpu", "a", Some("the ResourceName \"gpu\" is invalid".to_owned())),
        (
            API_VERSION,
            "kubernetes.io/gpu",
            "a",
            Some("the ResourceName \"kubernetes.io/gpu\" is invalid".to_owned()),
        ),
        (
            API_VERSION,
            "requests.a.com/gpu",
            "a",
            Some("the ResourceName \"requests.a.com/gpu\" is invalid".to_owned()),
        ),
        (API_VERSION, "a.com/b\0", "a", Some("the ResourceName \"a.com/b\\0\" is invalid".to_owned())),
        (API_VERSION, RESOURCE, "", Some(no_socket(""))),
        (API_VERSION, RESOURCE, "../csi.sock", Some(no_socket("../csi.sock"))),
        (API_VERSION, RESOURCE, "a/../../b", Some(no_socket("a/../../b"))),
    ] {
        assert_eq!(why(version, resource, endpoint), refused, "{version} {resource} {endpoint}");
    }
}
