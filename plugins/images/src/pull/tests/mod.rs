//! Pulls from registries that are slow, broken, lying or hostile.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use super::*;
use crate::testing::{Answer, ImageBuilder, Registry, Request, file_layer, limits, store};
use crate::{Failure, Limits};

mod credentials;
mod fairness;
mod indexes;
mod mirrors;
mod proxies;
mod secure;
mod words;

struct Rig {
    _home: tempfile::TempDir,
    store: Store,
    registry: Registry,
}

impl Rig {
    async fn new() -> Self {
        Self::with(limits()).await
    }

    async fn with(limits: Limits) -> Self {
        let home = tempfile::tempdir_in("/dev/shm").unwrap();
        Self {
            store: Store::open(&home.path().join("store"), limits).unwrap(),
            _home: home,
            registry: Registry::start().await,
        }
    }

    async fn pull(&self, reference: &Reference) -> Result<Image, PullError> {
        self.store.pull(pull(reference)).await
    }

    async fn failure(&self, reference: &Reference) -> Failure {
        let error = self.pull(reference).await.unwrap_err();
        let PullError::Registry {
            source,
            reference: named,
        } = error
        else {
            panic!("{error:?}");
        };
        assert_eq!(*named, *reference);
        assert_eq!(source.registry, self.registry.address);
        source.failure
    }
}

fn pull(reference: &Reference) -> Pull {
    Pull {
        reference: reference.clone(),
        auth: Auth::Anonymous,
        certs: None,
        proxies: Arc::default(),
        platform: Platform::host(),
        progress: Arc::default(),
        deadline: Instant::now() + Duration::from_secs(60),
    }
}

fn basic() -> Auth {
    Auth::Basic {
        username: "user".to_owned(),
        password: "word".to_owned(),
    }
}

fn image() -> ImageBuilder {
    ImageBuilder::gzip(vec![file_layer("a", b"1"), file_layer("b", &[7; 300_000])])
}

fn is_blob(request: &Request) -> bool {
    request.path.contains("/blobs/")
}

#[tokio::test]
async fn an_image_is_pulled_once_and_its_manifest_asked_for_each_time() {
    let rig = Rig::new().await;
    for (number, image) in [
        image(),
        ImageBuilder::plain(vec![file_layer("p", b"plain")]),
        ImageBuilder::zstd(vec![file_layer("z", b"zstd")]),
    ]
    .iter()
    .enumerate()
    {
        let reference = rig.registry.serve(image, &format!("x/y:{number}"));
        let request = pull(&reference);
        let progress = request.progress.clone();
        let pulled = rig.store.pull(request).await.unwrap();
        assert_eq!(pulled.id, image.id());
        assert_eq!(pulled.tags, [reference.to_string()]);
        assert_eq!(
            pulled.digests,
            [reference
                .with_digest(Digest::of(&image.manifest))
                .to_string()]
        );
        let packed: usize = image.packed.iter().map(Vec::len).sum();
        assert_eq!(
            (progress.done(), progress.total()),
            (packed as u64, packed as u64)
        );
        let before = (
            rig.registry.count("/blobs/"),
            rig.registry.count("/manifests/"),
        );
        assert_eq!(rig.pull(&reference).await.unwrap(), pulled);
        assert_eq!(rig.registry.count("/blobs/"), before.0);
        assert_eq!(rig.registry.count("/manifests/"), before.1 + 1);
    }
    let config = rig
        .store
        .config(&rig.store.image(&image().id().to_string()).unwrap())
        .await
        .unwrap();
    assert_eq!(config.defaults.entrypoint, ["/run"]);
}

#[tokio::test]
async fn a_tag_that_moved_is_the_new_image_and_the_old_one_keeps_its_digest() {
    let rig = Rig::new().await;
    let reference = rig.registry.serve(&image(), "x:1");
    let old = rig.pull(&reference).await.unwrap();
    let newer = ImageBuilder::gzip(vec![file_layer("a", b"1"), file_layer("c", b"new")]);
    rig.registry.serve(&newer, "x:1");
    assert_eq!(rig.pull(&reference).await.unwrap().id, newer.id());
    let old = rig.store.image(&old.id.to_string()).unwrap();
    assert_eq!((old.tags.len(), old.digests.len()), (0, 1));
}

#[tokio::test]
async fn a_download_that_breaks_goes_on_where_it_was() {
    let rig = Rig::new().await;
    let big: Vec<u8> = (0..400_000_u32).flat_map(u32::to_le_bytes).collect();
    let image = ImageBuilder::plain(vec![file_layer("big", &big)]);
    let reference = rig.registry.serve(&image, "x:1");
    let (layer, broken) = (image.packed[0].clone(), AtomicUsize::new(0));
    let path = Digest::of(&layer).to_string();
    rig.registry.script(move |request| {
        let first = request.path.ends_with(&path) && broken.fetch_add(1, Ordering::SeqCst) == 0;
        first.then(|| Answer {
            breaks: true,
            ..Answer::ok(&layer[..1_000_000])
        })
    });
    rig.pull(&reference).await.unwrap();
    let ranges: Vec<_> = rig
        .registry
        .requests()
        .iter()
        .filter_map(|request| request.headers.get("range").cloned())
        .collect();
    assert_eq!(ranges.len(), 1);
    let start: u64 = ranges[0]
        .to_str()
        .unwrap()
        .trim_start_matches("bytes=")
        .trim_end_matches('-')
        .parse()
        .unwrap();
    assert!((1..=1_000_000).contains(&start), "{start}");
}

#[tokio::test]
async fn errors_that_pass_are_tried_again_and_others_are_not() {
    let rig = Rig::new().await;
    let reference = rig.registry.serve(&image(), "x:1");
    let mut left = 2;
    rig.registry.script(move |_| {
        left -= 1;
        (left >= 0).then(|| Answer::status(503))
    });
    rig.pull(&reference).await.unwrap();
    let missing: Reference = format!("{}/none:1", rig.registry.address).parse().unwrap();
    assert!(matches!(rig.failure(&missing).await, Failure::NotFound(_)));
    assert_eq!(rig.registry.count("/none/"), 1);
}

#[tokio::test]
async fn what_a_registry_must_not_answer_is_told_by_name() {
    let rig = Rig::new().await;
    let image = image();
    let reference = rig.registry.serve(&image, "x:1");
    rig.registry
        .script(|_| Some(Answer::ok(b"<html>").with("content-type", "text/html; charset=utf-8")));
    assert!(matches!(
        rig.failure(&reference).await,
        Failure::Content { .. }
    ));
    rig.registry
        .script(|request| Some(Answer::status(302).with("location", &request.path)));
    assert!(matches!(
        rig.failure(&reference).await,
        Failure::Redirect("too many")
    ));
    rig.registry
        .script(|_| Some(Answer::status(302).with("location", "file:///etc/shadow")));
    assert!(matches!(
        rig.failure(&reference).await,
        Failure::Redirect(_)
    ));
    rig.registry
        .script(|_| Some(Answer::ok(&vec![b' '; (4 << 20) + 1])));
    assert!(matches!(rig.failure(&reference).await, Failure::TooLong(_)));
    let other = Digest::of(b"other").to_string();
    let manifest = image.manifest.clone();
    rig.registry
        .script(move |_| Some(Answer::ok(&manifest).with("docker-content-digest", &other)));
    assert!(matches!(
        rig.failure(&reference).await,
        Failure::Content { .. }
    ));
    rig.registry.script(|_| {
        Some(Answer::status(401).with("www-authenticate", "Bearer realm=\"http://token.test/x\""))
    });
    assert!(matches!(
        rig.failure(&reference).await,
        Failure::Challenge(_)
    ));
    let config = Digest::of(&image.config).to_string();
    rig.registry
        .script(move |request| request.path.ends_with(&config).then(|| Answer::ok(b"{}")));
    assert!(matches!(
        rig.failure(&reference).await,
        Failure::Length { .. }
    ));
    assert!(rig.store.list().is_empty());
}

#[tokio::test]
async fn a_layer_of_another_length_or_digest_is_never_used() {
    let rig = Rig::new().await;
    let image = ImageBuilder::plain(vec![file_layer("x", &[1; 2000])]);
    let reference = rig.registry.serve(&image, "x:1");
    let (longer, right) = (
        [image.packed[0].as_slice(), b"more"].concat(),
        image.packed[0].clone(),
    );
    rig.registry.script(move |request| {
        is_blob(request)
            .then(|| Answer::ok(&longer))
            .filter(|_| !request.path.ends_with(&Digest::of(b"").to_string()))
    });
    // The config is asked for first, and is too long as well.
    assert!(matches!(
        rig.failure(&reference).await,
        Failure::Length { .. }
    ));
    let path = Digest::of(&right).to_string();
    let mut wrong = right.clone();
    wrong[600] ^= 1;
    rig.registry
        .script(move |request| request.path.ends_with(&path).then(|| Answer::ok(&wrong)));
    let error = rig.pull(&reference).await.unwrap_err();
    assert!(
        matches!(
            error,
            PullError::Layer {
                source: LayerError::Mismatch { .. },
                ..
            }
        ),
        "{error:?}"
    );
    assert!(rig.store.list().is_empty());
    assert_eq!(rig.store.usage().bytes, 0);
}

#[tokio::test]
async fn a_registry_that_stalls_is_given_up_and_named() {
    let rig = Rig::with(Limits {
        stall: Duration::from_millis(300),
        attempts: 1,
        ..limits()
    })
    .await;
    let reference = rig.registry.serve(&image(), "x:1");
    rig.registry.script(|request| {
        is_blob(request).then(|| Answer {
            hangs: true,
            ..Answer::ok(b"{")
        })
    });
    assert!(matches!(rig.failure(&reference).await, Failure::Stalled(_)));
}

#[tokio::test]
async fn the_deadline_ends_a_pull_and_frees_its_places() {
    let rig = Rig::with(Limits {
        layers_abreast: 1,
        ..limits()
    })
    .await;
    let image = image();
    let reference = rig.registry.serve(&image, "x:1");
    let layer = Digest::of(&image.packed[0]).to_string();
    rig.registry.script(move |request| {
        request.path.ends_with(&layer).then(|| Answer {
            hangs: true,
            ..Answer::ok(b"")
        })
    });
    let late = Pull {
        deadline: Instant::now() + Duration::from_millis(500),
        ..pull(&reference)
    };
    let error = rig.store.pull(late).await.unwrap_err();
    assert!(matches!(error, PullError::Deadline { .. }), "{error:?}");
    rig.registry.script(|_| None);
    rig.pull(&reference).await.unwrap();
}

#[tokio::test]
async fn pulls_of_one_layer_at_a_time_share_its_download() {
    let rig = Rig::new().await;
    let image = image();
    let reference = rig.registry.serve(&image, "x:1");
    let other = rig.registry.serve(&image, "x:2");
    let pulls = (0..6).map(|number| rig.pull(if number % 2 == 0 { &reference } else { &other }));
    for pulled in futures_util::future::join_all(pulls).await {
        assert_eq!(pulled.unwrap().id, image.id());
    }
    for layer in &image.packed {
        assert_eq!(rig.registry.count(&Digest::of(layer).to_string()), 1);
    }
}

#[tokio::test]
async fn too_many_layers_are_refused_before_the_first_is_fetched() {
    let rig = Rig::new().await;
    let image = ImageBuilder::plain(vec![file_layer("x", b""); 1000]);
    let reference = rig.registry.serve(&image, "x:1");
    let error = rig.pull(&reference).await.unwrap_err();
    assert!(matches!(error, PullError::Document { .. }), "{error:?}");
    assert_eq!(
        rig.registry
            .count(&Digest::of(&image.packed[0]).to_string()),
        0
    );
}

/// Writes what the registry at `address` is reached by.
fn hosts_toml(certs: &std::path::Path, address: &str, content: &str) {
    let folder = certs.join(address);
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("hosts.toml"), content).unwrap();
}
