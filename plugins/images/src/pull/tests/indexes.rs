//! Images behind indexes.

use super::*;

#[tokio::test]
async fn an_index_leads_to_the_image_for_this_machine() {
    let rig = Rig::new().await;
    let (image, mirror) = (image(), store(rig._home.path().join("other").as_path()));
    rig.registry.serve(&image, "x:1");
    let size = image.manifest.len();
    let index = serde_json::json!({"schemaVersion": 2, "manifests": [
        {"digest": Digest::of(b"no"), "size": 2, "platform": {"os": "windows", "architecture": "amd64"}},
        {"digest": Digest::of(&image.manifest), "size": size, "platform": Platform::host()},
    ]});
    let index = serde_json::to_vec(&index).unwrap();
    rig.registry.put("/v2/x/manifests/multi", &index);
    let reference: Reference = format!("{}/x:multi", rig.registry.address).parse().unwrap();
    let pulled = mirror.pull(pull(&reference)).await.unwrap();
    assert_eq!(pulled.id, image.id());
    assert_eq!(
        pulled.digests,
        [reference.with_digest(Digest::of(&index)).to_string()]
    );
}

#[tokio::test]
async fn an_index_in_an_index_is_followed_and_its_word_counts_more_than_the_configs() {
    let rig = Rig::new().await;
    let mut image = image();
    // Its config is for another machine than its index says.
    let mut config: serde_json::Value = serde_json::from_slice(&image.config).unwrap();
    config["architecture"] = "s390x".into();
    image.config = serde_json::to_vec(&config).unwrap();
    let mut manifest: serde_json::Value = serde_json::from_slice(&image.manifest).unwrap();
    manifest["config"]["digest"] = Digest::of(&image.config).to_string().into();
    manifest["config"]["size"] = image.config.len().into();
    image.manifest = serde_json::to_vec(&manifest).unwrap();
    let alone = rig.registry.serve(&image, "x:1");
    let error = rig.pull(&alone).await.unwrap_err();
    assert!(matches!(error, PullError::Document { .. }), "{error:?}");
    let inner = serde_json::json!({"schemaVersion": 2, "manifests": [
        {"digest": Digest::of(&image.manifest), "size": image.manifest.len(), "platform": Platform::host()},
    ]});
    let inner = serde_json::to_vec(&inner).unwrap();
    let outer = serde_json::json!({"schemaVersion": 2, "manifests": [
        {"digest": Digest::of(&inner), "size": inner.len(), "mediaType": "application/vnd.oci.image.index.v1+json"},
    ]});
    let outer = serde_json::to_vec(&outer).unwrap();
    let path = |name: &str| format!("/v2/x/manifests/{name}");
    rig.registry
        .put(&path(&Digest::of(&inner).to_string()), &inner);
    rig.registry.put(&path("nested"), &outer);
    let reference: Reference = format!("{}/x:nested", rig.registry.address)
        .parse()
        .unwrap();
    let pulled = rig.pull(&reference).await.unwrap();
    assert_eq!(pulled.id, image.id());
    assert_eq!(
        pulled.digests,
        [reference.with_digest(Digest::of(&outer)).to_string()]
    );
}
