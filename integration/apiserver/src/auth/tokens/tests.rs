//! Tokens of pods, and what reviews say of them.

use base64::prelude::{BASE64_URL_SAFE_NO_PAD as BASE64, Engine as _};
use serde_json::{Value, json};

use crate::{Server, ServerOptions};

const ACCOUNT: &str = "/api/v1/namespaces/default/serviceaccounts/default/token";
const REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";

fn server() -> (Server, Value) {
    let server = Server::start_now(ServerOptions::default()).unwrap();
    let pod = json!({"metadata": {"name": "a"}, "spec": {"nodeName": "n", "serviceAccountName": "default", "containers": [{"name": "c", "image": "i"}]}});
    let pod = server
        .post("/api/v1/namespaces/default/pods", &pod)
        .unwrap();
    (server, pod)
}

fn ask(pod: &Value) -> Value {
    let bound =
        json!({"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": pod["metadata"]["uid"]});
    json!({"spec": {"audiences": ["vault"], "expirationSeconds": 3607, "boundObjectRef": bound}})
}

fn review(server: &Server, token: &Value, audiences: &[&str]) -> Value {
    server
        .post(
            REVIEWS,
            &json!({"spec": {"token": token, "audiences": audiences}}),
        )
        .unwrap()["status"]
        .clone()
}

#[test]
fn a_token_says_whose_it_is_and_ends_with_its_pod() {
    let (server, pod) = server();
    let answer = server.post(ACCOUNT, &ask(&pod)).unwrap();
    let token = &answer["status"]["token"];
    let payload = BASE64
        .decode(token.as_str().unwrap().split('.').nth(1).unwrap())
        .unwrap();
    let payload: Value = serde_json::from_slice(&payload).unwrap();
    assert_eq!(payload["sub"], "system:serviceaccount:default:default");
    assert_eq!(
        payload["kubernetes.io"]["pod"]["uid"],
        pod["metadata"]["uid"]
    );
    assert_eq!(
        payload["exp"].as_i64().unwrap() - payload["iat"].as_i64().unwrap(),
        3607
    );

    let status = review(&server, token, &["vault", "other"]);
    assert_eq!(status["authenticated"], true);
    assert_eq!(status["audiences"], json!(["vault"]));
    assert_eq!(
        status["user"]["extra"]["authentication.kubernetes.io/pod-name"],
        json!(["a"])
    );
    assert!(review(&server, token, &[])["authenticated"].is_null());
    server
        .delete("/api/v1/namespaces/default/pods/a?gracePeriodSeconds=0")
        .unwrap();
    assert!(review(&server, token, &["vault"])["authenticated"].is_null());
}

/// Upstream's TestCreate of the token storage, its refusals.
#[test]
fn a_token_is_bound_to_a_pod_that_is_there() {
    let (server, pod) = server();
    let refused = |change: &dyn Fn(&mut Value)| {
        let mut ask = ask(&pod);
        change(&mut ask["spec"]);
        let failure = server.post(ACCOUNT, &ask).unwrap_err();
        (failure.code, failure.message)
    };
    assert_eq!(
        refused(&|spec| spec["boundObjectRef"]["name"] = json!("b")),
        (404, "pods \"b\" not found".to_string())
    );
    let (code, message) = refused(&|spec| spec["boundObjectRef"]["uid"] = json!("other"));
    assert_eq!(code, 409);
    assert!(
        message.contains(
            "the UID in the bound object reference (other) does not match the UID in record"
        ),
        "{message}"
    );
    assert_eq!(
        refused(&|spec| spec["expirationSeconds"] = json!(599)).0,
        422
    );
    assert_eq!(
        refused(&|spec| spec["boundObjectRef"]["kind"] = json!("Node")).0,
        400
    );
    let absent = ACCOUNT.replace("/default/token", "/absent/token");
    assert_eq!(server.post(&absent, &ask(&pod)).unwrap_err().code, 404);
}

#[test]
fn known_tokens_are_reviewed_until_they_are_revoked() {
    let (server, _) = server();
    server.token("secret", "me", &["us"]);
    let status = review(&server, &json!("secret"), &[]);
    assert_eq!(
        status["user"],
        json!({"username": "me", "groups": ["us", "system:authenticated"]})
    );
    server.revoke_token("secret");
    assert!(review(&server, &json!("secret"), &[])["authenticated"].is_null());
}
