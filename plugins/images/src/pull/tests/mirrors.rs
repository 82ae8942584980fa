//! Mirrors: those that do not answer, those behind a path, and what is told of them.

use super::*;
use crate::testing::Registry;

async fn pull_by(
    rig: &Rig,
    certs: &std::path::Path,
    reference: &Reference,
) -> Result<Image, PullError> {
    rig.store
        .pull(Pull {
            certs: Some(certs.to_owned()),
            auth: basic(),
            ..pull(reference)
        })
        .await
}

/// An address where nobody listens.
async fn nobody() -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap().to_string()
}

#[tokio::test]
async fn a_mirror_where_nobody_listens_costs_one_failed_connection() {
    // With its usual pauses, five attempts take six seconds.
    let rig = Rig::with(Limits::default()).await;
    let image = ImageBuilder::plain((0..3_u8).map(|n| file_layer("f", &[n])).collect());
    let reference = rig.registry.serve(&image, "x:1");
    let certs = tempfile::tempdir().unwrap();
    let content = format!(
        "server = 'http://{}'\n[host.'http://{}']\n",
        rig.registry.address,
        nobody().await
    );
    hosts_toml(certs.path(), &rig.registry.address, &content);
    let since = Instant::now();
    pull_by(&rig, certs.path(), &reference).await.unwrap();
    assert!(
        since.elapsed() < Duration::from_secs(5),
        "{:?}",
        since.elapsed()
    );
}

#[tokio::test]
async fn a_mirror_whose_address_does_not_answer_costs_one_timeout_of_a_connection() {
    let rig = Rig::with(Limits::default()).await;
    let image = ImageBuilder::plain((0..3_u8).map(|n| file_layer("f", &[n])).collect());
    let reference = rig.registry.serve(&image, "x:1");
    // With its queue full, the kernel drops what would open a connection.
    let full = tokio::net::TcpSocket::new_v4().unwrap();
    full.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let full = full.listen(0).unwrap();
    let address = full.local_addr().unwrap();
    let mut queued = Vec::new();
    while let Ok(connected) = tokio::time::timeout(
        Duration::from_millis(200),
        tokio::net::TcpStream::connect(address),
    )
    .await
    {
        queued.push(connected.unwrap());
    }
    let certs = tempfile::tempdir().unwrap();
    let content = format!(
        "server = 'http://{}'\n[host.'http://{address}']\n",
        rig.registry.address
    );
    hosts_toml(certs.path(), &rig.registry.address, &content);
    let since = Instant::now();
    pull_by(&rig, certs.path(), &reference).await.unwrap();
    let took = since.elapsed();
    assert!(took >= Duration::from_secs(3), "{took:?}: it answered");
    assert!(took < Duration::from_secs(8), "{took:?}");
}

#[tokio::test]
async fn a_mirror_that_does_not_answer_is_waited_for_once_and_then_passed_over() {
    let rig = Rig::with(Limits {
        stall: Duration::from_millis(400),
        ..limits()
    })
    .await;
    let reference = rig.registry.serve(&image(), "x:1");
    // It accepts, and says nothing.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = silent.local_addr().unwrap();
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = connections.clone();
    let accepting = tokio::spawn(async move {
        let mut held = Vec::new();
        loop {
            held.push(silent.accept().await.unwrap());
            counted.fetch_add(1, Ordering::SeqCst);
        }
    });
    let certs = tempfile::tempdir().unwrap();
    let content = format!(
        "server = 'http://{}'\n[host.'http://{address}']\n",
        rig.registry.address
    );
    hosts_toml(certs.path(), &rig.registry.address, &content);
    for _ in 0..3 {
        pull_by(&rig, certs.path(), &reference).await.unwrap();
    }
    assert_eq!(connections.load(Ordering::SeqCst), 1);
    accepting.abort();
}

#[tokio::test]
async fn where_all_hosts_fail_the_mirrors_reasons_are_told_too() {
    let rig = Rig::new().await;
    let mirror = Registry::start().await;
    mirror.script(|_| {
        let refusal = Answer {
            status: 403,
            ..Answer::ok(b"the mirror is closed")
        };
        Some(refusal.with("content-type", "text/plain"))
    });
    let reference: Reference = format!("{}/none:1", rig.registry.address).parse().unwrap();
    let certs = tempfile::tempdir().unwrap();
    let gone = nobody().await;
    let content = format!(
        "server = 'http://{}'\n[host.'http://{gone}']\n[host.'http://{}']\n",
        rig.registry.address, mirror.address
    );
    hosts_toml(certs.path(), &rig.registry.address, &content);
    let error = pull_by(&rig, certs.path(), &reference).await.unwrap_err();
    let PullError::Registry { source, .. } = &error else {
        panic!("{error:?}");
    };
    let text = source.to_string();
    for part in [
        &rig.registry.address,
        &gone,
        &mirror.address,
        "the mirror is closed",
    ] {
        assert!(text.contains(part), "{text}");
    }
    assert!(matches!(source.failure, Failure::NotFound(_)), "{error:?}");
}

#[tokio::test]
async fn a_mirror_behind_a_path_gives_a_token_for_the_scope_that_it_names() {
    let rig = Rig::new().await;
    let (mirror, image) = (Registry::start().await, image());
    let reference = rig.registry.serve(&image, "x:1");
    mirror.put("/token", br#"{"token": "good"}"#);
    let path = |rest: &str| format!("/v2/cache/docker/x/{rest}");
    mirror.put(&path("manifests/1"), &image.manifest);
    for blob in image.packed.iter().chain([&image.config]) {
        mirror.put(&path(&format!("blobs/{}", Digest::of(blob))), blob);
    }
    let realm = mirror.address.clone();
    mirror.script(move |request| {
        let is_known = request.headers.get("authorization").is_some_and(|value| value == "Bearer good");
        if is_known || request.path == "/token" {
            return None;
        }
        let challenge = format!(
            "Bearer realm=\"http://{realm}/token\",service=\"cache\",scope=\"repository:cache/docker/x:pull repository:other:pull\""
        );
        Some(Answer::status(401).with("www-authenticate", &challenge))
    });
    let certs = tempfile::tempdir().unwrap();
    let content = format!(
        "server = 'http://{}'\n[host.'http://{}/v2/cache/docker']\noverride_path = true\n",
        rig.registry.address, mirror.address
    );
    hosts_toml(certs.path(), &rig.registry.address, &content);
    pull_by(&rig, certs.path(), &reference).await.unwrap();
    assert!(rig.registry.requests().is_empty(), "the mirror had it all");
    let asked: Vec<_> = mirror
        .requests()
        .into_iter()
        .filter(|request| request.path == "/token")
        .collect();
    assert!(!asked.is_empty());
    for request in asked {
        assert_eq!(
            request.query,
            "service=cache&scope=repository%3Acache%2Fdocker%2Fx%3Apull&scope=repository%3Aother%3Apull"
        );
        assert!(
            request.headers.get("authorization").is_none(),
            "{request:?}"
        );
    }
}
