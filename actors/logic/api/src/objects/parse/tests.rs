//! Every kind, and everything that is refused.

use proptest::prelude::*;

use super::*;
use crate::objects::{Objects, TokenSpec};

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
    let ParsedObjects { objects, problems } = parse(FILE.as_bytes());
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
    let ParsedObjects { objects, problems } = parse(text.as_bytes());
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
        let ParsedObjects { objects, problems } =
            parse(format!("{good}\n---\n{text}\n").as_bytes());
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

const VOLUMES: &str = "
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data, namespace: db}
spec: {volumeName: pv, accessModes: [ReadWriteOnce]}
status: {phase: Bound}
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: pv}
spec: {capacity: {storage: 1Gi}, csi: {driver: d.example.com, volumeHandle: h}}
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: fast}
provisioner: d.example.com
mountOptions: [noatime]
---
apiVersion: storage.k8s.io/v1
kind: CSIDriver
metadata: {name: d.example.com}
spec: {attachRequired: true, tokenRequests: [{audience: a}]}
---
apiVersion: storage.k8s.io/v1
kind: VolumeAttachment
metadata: {name: csi-1}
spec: {attacher: d.example.com, nodeName: node, source: {persistentVolumeName: pv}}
status: {attached: true, attachmentMetadata: {path: /dev/x}}
";

#[test]
fn what_volumes_are_made_of_is_read() {
    let ParsedObjects { objects, problems } = parse(VOLUMES.as_bytes());
    assert_eq!(problems, []);
    let claim = objects.claim("db", "data").unwrap();
    let volume = claim.spec.as_ref().unwrap().volume_name.clone();
    let volume = objects.persistent_volume(&volume.unwrap()).unwrap();
    let csi = volume.spec.as_ref().unwrap().csi.as_ref().unwrap();
    assert_eq!(csi.volume_handle, "h");
    assert_eq!(
        objects.storage_class("fast").unwrap().provisioner,
        csi.driver
    );
    let driver = objects.csi_driver(&csi.driver).unwrap();
    assert_eq!(driver.spec.attach_required, Some(true));
    let attachment = objects.volume_attachment("csi-1").unwrap();
    assert!(attachment.status.as_ref().unwrap().attached);
}

#[test]
fn trust_bundles_of_both_versions_are_read() {
    for version in ["v1alpha1", "v1beta1"] {
        let text = format!(
            "apiVersion: certificates.k8s.io/{version}\nkind: ClusterTrustBundle\nmetadata: {{name: 'a:b:c'}}\nspec:\n  \
             signerName: a/b\n  trustBundle: |\n    -----BEGIN CERTIFICATE-----\n    YWJj\n    -----END CERTIFICATE-----\n"
        );
        let ParsedObjects { objects, problems } = parse(text.as_bytes());
        assert_eq!(problems, [], "{text}");
        let bundle = &objects.trust_bundles()[0];
        assert_eq!(bundle.spec.signer_name.as_deref(), Some("a/b"));
    }
}

/// As `kubectl create token` shows it.
const TOKEN: &str = "
apiVersion: authentication.k8s.io/v1
kind: TokenRequest
metadata: {name: builder, namespace: ci, creationTimestamp: '2030-01-01T00:00:00Z'}
spec: {audiences: [b, a, b], boundObjectRef: null, expirationSeconds: 3600}
status: {token: abc, expirationTimestamp: '2030-01-01T01:00:00Z'}
";

#[test]
fn a_token_is_that_of_the_account_of_its_name() {
    let ParsedObjects { objects, problems } = parse(TOKEN.as_bytes());
    assert_eq!(problems, []);
    let wanted = TokenSpec {
        namespace: "ci".into(),
        service_account: "builder".into(),
        audiences: vec!["a".into(), "b".into()],
        expiration_seconds: 3600,
        pod_name: "p".into(),
        pod_uid: "u".into(),
    };
    let token = objects.token(&wanted).unwrap();
    assert_eq!(token.token, "abc");
    let life = token.expires.duration_since(token.issued.unwrap());
    assert_eq!(life.as_hours(), 1);
    let other = TokenSpec {
        audiences: vec!["a".into()],
        ..wanted
    };
    assert_eq!(objects.token(&other), None);
    let unborn = TOKEN.replace(", creationTimestamp: '2030-01-01T00:00:00Z'", "");
    assert_ne!(unborn, TOKEN);
    let unborn = parse(unborn.as_bytes()).objects.tokens;
    assert_eq!(unborn, objects.tokens);
    let again = parse(format!("{TOKEN}---{TOKEN}").as_bytes());
    assert_eq!(again.problems, []);
    assert_eq!(again.objects.tokens.values().next().unwrap().len(), 1);
}

const STORAGE: &str = "apiVersion: storage.k8s.io/v1, metadata: {name: a}";
const CERTIFICATES: &str = "apiVersion: certificates.k8s.io/v1beta1, metadata: {name: a}";
const REQUEST: &str =
    "apiVersion: authentication.k8s.io/v1, metadata: {name: a}, kind: TokenRequest";

type Refusals = Vec<(String, &'static str)>;

fn bad_volumes() -> Refusals {
    let v1 = |rest: &str| format!("apiVersion: v1, {rest}");
    let storage = |rest: &str| format!("{STORAGE}, {rest}");
    let long = format!("kind: Service, metadata: {{name: {}}}", "a".repeat(254));
    vec![
        (
            v1("kind: PersistentVolumeClaim, metadata: {name: a}"),
            "spec: expected what is claimed",
        ),
        (
            v1("kind: PersistentVolume, metadata: {name: a}"),
            "spec: expected a volume",
        ),
        (
            v1("kind: PersistentVolume, spec: {}, metadata: {name: a/b}"),
            "metadata.name: may not contain '/'",
        ),
        (
            v1("kind: PersistentVolume, spec: {}, metadata: {name: ..}"),
            "metadata.name: may not be '..'",
        ),
        (
            v1("kind: ConfigMap, metadata: {name: a, namespace: ../b}"),
            "metadata.namespace: may not contain '/'",
        ),
        (v1(&long), "metadata.name: must be no more than 253 bytes"),
        (
            storage("kind: StorageClass"),
            "provisioner: expected a provisioner",
        ),
        (
            storage("kind: VolumeAttachment, spec: {attacher: a, nodeName: '', source: {}}"),
            "spec.nodeName: expected a name",
        ),
        (
            storage("kind: VolumeAttachment, spec: {nodeName: a, source: {}}"),
            "spec.attacher: expected a name",
        ),
        (
            "apiVersion: storage.k8s.io/v1beta1, kind: CSIDriver, metadata: {name: a}".to_owned(),
            "found storage.k8s.io/v1beta1 CSIDriver, expected",
        ),
    ]
}

fn bad_credentials() -> Refusals {
    let bundle = |pem: &str| {
        format!("{CERTIFICATES}, kind: ClusterTrustBundle, spec: {{trustBundle: {pem}}}")
    };
    let request = |rest: &str| format!("{CERTIFICATES}, kind: PodCertificateRequest, {rest}");
    let issued = "spec: {signerName: s, podName: p}, status: {conditions: [{type: Issued, status: 'True', reason: R, \
                  message: M, lastTransitionTime: '2030-01-01T00:00:00Z'}]";
    let chain = "certificateChain: \"-----BEGIN CERTIFICATE-----\\nYWJj\\n-----END CERTIFICATE-----\", \
                 beginRefreshAt: '2030-01-01T00:00:00Z'";
    let token = |rest: &str| format!("{REQUEST}, {rest}");
    let other = "\"-----BEGIN X-----\\nYWJj\\n-----END X-----\"";
    vec![
        (
            bundle("none"),
            "spec.trustBundle: expected PEM with at least one certificate",
        ),
        (
            bundle(other),
            "spec.trustBundle: found a PEM block \"X\", expected CERTIFICATE",
        ),
        (
            request("spec: {podName: p}"),
            "spec.signerName: expected a name",
        ),
        (
            request("spec: {signerName: s}"),
            "spec.podName: expected a name",
        ),
        (
            request(&format!("{issued}}}")),
            "status.certificateChain: expected PEM",
        ),
        (
            request(&format!("{issued}, {chain}}}")),
            "status.notAfter: expected a time",
        ),
        (REQUEST.to_owned(), "status.token: expected a token"),
        (
            token("status: {token: a}"),
            "status.expirationTimestamp: expected a time",
        ),
        (
            token("status: {token: a, expirationTimestamp: soon}"),
            "status.expirationTimestamp: found something",
        ),
    ]
}

#[test]
fn what_the_api_server_would_refuse_of_each_kind_is_refused() {
    for (text, expected) in bad_volumes().into_iter().chain(bad_credentials()) {
        let problems = parse(format!("{{{text}}}").as_bytes()).problems;
        assert_eq!(problems.len(), 1, "{text}: {problems:?}");
        let said = problems[0].to_string();
        assert!(said.contains(expected), "{text}: {said}");
    }
}

#[test]
fn who_waits_for_a_refused_object_learns_why() {
    let text = "{apiVersion: v1, kind: Secret, metadata: {name: a}, data: {k: 1}}\n---\n\
                {apiVersion: v1, kind: PersistentVolume, metadata: {name: b}}\n---\n\
                {apiVersion: v1, kind: Pod, metadata: {name: c}}";
    let objects = parse(text.as_bytes()).objects;
    let why = |kind, namespace, name| objects.refused(kind, namespace, name);
    assert!(
        why("Secret", "default", "a")
            .unwrap()
            .starts_with("document 1: data.k: ")
    );
    assert!(why("PersistentVolume", "", "b").is_some());
    assert_eq!(objects.refused.len(), 2);
}

#[test]
fn what_a_secret_holds_is_not_told_with_what_is_wrong() {
    let secret = "{apiVersion: v1, kind: Secret, metadata: {name: a}, stringData: {k: 4711}}";
    let token = "{apiVersion: authentication.k8s.io/v1, kind: TokenRequest, metadata: {name: a}, status: {token: 4711}}";
    for text in [secret, token] {
        let problems = parse(text.as_bytes()).problems;
        assert_eq!(problems.len(), 1);
        assert!(!format!("{problems:?}").contains("4711"), "{problems:?}");
    }
}

proptest! {
    #[test]
    fn no_file_breaks_the_reader(data in proptest::collection::vec(any::<u8>(), 0..80)) {
        drop(parse(&data));
    }
}
