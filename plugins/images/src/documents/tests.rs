//! Which documents are read, and which refused.

use super::*;

fn descriptor(number: u8, platform: Option<Platform>) -> serde_json::Value {
    let mut value = serde_json::json!({
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "digest": Digest::of(&[number]).to_string(),
        "size": 7,
    });
    if let Some(platform) = platform {
        value["platform"] = serde_json::to_value(platform).unwrap();
    }
    value
}

fn parse(value: &serde_json::Value) -> Result<Document, DocumentError> {
    Document::parse(&serde_json::to_vec(value).unwrap())
}

#[test]
fn a_document_that_is_index_and_manifest_at_once_is_refused() {
    let one = descriptor(1, None);
    let both =
        serde_json::json!({"schemaVersion": 2, "config": one, "layers": [one], "manifests": [one]});
    let error = parse(&both).unwrap_err();
    assert!(matches!(error, DocumentError::Refused { .. }), "{error}");
    let old = serde_json::json!({"schemaVersion": 1, "fsLayers": []});
    assert!(
        parse(&old)
            .unwrap_err()
            .to_string()
            .contains("schema version 1")
    );
    for wrong in [
        serde_json::json!({"schemaVersion": 2}),
        serde_json::json!({"schemaVersion": 2, "config": one}),
        serde_json::json!({"schemaVersion": 2, "config": one, "layers": [{"digest": "x", "size": 1}]}),
        serde_json::json!({"schemaVersion": 2, "manifests": [{"digest": Digest::of(b"").to_string(), "size": -1}]}),
    ] {
        assert!(parse(&wrong).is_err(), "{wrong}");
    }
}

#[test]
fn a_list_that_would_fill_the_memory_is_refused() {
    let items = vec![descriptor(1, None); DESCRIPTORS_MAX + 1];
    let long = serde_json::json!({"schemaVersion": 2, "manifests": items});
    assert!(parse(&long).is_err());
    let env = vec![""; 10_001];
    let config =
        serde_json::json!({"config": {"Env": env}, "rootfs": {"type": "layers", "diff_ids": []}});
    assert!(ImageConfig::parse(&serde_json::to_vec(&config).unwrap()).is_err());
    let deep = [b"{\"schemaVersion\":2,\"x\":".as_slice(), &[b'['; 100_000]].concat();
    assert!(Document::parse(&deep).is_err());
}

#[test]
fn the_manifest_is_chosen_by_platform_and_nearest_variant() {
    let arm = |variant: &str| Platform::new("linux", "arm", variant);
    let index = serde_json::json!({"schemaVersion": 2, "manifests": [
        descriptor(1, Some(Platform::new("windows", "arm", ""))),
        descriptor(2, Some(arm("v5"))),
        descriptor(3, Some(arm("v6"))),
        descriptor(4, Some(arm("v8"))),
        descriptor(5, Some(Platform::new("linux", "amd64", ""))),
        descriptor(6, Some(Platform::new("unknown", "unknown", ""))),
    ]});
    let Document::Index(manifests) = parse(&index).unwrap() else {
        panic!("no index");
    };
    let chosen = |platform: Platform| {
        let mut search = Search::new(&platform, Digest::of(b"top"), manifests.clone());
        search.next().map(|one| one.descriptor.digest)
    };
    assert_eq!(chosen(arm("v7")).unwrap(), Digest::of(&[3]));
    assert_eq!(chosen(arm("v5")).unwrap(), Digest::of(&[2]));
    assert_eq!(
        chosen(Platform::new("linux", "x86_64", "")).unwrap(),
        Digest::of(&[5])
    );
    let none = chosen(Platform::new("linux", "s390x", "")).unwrap_err();
    assert_eq!(
        none.to_string(),
        "the index is refused: none of its 6 manifests is for linux/s390x"
    );
}

#[test]
fn nulls_of_a_config_are_what_is_empty() {
    let config = serde_json::json!({
        "os": "linux", "architecture": "amd64",
        "config": {"User": null, "Env": null, "Entrypoint": ["/a"], "Cmd": null, "Volumes": {"/v": {}},
            "Labels": null, "ExposedPorts": {"80/tcp": {}}, "StopSignal": "SIGINT", "WorkingDir": "/w"},
        "rootfs": {"type": "layers", "diff_ids": [Digest::of(b"1").to_string(), Digest::of(b"2").to_string()]},
    });
    let config = ImageConfig::parse(&serde_json::to_vec(&config).unwrap()).unwrap();
    let defaults = &config.defaults;
    assert_eq!((defaults.user.as_str(), defaults.env.len()), ("", 0));
    assert_eq!(defaults.entrypoint, ["/a"]);
    assert_eq!(defaults.volumes.keys().collect::<Vec<_>>(), ["/v"]);
    assert_eq!(
        (defaults.stop_signal.as_str(), defaults.working_dir.as_str()),
        ("SIGINT", "/w")
    );
    let chains = config.chain_ids();
    let second = Digest::of(format!("{} {}", Digest::of(b"1"), Digest::of(b"2")).as_bytes());
    assert_eq!(chains, [Digest::of(b"1"), second]);
    assert!(config.check(3, 500).is_err() && config.check(2, 1).is_err());
    config.check(2, 500).unwrap();
    assert!(config.suits(&Platform::new("linux", "arm64", "")).is_err());
    config.suits(&Platform::new("linux", "amd64", "")).unwrap();
    let newer = serde_json::json!({
        "os": "linux", "architecture": "amd64", "variant": "v3", "rootfs": {"type": "layers", "diff_ids": []},
    });
    let newer = ImageConfig::parse(&serde_json::to_vec(&newer).unwrap()).unwrap();
    newer.suits(&Platform::new("linux", "amd64", "")).unwrap();
}

fn config_for(architecture: &str) -> ImageConfig {
    let config = serde_json::json!({
        "os": "linux", "architecture": architecture, "rootfs": {"type": "layers", "diff_ids": []},
    });
    ImageConfig::parse(&serde_json::to_vec(&config).unwrap()).unwrap()
}

fn index_of(list: &[serde_json::Value]) -> Vec<Descriptor> {
    let index = serde_json::json!({"schemaVersion": 2, "manifests": list});
    match parse(&index).unwrap() {
        Document::Index(list) => list,
        Document::Manifest(_) => panic!("no index"),
    }
}

fn manifest() -> Document {
    let one = descriptor(0, None);
    parse(&serde_json::json!({"schemaVersion": 2, "config": one, "layers": [one]})).unwrap()
}

#[test]
fn what_an_index_says_of_a_platform_is_believed_and_else_the_config_is() {
    let platform = Platform::new("linux", "amd64", "");
    for (said, config, is_accepted) in [
        (Some(platform.clone()), "arm64", true),
        (Some(platform.clone()), "", true),
        (None, "amd64", true),
        (None, "", true),
        (None, "arm64", false),
    ] {
        let list = index_of(&[descriptor(1, said.clone())]);
        let mut search = Search::new(&platform, Digest::of(b"top"), list);
        let candidate = search.next().unwrap();
        assert!(search.open(&candidate, manifest()).is_some());
        let accepts = search.accepts(&candidate, &config_for(config), "x:1");
        assert_eq!(accepts, is_accepted, "{said:?} {config:?}");
        if !accepts {
            let none = search.next().unwrap_err().to_string();
            assert!(none.contains("it is for linux/arm64"), "{none}");
        }
    }
}

#[test]
fn indexes_in_indexes_are_followed_and_one_that_leads_to_itself_is_refused() {
    let platform = Platform::new("linux", "amd64", "");
    let other = Some(Platform::new("linux", "s390x", ""));
    // The first index has nothing for this platform, the second one has.
    let list = index_of(&[descriptor(1, None), descriptor(2, None)]);
    let mut search = Search::new(&platform, Digest::of(b"top"), list);
    let first = search.next().unwrap();
    let nothing = Document::Index(index_of(&[descriptor(3, other)]));
    assert!(search.open(&first, nothing).is_none());
    let second = search.next().unwrap();
    assert_eq!(second.descriptor.digest, Digest::of(&[2]));
    let own = Document::Index(index_of(&[descriptor(4, Some(platform.clone()))]));
    assert!(search.open(&second, own).is_none());
    let found = search.next().unwrap();
    assert_eq!(found.descriptor.digest, Digest::of(&[4]));
    // A circle, and a ladder.
    for is_circle in [true, false] {
        let list = index_of(&[descriptor(0, None)]);
        let mut search = Search::new(&platform, Digest::of(b"top"), list);
        let mut asked = 0;
        let refused = loop {
            let candidate = match search.next() {
                Ok(candidate) => candidate,
                Err(error) => break error.to_string(),
            };
            asked += 1;
            let next = if is_circle { 0 } else { asked };
            let below = Document::Index(index_of(&[descriptor(next, None)]));
            assert!(search.open(&candidate, below).is_none());
        };
        let reason = if is_circle {
            "leads to itself"
        } else {
            "within each other"
        };
        assert!(refused.contains(reason), "{refused}");
        assert_eq!(asked, if is_circle { 1 } else { 8 });
    }
}

#[test]
fn a_platform_is_read_as_it_is_written() {
    for text in ["linux/amd64", "linux/arm/v7", "windows/386"] {
        assert_eq!(text.parse::<Platform>().unwrap().to_string(), text);
    }
    let translated: Platform = "linux/aarch64".parse().unwrap();
    assert_eq!(translated.to_string(), "linux/arm64");
    for wrong in [
        "",
        "linux",
        "linux/",
        "/amd64",
        "a/b/c/d",
        "linux/a b",
        "all",
    ] {
        assert!(wrong.parse::<Platform>().is_err(), "{wrong:?}");
    }
}
