//! Laws of the status manager.

mod double;
mod rig;

use std::time::Duration;

use kernel::testing::{pass, run_paused};
use serde_json::json;
use tokio::sync::broadcast::error::TryRecvError;

use self::rig::{
    FakeStatusApi, ROUND_TRIP, RequestFault, ResyncAsked, Rig, deleted, mirror, pod, status,
    with_container, with_message, with_ready,
};

use super::StatusChange;

const HOUR: Duration = Duration::from_secs(3600);

/// Upstream's TestNewStatus, TestSyncPod, TestChangedStatus and TestUnchangedStatus.
#[test]
fn a_new_status_is_told_at_once_and_an_unchanged_one_not_at_all() {
    run_paused(|| async {
        let rig = Rig::start();
        rig.api.put(pod("web"));
        rig.watch();
        rig.say("web-uid", status("Running"));
        pass(ROUND_TRIP * 2).await;
        assert_eq!(rig.api.heard(), ["PATCH web"]);
        let expected =
            json!({ "metadata": { "uid": "web-uid" }, "status": { "phase": "Running" } });
        assert_eq!(rig.api.last_body(), expected);
        assert_eq!(rig.api.phase("web"), "Running");
        rig.watch();
        rig.say("web-uid", status("Running"));
        assert!(rig.settle().await.is_empty());
        rig.say("web-uid", with_message("Running", "well"));
        assert_eq!(rig.settle().await, ["PATCH web"]);
    });
}

#[test]
fn a_restarted_agent_writes_nothing_that_the_api_shows() {
    run_paused(|| async {
        let rig = Rig::start();
        rig.api.put(pod("web"));
        rig.say("web-uid", status("Pending"));
        assert!(rig.settle().await.is_empty(), "not before the API has told");
        rig.watch();
        assert!(rig.settle().await.is_empty());
    });
}

/// Upstream's TestStaleUpdates.
#[test]
fn of_what_changes_meanwhile_only_the_newest_is_told() {
    run_paused(|| async {
        let rig = Rig::start();
        rig.api.put(pod("web"));
        rig.watch();
        for message in ["one", "two", "three", "four"] {
            rig.say("web-uid", with_message("Running", message));
        }
        assert_eq!(rig.settle().await, ["PATCH web", "PATCH web"]);
        assert_eq!(rig.api.pod("web")["status"]["message"], "four");
        assert_eq!(rig.api.most_at_once(), 1);
        rig.watch();
        assert!(rig.settle().await.is_empty());
    });
}

#[test]
fn what_nobody_waits_for_waits_a_tenth_of_a_second_for_more() {
    run_paused(|| async {
        let rig = Rig::start();
        let mut made = pod("web");
        made["status"]["startTime"] = json!("2026-01-01T00:00:00Z");
        rig.api.put(made);
        rig.watch();
        rig.say("web-uid", with_ready(status("Pending"), "False"));
        pass(Duration::from_millis(90)).await;
        assert!(rig.api.heard().is_empty());
        rig.say("web-uid", with_ready(status("Running"), "True"));
        assert_eq!(rig.settle().await, ["PATCH web"], "both in one");

        rig.watch();
        let ready = |message| with_ready(with_message("Running", message), "True");
        rig.say("web-uid", ready("one"));
        pass(Duration::from_millis(60)).await;
        rig.say("web-uid", ready("two"));
        pass(Duration::from_millis(60)).await;
        assert_eq!(rig.api.heard(), ["PATCH web"], "more does not put it off");
        assert_eq!(rig.api.pod("web")["status"]["message"], "two");
    });
}

#[test]
fn the_first_status_of_a_pod_waits_for_nothing() {
    run_paused(|| async {
        let rig = Rig::start();
        rig.api.put(pod("web"));
        rig.watch();
        let creating = json!({ "waiting": { "reason": "ContainerCreating" } });
        rig.say("web-uid", with_container(status("Pending"), creating));
        pass(ROUND_TRIP * 2).await;
        assert_eq!(rig.api.heard(), ["PATCH web"]);
    });
}

/// Otherwise the first statuses of fifty pods use up the rate that their next ones need.
#[test]
fn where_requests_are_near_their_rate_limit_a_first_status_waits_for_more() {
    run_paused(|| async {
        let rig = Rig::without_spare_rate();
        rig.api.put(pod("web"));
        rig.watch();
        let creating = json!({ "waiting": { "reason": "ContainerCreating" } });
        rig.say("web-uid", with_container(status("Pending"), creating));
        pass(Duration::from_millis(90)).await;
        assert!(rig.api.heard().is_empty());
        rig.say("web-uid", with_ready(status("Running"), "True"));
        assert_eq!(rig.settle().await, ["PATCH web"], "both in one");
    });
}

/// The watch is behind what was written: what the API answered counts.
#[test]
fn a_status_that_goes_back_is_told_although_the_watch_never_showed_it() {
    run_paused(|| async {
        let rig = Rig::start();
        rig.api.put(pod("web"));
        rig.watch();
        let before = rig.api.listed();
        rig.say("web-uid", with_ready(status("Running"), "True"));
        rig.settle().await;
        let late = super::Msg::Pods { pods: before };
        rig.keeper.tell(late).unwrap();
        assert!(rig.settle().await.is_empty(), "old news");
        rig.say("web-uid", with_ready(status("Running"), "False"));
        assert_eq!(rig.settle().await, ["PATCH web"]);
        let ready = &rig.api.pod("web")["status"]["conditions"][0];
        assert_eq!(
            (&ready["type"], &ready["status"]),
            (&json!("Ready"), &json!("False"))
        );
    });
}

#[test]
fn readiness_goes_first_then_the_newest_and_never_too_many_at_once() {
    run_paused(|| async {
        let rig = Rig::start();
        let names: Vec<String> = (10..40).map(|n| format!("web{n}")).collect();
        for name in &names {
            let mut pod = pod(name);
            pod["status"]["phase"] = json!("Running");
            rig.api.put(pod);
        }
        let say = |name: &str, told| rig.say(&format!("{name}-uid"), told);
        for name in &names {
            say(name, with_message("Running", "cosmetics"));
        }
        say("web20", with_ready(status("Running"), "True"));
        say("web30", status("Failed"));
        rig.watch();
        let heard = rig.settle().await;
        assert_eq!(heard.len(), 30);
        assert_eq!(rig.api.most_at_once(), 8);
        let mut first = heard[..2].to_vec();
        first.sort();
        assert_eq!(first, ["PATCH web20", "PATCH web30"]);
    });
}

/// Upstream's TestStaticPod.
#[test]
fn a_static_pod_is_told_of_by_its_mirror() {
    run_paused(|| async {
        let rig = Rig::start();
        rig.watch();
        rig.say("hash", status("Running"));
        assert!(rig.settle().await.is_empty(), "there is no mirror yet");
        rig.api.put(mirror("web", "hash"));
        rig.watch();
        assert_eq!(rig.settle().await, ["PATCH web"]);
        assert_eq!(rig.api.last_body()["metadata"]["uid"], "web-uid");

        let mut another = mirror("web", "hash");
        another["metadata"]["uid"] = json!("another");
        rig.api.put(another);
        rig.watch();
        assert_eq!(rig.settle().await, ["PATCH web"]);
        assert_eq!(rig.api.last_body()["metadata"]["uid"], "another");
    });
}

/// Upstream's TestReconcilePodStatus.
#[test]
fn what_somebody_else_writes_is_corrected_but_not_in_a_storm() {
    run_paused(|| async {
        let rig = Rig::start();
        rig.api.put(pod("web"));
        rig.watch();
        rig.say("web-uid", status("Running"));
        rig.settle().await;
        rig.watch();
        pass(Duration::from_secs(60)).await;
        let spoil = || {
            rig.api
                .change("web", |pod| pod["status"]["phase"] = json!("Pending"));
            rig.watch();
        };
        spoil();
        assert_eq!(rig.settle().await, ["PATCH web"]);
        spoil();
        assert!(rig.settle().await.is_empty());
        pass(Duration::from_secs(10)).await;
        assert_eq!(rig.api.heard(), ["PATCH web"]);
        assert_eq!(rig.api.phase("web"), "Running");

        let feature = json!([{ "type": "example.com/feature", "status": "True" }]);
        rig.api
            .change("web", |pod| pod["status"]["conditions"] = feature);
        rig.watch();
        pass(Duration::from_secs(60)).await;
        assert!(rig.api.heard().is_empty(), "that is theirs");
    });
}

/// Upstream's TestSyncPodChecksMismatchedUID.
#[test]
fn another_pod_of_the_same_name_is_left_alone() {
    run_paused(|| async {
        let rig = Rig::start();
        rig.api.put(pod("web"));
        rig.watch();
        rig.api
            .change("web", |pod| pod["metadata"]["uid"] = json!("another"));
        rig.say("web-uid", status("Running"));
        assert_eq!(rig.settle().await, ["PATCH web", "GET web"]);
        assert_eq!(rig.api.phase("web"), "Pending");
        pass(HOUR).await;
        assert!(rig.api.heard().is_empty());
    });
}

/// Upstream's TestSyncPodIgnoresNotFound.
#[test]
fn a_pod_that_is_gone_is_not_asked_for_again() {
    run_paused(|| async {
        let rig = Rig::start();
        rig.api.put(pod("web"));
        rig.watch();
        rig.api.remove("web");
        rig.say("web-uid", status("Running"));
        assert_eq!(rig.settle().await, ["PATCH web"]);
        pass(HOUR).await;
        assert!(rig.api.heard().is_empty());
        rig.watch();
        assert_eq!(rig.kept().await, ["web-uid"], "its worker is still there");
        rig.forget("web-uid");
        assert!(rig.kept().await.is_empty());
    });
}

#[test]
fn after_a_conflict_the_pod_is_looked_up_and_told_again() {
    run_paused(|| async {
        let rig = Rig::start();
        rig.api.put(pod("web"));
        rig.watch();
        rig.api.fail(RequestFault::Status(409));
        rig.say("web-uid", status("Running"));
        assert_eq!(rig.settle().await, ["PATCH web", "GET web", "PATCH web"]);
        assert_eq!(rig.api.phase("web"), "Running");
    });
}

#[test]
fn an_hour_without_the_api_loses_nothing_and_asks_seldom() {
    an_hour_without_the_api(|api| api.go_away(true));
}

#[test]
fn an_hour_behind_a_proxy_that_cannot_reach_the_api_is_like_one_without_it() {
    an_hour_without_the_api(|api| api.go_away_behind_proxy(503));
}

fn an_hour_without_the_api(go_away: fn(&FakeStatusApi)) {
    run_paused(move || async move {
        let rig = Rig::start();
        let names: Vec<String> = (10..60).map(|n| format!("web{n}")).collect();
        names.iter().for_each(|name| rig.api.put(pod(name)));
        rig.watch();
        go_away(&rig.api);
        for name in &names {
            rig.say(&format!("{name}-uid"), status("Running"));
        }
        pass(HOUR / 2).await;
        rig.say("web10-uid", with_message("Running", "newer"));
        pass(HOUR / 2).await;
        let asked = rig.api.heard().len();
        assert!(asked < 8 * 400, "{asked}");
        rig.api.go_away(false);
        pass(Duration::from_secs(11)).await;
        assert!(names.iter().all(|name| rig.api.phase(name) == "Running"));
        assert_eq!(rig.api.pod("web10")["status"]["message"], "newer");
        assert_eq!(rig.api.most_at_once(), 8);
    });
}

#[test]
fn when_the_watch_is_back_nobody_waits_any_longer() {
    run_paused(|| async {
        let rig = Rig::start();
        rig.api.put(pod("web"));
        rig.watch();
        rig.api.go_away(true);
        rig.say("web-uid", status("Running"));
        pass(HOUR).await;
        rig.api.go_away(false);
        rig.api.heard();
        rig.watch();
        pass(ROUND_TRIP * 2).await;
        assert_eq!(rig.api.phase("web"), "Running");
    });
}

#[test]
fn a_refused_status_is_tried_ever_more_seldom_until_there_is_a_newer_one() {
    run_paused(|| async {
        let rig = Rig::start();
        rig.api.put(pod("web"));
        rig.watch();
        (0..3).for_each(|_| rig.api.fail(RequestFault::Status(403)));
        rig.say("web-uid", status("Running"));
        assert_eq!(rig.settle().await.len(), 1);
        pass(Duration::from_secs(11)).await;
        assert_eq!(rig.api.heard().len(), 1);
        pass(Duration::from_secs(11)).await;
        assert!(rig.api.heard().is_empty());
        pass(Duration::from_secs(10)).await;
        assert_eq!(rig.api.heard().len(), 1);
        rig.say("web-uid", status("Failed"));
        assert_eq!(rig.settle().await.len(), 1);
        assert_eq!(rig.api.phase("web"), "Failed");
    });
}

#[test]
fn one_bad_pod_does_not_hold_up_the_others() {
    run_paused(|| async {
        let rig = Rig::start();
        rig.api.put(pod("bad"));
        rig.api.put(pod("web"));
        rig.watch();
        rig.api.fail(RequestFault::Status(500));
        rig.say("bad-uid", status("Running"));
        pass(ROUND_TRIP * 2).await;
        rig.say("web-uid", status("Running"));
        pass(Duration::from_millis(300)).await;
        assert_eq!(rig.api.heard(), ["PATCH bad", "PATCH web"]);
        pass(Duration::from_secs(10)).await;
        assert_eq!(rig.api.heard(), ["PATCH bad"]);
    });
}

/// Upstream's `syncBatch` goes on with the next pod, whatever became of this one.
#[test]
fn pods_whose_statuses_fail_for_ever_hold_up_no_other() {
    run_paused(|| async {
        let rig = Rig::start();
        let bad: Vec<String> = (0..9).map(|number| format!("bad-{number}")).collect();
        for name in bad.iter().map(String::as_str).chain(["web"]) {
            rig.api.put(pod(name));
        }
        for name in &bad {
            rig.api.break_pod(name, 500);
        }
        rig.watch();
        for name in &bad {
            rig.say(&format!("{name}-uid"), status("Running"));
        }
        pass(Duration::from_secs(60)).await;
        rig.api.heard();
        for phase in ["Pending", "Running", "Failed"] {
            rig.say("web-uid", status(phase));
            pass(Duration::from_millis(300)).await;
            assert_eq!(rig.api.phase("web"), phase);
            pass(Duration::from_secs(7)).await;
        }
        let asked = rig.api.heard();
        let of_bad = asked.iter().filter(|line| line.contains("bad")).count();
        assert!(of_bad >= 9, "they are tried again: {asked:?}");
        assert!(of_bad <= 9 * 4, "and not all the time: {asked:?}");
    });
}

#[test]
fn a_busy_server_is_given_the_time_that_it_asks_for() {
    run_paused(|| async {
        let rig = Rig::start();
        rig.api.put(pod("web"));
        rig.watch();
        rig.api.fail(RequestFault::Busy(7));
        rig.say("web-uid", status("Running"));
        pass(Duration::from_secs(6)).await;
        assert_eq!(rig.api.heard().len(), 1);
        rig.watch();
        pass(Duration::from_secs(2)).await;
        assert_eq!(rig.api.heard().len(), 1);
        assert_eq!(rig.api.phase("web"), "Running");
    });
}

/// Upstream's TestMergePodStatus rows on running containers, and its PodCouldHaveRunningContainers.
#[test]
fn a_pod_ends_in_the_api_when_nothing_of_it_runs() {
    run_paused(|| async {
        let rig = Rig::start();
        rig.api.put(pod("web"));
        rig.watch();
        let running = json!({ "running": {} });
        rig.say(
            "web-uid",
            with_container(status("Running"), running.clone()),
        );
        rig.say(
            "web-uid",
            with_container(with_message("Failed", "evicted"), running),
        );
        rig.settle().await;
        assert_eq!(rig.api.phase("web"), "Running");
        let ended = json!({ "terminated": { "exitCode": 137 } });
        rig.say(
            "web-uid",
            with_container(with_message("Failed", "evicted"), ended),
        );
        assert_eq!(rig.settle().await, ["PATCH web"]);
        assert_eq!(rig.api.phase("web"), "Failed");
    });
}

/// Upstream's TestDeletePodBeforeFinished, TestDeletePodFinished and TestCanBeDeleted.
#[test]
fn the_api_forgets_a_deleted_pod_when_nothing_of_it_is_left_here() {
    run_paused(|| async {
        let rig = Rig::start();
        rig.api.put(deleted(pod("web")));
        rig.watch();
        rig.say("web-uid", status("Running"));
        rig.say("web-uid", status("Succeeded"));
        let heard = rig.settle().await;
        assert!(
            heard.iter().all(|request| request == "PATCH web"),
            "{heard:?}"
        );
        rig.forget("web-uid");
        assert_eq!(rig.settle().await, ["DELETE web"]);
        let expected = json!({ "gracePeriodSeconds": 0, "preconditions": { "uid": "web-uid" } });
        let body = rig.api.last_body();
        assert_eq!(body["gracePeriodSeconds"], expected["gracePeriodSeconds"]);
        assert_eq!(body["preconditions"], expected["preconditions"]);
        // The watch is late, or something else keeps the object.
        rig.forget("web-uid");
        pass(HOUR).await;
        assert!(rig.api.heard().is_empty());
        rig.watch();
        assert!(rig.kept().await.is_empty());
    });
}

#[test]
fn the_last_status_and_the_deletion_go_together() {
    run_paused(|| async {
        let rig = Rig::start();
        rig.api.put(deleted(pod("web")));
        rig.watch();
        rig.say("web-uid", status("Failed"));
        rig.forget("web-uid");
        assert_eq!(rig.settle().await, ["PATCH web", "DELETE web"]);
    });
}

#[test]
fn the_ended_containers_of_a_pod_that_goes_are_told_with_its_last_status_or_after_two_seconds() {
    run_paused(|| async {
        let ended = |phase: &str| {
            let told = with_ready(status(phase), "False");
            with_container(told, json!({ "terminated": { "exitCode": 137 } }))
        };
        let rig = Rig::start();
        rig.api.put(deleted(pod("web")));
        rig.watch();
        rig.say("web-uid", ended("Running"));
        pass(Duration::from_millis(1_900)).await;
        assert!(rig.api.heard().is_empty());
        rig.say("web-uid", ended("Failed"));
        rig.forget("web-uid");
        assert_eq!(rig.settle().await, ["PATCH web", "DELETE web"]);

        rig.api.put(deleted(pod("stuck")));
        rig.watch();
        rig.say("stuck-uid", ended("Running"));
        pass(Duration::from_millis(2_100)).await;
        assert_eq!(rig.api.heard(), ["PATCH stuck"]);
    });
}

#[test]
fn a_pod_that_ended_before_its_deletion_was_asked_for_goes_when_it_is() {
    run_paused(|| async {
        let rig = Rig::start();
        rig.api.put(pod("web"));
        rig.watch();
        rig.say("web-uid", status("Succeeded"));
        rig.forget("web-uid");
        assert_eq!(rig.settle().await, ["PATCH web"]);
        assert_eq!(rig.kept().await, ["web-uid"], "it stays for its status");
        rig.api.change("web", |pod| *pod = deleted(pod.clone()));
        rig.watch();
        assert_eq!(rig.settle().await, ["DELETE web"]);
    });
}

#[test]
fn a_deletion_is_tried_until_it_is_done() {
    run_paused(|| async {
        let rig = Rig::start();
        rig.api.put(deleted(pod("web")));
        rig.api
            .change("web", |pod| pod["status"]["phase"] = json!("Failed"));
        rig.watch();
        rig.api.fail(RequestFault::Away);
        rig.api.fail(RequestFault::Status(500));
        rig.forget("web-uid");
        pass(Duration::from_secs(30)).await;
        assert_eq!(rig.api.heard(), ["DELETE web", "DELETE web", "DELETE web"]);
        assert!(rig.api.pod("web").is_null());
    });
}

#[test]
fn a_deleted_pod_that_nobody_worked_on_since_the_restart_ends_and_goes() {
    run_paused(|| async {
        let rig = Rig::start();
        let mut lost = deleted(pod("web"));
        lost["status"]["phase"] = json!("Running");
        rig.api.put(lost);
        rig.forget("web-uid");
        assert!(
            rig.settle().await.is_empty(),
            "the API has not told of it yet"
        );
        rig.watch();
        assert_eq!(rig.settle().await, ["PATCH web", "DELETE web"]);
    });
}

/// Upstream's TestDoNotDeleteMirrorPods.
#[test]
fn a_mirror_is_not_deleted_here() {
    run_paused(|| async {
        let rig = Rig::start();
        rig.api.put(deleted(mirror("web", "hash")));
        rig.watch();
        rig.say("hash", status("Failed"));
        assert_eq!(rig.settle().await, ["PATCH web"]);
        rig.forget("hash");
        assert!(rig.settle().await.is_empty());
        assert!(rig.kept().await.is_empty());
    });
}

#[test]
fn a_successor_asks_for_everything_again() {
    run_paused(|| async {
        let mut rig = Rig::start();
        rig.settle().await;
        assert_eq!(
            rig.asked.drain(),
            [ResyncAsked::Statuses, ResyncAsked::Pods]
        );
        rig.restart();
        pass(Duration::from_secs(1)).await;
        assert_eq!(
            rig.asked.drain(),
            [ResyncAsked::Statuses, ResyncAsked::Pods]
        );
    });
}

#[test]
fn a_watch_begins_with_every_status_and_hears_what_changes_after_it() {
    run_paused(|| async {
        let rig = Rig::start();
        rig.say("web-uid", status("Pending"));
        let mut watch = rig.changes().await;
        assert_eq!(watch.statuses.keys().count(), 1);
        rig.say("web-uid", status("Pending"));
        rig.say("web-uid", status("Running"));
        rig.forget("web-uid");
        pass(ROUND_TRIP).await;
        let phase = |change| match change {
            Ok(StatusChange::Changed { status, .. }) => status.phase.clone(),
            Ok(StatusChange::Removed { .. }) | Err(_) => None,
        };
        // An equal status is no change.
        assert_eq!(phase(watch.changes.try_recv()).as_deref(), Some("Running"));
        let removed = watch.changes.try_recv();
        assert!(matches!(removed, Ok(StatusChange::Removed { uid }) if uid.as_str() == "web-uid"));
        assert!(watch.changes.try_recv().is_err());
    });
}

#[test]
fn a_watcher_that_lags_is_told_and_the_next_one_begins_anew() {
    run_paused(|| async {
        let rig = Rig::start();
        let mut slow = rig.changes().await;
        for change in 0..2000 {
            rig.say("web-uid", with_message("Running", &change.to_string()));
            if change % 500 == 0 {
                pass(ROUND_TRIP).await;
            }
        }
        pass(ROUND_TRIP).await;
        assert!(matches!(
            slow.changes.try_recv(),
            Err(TryRecvError::Lagged(_))
        ));
        drop(slow);
        rig.say("web-uid", status("Succeeded"));
        let mut next = rig.changes().await;
        let kept = next.statuses.values().next().unwrap();
        assert_eq!(kept.phase.as_deref(), Some("Succeeded"));
        assert!(matches!(next.changes.try_recv(), Err(TryRecvError::Empty)));
    });
}
