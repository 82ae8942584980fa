//! What claims are told of their volumes' growth.

use logic_volumes::resolve::expansion::ResizeOutcome;

use super::in_use::{CLAIM, ID, objects, within};
use super::*;

/// A volume of 2Gi whose claim of 1Gi the controller leaves to the node, and which asks for this now.
fn growing(asks: &str) -> String {
    let words = "allocatedResources: {storage: 2Gi}, allocatedResourceStatuses: {storage: NodeResizePending}";
    let objects = objects("2Gi", "1Gi", false);
    let objects = objects.replace("{phase: Bound,", &format!("{{phase: Bound, {words},"));
    let asks = format!("{{volumeName: pv, resources: {{requests: {{storage: {asks}}}}},");
    objects.replace("{volumeName: pv,", &asks)
}

/// Upstream's `legacyCallNodeExpandOnPlugin`.
#[test]
fn a_claim_of_an_older_controller_gets_its_size_and_nothing_else() {
    run_paused(|| async {
        let (rig, mut cluster) = within(&objects("2Gi", "1Gi", false)).await;
        rig.plugins.backend("d.example.com");
        pass(MOMENT).await;
        let no = StorageFault::Refused(Status::internal("no"));
        rig.plugins.fault("expand", ID, no);
        let answer = rig.want(&pod_with("a", &[CLAIM]));
        pass(SECOND * 5).await;
        answer.await.unwrap().unwrap().unwrap();
        let grown = ("default/data".to_owned(), ResizeOutcome::Grown);
        assert_eq!(cluster.outcomes(), [grown]);
    });
}

/// Upstream's `markExpansionInfeasibleOnFailure` of node_expander.go.
#[test]
fn a_size_that_fails_again_is_infeasible_when_the_claim_asks_for_another() {
    run_paused(|| async {
        let (rig, mut cluster) = within(&growing("1536Mi")).await;
        rig.plugins.backend("d.example.com");
        pass(MOMENT).await;
        for _ in 0..2 {
            let no = StorageFault::Refused(Status::internal("no"));
            rig.plugins.fault("expand", ID, no);
        }
        let answer = rig.want(&pod_with("a", &[CLAIM]));
        pass(SECOND * 5).await;
        answer.await.unwrap().unwrap().unwrap();
        let outcomes: Vec<ResizeOutcome> = cluster.outcomes().into_iter().map(|(_, o)| o).collect();
        let why = || "no".to_owned();
        assert_eq!(
            outcomes,
            [
                ResizeOutcome::Begun,
                ResizeOutcome::Failed(why()),
                ResizeOutcome::Begun,
                ResizeOutcome::Infeasible(why()),
                ResizeOutcome::Begun,
                ResizeOutcome::Grown
            ]
        );
    });
}

/// Upstream's TestNodeExpander, and `MarkNodeExpansionFailedCondition`.
#[test]
fn a_claim_is_told_each_step_of_its_volumes_growth() {
    run_paused(|| async {
        let (rig, mut cluster) = within(&growing("2Gi")).await;
        rig.plugins.backend("d.example.com");
        pass(MOMENT).await;
        rig.plugins
            .fault("expand", ID, StorageFault::Refused(Status::internal("no")));
        let answer = rig.want(&pod_with("a", &[CLAIM]));
        pass(SECOND * 5).await;
        answer.await.unwrap().unwrap().unwrap();
        let name = || "default/data".to_owned();
        let outcomes = cluster.outcomes();
        assert_eq!(outcomes[0], (name(), ResizeOutcome::Begun));
        assert!(matches!(&outcomes[1], (_, ResizeOutcome::Failed(why)) if why.contains("no")));
        assert_eq!(
            outcomes[2..],
            [
                (name(), ResizeOutcome::Begun),
                (name(), ResizeOutcome::Grown)
            ]
        );
    });
}

/// Upstream's `IsFailedPreconditionError` in node_expander.go: the pod begins, and the claim waits for another time.
#[test]
fn a_claim_whose_volume_is_in_use_is_told_so_and_nothing_is_infeasible() {
    run_paused(|| async {
        let (rig, mut cluster) = within(&growing("2Gi")).await;
        rig.plugins.backend("d.example.com");
        pass(MOMENT).await;
        let busy = StorageFault::Refused(Status::failed_precondition("in use"));
        rig.plugins.fault("expand", ID, busy);
        let answer = rig.want(&pod_with("a", &[CLAIM]));
        pass(SECOND * 600).await;
        answer.await.unwrap().unwrap().unwrap();
        let outcomes = cluster.outcomes();
        assert_eq!(outcomes.len(), 2, "{outcomes:?}");
        assert!(matches!(&outcomes[1], (_, ResizeOutcome::Failed(why)) if why == "in use"));
    });
}
