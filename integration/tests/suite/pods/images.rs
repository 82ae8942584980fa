//! Images pulled for real: those that cannot be had, and those that need a name and a password, by docker's file and by a
//! credential provider.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use integration::doubles::registry::{ImageRegistry, RegistryFault};
use integration::images::Image;
use serde_json::json;

use crate::suite::node_rig::*;

on_each_runtime! {
    an_image_that_may_not_be_pulled_is_named,
    an_image_that_cannot_be_pulled_backs_off_and_is_pulled_when_it_can,
    the_nodes_docker_file_opens_a_registry,
    a_credential_provider_opens_a_registry,
    a_provider_that_fails_fails_its_own_images_only,
}

async fn an_image_that_may_not_be_pulled_is_named(on: TestRuntime) {
    let Some(node_rig) = on.start().await else {
        return;
    };
    let manifest = server("sparing")
        .replace("oxlet/busybox:1", "oxlet/elsewhere:1")
        .replace("    command", "    imagePullPolicy: Never\n    command");
    node_rig
        .node
        .drop_manifest("sparing.yaml", &manifest)
        .unwrap();
    let pod = node_rig
        .until("sparing", "says why", |pod| {
            waiting(pod, "app").0 == "ErrImageNeverPull"
        })
        .await;
    assert_eq!(
        waiting(&pod, "app").1,
        "Container image \"localhost/oxlet/elsewhere:1\" is not present with pull policy of Never"
    );
    assert_eq!(phase(&pod), "Pending");
}

async fn an_image_that_cannot_be_pulled_backs_off_and_is_pulled_when_it_can(on: TestRuntime) {
    let Some(node_rig) = on.start().await else {
        return;
    };
    let registry = ImageRegistry::start().await.unwrap();
    let remote = on.remote_image(&registry);
    registry.set_fault(RegistryFault::Status(503));
    let absent = registry.name("team/absent", "1");
    let manifest =
        |name: &str, image: &str| server(name).replace("localhost/oxlet/busybox:1", image);
    node_rig
        .node
        .drop_manifest("absent.yaml", &manifest("absent", &absent))
        .unwrap();
    node_rig
        .until("absent", "says that the pull failed", |pod| {
            ["ErrImagePull", "RegistryUnavailable", "ImagePullBackOff"]
                .contains(&waiting(pod, "app").0)
        })
        .await;
    let pod = node_rig
        .until("absent", "backs off", |pod| {
            waiting(pod, "app").0 == "ImagePullBackOff"
        })
        .await;
    let message = waiting(&pod, "app").1;
    assert!(
        message.starts_with(&format!("Back-off pulling image \"{absent}\"")),
        "{message}"
    );
    node_rig
        .until_event("Failed", &["Failed to pull image", &absent])
        .await;

    registry.set_fault(RegistryFault::None);
    node_rig
        .node
        .drop_manifest("remote.yaml", &manifest("remote", &remote))
        .unwrap();
    node_rig.until_running("remote").await;
    node_rig
        .until_event("Pulled", &["Successfully pulled image", &remote])
        .await;
    if on != TestRuntime::Fake {
        let blobs = registry
            .requests()
            .iter()
            .filter(|line| line.contains("/blobs/"))
            .count();
        assert_eq!(
            blobs,
            2,
            "config and layer, once: {:?}",
            registry.requests()
        );
    }
}

/// A registry that asks for a password, an image in it, and the place that its credentials are for.
struct ClosedRegistry {
    on: TestRuntime,
    registry: ImageRegistry,
    repository: &'static str,
}

impl ClosedRegistry {
    async fn start(on: TestRuntime, repository: &'static str) -> ClosedRegistry {
        let registry = ImageRegistry::start().await.unwrap();
        registry.require("user", "right").unwrap();
        ClosedRegistry {
            on,
            registry,
            repository,
        }
    }

    fn place(&self) -> String {
        match self.on {
            TestRuntime::Fake => "example.com".to_owned(),
            TestRuntime::Containerd | TestRuntime::Native => self.registry.host(),
        }
    }

    fn image(&self) -> String {
        format!("{}/{}:1", self.place(), self.repository)
    }

    /// Drops the manifest of a pod of the image, which the registry serves from now on.
    fn drop_pod(&self, node_rig: &NodeRig, name: &str) {
        if self.on != TestRuntime::Fake {
            let built = Image::busybox(self.repository);
            self.registry.push(self.repository, "1", &built).unwrap();
        }
        let manifest = server(name).replace("localhost/oxlet/busybox:1", &self.image());
        let file = format!("{name}.yaml");
        node_rig.node.drop_manifest(&file, &manifest).unwrap();
    }
}

/// The fake runtime's own closed registry.
fn fake() -> serde_json::Value {
    json!({ "private": { "example.com/": "user:right" } })
}

async fn the_nodes_docker_file_opens_a_registry(on: TestRuntime) {
    let closed = ClosedRegistry::start(on, "team/by-file").await;
    let home = tempfile::tempdir().unwrap();
    let text = |password: &str| {
        let auth = json!({ "username": "user", "password": password });
        json!({ "auths": { closed.place(): auth } }).to_string()
    };
    fs::create_dir(home.path().join(".docker")).unwrap();
    fs::write(home.path().join(".docker/config.json"), text("right")).unwrap();
    let place = home.path().display().to_string();
    let node_rig = on.start_with(|builder| builder.fake(&fake()).environment("HOME", &place));
    let Some(node_rig) = node_rig.await else {
        return;
    };
    closed.drop_pod(&node_rig, "file");
    node_rig.until_running("file").await;
    node_rig
        .until_event("Pulled", &["Successfully pulled image", &closed.image()])
        .await;
    let records = node_rig.node.root().join("image_manager/pulled");
    let record = fs::read_dir(&records).unwrap().next().unwrap().unwrap();
    let record: serde_json::Value =
        serde_json::from_slice(&fs::read(record.path()).unwrap()).unwrap();
    let known = format!("{}/team/by-file", closed.place());
    assert_eq!(
        record["credentialMapping"][known]["nodePodsAccessible"],
        true
    );
    if on == TestRuntime::Containerd {
        assert!(!closed.registry.requests().is_empty());
    }
}

/// Writes a provider and its declaration; returns the two flags.
fn provider(folder: &Path, place: &str, script: &str) -> [String; 2] {
    let (bin, config) = (folder.join("bin"), folder.join("providers.yaml"));
    fs::create_dir(&bin).unwrap();
    fs::write(bin.join("cloud"), format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(bin.join("cloud"), fs::Permissions::from_mode(0o755)).unwrap();
    let declared = json!({
        "apiVersion": "kubelet.config.k8s.io/v1", "kind": "CredentialProviderConfig",
        "providers": [{
            "name": "cloud", "matchImages": [place], "defaultCacheDuration": "1h",
            "apiVersion": "credentialprovider.kubelet.k8s.io/v1", "env": [{ "name": "PASSWORD", "value": "right" }],
        }],
    });
    fs::write(&config, declared.to_string()).unwrap();
    [
        format!("--image-credential-provider-config={}", config.display()),
        format!("--image-credential-provider-bin-dir={}", bin.display()),
    ]
}

async fn a_credential_provider_opens_a_registry(on: TestRuntime) {
    let closed = ClosedRegistry::start(on, "team/by-provider").await;
    let folder = tempfile::tempdir().unwrap();
    let script = format!(
        r#"cat > "$0.request"
printf '{{"kind":"CredentialProviderResponse","apiVersion":"credentialprovider.kubelet.k8s.io/v1","cacheKeyType":"Registry",'
printf '"auth":{{"{}":{{"username":"user","password":"%s"}}}}}}' "$PASSWORD""#,
        closed.place()
    );
    let [config, bin] = provider(folder.path(), &closed.place(), &script);
    let node_rig = on.start_with(|builder| builder.fake(&fake()).flag(config).flag(bin));
    let Some(node_rig) = node_rig.await else {
        return;
    };
    closed.drop_pod(&node_rig, "cloud");
    node_rig.until_running("cloud").await;
    let request = fs::read_to_string(folder.path().join("bin/cloud.request")).unwrap();
    let asked = format!("\"image\":\"{}/team/by-provider\"", closed.place());
    assert!(request.contains(&asked), "{request}");
}

async fn a_provider_that_fails_fails_its_own_images_only(on: TestRuntime) {
    let closed = ClosedRegistry::start(on, "team/lost").await;
    let folder = tempfile::tempdir().unwrap();
    let script = "echo 'the cloud is away' >&2; exit 3";
    let [config, bin] = provider(folder.path(), &closed.place(), script);
    let node_rig = on.start_with(|builder| builder.fake(&fake()).flag(config).flag(bin));
    let Some(node_rig) = node_rig.await else {
        return;
    };
    closed.drop_pod(&node_rig, "lost");
    node_rig
        .node
        .drop_manifest("web.yaml", &server("web"))
        .unwrap();
    node_rig.until_running("web").await;
    node_rig
        .until("lost", "backs off", |pod| {
            waiting(pod, "app").0 == "ImagePullBackOff"
        })
        .await;
    node_rig
        .until_event("Failed", &["Failed to pull image", &closed.image()])
        .await;
    let shown = node_rig.node.oxctl(&["images"]).await.unwrap();
    assert!(
        shown.contains("backing off") && shown.contains(&closed.image()),
        "{shown}"
    );
    let log = node_rig.node.log();
    assert!(log.contains("the cloud is away"), "{log}");
}
