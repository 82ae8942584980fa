//! TLS, redirects away from it, and what a pull takes of memory.

use super::*;

/// A registry that speaks TLS, as HTTP/2 where the client offers it; returns what its clients spoke.
pub(super) struct Secure {
    pub(super) registry: Registry,
    certs: tempfile::TempDir,
    tls: Arc<rustls::ServerConfig>,
}

impl Secure {
    async fn start(hosts: &str) -> Self {
        Self::start_named(hosts, "127.0.0.1").await
    }

    /// Starts one that has another name as well, and is to be reached by it.
    pub(super) async fn start_named(hosts: &str, name: &str) -> Self {
        let names = [
            "127.0.0.1".to_owned(),
            "localhost".to_owned(),
            name.to_owned(),
        ];
        let rcgen::CertifiedKey { cert, signing_key } =
            rcgen::generate_simple_self_signed(names).unwrap();
        let key = rustls::pki_types::PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![cert.der().clone()], key)
            .unwrap();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let tls = Arc::new(config);
        let registry = Registry::start_with(Some(tls.clone())).await;
        let certs = tempfile::tempdir().unwrap();
        let port = registry.address.rsplit(':').next().unwrap();
        let address = format!("{name}:{port}");
        let server = format!("server = 'https://{address}'\n{hosts}\n");
        hosts_toml(certs.path(), &address, &server);
        std::fs::write(certs.path().join(address).join("ca.pem"), cert.pem()).unwrap();
        Self {
            registry,
            certs,
            tls,
        }
    }

    /// Starts another server with the same certificate; returns its address by another name.
    async fn another(&self) -> (Registry, String) {
        let other = Registry::start_with(Some(self.tls.clone())).await;
        let address = other.address.replace("127.0.0.1", "localhost");
        (other, address)
    }

    pub(super) fn pull(&self, reference: &Reference) -> Pull {
        Pull {
            certs: Some(self.certs.path().to_owned()),
            ..pull(reference)
        }
    }
}

#[tokio::test]
async fn a_registry_is_trusted_by_its_authority_or_by_the_operators_word_alone() {
    let rig = Rig::new().await;
    for (hosts, trusted) in [
        ("ca = 'ca.pem'", true),
        ("skip_verify = true", true),
        ("", false),
    ] {
        let secure = Secure::start(hosts).await;
        let reference = secure.registry.serve(&image(), "x:1");
        let pulled = rig.store.pull(secure.pull(&reference)).await;
        assert_eq!(pulled.is_ok(), trusted, "{hosts}: {pulled:?}");
        let spoken: Vec<_> = secure
            .registry
            .requests()
            .iter()
            .map(|request| request.version)
            .collect();
        assert!(
            spoken
                .iter()
                .all(|version| *version == http::Version::HTTP_2),
            "{spoken:?}"
        );
        assert_eq!(spoken.is_empty(), !trusted);
    }
}

#[tokio::test]
async fn a_redirect_from_https_to_http_is_refused() {
    let rig = Rig::new().await;
    let secure = Secure::start("ca = 'ca.pem'").await;
    let reference = secure.registry.serve(&image(), "x:1");
    let plain = rig.registry.address.clone();
    secure.registry.script(move |request| {
        let location = format!("http://{plain}{}", request.path);
        is_blob(request).then(|| Answer::status(307).with("location", &location))
    });
    let error = rig.store.pull(secure.pull(&reference)).await.unwrap_err();
    let PullError::Registry { source, .. } = &error else {
        panic!("{error:?}");
    };
    assert!(
        matches!(source.failure, Failure::Redirect("from https to http")),
        "{error:?}"
    );
    assert!(rig.registry.requests().is_empty());
}

#[tokio::test]
async fn the_hosts_authority_holds_for_its_token_service_and_its_redirects() {
    let rig = Rig::new().await;
    for (hosts, trusted) in [("ca = 'ca.pem'", true), ("", false)] {
        let secure = Secure::start("ca = 'ca.pem'").await;
        // Reached by the system's authorities alone where the file has none.
        let reference = secure.registry.serve(&image(), "x:1");
        let (tokens, realm) = secure.another().await;
        let (storage, elsewhere) = secure.another().await;
        tokens.put("/token", br#"{"token": "good"}"#);
        for blob in image().packed.iter().chain([&image().config]) {
            storage.put(&format!("/{}", Digest::of(blob)), blob);
        }
        secure.registry.script(move |request| {
            let sent = request.headers.get("authorization");
            if sent.is_none_or(|value| value != "Bearer good") {
                let challenge = format!("Bearer realm=\"https://{realm}/token\"");
                return Some(Answer::status(401).with("www-authenticate", &challenge));
            }
            let digest = request.path.rsplit('/').next().unwrap();
            is_blob(request).then(|| {
                Answer::status(307).with("location", &format!("https://{elsewhere}/{digest}"))
            })
        });
        if !trusted {
            let address = &secure.registry.address;
            let folder = secure.certs.path().join(address);
            std::fs::write(
                folder.join("hosts.toml"),
                format!("server = 'https://{address}'\n{hosts}"),
            )
            .unwrap();
        }
        let request = Pull {
            auth: basic(),
            ..secure.pull(&reference)
        };
        let pulled = rig.store.pull(request).await;
        assert_eq!(pulled.is_ok(), trusted, "{pulled:?}");
        if trusted {
            assert_eq!(
                tokens.requests()[0].headers["authorization"],
                "Basic dXNlcjp3b3Jk"
            );
            for request in storage.requests() {
                assert!(
                    request.headers.get("authorization").is_none(),
                    "{request:?}"
                );
            }
            assert!(!storage.requests().is_empty());
            rig.store.remove(&reference.to_string()).await.unwrap();
            rig.store.collect().await.unwrap();
        }
    }
}

#[tokio::test]
async fn certificates_in_dockers_form_are_believed() {
    let rig = Rig::new().await;
    let secure = Secure::start("").await;
    let reference = secure.registry.serve(&image(), "x:1");
    rig.store.pull(secure.pull(&reference)).await.unwrap_err();
    let folder = secure.certs.path().join(&secure.registry.address);
    std::fs::remove_file(folder.join("hosts.toml")).unwrap();
    std::fs::rename(folder.join("ca.pem"), folder.join("ca.crt")).unwrap();
    rig.store.pull(secure.pull(&reference)).await.unwrap();
}

/// Returns the most memory that this process had, in KiB, and forgets it.
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM:"))
        .unwrap();
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_layer_of_64_mib_takes_less_than_8_mib_of_memory() {
    let rig = Rig::new().await;
    let small = rig.registry.serve(&image(), "small:1");
    rig.pull(&small).await.unwrap();
    // What doesn't compress, so that as much passes as is written.
    let mut state = 1_u64;
    let content: Vec<u8> = (0..8 << 20)
        .flat_map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            state.to_le_bytes()
        })
        .collect();
    let image = ImageBuilder::stored(vec![file_layer("big", &content)]);
    let reference = rig.registry.serve(&image, "big:1");
    drop(content);
    assert!(peak_kib() > 0, "it is forgotten here");
    let idle = peak_kib();
    rig.pull(&reference).await.unwrap();
    let taken = peak_kib() - idle;
    assert!(taken < 8 << 10, "{taken} KiB");
}
