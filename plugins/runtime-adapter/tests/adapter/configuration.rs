//! Configurations that Configure refuses, and its errors.

use runtime_adapter::Flavour;
use serde_json::json;

#[tokio::test]
async fn a_bad_section_is_refused_with_the_field_and_what_was_expected() {
    for (configuration, expected) in [
        (
            json!({ "endpoint": "tcp://10.0.0.1:1" }),
            "field \"endpoint\" is \"tcp://10.0.0.1:1\", expected \"unix:///\"",
        ),
        (
            json!({ "namespace": "a b" }),
            "field \"namespace\" is \"a b\", expected letters and digits",
        ),
        (
            json!({ "sock": "x" }),
            "unknown field `sock`, expected `endpoint` or `namespace`",
        ),
        (json!([]), "invalid length 0"),
        (json!("unix:///x"), "invalid type: string"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let info = runtime_adapter::info(Flavour::Containerd, "0");
        let build = |setup| runtime_adapter::build(Flavour::Containerd, None, setup);
        let refusal = sdk::testing::start(dir.path(), info, configuration.clone(), build)
            .await
            .unwrap_err();
        assert!(
            refusal.to_string().contains(expected),
            "{configuration}: {refusal}"
        );
    }
}

#[test]
fn only_containerds_plugin_promises_events_before_it_knows_its_runtime() {
    assert_eq!(
        runtime_adapter::info(Flavour::Containerd, "0").capabilities,
        ["container-events"]
    );
    assert!(
        runtime_adapter::info(Flavour::Crio, "0")
            .capabilities
            .is_empty()
    );
}
