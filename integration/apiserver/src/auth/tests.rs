//! Authentication and authorization, by tables.

use base64::prelude::{BASE64_STANDARD as BASE64, Engine as _};
use http::{HeaderMap, Method, StatusCode};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::{Value, json};

use super::auth_state::AUTHENTICATED;
use super::*;
use crate::auth::identity::CallerIdentity;
use crate::server::options::ServerOptions;
use crate::{Server, SigningPolicy, verbs};

fn guarded() -> Server {
    let options = ServerOptions {
        security: AccessControl::Guarded,
        ..ServerOptions::default()
    };
    Server::start_now(options).unwrap()
}

fn peer(server: &Server, name: &str, group: &str, seconds: i64) -> ConnectionPeer {
    let pem = server
        .client_certificate(name, group, seconds)
        .unwrap()
        .certificate;
    ConnectionPeer {
        certificates: vec![CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()],
    }
}

fn bearer(token: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(
        header::AUTHORIZATION,
        format!("Bearer {token}").parse().unwrap(),
    );
    headers
}

#[test]
fn users_are_known_by_certificate_or_token() {
    let server = guarded();
    let state = &server.state;
    let none = HeaderMap::new();
    let found = user(state, &peer(&server, "me", "us", 60), &none).unwrap();
    assert_eq!(
        (found.name.as_str(), found.groups.as_slice()),
        ("me", &["us".to_string(), AUTHENTICATED.to_string()][..])
    );
    let nobody = user(state, &ConnectionPeer::default(), &none).unwrap();
    assert_eq!(nobody.name, ANONYMOUS);
    server.token("secret", "other", &[]);
    assert_eq!(
        user(state, &ConnectionPeer::default(), &bearer("secret"))
            .unwrap()
            .name,
        "other"
    );

    let code =
        |peer: &ConnectionPeer, headers: &HeaderMap| user(state, peer, headers).unwrap_err().code;
    assert_eq!(
        code(&peer(&server, "me", "us", -5), &none),
        StatusCode::UNAUTHORIZED
    );
    assert_eq!(
        code(&peer(&guarded(), "me", "us", 60), &none),
        StatusCode::UNAUTHORIZED
    );
    assert_eq!(
        code(&ConnectionPeer::default(), &bearer("wrong")),
        StatusCode::UNAUTHORIZED
    );
    server.refuse_user("me", true);
    assert_eq!(
        code(&peer(&server, "me", "us", 60), &none),
        StatusCode::UNAUTHORIZED
    );
    server.allow_anonymous(false);
    assert_eq!(
        code(&ConnectionPeer::default(), &none),
        StatusCode::UNAUTHORIZED
    );
}

fn call(user: &UserInfo, method: &Method, path: &str, body: &Value) -> RequestInfo {
    let mut headers = HeaderMap::new();
    headers.insert(
        header::CONTENT_TYPE,
        "application/merge-patch+json".parse().unwrap(),
    );
    let mut call = RequestInfo::parse(method, &path.parse().unwrap(), &headers).unwrap();
    call.user = user.clone();
    call.body = serde_json::to_vec(body).unwrap().into();
    call
}

/// Returns why a call is refused; nothing if it is done.
fn done(server: &Server, user: &UserInfo, method: Method, path: &str, body: &Value) -> String {
    let call = call(user, &method, path, body);
    let permitted = permit(&server.state, &call);
    let done = permitted.and_then(|()| {
        if call.verb == crate::endpoints::request_info::RequestVerb::Watch {
            Ok(())
        } else {
            verbs::carry_out(&server.state, &call).map(drop)
        }
    });
    done.err()
        .map(|failure| failure.message)
        .unwrap_or_default()
}

fn node(name: &str) -> UserInfo {
    UserInfo {
        name: format!("system:node:{name}"),
        groups: vec!["system:nodes".to_string()],
        ..UserInfo::default()
    }
}

fn furnished() -> Server {
    let server = guarded();
    for name in ["a", "b"] {
        server
            .post("/api/v1/nodes", &json!({"metadata": {"name": name}}))
            .unwrap();
    }
    for (pod, on, secret) in [("mine", "a", "key"), ("other", "b", "others")] {
        let volumes = json!([{"name": "v", "secret": {"secretName": secret}}, {"name": "w", "configMap": {"name": secret}}]);
        let spec = json!({"nodeName": on, "containers": [{"name": "c", "image": "i"}], "volumes": volumes});
        server
            .post(
                "/api/v1/namespaces/default/pods",
                &json!({"metadata": {"name": pod}, "spec": spec}),
            )
            .unwrap();
        server
            .post(
                "/api/v1/namespaces/default/secrets",
                &json!({"metadata": {"name": secret}}),
            )
            .unwrap();
        server
            .post(
                "/api/v1/namespaces/default/configmaps",
                &json!({"metadata": {"name": secret}}),
            )
            .unwrap();
    }
    server
}

/// Upstream's TestNodeAuthorizer, and Test_nodePlugin_Admit for pods, leases and CSINodes.
#[test]
fn a_node_keeps_to_its_own_affairs() {
    let server = furnished();
    let me = node("a");
    let get = |path: &str| done(&server, &me, Method::GET, path, &Value::Null);
    for path in [
        "/api/v1/nodes/a",
        "/api/v1/nodes?watch=1&fieldSelector=metadata.name%3Da",
        "/api/v1/pods?fieldSelector=spec.nodeName%3Da",
        "/api/v1/namespaces/default/pods/mine",
        "/api/v1/namespaces/default/secrets/key",
        "/api/v1/namespaces/default/configmaps/key",
        "/api/v1/namespaces/default/configmaps/kube-root-ca.crt",
        "/api/v1/namespaces/default/secrets?watch=1&fieldSelector=metadata.name%3Dkey",
        "/api/v1/services",
        "/apis/node.k8s.io/v1/runtimeclasses?watch=1",
    ] {
        assert_eq!(get(path), "", "{path}");
    }
    for (path, why) in [
        (
            "/api/v1/nodes/b",
            "node 'a' cannot read 'b', only its own Node object",
        ),
        (
            "/api/v1/nodes",
            "node 'a' cannot read all nodes, only its own Node object",
        ),
        (
            "/api/v1/pods",
            "pods is forbidden: User \"system:node:a\" cannot list resource \"pods\" in API group \"\" at the cluster scope: can only list/watch pods with spec.nodeName field selector",
        ),
        (
            "/api/v1/namespaces/default/secrets/others",
            "no relationship found between node 'a' and this object",
        ),
        (
            "/api/v1/namespaces/default/secrets",
            "No Object name found (only individual secrets can be read)",
        ),
        (
            "/api/v1/secrets?fieldSelector=metadata.name%3Dkey",
            "No Object name found",
        ),
        (
            "/apis/apps/v1/deployments",
            "cannot list resource \"deployments\" in API group \"apps\" at the cluster scope",
        ),
    ] {
        assert!(get(path).contains(why), "{path}: {}", get(path));
    }
}

/// A call, and why it is refused; nothing where it is done.
type Case = (Method, String, Value, &'static str);

fn check(server: &Server, me: &UserInfo, cases: impl IntoIterator<Item = Case>) {
    for (method, path, body, why) in cases {
        let said = done(server, me, method.clone(), &path, &body);
        let as_expected = said.contains(why) && said.is_empty() == why.is_empty();
        assert!(as_expected, "{method} {path}: {said:?}, expected {why:?}");
    }
}

/// Upstream's Test_nodePlugin_Admit, its cases of pods.
#[test]
fn a_node_writes_mirror_pods_and_the_status_of_its_own() {
    let server = furnished();
    let uid = server.get("/api/v1/nodes/a").unwrap()["metadata"]["uid"].clone();
    let mirror = json!({"metadata": {"name": "m", "annotations": {"kubernetes.io/config.mirror": "x"},
        "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "a", "uid": uid, "controller": true}]},
        "spec": {"nodeName": "a", "containers": [{"name": "c", "image": "i"}]}});
    let with = |at: &str, value: Value| {
        let mut mirror = mirror.clone();
        mirror["metadata"]["name"] = json!("n");
        *mirror.pointer_mut(at).unwrap() = value;
        mirror
    };
    let pods = "/api/v1/namespaces/default/pods";
    let post = |body: Value, why| (Method::POST, pods.to_string(), body, why);
    let patch = |pod: &str, body: Value, why| {
        let path = format!("{pods}/{pod}/status");
        (Method::PATCH, path, body, why)
    };
    let delete = |pod: &str, why| (Method::DELETE, format!("{pods}/{pod}"), Value::Null, why);
    let owner = "/metadata/ownerReferences/0/name";
    let itself = "with spec.nodeName set to itself";
    let running = json!({"status": {"phase": "Running"}});
    let labelled = json!({"metadata": {"labels": {"x": "y"}}});
    let cases = [
        post(mirror.clone(), ""),
        post(
            with("/metadata/annotations", json!({})),
            "node \"a\" can only create mirror pods",
        ),
        post(with("/spec/nodeName", json!("b")), itself),
        post(
            with(owner, json!("b")),
            "with an owner reference set to itself",
        ),
        patch("mine", running.clone(), ""),
        patch("other", running, itself),
        patch("mine", labelled, "cannot update labels through pod status"),
        delete("other", itself),
        delete("mine", ""),
    ];
    check(&server, &node("a"), cases);
}

/// Upstream's Test_nodePlugin_Admit, its cases of nodes, leases and CSINodes.
#[test]
fn a_node_writes_its_own_objects() {
    let (server, me) = (furnished(), node("a"));
    let status = |node: &str, why| {
        let path = format!("/api/v1/nodes/{node}/status");
        (Method::PATCH, path, json!({"status": {"phase": "x"}}), why)
    };
    let post = |path: &str, name: &str, why| {
        (
            Method::POST,
            path.to_string(),
            json!({"metadata": {"name": name}}),
            why,
        )
    };
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
    let elsewhere = leases.replace("kube-node-lease", "default");
    let gone = (Method::DELETE, "/api/v1/nodes/a".to_string(), Value::Null);
    let cases = [
        status("a", ""),
        status("b", "is not allowed to modify node \"b\""),
        (gone.0, gone.1, gone.2, "cannot delete resource \"nodes\""),
        post(leases, "a", ""),
        post(
            leases,
            "b",
            "can only access node lease with the same name as the requesting node",
        ),
        post(
            &elsewhere,
            "a",
            "can only access leases in the \"kube-node-lease\" system namespace",
        ),
        post(
            "/apis/storage.k8s.io/v1/csinodes",
            "b",
            "can only access CSINode with the same name",
        ),
    ];
    check(&server, &me, cases);
    server.guard_nodes(false);
    server.judge(|_| Some(true));
    let other = (
        Method::DELETE,
        "/api/v1/nodes/b".to_string(),
        Value::Null,
        "",
    );
    check(&server, &me, [other]);
}

#[test]
fn others_have_the_rights_that_they_are_given() {
    let server = furnished();
    let someone = |group: &str| UserInfo {
        name: "x".to_string(),
        groups: vec![group.to_string()],
        ..UserInfo::default()
    };
    let csr = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let get = |user: &UserInfo, path: &str| done(&server, user, Method::GET, path, &Value::Null);
    assert_eq!(get(&someone("system:masters"), "/api/v1/nodes"), "");
    assert_eq!(get(&someone("system:bootstrappers"), csr), "");
    assert!(get(&someone("system:bootstrappers"), "/api/v1/nodes").contains("cannot list"));
    assert!(get(&someone("us"), csr).contains("cannot list"));
    let nobody = user(&server.state, &ConnectionPeer::default(), &HeaderMap::new()).unwrap();
    assert!(get(&nobody, csr).contains("User \"system:anonymous\" cannot list resource"));
    server.judge(|question| (question.user == "x" && question.resource == "nodes").then_some(true));
    assert_eq!(get(&someone("us"), "/api/v1/nodes"), "");

    let review = |group: &str| {
        let spec = json!({"user": "y", "groups": [group], "resourceAttributes": {"verb": "get", "resource": "nodes", "subresource": "proxy", "name": "a"}});
        server
            .post(
                "/apis/authorization.k8s.io/v1/subjectaccessreviews",
                &json!({"spec": spec}),
            )
            .unwrap()["status"]["allowed"]
            .clone()
    };
    assert_eq!(
        (review("system:masters"), review("us")),
        (json!(true), json!(false))
    );
    assert_eq!(server.asked()[1].subresource, "proxy");
}

#[test]
fn kubeconfigs_have_all_they_need() {
    let server = guarded();
    let config: Value =
        serde_json::from_str(&server.kubeconfig(&CallerIdentity::node("a")).unwrap()).unwrap();
    assert_eq!(config["clusters"][0]["cluster"]["server"], server.url());
    assert!(config["users"][0]["user"]["client-key-data"].is_string());
    let bootstrap: Value = serde_json::from_str(&server.bootstrap_kubeconfig().unwrap()).unwrap();
    let token = bootstrap["users"][0]["user"]["token"].as_str().unwrap();
    let found = user(&server.state, &ConnectionPeer::default(), &bearer(token)).unwrap();
    assert_eq!(found.name, "system:bootstrap:abcdef");
}

const PODS: &str = "/api/v1/namespaces/default/pods";

fn uid(server: &Server, path: &str) -> Value {
    server.get(path).unwrap()["metadata"]["uid"].clone()
}

/// What node `a` asks for in the name of its pod `mine`, but for what is changed.
fn of_a_pod(server: &Server, stub: &[u8], change: &[(&str, Value)]) -> Value {
    let mut spec = json!({
        "signerName": "example.com/a", "podName": "mine", "podUID": uid(server, &format!("{PODS}/mine")),
        "serviceAccountName": "default",
        "serviceAccountUID": uid(server, "/api/v1/namespaces/default/serviceaccounts/default"),
        "nodeName": "a", "nodeUID": uid(server, "/api/v1/nodes/a"),
        "stubPKCS10Request": BASE64.encode(stub),
    });
    for (field, value) in change {
        spec[field] = value.clone();
    }
    spec
}

/// Upstream's Test_nodePlugin_Admit and TestNodeAuthorizer, their cases of PodCertificateRequests.
#[test]
fn a_node_asks_for_certificates_of_its_own_pods_alone() {
    let server = furnished();
    server.sign_for_pods(SigningPolicy::Hold);
    let me = node("a");
    let path = "/apis/certificates.k8s.io/v1beta1/namespaces/default/podcertificaterequests";
    let key = rcgen::KeyPair::generate().unwrap();
    let stub = rcgen::CertificateParams::default()
        .serialize_request(&key)
        .unwrap();
    let request = |name: &str, change: &[(&str, Value)]| {
        let spec = of_a_pod(&server, stub.der(), change);
        json!({"metadata": {"name": name}, "spec": spec})
    };
    let of_other = [
        ("podName", json!("other")),
        ("podUID", uid(&server, &format!("{PODS}/other"))),
    ];
    let bad: [(&[(&str, Value)], &str); 7] = [
        (
            &[("nodeName", json!("b"))],
            "which is not the requesting node",
        ),
        (
            &[("nodeUID", json!("x"))],
            "inconsistent with the running node",
        ),
        (&[("podName", json!("none"))], "pod \"none\" not found"),
        (&[("podUID", json!("x"))], "differs from running pod"),
        (&of_other, "is not running on node \"a\""),
        (
            &[("serviceAccountName", json!("x"))],
            "differs from running pod",
        ),
        (
            &[("serviceAccountUID", json!("x"))],
            "differs from the running service account",
        ),
    ];
    let refused =
        bad.map(|(change, why)| (Method::POST, path.to_string(), request("bad", change), why));
    check(&server, &me, refused);
    let none = Value::Null;
    let own = format!("{path}?fieldSelector=metadata.name%3Dgood,spec.nodeName%3Da");
    check(
        &server,
        &me,
        [
            (Method::POST, path.to_string(), request("good", &[]), ""),
            (Method::GET, format!("{path}/good"), none.clone(), ""),
            (Method::GET, own.clone(), none.clone(), ""),
            (Method::GET, format!("{own}&watch=true"), none.clone(), ""),
            (
                Method::GET,
                path.to_string(),
                none.clone(),
                "spec.nodeName field selector",
            ),
            (
                Method::PATCH,
                format!("{path}/good/status"),
                json!({"status": {}}),
                "may not access the status subresource",
            ),
            (
                Method::DELETE,
                format!("{path}/good"),
                none.clone(),
                "forbidden",
            ),
        ],
    );
    let other = [(
        Method::GET,
        format!("{path}/good"),
        none,
        "no relationship found",
    )];
    check(&server, &node("b"), other);
}
