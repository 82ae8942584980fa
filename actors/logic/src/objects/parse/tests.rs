//! Every kind, and everything that is refused.

use proptest::prelude::*;

use super::*;
use crate::objects::Objects;

const FILE: &str = "
---
apiVersion: v1
kind: ConfigMap
metadata: {name: plain}
data:
  port: '80'
  text: |
    one
    two
---
apiVersion: v1
kind: Secret
metadata: {name: key, namespace: other}
data: {a: YWJj, b: YWJj}
stringData: {b: plain}
---
---
{\"apiVersion\": \"v1\", \"kind\": \"Service\", \"metadata\": {\"name\": \"web\"}, \"spec\": {\"clusterIP\": \"1.2.3.4\"}}
---
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: small}
handler: runc
";

#[test]
fn every_kind_that_pods_refer_to_is_read() {
    let Parsed { objects, problems } = parse(FILE.as_bytes());
    assert_eq!(problems, []);
    let map = objects.config_map("default", "plain").unwrap();
    let data = map.data.as_ref().unwrap();
    assert_eq!(
        (data["port"].as_str(), data["text"].as_str()),
        ("80", "one\ntwo\n")
    );
    let secret = objects.secret("other", "key").unwrap();
    let data = secret.data.as_ref().unwrap();
    assert_eq!(
        (data["a"].0.as_slice(), data["b"].0.as_slice()),
        (&b"abc"[..], &b"plain"[..])
    );
    assert_eq!(secret.string_data, None);
    assert_eq!(
        objects.services()[0].metadata.namespace.as_deref(),
        Some("default")
    );
    assert_eq!(objects.runtime_class("small").unwrap().handler, "runc");
    assert!(objects.config_map("other", "plain").is_none());
}

#[test]
fn items_of_a_list_are_objects_as_well() {
    let text = "{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}, {apiVersion: v1, kind: List, items: []}]}";
    let Parsed { objects, problems } = parse(text.as_bytes());
    assert!(objects.config_map("default", "a").is_some());
    assert_eq!(problems.len(), 1);
    assert!(problems[0].to_string().contains("List within a list"));
}

#[test]
fn a_bad_document_is_named_and_hides_no_other() {
    let long = "x".repeat(MAX_OBJECT_BYTES + 1);
    let big =
        format!("{{apiVersion: v1, kind: ConfigMap, metadata: {{name: a}}, data: {{k: {long}}}}}");
    let cases = [
        (
            "{apiVersion: v1, kind: Pod, metadata: {name: a}}",
            "found v1 Pod, expected",
        ),
        ("{kind: ConfigMap}", "found nothing ConfigMap, expected"),
        ("[1]", "found nothing nothing, expected"),
        (
            "{apiVersion: v1, kind: ConfigMap, metadata: {}}",
            "metadata.name: expected a name",
        ),
        (
            "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {k: 80}}",
            "data.k: invalid type: integer `80`, expected a string",
        ),
        (
            "{apiVersion: v1, kind: Secret, metadata: {name: a}, stringdata: {k: v}}",
            "stringdata: unknown field",
        ),
        (
            "{apiVersion: v1, kind: Secret, metadata: {name: a}, stringData: {a/b: v}}",
            "data[a/b]: expected letters",
        ),
        (
            "{apiVersion: v1, kind: Secret, metadata: {name: a}, data: {k: '%'}}",
            "data.k: ",
        ),
        (
            "{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: a}, handler: ''}",
            "handler: expected a handler",
        ),
        ("{apiVersion: v1, kind: List}", "items: expected a list"),
        (
            big.as_str(),
            "data: found 1048577 bytes, expected at most 1048576",
        ),
        (
            "{apiVersion: v1, kind: ConfigMap, metadata: {name: good}}",
            "ConfigMap default/good stands in this file already",
        ),
    ];
    let good = "{apiVersion: v1, kind: ConfigMap, metadata: {name: good}}";
    for (text, expected) in cases {
        let Parsed { objects, problems } = parse(format!("{good}\n---\n{text}\n").as_bytes());
        assert!(objects.config_map("default", "good").is_some(), "{text}");
        assert_eq!(problems.len(), 1, "{text}: {problems:?}");
        let said = problems[0].to_string();
        assert!(
            said.starts_with("document 2: ") && said.contains(expected),
            "{said}"
        );
    }
}

#[test]
fn a_file_that_is_no_text_is_refused_as_one() {
    let refused = |data: &[u8]| parse(data).problems.remove(0);
    assert_eq!(refused(b"ab\xff"), ObjectError::NotText { offset: 2 });
    assert_eq!(
        refused(&vec![b' '; MAX_FILE_BYTES + 1]),
        ObjectError::TooLong
    );
    assert!(matches!(refused(b"{a: [}"), ObjectError::Syntax(_)));
    assert!(parse(b"").problems.is_empty());
}

#[test]
fn what_is_known_stays_and_is_named() {
    let mut objects = parse(FILE.as_bytes()).objects;
    let again = parse(FILE.as_bytes()).objects;
    let known = objects.merge(again);
    let expected = [
        "ConfigMap default/plain",
        "Secret other/key",
        "Service default/web",
        "RuntimeClass small",
    ];
    assert_eq!(known, expected);
    assert!(StaticObjects::default().merge(objects).is_empty());
}

proptest! {
    #[test]
    fn no_file_breaks_the_reader(data in proptest::collection::vec(any::<u8>(), 0..80)) {
        drop(parse(&data));
    }
}
