//! Volumes in memory, which are measured together.

use super::*;

const FULL: Duration = Duration::from_secs(60);
const NAME: &str = "projected: {sources: [{downwardAPI: {items: [{path: n, fieldRef: {fieldPath: metadata.name}}]}}]}";

/// A node that has a pod with three volumes in memory and one on the disk.
async fn rig() -> Rig {
    let rig = Rig::with("", Some(FULL), |_| {}).await;
    let volumes = [EMPTY_DIR, ("p", NAME), ("q", NAME), ("r", NAME)];
    rig.mounted(&pod_with("a", &volumes)).await;
    rig
}

/// The measurements so far: `batch-stats 3`, `stats kubernetes.io/projected/a-p`, in order; not those of the disk.
fn measured(rig: &Rig) -> Vec<String> {
    let mut calls = rig.plugins.calls();
    calls.retain(|call| call.contains("stats ") && !call.contains("empty-dir"));
    calls
}

fn id(name: &str) -> String {
    format!("kubernetes.io/projected/a-{name}")
}

#[test]
fn volumes_in_memory_are_measured_together_once_a_period() {
    run_paused(|| async {
        let rig = rig().await;
        pass(30 * SECOND).await;
        assert_eq!(measured(&rig), ["batch-stats 3"]);
        let stats = rig.manager.ask(SECOND, Msg::stats).await.unwrap();
        let of_pod = &stats[&PodUid::from("a")];
        assert_eq!(of_pod.keys().collect::<Vec<_>>(), ["e", "p", "q", "r"]);
        assert_eq!(of_pod["q"].used, Some(1 << 20));
        // One that comes between two batches is measured at once, and then with the others.
        rig.mounted(&pod_with("b", &[("p", NAME)])).await;
        pass(10 * FULL).await;
        let calls = measured(&rig);
        assert_eq!(
            calls[..3],
            ["batch-stats 3", "batch-stats 1", "batch-stats 4"]
        );
        assert!(
            calls[2..].iter().all(|call| call == "batch-stats 4"),
            "{calls:?}"
        );
        assert!((10..=12).contains(&calls.len()), "{calls:?}");
    });
}

#[test]
fn what_a_batch_does_not_measure_is_measured_by_itself_from_then_on() {
    run_paused(|| async {
        let rig = rig().await;
        let refused = || StorageFault::Refused(Status::internal("no"));
        rig.plugins.fault("batch-stats", &id("q"), refused());
        pass(3 * FULL).await;
        let calls = measured(&rig);
        assert_eq!(
            calls[..2],
            ["batch-stats 3".to_owned(), format!("stats {}", id("q"))]
        );
        assert!(
            calls[2..].contains(&"batch-stats 2".to_owned()),
            "{calls:?}"
        );
        assert!(
            !calls[1..].contains(&"batch-stats 3".to_owned()),
            "{calls:?}"
        );
        let stats = rig.manager.ask(SECOND, Msg::stats).await.unwrap();
        assert_eq!(stats[&PodUid::from("a")].len(), 4);
    });
}

/// Which volume it was is not known: the one that is measured no more keeps the others no longer.
#[test]
fn of_a_batch_that_got_stuck_each_is_measured_by_itself_before_the_next() {
    run_paused(|| async {
        let rig = rig().await;
        rig.plugins.fault("batch-stats", "3", StorageFault::Stuck);
        let refused = StorageFault::Refused(Status::internal("no"));
        rig.plugins.fault("stats", &id("q"), refused);
        pass(FULL).await;
        let calls = measured(&rig);
        let alone = ["p", "q", "r"].map(|name| format!("stats {}", id(name)));
        assert_eq!(calls[0], "batch-stats 3");
        assert!(alone.iter().all(|call| calls.contains(call)), "{calls:?}");
        pass(2 * FULL).await;
        assert!(measured(&rig).contains(&"batch-stats 2".to_owned()));
    });
}

/// A plugin of somebody else's may leave batches out.
#[test]
fn a_plugin_that_measures_no_batches_is_asked_for_one_once() {
    run_paused(|| async {
        let rig = rig().await;
        let refused = StorageFault::Refused(Status::unimplemented("one by one"));
        rig.plugins.fault("batch-stats", "3", refused);
        pass(5 * FULL).await;
        let calls = measured(&rig);
        assert_eq!(calls[0], "batch-stats 3");
        assert!(
            calls[1..].iter().all(|call| call.starts_with("stats ")),
            "{calls:?}"
        );
        for name in ["p", "q", "r"] {
            let alone = format!("stats {}", id(name));
            let times = calls.iter().filter(|call| **call == alone).count();
            assert!((2..=6).contains(&times), "{calls:?}");
        }
    });
}
