//! Slow registries: what they may take from other pulls, and when they are given up.

use super::*;

#[tokio::test]
async fn a_registry_that_drips_keeps_no_other_pull_waiting() {
    let rig = Rig::new().await;
    let slow = Registry::start().await;
    let layers: Vec<_> = (0..3_u8)
        .map(|number| file_layer("f", &[number; 1000]))
        .collect();
    let dripped = slow.serve(&ImageBuilder::plain(layers.clone()), "x:1");
    slow.script(|request| {
        is_blob(request).then(|| Answer {
            hangs: true,
            ..Answer::ok(b"x")
        })
    });
    // The config comes, the layers never do.
    let config = ImageBuilder::plain(layers.clone()).config;
    slow.script({
        let path = Digest::of(&config).to_string();
        move |request| {
            (is_blob(request) && !request.path.ends_with(&path)).then(|| Answer {
                hangs: true,
                ..Answer::ok(b"x")
            })
        }
    });
    let store = rig.store.clone();
    let dripping = tokio::spawn(async move { store.pull(pull(&dripped)).await });
    while slow.count("/blobs/") < 4 {
        tokio::task::yield_now().await;
    }
    // The very same layers, of a registry that serves them.
    let good = rig.registry.serve(&ImageBuilder::plain(layers), "y:1");
    let pulled = tokio::time::timeout(Duration::from_secs(20), rig.pull(&good)).await;
    pulled.unwrap().unwrap();
    assert!(!dripping.is_finished());
    dripping.abort();
}

#[tokio::test]
async fn a_transfer_below_the_least_rate_fails_with_host_rate_and_blob() {
    let rig = Rig::with(Limits {
        rate_window: Duration::from_millis(300),
        least_bytes_per_window: 1000,
        ..limits()
    })
    .await;
    let image = ImageBuilder::plain(vec![file_layer("f", &[1; 100_000])]);
    let reference = rig.registry.serve(&image, "x:1");
    let layer = Digest::of(&image.packed[0]);
    let content = image.packed[0].clone();
    let path = layer.to_string();
    rig.registry.script(move |request| {
        request.path.ends_with(&path).then(|| Answer {
            drips: Some(Duration::from_millis(10)),
            ..Answer::ok(&content)
        })
    });
    let error = rig.pull(&reference).await.unwrap_err();
    let PullError::Registry { source, .. } = &error else {
        panic!("{error:?}");
    };
    assert!(matches!(source.failure, Failure::Slow { .. }), "{error:?}");
    assert!(error.transient());
    let text = format!("{source}: {}", source.failure);
    let address = &rig.registry.address;
    for part in [
        address.as_str(),
        &layer.to_string(),
        "expected at least 1000",
    ] {
        assert!(text.contains(part), "{text}");
    }
    assert_eq!(
        rig.registry.count(&layer.to_string()),
        1,
        "it is not asked again at once"
    );
}

#[tokio::test]
async fn a_slow_disk_is_not_the_registrys_fault() {
    let rig = Rig::with(Limits {
        rate_window: Duration::from_millis(50),
        least_bytes_per_window: 1000,
        ..limits()
    })
    .await;
    let reference = rig.registry.serve(&image(), "x:1");
    rig.pull(&reference).await.unwrap();
}
