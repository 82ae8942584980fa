//! Secrets that a driver gets.

use super::*;

const DRIVER: &str = "csi.example.com";

fn driver_says(spec: &str) -> String {
    format!(
        "
---
apiVersion: storage.k8s.io/v1
kind: CSIDriver
metadata: {{name: {DRIVER}}}
spec: {{attachRequired: false, volumeLifecycleModes: [Persistent, Ephemeral], {spec}}}
"
    )
}

fn volume(more: &str) -> String {
    let secret = |name: &str| format!("{{namespace: vault, name: {name}}}");
    bound(&format!(
        "csi:\n  driver: {DRIVER}\n  volumeHandle: vol-1\n  nodeStageSecretRef: {}\n  nodePublishSecretRef: {}\n  nodeExpandSecretRef: {}\n{more}",
        secret("stage"),
        secret("publish"),
        secret("expand")
    ))
}

fn secret(namespace: &str, name: &str) -> String {
    format!(
        "
---
apiVersion: v1
kind: Secret
metadata: {{namespace: {namespace}, name: {name}}}
stringData: {{key: {name}}}
"
    )
}

/// Upstream's TestAttacherMountDevice (secrets) and TestMounterSetUp.
#[test]
fn secrets_are_found_where_the_volume_says_each_for_its_step() {
    let all = ["stage", "publish", "expand"].map(|name| secret("vault", name));
    let manifests = format!("{}{}{}", volume(""), all.concat(), driver_says(""));
    let stages = ResolveRig::of(&manifests).driver(DRIVER, &["STAGE_UNSTAGE_VOLUME"]);
    let made = csi(&stages.volume(&mounting(CLAIMING)));
    let of = |name: &str| string_map(&[("key", name)]);
    assert_eq!(made.stage_secrets.0, of("stage"));
    assert_eq!(made.publish_secrets.0, of("publish"));
    assert_eq!(made.expand_secrets.0, of("expand"));
    let plain = ResolveRig::of(&manifests).driver(DRIVER, &[]);
    let made = csi(&plain.volume(&mounting(CLAIMING)));
    assert!(made.stage_secrets.0.is_empty());
}

#[test]
fn a_missing_secret_is_named_with_its_step() {
    const NO: &str = "kubernetes.io/csi: failed to find the secret";
    let of = |found: &[&str], mode: &str| {
        let found: String = found.iter().map(|name| secret("vault", name)).collect();
        let manifests = format!("{}{found}{}", volume(mode), driver_says(""));
        ResolveRig::of(&manifests).driver(DRIVER, &["STAGE_UNSTAGE_VOLUME"])
    };
    assert_eq!(
        of(&[], "").refusal(&mounting(CLAIMING)),
        format!(
            "mounting FailedMount: MountVolume.MountDevice failed for volume \"pv\" : fetching NodeStageSecretRef vault/stage failed: {NO} stage in the namespace vault with error: secrets \"stage\" not found"
        )
    );
    assert_eq!(
        of(&["stage"], "").refusal(&mounting(CLAIMING)),
        format!(
            "mounting FailedMount: MountVolume.SetUp failed for volume \"pv\" : fetching NodePublishSecretRef vault/publish failed: {NO} publish in the namespace vault with error: secrets \"publish\" not found"
        )
    );
    let raw = |found: &[&str]| of(found, "volumeMode: Block").refusal(&mapping(CLAIMING));
    assert_eq!(
        raw(&[]),
        format!(
            "mounting FailedMapVolume: MapVolume.SetUpDevice failed for volume \"pv\" : failed to get NodeStageSecretRef vault/stage: {NO} stage in the namespace vault with error: secrets \"stage\" not found"
        )
    );
    assert!(raw(&["stage"]).contains("MapVolume.MapPodDevice failed for volume \"pv\" : kubernetes.io/csi: blockMapper.publishVolumeForBlock failed to get NodePublishSecretRef vault/publish"));
    // No pod waits for what only an expansion needs.
    assert!(
        of(&["stage", "publish"], "")
            .resolve(&mounting(CLAIMING))
            .is_ok()
    );
}

#[test]
fn an_inline_volumes_secret_is_of_the_pods_namespace_and_text() {
    let pod = mounting("csi: {driver: csi.example.com, nodePublishSecretRef: {name: own}}");
    let of = |secret: &str| {
        let manifests = format!("{}{secret}", driver_says(""));
        ResolveRig::of(&manifests).driver(DRIVER, &[])
    };
    assert!(of(&secret("other", "own")).refusal(&pod).contains(
        "fetching NodePublishSecretRef default/own failed: kubernetes.io/csi: failed to find the secret own in the namespace default"
    ));
    let made = csi(&of(&secret("default", "own")).volume(&pod));
    assert_eq!(made.publish_secrets.0, string_map(&[("key", "own")]));
    let bytes = secret("default", "own").replace("stringData: {key: own}", "data: {key: /w==}");
    assert!(
        of(&bytes)
            .refusal(&pod)
            .contains("the value of key in the secret own in the namespace default is not UTF-8")
    );
}

fn token(audience: &str) -> String {
    format!(
        "
---
apiVersion: authentication.k8s.io/v1
kind: TokenRequest
metadata: {{namespace: default, name: builder}}
spec: {{audiences: [{audience}]}}
status: {{token: 'secret-{audience}', expirationTimestamp: '2023-11-14T22:14:00Z'}}
"
    )
}

fn pod_of_builder(source: &str) -> Pod {
    let mut pod = mounting(source);
    pod.spec.as_mut().unwrap().service_account_name = Some("builder".into());
    pod
}

/// Upstream's TestPodServiceAccountTokenAttrs.
#[test]
fn a_driver_gets_the_tokens_that_it_asks_for() {
    let says = driver_says(
        "tokenRequests: [{audience: gcp, expirationSeconds: 600}, {audience: ''}], serviceAccountTokenInSecrets: true",
    );
    let pod = pod_of_builder("csi: {driver: csi.example.com}");
    let node = ResolveRig::of(&format!("{says}{}{}", token("gcp"), token(""))).driver(DRIVER, &[]);
    let resolved = node.resolve(&pod).unwrap();
    assert_eq!(resolved.refresh_at, None);
    let made = csi(&resolved.volume);
    let tokens: Vec<(&str, &str)> = made
        .tokens
        .iter()
        .map(|token| (token.audience.as_str(), token.token.as_str()))
        .collect();
    assert_eq!(tokens, [("gcp", "secret-gcp"), ("", "secret-")]);
    assert!(made.tokens_in_secrets);
    let missing = ResolveRig::of(&format!("{says}{}", token(""))).driver(DRIVER, &[]);
    assert_eq!(
        missing.refusal(&pod),
        "mounting FailedMount: MountVolume.SetUp failed for volume \"data\" : kubernetes.io/csi: mounter.SetUpAt failed to get service accoount token attributes: failed to fetch token: there is no token of service account default/builder for audience \"gcp\" that lasts"
    );
    let expired = token("gcp").replace("22:14:00Z", "22:13:20Z");
    let expired = ResolveRig::of(&format!("{says}{expired}{}", token(""))).driver(DRIVER, &[]);
    assert!(expired.resolve(&pod).is_err());
    let uses = missing.resolve(&pod).unwrap_err().uses;
    assert!(
        uses.iter()
            .any(|uses| uses.kind == "TokenRequest" && uses.name == "builder")
    );
}

#[test]
fn a_driver_that_wants_it_is_told_again_before_its_tokens_are_old() {
    let asks = "tokenRequests: [{audience: gcp, expirationSeconds: 600}]";
    let pod = pod_of_builder("csi: {driver: csi.example.com}");
    let refresh = |says: &str| {
        let manifests = format!("{}{}", driver_says(says), token("gcp"));
        let node = ResolveRig::of(&manifests).driver(DRIVER, &[]);
        let resolved = node.resolve(&pod).unwrap();
        resolved.refresh_at.map(|at| at.as_second() - NOW)
    };
    assert_eq!(refresh(asks), None);
    assert_eq!(refresh("requiresRepublish: true"), Some(60));
    // The token lasts forty seconds more, of ten minutes: it is old, and looked at again when it ends.
    assert_eq!(
        refresh(&format!("requiresRepublish: true, {asks}")),
        Some(40)
    );
}

#[test]
fn a_device_is_published_without_tokens() {
    let asks = "tokenRequests: [{audience: gcp}]";
    let found = ["stage", "publish"].map(|name| secret("vault", name));
    let manifests = format!(
        "{}{}{}",
        volume("volumeMode: Block"),
        found.concat(),
        driver_says(asks)
    );
    let node = ResolveRig::of(&manifests).driver(DRIVER, &[]);
    assert!(csi(&node.volume(&mapping(CLAIMING))).tokens.is_empty());
}
