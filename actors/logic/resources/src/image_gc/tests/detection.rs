//! When images count as detected and as used.

use super::*;

/// Upstream's TestDetectImagesInitialDetect.
#[test]
fn an_image_is_detected_when_it_is_first_seen_and_used_when_a_container_has_it() {
    let images = [image(0, 1024), image(1, 2048), image(2, 2048)];
    let mut node = Node::new(policy(), &images, &[container(1), container(2)]);
    node.detect(zero(), at(100));
    assert_eq!(node.records.len(), 3);
    for (number, used) in [(0, None), (1, Some(at(100))), (2, Some(at(100)))] {
        let record = node.records.get(&key(number)).unwrap();
        assert_eq!((record.first_detected, record.last_used), (zero(), used));
    }
}

/// Upstream's TestDetectImagesInitialDetectWithRuntimeHandlerInImageCriAPIFeatureGate.
#[test]
fn with_handlers_an_image_is_used_only_by_containers_of_its_handler() {
    let handler = "test-runtimeHandler";
    let of = |number, handler: &str| ImageFacts {
        handler: handler.to_owned(),
        ..image(number, 1024)
    };
    let by = |number, handler: &str| ImageUse {
        image: id(number),
        handler: ImageUseHandler::Only(handler.to_owned()),
    };
    let images = [of(0, handler), of(1, handler), of(2, ""), of(2, handler)];
    let uses = [by(1, handler), by(2, "")];
    let policy = ImageGcPolicy {
        keyed_by: KeyedBy::IdAndHandler,
        ..policy()
    };
    let mut node = Node::new(policy, &images, &uses);
    node.detect(zero(), at(100));
    assert_eq!(node.records.len(), 4);
    let cases = [
        (0, handler, None),
        (1, handler, Some(at(100))),
        (2, "", Some(at(100))),
        (2, handler, None),
    ];
    for (number, handler, used) in cases {
        let key = ImageKey {
            id: id(number),
            handler: handler.to_owned(),
        };
        let record = node.records.get(&key).unwrap();
        assert_eq!(record.handler, handler);
        assert_eq!((record.first_detected, record.last_used), (zero(), used));
    }
    let id_alone = Node::new(super::policy(), &images, &uses);
    let mut id_alone = id_alone;
    id_alone.detect(zero(), at(100));
    assert_eq!(id_alone.records.len(), 3, "handlers tell nothing apart");
}

/// Upstream's TestDetectImagesWithNewImage.
#[test]
fn a_new_image_is_detected_then_and_the_others_stay_as_they_were() {
    let mut node = Node::new(policy(), &[image(0, 1024), image(1, 2048)], &[container(1)]);
    node.detect(zero(), at(100));
    assert_eq!(node.records.len(), 2);
    node.images = vec![image(0, 1024), image(1, 1024), image(2, 1024)];
    node.detect(at(1), at(200));
    assert_eq!(node.records.len(), 3);
    let cases = [
        (0, zero(), None),
        (1, zero(), Some(at(200))),
        (2, at(1), None),
    ];
    for (number, detected, used) in cases {
        let record = node.records.get(&key(number)).unwrap();
        assert_eq!((record.first_detected, record.last_used), (detected, used));
        assert_eq!((record.bytes, record.handler.as_str()), (1024, ""));
    }
}

/// Upstream's TestDetectImagesContainerStopped.
#[test]
fn an_image_whose_container_is_gone_was_used_when_it_was_last_seen_in_use() {
    let mut node = Node::new(policy(), &[image(0, 1024), image(1, 2048)], &[container(1)]);
    node.detect(zero(), at(100));
    node.uses.clear();
    node.detect(at(200), at(200));
    for (number, used) in [(0, None), (1, Some(at(100)))] {
        let record = node.records.get(&key(number)).unwrap();
        assert_eq!((record.first_detected, record.last_used), (zero(), used));
    }
}

/// Upstream's TestDetectImagesWithRemovedImages.
#[test]
fn an_image_that_is_gone_is_forgotten() {
    let mut node = Node::new(policy(), &[image(0, 1024), image(1, 2048)], &[container(1)]);
    node.detect(zero(), at(100));
    node.images.clear();
    node.detect(at(200), at(200));
    assert!(node.records.is_empty());
    assert_eq!(node.records.len(), 0);
}

#[test]
fn an_image_is_used_under_its_id_its_digest_or_its_name_and_by_whoever_has_no_handler() {
    let names = vec![
        "localhost/a@sha256:1".to_owned(),
        "localhost/a:1".to_owned(),
    ];
    let a = ImageFacts {
        names: names.clone(),
        handler: "kata".to_owned(),
        ..image(0, 1024)
    };
    let policy = ImageGcPolicy {
        keyed_by: KeyedBy::IdAndHandler,
        ..policy()
    };
    for (name, is_used) in [
        (id(0), true),
        (names[0].clone(), true),
        (names[1].clone(), true),
        ("localhost/a:2".to_owned(), false),
    ] {
        let volume = ImageUse {
            image: name.clone(),
            handler: ImageUseHandler::Any,
        };
        let mut node = Node::new(policy.clone(), std::slice::from_ref(&a), &[volume]);
        node.detect(zero(), at(1));
        assert_eq!(
            node.records.in_eviction_order().is_empty(),
            is_used,
            "{name}"
        );
    }
}

#[test]
fn a_restart_forgets_neither_detection_nor_use_and_what_was_in_use_was_so_until_then() {
    let images = [image(0, 1), image(1, 1), image(2, 1)];
    let mut node = Node::new(policy(), &images, &[container(1), container(2)]);
    node.detect(at(1), at(1));
    node.uses = vec![container(2)];
    node.detect(at(50), at(50));
    let remembered = node.records.to_remember();
    node.detect(at(60), at(60));
    assert_eq!(
        node.records.to_remember(),
        remembered,
        "nothing to write while it goes on"
    );

    node.records = ImageRecords::restored(KeyedBy::Id, remembered, at(100));
    node.uses.clear();
    node.detect(at(100), at(100));
    let used = [(0, None), (1, Some(at(1))), (2, Some(at(100)))];
    for (number, used) in used {
        let record = node.records.get(&key(number)).unwrap();
        assert_eq!((record.first_detected, record.last_used), (at(1), used));
    }
}

#[test]
fn a_clock_that_is_set_back_makes_no_image_immortal() {
    let mut node = Node::new(aged(60, 0), &[image(0, 1)], &[container(0)]);
    node.detect(at(10_000), at(10_000));
    node.uses.clear();
    node.detect(at(100), at(100));
    let record = node.records.get(&key(0)).unwrap();
    assert_eq!(
        (record.first_detected, record.last_used),
        (at(100), Some(at(100)))
    );
    assert_eq!(node.free(1, at(161)), 1);
}

#[test]
fn the_sandbox_image_is_read_from_containerds_status_and_from_nothing_else() {
    let told = |config: &str| sandbox_image_of(config);
    let image = r#"{"containerd": {"snapshotter": "overlayfs"}, "sandboxImage": "localhost/pause:1", "x": [1]}"#;
    assert_eq!(told(image).as_deref(), Some("localhost/pause:1"));
    for other in [
        "",
        "{}",
        "[]",
        r#"{"sandboxImage": ""}"#,
        r#"{"sandboxImage": 7}"#,
        "\u{0}",
    ] {
        assert_eq!(told(other), None, "{other}");
    }
}
