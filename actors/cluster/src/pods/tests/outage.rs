//! The source without an API server, or with one that answers badly: on a paused clock.

use std::sync::Arc;
use std::time::Duration;

use api_client::testing::{BodyPart, ReceivedRequest, ReplyScript, Rig, ScriptedReply, event};
use k8s_openapi::api::core::v1::Pod;
use kernel::testing::run_paused;
use serde_json::{Value, json};

use super::super::{FIRST_TIMEOUT, Msg};
use super::{begin, kept, names, next, typed};

fn listed(pods: &[Value]) -> ReplyScript {
    ScriptedReply::json(&json!({"metadata": {"resourceVersion": "100"}, "items": pods}))
}

fn quiet() -> ReplyScript {
    ScriptedReply::parts(200, vec![BodyPart::Text("\n".into()), BodyPart::Hang])
}

fn is_watch(heard: &ReceivedRequest) -> bool {
    heard.query.contains("watch=true")
}

fn remembered(names: &[&str]) -> Vec<Arc<Pod>> {
    names
        .iter()
        .map(|name| Arc::new(typed(kept(name, 1))))
        .collect()
}

#[test]
fn a_server_that_refuses_or_hangs_leaves_the_node_to_its_checkpoint() {
    run_paused(|| async {
        let refuses = |_: usize, _: &ReceivedRequest| ScriptedReply::of(500, &json!({}));
        let hangs = |_: usize, _: &ReceivedRequest| ReplyScript::Hang;
        for (rig, after) in [
            (Rig::tls(refuses).await, Duration::ZERO),
            (Rig::tls(hangs).await, FIRST_TIMEOUT),
        ] {
            let pods = remembered(&["a", "b"]);
            let began = tokio::time::Instant::now();
            let mut scene = begin(rig.client(), &pods);
            let told = next(&mut scene.remembered, Duration::from_secs(30))
                .await
                .unwrap();
            let took = began.elapsed();
            assert!(
                took >= after && took < after + Duration::from_secs(1),
                "{took:?}"
            );
            assert!(told.iter().zip(&pods).all(|(a, b)| Arc::ptr_eq(a, b)));
            assert!(
                scene.nothing_for_the_directory(),
                "the API has said nothing"
            );
        }
    });
}

#[test]
fn a_node_that_starts_without_a_server_has_its_pods_at_once() {
    run_paused(|| async {
        let rig = Rig::tls(|_, _| ReplyScript::Hang).await;
        let nobody = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = format!("https://{}", nobody.local_addr().unwrap());
        drop(nobody);
        let client = rig.client_of(json!({"server": server}), json!({})).unwrap();
        let mut scene = begin(client, &remembered(&["a"]));
        let told = next(&mut scene.remembered, Duration::from_millis(500))
            .await
            .unwrap();
        assert_eq!(names(&told), ["a"]);
    });
}

#[test]
fn without_an_answer_and_a_checkpoint_nothing_is_said() {
    run_paused(|| async {
        let rig = Rig::tls(|_, _| ReplyScript::Hang).await;
        let mut scene = begin(rig.client(), &[]);
        kernel::testing::pass(Duration::from_secs(3600)).await;
        assert!(scene.nothing_for_the_directory());
        assert!(scene.remembered.drain().is_empty());
        assert!(
            scene.alone.drain().is_empty(),
            "the checkpoint is not overwritten"
        );
    });
}

#[test]
fn when_the_server_is_back_the_same_pods_go_on_and_only_its_word_ends_one() {
    run_paused(|| async {
        let rig = Rig::tls(|nth, heard| match (nth, is_watch(heard)) {
            (0..3, _) => ScriptedReply::of(503, &json!({})),
            (_, false) => listed(&[kept("a", 50), kept("new", 60)]),
            (_, true) => quiet(),
        })
        .await;
        let pods = remembered(&["a", "gone"]);
        let mut scene = begin(rig.client(), &pods);
        let first = next(&mut scene.remembered, Duration::from_secs(1))
            .await
            .unwrap();
        assert_eq!(names(&first), ["a", "gone"]);
        let after = scene.run().await;
        assert_eq!(names(&after), ["a", "new"]);
        assert!(Arc::ptr_eq(&after[0], &pods[0]), "nobody works on a again");
    });
}

#[test]
fn an_outage_takes_no_pod_away() {
    run_paused(|| async {
        let rig = Rig::tls(|nth, heard| match (nth, is_watch(heard)) {
            (0, _) => listed(&[kept("a", 50)]),
            (1, true) => ScriptedReply::parts(
                200,
                vec![
                    event("ADDED", &kept("b", 101)),
                    BodyPart::Wait(Duration::from_millis(10)),
                    BodyPart::Cut,
                ],
            ),
            (2..30, _) => ScriptedReply::of(500, &json!({})),
            (_, true) => quiet(),
            (_, false) => listed(&[kept("a", 50), kept("b", 101)]),
        })
        .await;
        let mut scene = begin(rig.client(), &[]);
        let mut pods = scene.run().await;
        while pods.len() < 2 {
            pods = scene.run().await;
        }
        kernel::testing::pass(Duration::from_secs(3600)).await;
        assert!(rig.requests().len() > 30);
        assert!(scene.nothing_for_the_directory());
        assert!(scene.remembered.drain().is_empty());
    });
}

#[test]
fn an_answer_that_is_no_list_of_pods_takes_nothing_away() {
    run_paused(|| async {
        let nonsense = [
            json!({"metadata": {"resourceVersion": "9", "continue": "more"}, "items": []}),
            json!({"metadata": {}, "items": []}),
            json!({"metadata": {"resourceVersion": "9"}, "items": [{"metadata": 7}]}),
            json!({"kind": "ConfigMapList", "apiVersion": "v1", "metadata": {"resourceVersion": "9"}, "items": []}),
            json!([]),
        ];
        for answer in nonsense {
            let rig = Rig::tls(move |_, _| ScriptedReply::json(&answer)).await;
            let pods = remembered(&["a"]);
            let mut scene = begin(rig.client(), &pods);
            kernel::testing::pass(Duration::from_secs(300)).await;
            assert!(scene.nothing_for_the_directory());
            assert_eq!(scene.remembered.drain().len(), 1);
        }
    });
}

#[test]
fn a_burst_is_told_at_once_and_whole() {
    run_paused(|| async {
        let rig = Rig::tls(|_, heard| match is_watch(heard) {
            false => listed(&[]),
            true => {
                let events = (0..100).map(|n| event("ADDED", &kept(&format!("p{n:02}"), 200 + n)));
                ScriptedReply::parts(200, events.chain([BodyPart::Hang]).collect())
            }
        })
        .await;
        let mut scene = begin(rig.client(), &[]);
        let mut tellings = 0;
        loop {
            tellings += 1;
            if scene.run().await.len() == 100 {
                break;
            }
        }
        assert!(tellings < 10, "{tellings}");
    });
}

#[test]
fn a_neighbour_without_room_is_told_later() {
    run_paused(|| async {
        let rig = Rig::tls(|_, heard| match is_watch(heard) {
            false => listed(&[]),
            true => {
                let events = (0..80).flat_map(|n| {
                    [
                        event("ADDED", &kept(&format!("p{n:02}"), 200 + n)),
                        BodyPart::Wait(Duration::from_millis(20)),
                    ]
                });
                ScriptedReply::parts(200, events.chain([BodyPart::Hang]).collect())
            }
        })
        .await;
        let mut scene = begin(rig.client(), &[]);
        kernel::testing::pass(Duration::from_secs(20)).await;
        assert_eq!(scene.objects.drain().len(), 64, "the mailbox was full");
        let last = next(&mut scene.objects, Duration::from_secs(1))
            .await
            .unwrap();
        assert_eq!(last.len(), 80);
    });
}

#[test]
fn a_successor_begins_anew_and_says_it_all_again() {
    run_paused(|| async {
        let rig = Rig::tls(|_, heard| match is_watch(heard) {
            false => listed(&[kept("a", 50)]),
            true => quiet(),
        })
        .await;
        let mut scene = begin(rig.client(), &[]);
        assert_eq!(names(&scene.run().await), ["a"]);
        scene
            .supervisor
            .inject("test/pods", kernel::InjectedFault::Panic)
            .unwrap();
        assert_eq!(names(&scene.run().await), ["a"]);
        let all = scene
            .pods
            .ask(Duration::from_secs(1), |reply| Msg::All { reply })
            .await
            .unwrap();
        assert_eq!(names(&all), ["a"]);
    });
}
