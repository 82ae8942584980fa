//! TLS, redirects away from it, and what a pull takes of memory.

use super::*;

/// A registry that speaks TLS, as HTTP/2 where the client offers it; returns what its clients spoke.
struct Secure {
    registry: Registry,
    certs: tempfile::TempDir,
}

impl Secure {
    async fn start(hosts: &str) -> Self {
        let rcgen::CertifiedKey { cert, signing_key } =
            rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let key = rustls::pki_types::PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![cert.der().clone()], key)
            .unwrap();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let registry = Registry::start_with(Some(Arc::new(config))).await;
        let certs = tempfile::tempdir().unwrap();
        let folder = certs.path().join(&registry.address);
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("ca.pem"), cert.pem()).unwrap();
        let server = format!("server = 'https://{}'\n{hosts}\n", registry.address);
        std::fs::write(folder.join("hosts.toml"), server).unwrap();
        Self { registry, certs }
    }

    fn pull(&self, reference: &Reference) -> Pull {
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
