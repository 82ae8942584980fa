//! ClusterTrustBundles.

use logic_api::objects::pem;

use super::*;

/// A PEM certificate that holds this text.
fn root(text: &str) -> String {
    pem::certificates([text.as_bytes()])
}

fn bundle(version: &str, name: &str, signer: &str, label: &str, pem: &str) -> Value {
    let mut fields =
        json!({"metadata": {"labels": {"label": label}}, "spec": {"trustBundle": pem}});
    if !signer.is_empty() {
        fields["spec"]["signerName"] = signer.into();
    }
    let version = format!("certificates.k8s.io/{version}");
    object(&version, "ClusterTrustBundle", name, fields)
}

fn volume(source: Value) -> Value {
    let mut source = source;
    source["path"] = "bundle.pem".into();
    json!({"name": "v", "projected": {"sources": [{"clusterTrustBundle": source}]}})
}

fn five(version: &str) -> Rig {
    let (a, b) = ("foo.bar/a", "foo.bar/b");
    rig(&[
        bundle(version, "a-a-1", a, "a", &root("0")),
        bundle(version, "a-a-2", a, "a", &root("1")),
        bundle(version, "a-a-2-dup", a, "a", &root("1")),
        bundle(version, "a-b-1", a, "b", &root("2")),
        bundle(version, "b-a-1", b, "a", &root("3")),
        bundle(
            version,
            "free",
            "",
            "a",
            &format!("comment\n{}{}", root("5"), root("4")),
        ),
    ])
}

fn content(rig: &Rig, source: Value) -> String {
    let files = rig.made(volume(source));
    assert_eq!(files.len(), 1);
    assert_eq!((files[0].0.as_str(), files[0].2), ("bundle.pem", 0o644));
    files[0].1.clone()
}

/// Upstream's TestGetTrustAnchorsByName and TestCollectDataWithClusterTrustBundle.
#[test]
fn a_named_bundle_is_written_in_one_order_and_without_comments() {
    for version in ["v1alpha1", "v1beta1"] {
        let rig = five(version);
        assert_eq!(content(&rig, json!({"name": "a-b-1"})), root("2"));
        assert_eq!(
            content(&rig, json!({"name": "free"})),
            root("4") + &root("5")
        );
    }
}

/// Upstream's TestGetTrustAnchorsBySignerName and TestCollectDataWithClusterTrustBundle.
#[test]
fn bundles_of_a_signer_are_joined_by_their_labels() {
    let label = |value: &str| json!({"matchLabels": {"label": value}});
    let expression = |operator: &str, values: Value| json!({"matchExpressions": [{"key": "label", "operator": operator, "values": values}]});
    let all = root("0") + &root("1") + &root("2");
    let cases = [
        ("foo.bar/a", label("a"), root("0") + &root("1")),
        ("foo.bar/a", label("b"), root("2")),
        ("foo.bar/b", label("a"), root("3")),
        ("foo.bar/b", json!({}), root("3")),
        ("foo.bar/a", json!({}), all.clone()),
        ("foo.bar/b", label("b"), String::new()),
        ("foo.bar/a", Value::Null, String::new()),
        ("foo.bar/a", expression("In", json!(["b", "c"])), root("2")),
        (
            "foo.bar/a",
            expression("NotIn", json!(["b"])),
            root("0") + &root("1"),
        ),
        ("foo.bar/a", expression("Exists", json!([])), all),
        (
            "foo.bar/a",
            expression("DoesNotExist", json!([])),
            String::new(),
        ),
    ];
    let rig = five("v1beta1");
    for (signer, selector, text) in cases {
        let source = json!({"signerName": signer, "labelSelector": selector, "optional": true});
        assert_eq!(content(&rig, source.clone()), text, "{source}");
        let mut needed = source.clone();
        needed["optional"] = false.into();
        assert_eq!(
            rig.make(volume(needed)).is_ok(),
            !text.is_empty(),
            "{source}"
        );
    }
}

/// Upstream's TestGetTrustAnchorsByName and TestGetTrustAnchorsBySignerName: what is missing or too big.
#[test]
fn what_gives_no_bundle_is_told() {
    let rig = five("v1beta1");
    let none = json!({"matchLabels": {"label": "none"}});
    let operator = json!({"matchExpressions": [{"key": "label", "operator": "Like"}]});
    let cases = [
        (
            json!({"name": "nope"}),
            "while getting ClusterTrustBundle: clustertrustbundle.certificates.k8s.io \"nope\" not found",
            RetryWhen::Changed,
        ),
        (
            json!({"signerName": "foo.bar/a", "labelSelector": none}),
            "combination of signerName and labelSelector matched zero ClusterTrustBundles",
            RetryWhen::Changed,
        ),
        (
            json!({"signerName": "foo.bar/a", "labelSelector": operator}),
            "while parsing label selector: \"Like\" is not a valid label selector operator",
            RetryWhen::Never,
        ),
        (
            json!({}),
            "ClusterTrustBundle projection requires either name or signerName to be set",
            RetryWhen::Never,
        ),
    ];
    for (source, text, until) in cases {
        assert_eq!(rig.refused(volume(source)), (text.to_owned(), until));
    }
    let many: BTreeMap<String, String> = (0..100 * 1024 / 63 + 1)
        .map(|number| (format!("key-{number}"), "v".repeat(63)))
        .collect();
    let source = json!({"signerName": "foo.bar/a", "labelSelector": {"matchLabels": many}});
    let (message, _) = rig.refused(volume(source));
    assert!(
        message.starts_with("label selector length (")
            && message.ends_with(") is larger than 102400"),
        "{message}"
    );
}

#[test]
fn a_selectors_length_is_that_of_its_text() {
    let selector = json!({
        "matchLabels": {"a": "b"},
        "matchExpressions": [
            {"key": "c", "operator": "In", "values": ["d", "e"]},
            {"key": "f", "operator": "DoesNotExist"},
            {"key": "g", "operator": "NotIn", "values": ["h"]},
            {"key": "i", "operator": "Exists"},
        ],
    });
    let selector = serde_json::from_value(selector).unwrap();
    let text = "a=b,c in (d,e),!f,g notin (h),i";
    assert_eq!(super::super::selector::length(&selector), text.len());
}
