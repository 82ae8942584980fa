//! A reflector, against a server that misbehaves.

use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use k8s_openapi::api::core::v1::ConfigMap;
use kernel::testing::run_paused;
use kube::ResourceExt;
use serde_json::json;

use crate::testing::{
    BodyPart, ReceivedRequest, ReplyScript, Rig, ScriptedReply, event, list, map, watched_maps,
};
use crate::{ApiError, ObjectEvent, ObjectSelector, watch};

type ConfigMapEvents = BoxStream<'static, Result<ObjectEvent<ConfigMap>, ApiError>>;

fn is_watch(heard: &ReceivedRequest) -> bool {
    heard.query.contains("watch=true")
}

fn following(rig: &Rig) -> ConfigMapEvents {
    watch(
        watched_maps(&rig.client()),
        ObjectSelector::fields("metadata.name=a"),
    )
}

/// The events within a while, in words; the errors apart.
async fn told(stream: &mut ConfigMapEvents, within: Duration) -> (Vec<String>, Vec<ApiError>) {
    let (mut events, mut troubles) = (Vec::new(), Vec::new());
    let until = tokio::time::Instant::now() + within;
    while let Ok(Some(item)) = tokio::time::timeout_at(until, stream.next()).await {
        match item {
            Ok(ObjectEvent::Listed(all)) => {
                let names: Vec<_> = all.iter().map(ResourceExt::name_any).collect();
                events.push(format!("={}", names.join(",")));
            }
            Ok(ObjectEvent::Applied(one)) => events.push(format!("+{}", one.name_any())),
            Ok(ObjectEvent::Deleted(one)) => events.push(format!("-{}", one.name_any())),
            Err(trouble) => troubles.push(trouble),
        }
    }
    (events, troubles)
}

fn version(heard: &ReceivedRequest) -> &str {
    let mut pairs = heard.query.split('&');
    pairs
        .find_map(|pair| pair.strip_prefix("resourceVersion="))
        .unwrap_or_default()
}

/// Upstream's TestReflectorListAndWatch and TestReflectorWatchHandler.
#[test]
fn a_list_is_followed_and_resumed_where_the_watch_ended() {
    run_paused(|| async {
        let rig = Rig::tls(|nth, heard| match (nth, is_watch(heard)) {
            (_, false) => list(10, &[map("a", 3)]),
            (1, true) => ScriptedReply::parts(200, vec![
                event("ADDED", &map("b", 11)),
                event("MODIFIED", &map("b", 12)),
                BodyPart::Wait(Duration::from_secs(60)),
                event("BOOKMARK", &json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"resourceVersion": "40"}})),
            ]),
            (_, true) => ScriptedReply::parts(200, vec![event("DELETED", &map("a", 41)), BodyPart::Hang]),
        })
        .await;
        let mut stream = following(&rig);
        let ObjectEvent::Listed(first) = stream.next().await.unwrap().unwrap() else {
            panic!("first comes the list");
        };
        assert_eq!(first[0].metadata.managed_fields, None);
        let (events, troubles) = told(&mut stream, Duration::from_secs(100)).await;
        assert_eq!(events, ["+b", "+b", "-a"]);
        assert_eq!(troubles, []);
        let heard = rig.requests();
        assert_eq!(
            version(&heard[0]),
            "",
            "a fresh list, not whatever a server has"
        );
        assert_eq!(version(&heard[1]), "10");
        assert_eq!(version(&heard[2]), "40");
        for query in [&heard[1].query, &heard[2].query] {
            assert!(query.contains("allowWatchBookmarks=true"), "{query}");
            assert!(query.contains("fieldSelector=metadata.name%3Da"), "{query}");
            let timeout = query
                .split('&')
                .find_map(|pair| pair.strip_prefix("timeoutSeconds="));
            let timeout: u32 = timeout.unwrap().parse().unwrap();
            assert!((300..=600).contains(&timeout), "{timeout}");
        }
    });
}

/// Upstream's TestReflectorExpiredExactResourceVersion, and an expiry in the middle of a watch.
#[test]
fn a_forgotten_version_is_listed_again_and_no_trouble() {
    run_paused(|| async {
        let gone = json!({"kind": "Status", "status": "Failure", "code": 410, "reason": "Expired", "message": "too old"});
        let rig = Rig::tls(move |nth, heard| match (nth, is_watch(heard)) {
            (0, false) => list(10, &[map("a", 3)]),
            (_, false) => list(50, &[map("b", 49)]),
            (1, true) => ScriptedReply::of(410, &gone),
            (3, true) => ScriptedReply::parts(200, vec![event("ERROR", &gone), BodyPart::Hang]),
            (_, true) => {
                ScriptedReply::parts(200, vec![BodyPart::Text("\n".into()), BodyPart::Hang])
            }
        })
        .await;
        let (events, troubles) = told(&mut following(&rig), Duration::from_secs(30)).await;
        assert_eq!(events, ["=a", "=b", "=b"]);
        assert_eq!(troubles, []);
    });
}

#[test]
fn half_an_event_is_nothing_and_the_watch_is_resumed() {
    run_paused(|| async {
        let rig = Rig::tls(|nth, heard| match (nth, is_watch(heard)) {
            (_, false) => list(10, &[]),
            (1, true) => {
                let BodyPart::Text(mut whole) = event("ADDED", &map("b", 12)) else {
                    unreachable!()
                };
                whole.truncate(40);
                ScriptedReply::parts(
                    200,
                    vec![
                        event("ADDED", &map("a", 11)),
                        BodyPart::Text(whole),
                        BodyPart::Wait(Duration::from_millis(10)),
                        BodyPart::Cut,
                    ],
                )
            }
            (_, true) => {
                ScriptedReply::parts(200, vec![event("ADDED", &map("b", 12)), BodyPart::Hang])
            }
        })
        .await;
        let (events, _) = told(&mut following(&rig), Duration::from_secs(30)).await;
        assert_eq!(events, ["=", "+a", "+b"]);
        assert_eq!(version(&rig.requests()[2]), "11");
    });
}

#[test]
fn a_watch_that_says_nonsense_is_listed_again_with_pauses() {
    run_paused(|| async {
        let lines = [
            "S3cret\n",
            "{\"type\": \"ADDED\", \"object\": {\"metadata\": {\"name\": 7, \"note\": \"S3cret\"}}}\n",
        ];
        for line in lines {
            let rig = Rig::tls(move |_, heard| match is_watch(heard) {
                false => list(10, &[]),
                true => {
                    ScriptedReply::parts(200, vec![BodyPart::Text(line.into()), BodyPart::Hang])
                }
            })
            .await;
            let (events, troubles) = told(&mut following(&rig), Duration::from_secs(600)).await;
            assert!(
                (10..60).contains(&rig.requests().len()),
                "{}",
                rig.requests().len()
            );
            assert!(events.len() >= troubles.len());
            assert!(
                troubles
                    .iter()
                    .all(|trouble| matches!(trouble, ApiError::Nonsense { .. })),
                "{troubles:?}"
            );
            assert!(!format!("{troubles:?}").contains("S3cret"));
        }
    });
}

#[test]
fn a_server_that_always_fails_is_never_asked_in_a_hurry() {
    run_paused(|| async {
        let ends = |_: usize, heard: &ReceivedRequest| match is_watch(heard) {
            false => list(10, &[]),
            true => ScriptedReply::parts(200, vec![BodyPart::Text("\n".into())]),
        };
        let repeats = |_: usize, heard: &ReceivedRequest| match is_watch(heard) {
            false => list(10, &[]),
            true => ScriptedReply::parts(200, vec![event("ADDED", &map("a", 11))]),
        };
        let refuses =
            |_: usize, _: &ReceivedRequest| ScriptedReply::of(403, &json!({"message": "no"}));
        let forgets = |_: usize, heard: &ReceivedRequest| match is_watch(heard) {
            false => list(10, &[]),
            true => ScriptedReply::of(410, &json!({"code": 410, "reason": "Expired"})),
        };
        let unversioned = |_: usize, _: &ReceivedRequest| {
            ScriptedReply::json(&json!({"metadata": {}, "items": []}))
        };
        let in_part = |_: usize, _: &ReceivedRequest| {
            ScriptedReply::json(
                &json!({"metadata": {"resourceVersion": "1", "continue": "x"}, "items": []}),
            )
        };
        let rigs = [
            (Rig::tls(ends).await, 60),
            (Rig::tls(repeats).await, 800),
            (Rig::tls(refuses).await, 60),
            (Rig::tls(forgets).await, 120),
            (Rig::tls(unversioned).await, 60),
            (Rig::tls(in_part).await, 60),
        ];
        for (case, (rig, most)) in rigs.iter().enumerate() {
            told(&mut following(rig), Duration::from_secs(600)).await;
            let asked = rig.requests().len();
            assert!((10..*most).contains(&asked), "case {case}: {asked}");
        }
    });
}

#[test]
fn a_list_in_part_or_without_a_version_says_nothing() {
    run_paused(|| async {
        for metadata in [json!({"resourceVersion": "1", "continue": "x"}), json!({})] {
            let rig = Rig::tls(move |_, _| {
                ScriptedReply::json(&json!({"metadata": metadata, "items": [map("a", 1)]}))
            })
            .await;
            let (events, troubles) = told(&mut following(&rig), Duration::from_secs(5)).await;
            assert_eq!(events, Vec::<String>::new());
            assert!(matches!(troubles[0], ApiError::Nonsense { .. }));
        }
    });
}

#[test]
fn a_watch_that_hangs_past_its_end_is_given_up_and_resumed() {
    run_paused(|| async {
        let rig = Rig::tls(|nth, heard| match (nth, is_watch(heard)) {
            (_, false) => list(10, &[]),
            (1, true) => {
                ScriptedReply::parts(200, vec![BodyPart::Text("\n".into()), BodyPart::Hang])
            }
            (2, true) => ReplyScript::Hang,
            (_, true) => {
                ScriptedReply::parts(200, vec![event("ADDED", &map("a", 11)), BodyPart::Hang])
            }
        })
        .await;
        let (events, troubles) = told(&mut following(&rig), Duration::from_secs(1200)).await;
        assert_eq!(events[..2], ["=", "+a"]);
        assert!(
            troubles
                .iter()
                .all(|trouble| matches!(trouble, ApiError::Unreachable { .. })),
            "{troubles:?}"
        );
        let heard = rig.requests();
        assert_eq!(version(&heard[2]), "10");
        let lasted = (heard[2].at - heard[1].at).as_secs();
        assert!((330..=635).contains(&lasted), "{lasted}");
    });
}

#[test]
fn an_event_that_never_ends_is_given_up_at_16_mib() {
    run_paused(|| async {
        let rig = Rig::tls(|_, heard| match is_watch(heard) {
            false => list(10, &[]),
            true => ScriptedReply::parts(
                200,
                (0..20)
                    .map(|_| BodyPart::Blanks(1 << 20))
                    .chain([BodyPart::Hang])
                    .collect(),
            ),
        })
        .await;
        let (_, troubles) = told(&mut following(&rig), Duration::from_millis(700)).await;
        assert!(
            matches!(troubles.as_slice(), [ApiError::Nonsense { .. }]),
            "{troubles:?}"
        );
    });
}

#[test]
fn a_busy_server_is_left_alone_for_as_long_as_it_asks() {
    run_paused(|| async {
        let rig = Rig::tls(|nth, heard| match (nth, is_watch(heard)) {
            (0, _) => ScriptedReply::again_after(429, "300"),
            (_, false) => list(10, &[]),
            (_, true) => {
                ScriptedReply::parts(200, vec![BodyPart::Text("\n".into()), BodyPart::Hang])
            }
        })
        .await;
        let (events, troubles) = told(&mut following(&rig), Duration::from_secs(310)).await;
        assert_eq!(events, ["="]);
        assert!(matches!(troubles.as_slice(), [ApiError::Busy { .. }]));
        let heard = rig.requests();
        assert!((heard[1].at - heard[0].at).as_secs() >= 300);
    });
}
