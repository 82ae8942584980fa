//! One connection for all requests, whatever the client's identity.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::join_all;
use k8s_openapi::api::core::v1::ConfigMap;
use kernel::testing::{pass, run_paused};
use kernel::watch as channel;
use kube::Api;
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};

use crate::testing::{
    BodyPart, ReceivedRequest, ReplyScript, Rig, ScriptedReply, access, list, map, maps,
    watched_maps,
};
use crate::{ApiClient, ApiError, ObjectSelector, RequestLane, watch};

/// Lists of nothing, watches of nothing, and any object.
fn quiet(_: usize, heard: &ReceivedRequest) -> ReplyScript {
    match (is_watch(heard), heard.path.ends_with("/configmaps")) {
        (true, _) => ScriptedReply::parts(200, vec![BodyPart::Text("\n".into()), BodyPart::Hang]),
        (false, true) => list(1, &[]),
        (false, false) => ScriptedReply::json(&map("a", 1)),
    }
}

fn is_watch(heard: &ReceivedRequest) -> bool {
    heard.query.contains("watch=true")
}

#[test]
fn any_number_of_watches_and_requests_share_one_connection() {
    run_paused(|| async {
        let rig = Rig::tls(quiet).await;
        let client = rig.client();
        let watching = join_all((0..50).map(|_| async {
            let mut stream = watch(watched_maps(&client), ObjectSelector::default());
            stream.next().await.unwrap().unwrap();
            drop(tokio::time::timeout(Duration::from_secs(1), stream.next()).await);
            stream
        }));
        let held = watching.await;
        join_all((0..40).map(|_| async { maps(&client).get("a").await.unwrap() })).await;
        assert_eq!(rig.connections(), 1);
        assert_eq!(rig.requests().len(), 50 * 2 + 40);
        drop(held);
    });
}

#[test]
fn a_connection_full_of_answers_still_has_room_for_the_heartbeat() {
    run_paused(|| async {
        let rig = Rig::tls(|_, heard| match heard.path.ends_with("beat") {
            true => ScriptedReply::json(&map("beat", 1)),
            false => ReplyScript::Hang,
        })
        .await;
        let client = rig.client();
        for _ in 0..96 {
            let api = maps(&client);
            tokio::spawn(async move { api.get("a").await.map(drop) });
        }
        rig.hears(96, |_| true).await;
        assert_eq!((rig.requests().len(), rig.connections()), (96, 1));
        let api = Api::<ConfigMap>::namespaced(client.kube(RequestLane::Heartbeat), "default");
        api.get("beat").await.unwrap();
        assert_eq!(rig.connections(), 1);
        let api = maps(&client);
        api.get("beat").await.unwrap();
        assert_eq!(
            rig.connections(),
            2,
            "more answers than one connection carries"
        );
    });
}

/// Accepts connections; the first one is never answered, the later ones lead to this port.
async fn deaf_at_first(port: u16) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let own = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        let (_deaf, _) = listener.accept().await.unwrap();
        loop {
            let (mut client, _) = listener.accept().await.unwrap();
            let mut server = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
            tokio::spawn(
                async move { tokio::io::copy_bidirectional(&mut client, &mut server).await },
            );
        }
    });
    own
}

#[test]
fn a_connect_that_hangs_holds_up_neither_the_heartbeat_nor_others_once_a_connection_is_open() {
    run_paused(|| async {
        let rig = Rig::tls(quiet).await;
        let port = deaf_at_first(rig.port).await;
        let server = format!("https://127.0.0.1:{port}");
        let client = rig.client_of(json!({"server": server}), json!({})).unwrap();
        let others: Vec<_> = (0..5)
            .map(|_| {
                let api = maps(&client);
                tokio::spawn(async move { api.get("a").await.map(drop) })
            })
            .collect();
        pass(Duration::from_millis(10)).await;
        let begun = kernel::now();
        let api = Api::<ConfigMap>::namespaced(client.kube(RequestLane::Heartbeat), "default");
        api.get("beat").await.unwrap();
        assert!(kernel::now() - begun < Duration::from_secs(1));
        for other in others {
            other.await.unwrap().unwrap();
        }
        assert!(kernel::now() - begun < Duration::from_secs(2));
    });
}

/// Upstream's TestRotateShutsDownConnections.
#[test]
fn a_new_identity_takes_new_connections_and_loses_nothing() {
    run_paused(|| async {
        let rig = Rig::tls(|nth, heard| match heard.path.ends_with("slow") {
            true => ReplyScript::Late(Duration::from_secs(5), slow()),
            false => quiet(nth, heard),
        })
        .await;
        let (first, second) = (rig.identity("first"), rig.identity("second"));
        let (give, given) = channel::channel(Some(Arc::clone(&first)));
        let client = ApiClient::new(access(rig.kubeconfig(json!({}), json!({}))), given).unwrap();
        let mut stream = watch(watched_maps(&client), ObjectSelector::default());
        stream.next().await.unwrap().unwrap();
        let watching = tokio::spawn(async move { stream.next().await.is_some() });
        let api = maps(&client);
        let slow = tokio::spawn(async move { api.get("slow").await });
        rig.hears(1, is_watch).await;
        rig.hears(1, |heard| heard.path.ends_with("slow")).await;
        // A watch that ends at once is no watch.
        pass(Duration::from_secs(2)).await;

        give.send_replace(Some(Arc::clone(&second)));
        maps(&client).get("a").await.unwrap();
        assert_eq!(
            slow.await.unwrap().unwrap().metadata.name.as_deref(),
            Some("slow")
        );
        rig.hears(2, is_watch).await;
        // Nothing more comes of it.
        pass(Duration::from_secs(5)).await;
        let heard = rig.requests();
        let watches: Vec<_> = heard.iter().filter(|heard| is_watch(heard)).collect();
        let by = |heard: &ReceivedRequest| heard.certificate.clone().unwrap();
        assert_eq!(watches.len(), 2);
        assert_eq!(by(watches[0]), first.cert[0].to_vec());
        assert_eq!(by(watches[1]), second.cert[0].to_vec());
        assert_eq!(heard.iter().filter(|h| h.path.ends_with("slow")).count(), 1);
        assert!(!watching.is_finished());
    });
}

fn slow() -> ScriptedReply {
    let ReplyScript::Reply(reply) = ScriptedReply::json(&map("slow", 1)) else {
        unreachable!("it is a reply")
    };
    reply
}

#[test]
fn the_kubeconfigs_own_certificate_is_used_until_another_is_given() {
    run_paused(|| async {
        let rig = Rig::tls(quiet).await;
        let (certificate, key) = rig.pair("own");
        std::fs::write(rig.folder.path().join("own.crt"), certificate).unwrap();
        std::fs::write(rig.folder.path().join("own.key"), key).unwrap();
        let user = json!({"client-certificate": "own.crt", "client-key": "own.key"});
        let (give, given) = channel::channel(None);
        let client = ApiClient::new(access(rig.kubeconfig(json!({}), user)), given).unwrap();
        maps(&client).get("a").await.unwrap();
        let other = rig.identity("other");
        give.send_replace(Some(Arc::clone(&other)));
        maps(&client).get("a").await.unwrap();
        let heard = rig.requests();
        assert!(heard[0].certificate.is_some());
        assert_eq!(heard[1].certificate, Some(other.cert[0].to_vec()));
        assert_ne!(heard[0].certificate, heard[1].certificate);
    });
}

#[test]
fn a_certificate_that_changes_in_its_file_is_taken_up() {
    run_paused(|| async {
        let rig = Rig::tls(quiet).await;
        let place = rig.folder.path().join("own.pem");
        let put = |name: &str| {
            let (certificate, key) = rig.pair(name);
            std::fs::write(&place, certificate + &key).unwrap();
        };
        put("one");
        let user = json!({"client-certificate": "own.pem", "client-key": "own.pem"});
        let client = rig.client_of(json!({}), user).unwrap();
        maps(&client).get("a").await.unwrap();
        std::fs::write(&place, "half").unwrap();
        pass(Duration::from_secs(61)).await;
        maps(&client).get("a").await.unwrap();
        put("two");
        pass(Duration::from_secs(61)).await;
        maps(&client).get("a").await.unwrap();
        let heard = rig.requests();
        assert_eq!(heard[0].certificate, heard[1].certificate);
        assert_ne!(heard[1].certificate, heard[2].certificate);
    });
}

#[test]
fn a_server_of_another_authority_or_name_is_not_spoken_to() {
    run_paused(|| async {
        let rig = Rig::tls(quiet).await;
        let get = async |cluster| {
            let client = rig.client_of(cluster, json!({})).unwrap();
            maps(&client).get("a").await.map_err(ApiError::from)
        };
        let other = crate::testing::authority().pem();
        let encoded = serde_json::to_value(k8s_openapi::ByteString(other.into_bytes())).unwrap();
        let trouble = get(json!({"certificate-authority-data": encoded}))
            .await
            .unwrap_err();
        assert!(
            matches!(trouble, ApiError::Unreachable { .. }),
            "{trouble:?}"
        );
        let trouble = get(json!({"tls-server-name": "other.example.com"}))
            .await
            .unwrap_err();
        assert!(
            matches!(trouble, ApiError::Unreachable { .. }),
            "{trouble:?}"
        );
        assert!(rig.requests().is_empty());
        get(json!({"tls-server-name": "api.example.com"}))
            .await
            .unwrap();
        get(json!({"certificate-authority": "", "insecure-skip-tls-verify": true}))
            .await
            .unwrap();
    });
}

#[test]
fn a_server_that_nobody_serves_is_unreachable_and_named() {
    run_paused(|| async {
        let rig = Rig::plain(quiet).await;
        let gone = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = gone.local_addr().unwrap();
        drop(gone);
        let server = json!({"server": format!("https://{address}")});
        let client = rig.client_of(server, json!({})).unwrap();
        let api = Api::<ConfigMap>::namespaced(client.kube(RequestLane::Heartbeat), "default");
        let began = tokio::time::Instant::now();
        let trouble = ApiError::from(api.get("a").await.unwrap_err());
        assert!(
            trouble.to_string().contains(&address.to_string()),
            "{trouble}"
        );
        let took = began.elapsed();
        assert!(
            took.as_millis() < 500,
            "nobody waits for a server that is not there: {took:?}"
        );
    });
}
