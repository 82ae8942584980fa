//! Who gets credentials, and who doesn't.

use super::*;

#[tokio::test]
async fn credentials_go_to_the_registry_and_its_token_service_alone() {
    let rig = Rig::new().await;
    let (tokens, storage) = (Registry::start().await, Registry::start().await);
    let image = image();
    let reference = rig.registry.serve(&image, "x:1");
    for blob in image.packed.iter().chain([&image.config]) {
        storage.put(&format!("/{}", Digest::of(blob)), blob);
    }
    tokens.put("/token", br#"{"token": "good"}"#);
    let (realm, elsewhere) = (tokens.address.clone(), storage.address.clone());
    rig.registry.script(move |request| {
        if request
            .headers
            .get("authorization")
            .is_none_or(|value| value != "Bearer good")
        {
            let challenge =
                format!("Bearer realm=\"http://{realm}/token\",service=\"s\",scope=\"all\"");
            return Some(Answer::status(401).with("www-authenticate", &challenge));
        }
        let digest = request.path.rsplit('/').next().unwrap();
        is_blob(request)
            .then(|| Answer::status(307).with("location", &format!("http://{elsewhere}/{digest}")))
    });
    let request = Pull {
        auth: basic(),
        ..pull(&reference)
    };
    rig.store.pull(request).await.unwrap();
    assert!(storage.requests().len() >= 3);
    for request in storage.requests() {
        assert!(
            request.headers.get("authorization").is_none(),
            "{request:?}"
        );
    }
    let asked = tokens.requests();
    assert_eq!(asked.len(), 1);
    assert_eq!(asked[0].query, "service=s&scope=all");
    assert_eq!(asked[0].headers["authorization"], "Basic dXNlcjp3b3Jk");
    // The registry itself never saw the password.
    for request in rig.registry.requests() {
        let sent = request.headers.get("authorization");
        assert!(
            sent.is_none_or(|value| value == "Bearer good"),
            "{request:?}"
        );
    }
}

#[tokio::test]
async fn a_registry_that_asks_for_a_password_gets_it_and_a_wrong_one_is_denied() {
    let rig = Rig::new().await;
    let reference = rig.registry.serve(&image(), "x:1");
    rig.registry
        .script(|request| match request.headers.get("authorization") {
            Some(value) if value == "Basic dXNlcjp3b3Jk" => None,
            Some(_) => Some(Answer::status(403)),
            None => Some(Answer::status(401).with("www-authenticate", "Basic realm=\"x\"")),
        });
    rig.store
        .pull(Pull {
            auth: basic(),
            ..pull(&reference)
        })
        .await
        .unwrap();
    assert!(matches!(
        rig.failure(&reference).await,
        Failure::Challenge(_)
    ));
    let wrong = Auth::Basic {
        username: "user".to_owned(),
        password: "guess".to_owned(),
    };
    let error = rig
        .store
        .pull(Pull {
            auth: wrong,
            ..pull(&reference)
        })
        .await
        .unwrap_err();
    let denied = matches!(&error, PullError::Registry { source, .. } if matches!(source.failure, Failure::Denied { status: 403, .. }));
    assert!(denied, "{error:?}");
    assert!(!format!("{error:?}").contains("guess"));
}

#[tokio::test]
async fn a_mirror_is_asked_first_without_credentials_and_the_server_when_it_fails() {
    let rig = Rig::new().await;
    let mirror = Registry::start().await;
    let image = image();
    let reference = rig.registry.serve(&image, "x:1");
    mirror.serve(&image, "x:1");
    // It has a layer that isn't the one.
    mirror.put(
        &format!("/v2/x/blobs/{}", Digest::of(&image.packed[1])),
        &image.packed[0],
    );
    mirror.script(|request| match request.headers.get("authorization") {
        None if request.path.contains("/manifests/") => {
            Some(Answer::status(401).with("www-authenticate", "Basic realm=\"x\""))
        }
        _ => None,
    });
    let certs = tempfile::tempdir().unwrap();
    let folder = certs.path().join(&rig.registry.address);
    std::fs::create_dir(&folder).unwrap();
    let file = format!(
        "server = 'http://{}'\n[host.'http://{}']\n",
        rig.registry.address, mirror.address
    );
    std::fs::write(folder.join("hosts.toml"), file).unwrap();
    let request = Pull {
        auth: basic(),
        certs: Some(certs.path().to_owned()),
        ..pull(&reference)
    };
    rig.store.pull(request).await.unwrap();
    let asked = mirror.requests();
    assert!(
        asked
            .iter()
            .all(|request| request.headers.get("authorization").is_none())
    );
    assert!(
        asked
            .iter()
            .all(|request| request.query == format!("ns={}", rig.registry.address))
    );
    assert_eq!(
        rig.registry
            .count(&Digest::of(&image.packed[0]).to_string()),
        0,
        "the mirror had it"
    );
    assert_eq!(
        rig.registry
            .count(&Digest::of(&image.packed[1]).to_string()),
        1
    );
}
