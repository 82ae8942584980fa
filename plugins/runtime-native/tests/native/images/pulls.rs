//! Pulls through CRI, from a registry on loopback.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use images::testing::{Answer, ImageBuilder, Registry, file_layer};
use images::{Digest, Reference};
use proto::cri::*;
use serde_json::json;
use tonic::Status;

use crate::images::{layer_with, spec};
use crate::rig::Rig;

async fn pull(rig: &Rig, name: &str, auth: Option<AuthConfig>) -> Result<String, Status> {
    let request = PullImageRequest {
        image: spec(name),
        auth,
        sandbox_config: None,
    };
    let answer = rig.images().pull_image(request).await?;
    Ok(answer.into_inner().image_ref)
}

async fn found(rig: &Rig, name: &str) -> Option<Image> {
    let request = ImageStatusRequest {
        image: spec(name),
        verbose: false,
    };
    let answer = rig.images().image_status(request).await.unwrap();
    answer.into_inner().image
}

/// A busybox, upon a layer of its own; its containers run as user 1000.
fn busybox() -> ImageBuilder {
    ImageBuilder::gzip(vec![file_layer("own", b"pulled"), layer_with(|_| {})])
}

#[tokio::test]
async fn a_pulled_image_has_its_id_and_names_and_containers_run_from_it() {
    let rig = Rig::start_with(json!({ "import": [] })).await;
    let registry = Registry::start().await;
    let image = busybox();
    let name = registry.serve(&image, "x:1").to_string();
    let id = pull(&rig, &name, None).await.unwrap();
    assert_eq!(id, image.id().to_string(), "as containerd answers");
    let repository = name.strip_suffix(":1").unwrap();
    let digest = format!("{repository}@{}", Digest::of(&image.manifest));
    let shown = found(&rig, &name).await.unwrap();
    assert_eq!((&shown.id, shown.repo_tags), (&id, vec![name.clone()]));
    assert_eq!(shown.repo_digests, std::slice::from_ref(&digest));
    assert_eq!(shown.uid.unwrap().value, 1000);
    let pod = rig.pod("a");
    let sandbox = rig.run_pod(&pod).await;
    let mut config = rig.container("main", "cat /own; id -u");
    config.image = spec(&name);
    let container = rig.run((&sandbox, &pod), config).await;
    assert_eq!(rig.ended(&container).await.exit_code, 0);
    assert_eq!(rig.log("a", "main"), ["pulled1000"]);
    let status = rig.status(&container).await;
    assert_eq!((status.image_ref, status.image_id), (digest, id));
    rig.remove_pod(&sandbox).await;
    rig.assert_nothing_left().await;
}

#[tokio::test]
async fn an_image_pulled_by_its_digest_has_no_tag_until_it_is_pulled_by_one() {
    let rig = Rig::start_with(json!({ "import": [] })).await;
    let registry = Registry::start().await;
    let image = busybox();
    let name: Reference = registry.serve(&image, "x:1");
    let digest = name.with_digest(Digest::of(&image.manifest)).to_string();
    let id = pull(&rig, &digest, None).await.unwrap();
    let shown = found(&rig, &digest).await.unwrap();
    assert_eq!((&shown.id, shown.repo_tags.len()), (&id, 0));
    assert_eq!(found(&rig, &name.to_string()).await, None);
    assert_eq!(pull(&rig, &name.to_string(), None).await.unwrap(), id);
    assert_eq!(
        found(&rig, &id).await.unwrap().repo_tags,
        [name.to_string()]
    );
    let wrong = name.with_digest(Digest::of(b"another")).to_string();
    let refused = pull(&rig, &wrong, None).await.unwrap_err();
    assert!(refused.message().contains("no such thing"), "{refused:?}");
    // All names of it go.
    let request = RemoveImageRequest { image: spec(&id) };
    rig.images().remove_image(request.clone()).await.unwrap();
    assert_eq!(found(&rig, &digest).await, None);
    rig.images().remove_image(request).await.unwrap();
}

#[tokio::test]
async fn credentials_of_each_form_open_a_registry_and_others_are_denied_unseen() {
    let rig = Rig::start_with(json!({ "import": [] })).await;
    let registry = Registry::start().await;
    let name = registry.serve(&busybox(), "x:1").to_string();
    let address = registry.address.clone();
    // Its tokens are for who has a password or an identity token.
    registry.script(move |request| {
        let sent = request.headers.get("authorization");
        let sent = sent.map(|value| value.to_str().unwrap());
        if request.path == "/token" {
            let known = sent.is_none_or(|value| value == "Basic dXNlcjp3b3Jk");
            let answer = match known {
                true => Answer::ok(br#"{"token": "good", "access_token": "good"}"#),
                false => Answer::status(401),
            };
            return Some(answer);
        }
        let challenge = format!("Bearer realm=\"http://{address}/token\",service=\"s\"");
        let refused = Answer::status(401).with("www-authenticate", &challenge);
        (sent != Some("Bearer good")).then_some(refused)
    });
    let text = |text: &str| text.to_owned();
    for auth in [
        AuthConfig {
            username: text("user"),
            password: text("word"),
            ..AuthConfig::default()
        },
        AuthConfig {
            auth: text("dXNlcjp3b3Jk"),
            ..AuthConfig::default()
        },
        AuthConfig {
            identity_token: text("identity"),
            ..AuthConfig::default()
        },
        AuthConfig {
            registry_token: text("good"),
            ..AuthConfig::default()
        },
    ] {
        let pulled = pull(&rig, &name, Some(auth.clone())).await;
        assert!(pulled.is_ok(), "{auth:?}: {pulled:?}");
    }
    let wrong = AuthConfig {
        username: text("user"),
        password: text("guess"),
        ..AuthConfig::default()
    };
    // The image is there by now, and still not for everybody.
    let refused = pull(&rig, &name, Some(wrong)).await.unwrap_err();
    assert!(refused.message().contains("401"), "{refused:?}");
    let log = fs::read_to_string(rig.home.path().join("log")).unwrap();
    for secret in ["guess", "identity"] {
        assert!(!refused.message().contains(secret) && !log.contains(secret));
    }
}

#[tokio::test]
async fn pulls_of_one_image_at_a_time_fetch_it_once() {
    let rig = Arc::new(Rig::start_with(json!({ "import": [] })).await);
    let registry = Registry::start().await;
    let image = busybox();
    let name = registry.serve(&image, "x:1").to_string();
    let mut pulls = tokio::task::JoinSet::new();
    for _ in 0..6 {
        let (rig, name) = (rig.clone(), name.clone());
        pulls.spawn(async move { pull(&rig, &name, None).await });
    }
    while let Some(pulled) = pulls.join_next().await {
        assert_eq!(pulled.unwrap().unwrap(), image.id().to_string());
    }
    for layer in &image.packed {
        assert_eq!(registry.count(&Digest::of(layer).to_string()), 1);
    }
    assert_eq!(
        registry.count("/manifests/1"),
        6,
        "each asks whether it may"
    );
}

#[tokio::test]
async fn a_pull_whose_caller_goes_away_gives_its_places_to_the_next() {
    let rig = Arc::new(Rig::start_with(json!({ "import": [] })).await);
    let registry = Registry::start().await;
    let image = busybox();
    let name = registry.serve(&image, "x:1").to_string();
    // The first bytes of each layer, and then nothing.
    let layers: Vec<_> = image
        .packed
        .iter()
        .map(|layer| (Digest::of(layer).to_string(), layer[..10].to_vec()))
        .collect();
    registry.script(move |request| {
        let asked = layers
            .iter()
            .find(|(digest, _)| request.path.ends_with(digest));
        asked.map(|(_, first)| Answer {
            hangs: true,
            ..Answer::ok(first)
        })
    });
    let stalled = {
        let (rig, name) = (rig.clone(), name.clone());
        tokio::spawn(async move { pull(&rig, &name, None).await })
    };
    let of_layers = || registry.count(&Digest::of(&image.packed[0]).to_string());
    crate::rig::wait_until("the request of a layer", || of_layers() > 0).await;
    stalled.abort();
    drop(stalled.await);
    registry.script(|_| None);
    let pulled = pull(&rig, &name, None).await.unwrap();
    assert_eq!(pulled, image.id().to_string());
}

/// Returns the field of a process's status, in KiB.
fn kib(pid: u32, field: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with(field)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Its memory of its own: the code of a build for tests is many times that of one that ships.
#[tokio::test]
async fn the_plugin_takes_less_than_8_mib_more_while_it_pulls_a_layer_of_64_mib() {
    let rig = Rig::start_with(json!({ "import": [] })).await;
    let registry = Registry::start().await;
    let small = registry.serve(&busybox(), "small:1").to_string();
    pull(&rig, &small, None).await.unwrap();
    let mut state = 1_u64;
    let mut big = |name: &str| {
        let content: Vec<u8> = (0..8 << 20)
            .flat_map(|_| {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                state.to_le_bytes()
            })
            .collect();
        file_layer(name, &content)
    };
    // Which no compression makes shorter.
    let image = ImageBuilder::stored(vec![big("a")]);
    let name = registry.serve(&image, "big:1").to_string();
    let idle = kib(rig.pid(), "RssAnon:");
    let mut peak = idle;
    let mut samples = tokio::time::interval(Duration::from_millis(5));
    let pulling = pull(&rig, &name, None);
    tokio::pin!(pulling);
    let pulled = loop {
        tokio::select! {
            pulled = &mut pulling => break pulled,
            _ = samples.tick() => peak = peak.max(kib(rig.pid(), "RssAnon:")),
        }
    };
    pulled.unwrap();
    let taken = peak - idle;
    println!("{taken} KiB over {idle} KiB");
    assert!(taken < 8 << 10, "{taken} KiB");
}
