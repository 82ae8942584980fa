//! Authentication at the node's ports: callers that are served, and callers that are refused.

use std::sync::Arc;

use apiserver::{ApiFault, Effect, ServerOptions};

use super::*;

const TOKENS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
const ACCESSES: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

#[tokio::test]
async fn nobody_gets_in_without_a_right() {
    let cluster = guarded().await;
    let server = cluster.double();
    let own = token_of(&cluster, &cluster.pod("web").unwrap());
    let stranger = Server::start(ServerOptions::default()).await.unwrap();
    let reader = server.client_certificate("reader", "readers", 600).unwrap();
    server.token("token-of-a-reader", "reader", &[]);
    server.token("token-once-good", "operator", &["system:masters"]);
    let good = bearer("token-once-good");
    assert_eq!(ask(&cluster, None, "GET /pods", &good).await.status, 200);
    server.revoke_token("token-once-good");
    let revoked = async || ask(&cluster, None, "GET /pods", &good).await.status == 401;
    wait_until(CONVERGENCE_TIMEOUT, "a revoked token is no good", revoked)
        .await
        .unwrap();

    let nobody = String::new;
    let callers = [
        ("nobody", None, nobody(), 401),
        ("expired", Some(master(server, -60)), nobody(), 401),
        ("of a stranger", Some(master(&stranger, 600)), nobody(), 401),
        ("garbage", None, bearer("token-of-nobody"), 401),
        ("revoked", None, good, 401),
        (
            "no bearer",
            None,
            "authorization: Basic cm9vdDpyb290\r\n".to_owned(),
            401,
        ),
        ("a certificate without rights", Some(reader), nobody(), 403),
        (
            "a token without rights",
            None,
            bearer("token-of-a-reader"),
            403,
        ),
        ("a pod", None, bearer(&own), 403),
    ];
    let upgrade = "connection: upgrade\r\nupgrade: SPDY/3.1\r\n";
    for (who, credentials, headers, status) in &callers {
        for line in [
            "GET /pods",
            "GET /healthz",
            "GET /configz",
            "GET /logs/",
            "GET /logs/../../etc/shadow",
            "GET /containerLogs/default/web/app",
            "POST /run/default/web/app?cmd=id",
            "POST /exec/default/web/app?command=id&output=1",
            "PUT /debug/flags/v",
            "DELETE /nothing",
        ] {
            let headers = format!("{headers}{upgrade}");
            let told = ask(&cluster, credentials.as_ref(), line, &headers).await;
            assert_eq!(told.status, *status, "{who}, {line}: {told:?}");
            let said = match status {
                401 => "Unauthorized",
                _ => "Forbidden (user=",
            };
            assert!(told.body.starts_with(said), "{who}, {line}: {told:?}");
        }
    }
    let told = ask(&cluster, Some(&master(server, 600)), "GET /pods", "").await;
    assert_eq!(told.status, 200, "{told:?}");
    let secrets = ["token-o", "cm9vdDpyb290", own.as_str()];
    assert_unhurt(&cluster, &secrets).await;
}

#[tokio::test]
async fn nobody_gets_in_while_the_api_server_errs_and_others_do_not_wait_for_a_slow_one() {
    let cluster = Arc::new(guarded().await);
    let server = cluster.double();
    let may = master(server, 600);
    server.token("token-may", "operator", &["system:masters"]);
    let broken = |path: &str| {
        ApiFault::times(
            5,
            path,
            Effect::Status {
                code: 500,
                retry_after: None,
            },
        )
    };
    server.fault(broken(TOKENS));
    server.fault(broken(ACCESSES));
    server.forget_requests();
    let headers = bearer("token-may");
    let (by_token, by_certificate) = tokio::join!(
        ask(&cluster, None, "GET /pods", &headers),
        ask(&cluster, Some(&may), "GET /metrics", "")
    );
    assert_eq!(
        (by_token.status, by_token.body.as_str()),
        (401, "Unauthorized")
    );
    let error = "Authorization error (user=kubernetes-admin, verb=get, resource=nodes, subresource=metrics)";
    assert_eq!(
        (by_certificate.status, by_certificate.body.as_str()),
        (500, error)
    );
    let asked = |path: &str| {
        server
            .requests()
            .iter()
            .filter(|one| one.path == path)
            .count()
    };
    assert_eq!(
        (asked(TOKENS), asked(ACCESSES)),
        (5, 5),
        "upstream's five attempts"
    );
    for nonsense in [Effect::Garbage, Effect::Nonsense] {
        server.fault(ApiFault::times(1, TOKENS, nonsense.clone()));
        assert_eq!(ask(&cluster, None, "GET /pods", &headers).await.status, 401);
        server.fault(ApiFault::times(1, ACCESSES, nonsense));
        assert_eq!(
            ask(&cluster, Some(&may), "GET /metrics", "").await.status,
            500
        );
    }

    server.fault(ApiFault::times(1, TOKENS, Effect::Delay(2.0)));
    let (slow, token) = (Arc::clone(&cluster), headers.clone());
    let slow = tokio::spawn(async move { ask(&slow, None, "GET /pods", &token).await.status });
    let under_way = async || server.faults().is_empty();
    wait_until(CONVERGENCE_TIMEOUT, "the review is under way", under_way)
        .await
        .unwrap();
    assert_eq!(ask(&cluster, Some(&may), "GET /pods", "").await.status, 200);
    assert!(!slow.is_finished(), "others waited for a slow review");
    assert_eq!(slow.await.unwrap(), 200);
    assert_unhurt(&cluster, &["token-may"]).await;
}

/// Upstream's look-up of a token ends after 30 s at the latest (cached_token_authenticator.go).
#[tokio::test]
async fn reviews_that_hang_let_nobody_in_and_hold_nobody_up() {
    let talkative = json!({ "logging": { "format": "json", "verbosity": 10 } });
    let cluster = Arc::new(start(Node::builder().config(&talkative)).await);
    let server = cluster.double();
    let may = master(server, 600);
    server.token("token-that-hangs", "operator", &["system:masters"]);
    let metrics = async || ask(&cluster, Some(&may), "GET /metrics", "").await.status;
    assert_eq!(metrics().await, 200);
    let hang = |path: &str| ApiFault::times(1000, path, Effect::Hang);
    server.fault(hang(TOKENS));
    server.fault(hang(ACCESSES));
    server.forget_requests();
    let began = tokio::time::Instant::now();
    let asked = |credentials: Option<CertificateWithKey>, line: &'static str, headers: String| {
        let cluster = Arc::clone(&cluster);
        tokio::spawn(async move { ask(&cluster, credentials.as_ref(), line, &headers).await })
    };
    let headers = bearer("token-that-hangs");
    let by_token = asked(None, "GET /pods", headers.clone());
    let by_right = asked(Some(may.clone()), "GET /stats/summary", String::new());
    let under_way = async || {
        let heard = server.requests();
        let is_heard = |path: &str| heard.iter().any(|one| one.path == path);
        is_heard(TOKENS) && is_heard(ACCESSES)
    };
    wait_until(CONVERGENCE_TIMEOUT, "both reviews are under way", under_way)
        .await
        .unwrap();
    for _ in 0..5 {
        assert_eq!(metrics().await, 200, "who was known before is known still");
        assert_eq!(ask(&cluster, None, "GET /metrics", "").await.status, 401);
        assert!(cluster.node.is_healthy().await);
    }
    assert!(!by_token.is_finished() && !by_right.is_finished());
    let (by_token, by_right) = (by_token.await.unwrap(), by_right.await.unwrap());
    assert_eq!(
        (by_token.status, by_token.body.as_str()),
        (401, "Unauthorized")
    );
    let error =
        "Authorization error (user=kubernetes-admin, verb=get, resource=nodes, subresource=stats)";
    assert_eq!((by_right.status, by_right.body.as_str()), (500, error));
    let took = tokio::time::Instant::now() - began;
    assert!(took < Duration::from_secs(40), "{took:?}");

    server.clear_faults();
    let asked = ask(&cluster, None, "GET /pods", &headers).await;
    assert_eq!(asked.status, 200, "no answer is not remembered");
    let asked = ask(&cluster, Some(&may), "GET /stats/summary", "").await;
    assert_eq!(asked.status, 200);
    assert_unhurt(&cluster, &["token-that"]).await;
}
