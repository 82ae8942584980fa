//! One request: its retries, its deadline, its bounds.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kernel::testing::run_paused;
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};

use crate::testing::{BodyPart, ReplyScript, Rig, ScriptedReply, map, maps};
use crate::{ApiClient, ApiError, RequestLane};

const MIB: usize = 1 << 20;

async fn got(client: &ApiClient) -> Result<ConfigMap, ApiError> {
    maps(client).get("a").await.map_err(ApiError::from)
}

/// Upstream's TestCheckRetryHandles429And5xx.
#[test]
fn who_is_told_to_come_again_comes_again_then() {
    run_paused(|| async {
        for status in [429, 500, 503] {
            let rig = Rig::tls(move |nth, _| match nth {
                0 => ScriptedReply::again_after(status, "2"),
                _ => ScriptedReply::json(&map("a", 1)),
            })
            .await;
            got(&rig.client()).await.unwrap();
            let heard = rig.requests();
            assert_eq!(heard.len(), 2, "{status}");
            let waited = heard[1].at - heard[0].at;
            assert!(waited >= Duration::from_secs(2), "{status}: {waited:?}");
        }
    });
}

/// Upstream's TestCheckRetryClosesBody.
#[test]
fn a_write_comes_again_with_its_whole_body() {
    run_paused(|| async {
        let rig = Rig::tls(|nth, _| match nth {
            0 => ScriptedReply::again_after(429, "1"),
            _ => ScriptedReply::of(201, &map("a", 1)),
        })
        .await;
        let client = rig.client();
        let made = maps(&client)
            .create(&PostParams::default(), &ConfigMap::default())
            .await;
        made.unwrap();
        let heard = rig.requests();
        assert_eq!(heard.len(), 2);
        assert_eq!(
            heard[0].headers["content-length"],
            heard[1].headers["content-length"]
        );
    });
}

#[test]
fn a_server_that_is_always_busy_is_asked_ten_times_more_at_most() {
    run_paused(|| async {
        let rig = Rig::tls(|_, _| ScriptedReply::again_after(429, "1")).await;
        let trouble = got(&rig.client()).await.unwrap_err();
        assert!(
            matches!(trouble, ApiError::Busy { after: Some(after), .. } if after.as_secs() == 1)
        );
        assert_eq!(rig.requests().len(), 11);
    });
}

#[test]
fn who_is_told_to_wait_longer_than_he_may_is_told_so_at_once() {
    run_paused(|| async {
        let rig = Rig::tls(|_, _| ScriptedReply::again_after(503, "3600")).await;
        let trouble = got(&rig.client()).await.unwrap_err();
        assert!(
            matches!(trouble, ApiError::Busy { after: Some(after), .. } if after.as_secs() == 3600)
        );
        assert_eq!(rig.requests().len(), 1);
    });
}

#[test]
fn no_server_is_left_alone_for_longer_than_an_hour() {
    let endless = u64::MAX.to_string();
    run_paused(|| async move {
        let rig = Rig::tls(move |nth, _| match nth {
            0 => ScriptedReply::again_after(503, &endless),
            _ => ScriptedReply::of(429, &busy_for(u32::MAX)),
        })
        .await;
        for _ in 0..2 {
            let trouble = got(&rig.client()).await.unwrap_err();
            assert!(
                matches!(trouble, ApiError::Busy { after: Some(after), .. } if after.as_secs() == 3600),
                "{trouble:?}"
            );
        }
        assert_eq!(rig.requests().len(), 2);
    });
}

fn busy_for(seconds: u32) -> Value {
    json!({"kind": "Status", "code": 429, "message": "busy", "details": {"retryAfterSeconds": seconds}})
}

#[test]
fn an_error_without_retry_after_is_not_asked_again() {
    run_paused(|| async {
        let rig =
            Rig::tls(|_, _| ScriptedReply::of(500, &json!({"code": 500, "message": "no"}))).await;
        let trouble = got(&rig.client()).await.unwrap_err();
        assert!(
            matches!(trouble, ApiError::Refused { code: 500, .. }),
            "{trouble:?}"
        );
        assert!(trouble.transient());
        assert_eq!(rig.requests().len(), 1);
    });
}

#[test]
fn the_page_of_a_proxy_is_told_from_an_error_of_the_server() {
    run_paused(|| async {
        for (code, body, is_from_proxy) in [
            (502, json!("bad gateway"), true),
            (503, json!("no server"), true),
            (504, json!("too slow"), true),
            (500, json!("a panic"), false),
            (503, json!({"code": 503, "message": "a webhook's"}), false),
        ] {
            let rig = Rig::tls(move |_, _| ScriptedReply::of(code, &body)).await;
            let trouble = got(&rig.client()).await.unwrap_err();
            assert_eq!(trouble.is_from_proxy(), is_from_proxy, "{trouble:?}");
        }
    });
}

/// Upstream's TestRequestWithRetry.
#[test]
fn a_broken_connection_repeats_reads_and_never_writes() {
    run_paused(|| async {
        let rig = Rig::plain(|nth, _| match nth {
            0 => ReplyScript::Break,
            _ => ScriptedReply::json(&map("a", 1)),
        })
        .await;
        got(&rig.client()).await.unwrap();
        assert_eq!(rig.requests().len(), 2);

        let rig = Rig::plain(|_, _| ReplyScript::Break).await;
        let client = rig.client();
        let made = maps(&client)
            .create(&PostParams::default(), &ConfigMap::default())
            .await;
        let trouble = ApiError::from(made.unwrap_err());
        assert!(
            matches!(trouble, ApiError::Unreachable { .. }),
            "{trouble:?}"
        );
        assert_eq!(rig.requests().len(), 1);
    });
}

#[test]
fn every_answer_comes_by_its_deadline_or_is_given_up() {
    run_paused(|| async {
        let never = |_: usize, _: &crate::testing::ReceivedRequest| ReplyScript::Hang;
        let endless = |_: usize, _: &crate::testing::ReceivedRequest| {
            ScriptedReply::parts(200, vec![BodyPart::Text("{".into()), BodyPart::Hang])
        };
        for (lane, within) in [(RequestLane::Work, 60), (RequestLane::Heartbeat, 10)] {
            for rig in [Rig::tls(never).await, Rig::tls(endless).await] {
                let began = tokio::time::Instant::now();
                let api = Api::<ConfigMap>::namespaced(rig.client().kube(lane), "default");
                let trouble = ApiError::from(api.get("a").await.unwrap_err());
                assert!(
                    matches!(trouble, ApiError::Unreachable { .. }),
                    "{trouble:?}"
                );
                let took = began.elapsed().as_secs();
                assert!((within..within + 2).contains(&took), "{lane:?}: {took}");
            }
        }
    });
}

#[test]
fn an_answer_that_is_none_is_nonsense_and_not_quoted() {
    run_paused(|| async {
        let answers = [
            "<html>S3cret</html>",
            r#"{"data": "S3cret"}"#,
            r#"{"metadata": {"name": "S3cret"#,
        ];
        for answer in answers {
            let rig = Rig::tls(move |_, _| {
                ScriptedReply::parts(200, vec![BodyPart::Text(answer.into())])
            })
            .await;
            let trouble = got(&rig.client()).await.unwrap_err();
            assert!(matches!(trouble, ApiError::Nonsense { .. }), "{trouble:?}");
            assert!(!format!("{trouble:?}").contains("S3cret"), "{trouble:?}");
        }
    });
}

#[test]
fn an_answer_larger_than_64_mib_is_given_up() {
    run_paused(|| async {
        let rig = Rig::tls(|_, _| {
            ScriptedReply::parts(200, (0..80).map(|_| BodyPart::Blanks(MIB)).collect())
        })
        .await;
        let trouble = got(&rig.client()).await.unwrap_err();
        assert!(matches!(trouble, ApiError::Nonsense { .. }), "{trouble:?}");
    });
}

/// Upstream's TestTransformResponse and TestTransformUnstructuredError, the cases that have names here.
#[test]
fn what_the_server_says_is_sorted_by_code_and_told_in_its_words() {
    run_paused(|| async {
        let cases = [
            (404, "NotFound", "NotFound"),
            (409, "AlreadyExists", "Exists"),
            (409, "Conflict", "Conflict"),
            (410, "Expired", "Gone"),
            (401, "Unauthorized", "Unauthorized"),
            (403, "Forbidden", "Forbidden"),
            (429, "TooManyRequests", "Busy"),
            (422, "Invalid", "Refused"),
        ];
        let cases = cases.map(|(code, reason, kind)| (code, reason, json!({}), kind));
        let causes =
            json!({"causes": [{"reason": "NamespaceTerminating", "field": "metadata.namespace"}]});
        let in_namespace = (403, "Forbidden", causes, "NamespaceTerminating");
        for (code, reason, details, kind) in cases.into_iter().chain([in_namespace]) {
            let status = json!({
                "kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": "so it is",
                "details": details,
            });
            let rig = Rig::tls(move |_, _| ScriptedReply::of(code, &status)).await;
            let trouble = got(&rig.client()).await.unwrap_err();
            assert!(format!("{trouble:?}").starts_with(kind), "{trouble:?}");
            assert_eq!(trouble.to_string(), "so it is");
        }
    });
}

#[test]
fn a_path_of_the_server_goes_before_every_request_and_the_agent_names_itself() {
    run_paused(|| async {
        let rig = Rig::tls(|_, _| ScriptedReply::json(&map("a", 1))).await;
        let server = format!("https://127.0.0.1:{}/k8s/clusters/c-1/", rig.port);
        got(&rig
            .client_of(json!({"server": server}), json!({"as": "someone"}))
            .unwrap())
        .await
        .unwrap();
        let heard = &rig.requests()[0];
        assert_eq!(
            heard.path,
            "/k8s/clusters/c-1/api/v1/namespaces/default/configmaps/a"
        );
        assert_eq!(heard.headers["user-agent"], "kubelet/v1.36.0 (linux/amd64)");
        assert_eq!(heard.headers["impersonate-user"], "someone");
    });
}

/// Upstream's TestBasicThrottle and TestIncrementThrottle.
#[test]
fn a_lane_asks_at_its_rate_after_its_burst_and_no_other_waits_for_it() {
    run_paused(|| async {
        let rig = Rig::tls(|_, _| ScriptedReply::json(&map("a", 1))).await;
        let access = crate::RestConfig {
            qps: 2,
            burst: 3,
            ..crate::testing::access(rig.kubeconfig(json!({}), json!({})))
        };
        let client = ApiClient::new(access, crate::testing::nobody()).unwrap();
        let began = tokio::time::Instant::now();
        assert!(client.has_spare_rate());
        for _ in 0..7 {
            got(&client).await.unwrap();
            assert!(
                !client.has_spare_rate(),
                "a quarter of three is less than one"
            );
        }
        let took = began.elapsed().as_secs_f64();
        assert!((1.9..2.2).contains(&took), "{took}");
        let began = tokio::time::Instant::now();
        for lane in [RequestLane::Heartbeat, RequestLane::UnknownTokens] {
            let api = Api::<ConfigMap>::namespaced(client.kube(lane), "default");
            api.get("a").await.unwrap();
        }
        assert!(began.elapsed().as_millis() < 100);
        kernel::testing::pass(Duration::from_millis(1_400)).await;
        assert!(client.has_spare_rate(), "tokens come back");
    });
}
