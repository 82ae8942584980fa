//! Sizes of claims, volumes and nodes.

use logic_api::testing::*;

use super::*;
use crate::resolve::tests::{CLAIMING, ResolveRig, bound, mounting};

const MIB: u64 = 1 << 20;

/// A claim of 1Gi whose volume is of this size, with this in its status.
fn node(volume: &str, status: &str) -> ResolveRig {
    let manifests = bound("csi: {driver: csi.example.com, volumeHandle: v}\n")
        .replace(
            "  capacity: {storage: 1Gi}\n  claim",
            &format!("  capacity: {{storage: {volume}}}\n  claim"),
        )
        .replace(
            "capacity: {storage: 1Gi}}",
            &format!("capacity: {{storage: 1Gi}}, {status}}}"),
        );
    ResolveRig::of(&manifests).driver("csi.example.com", &["EXPAND_VOLUME"])
}

fn asked(node: &ResolveRig, claiming: &str, grown: Option<u64>) -> Option<Expansion> {
    let pod = mounting(claiming);
    let volume = &pod.spec.as_ref().unwrap().volumes.as_ref().unwrap()[0];
    expansion(&pod, volume, &node.context(), grown)
}

fn size(found: Option<Expansion>) -> Option<(u64, ClaimStatusUpdate)> {
    match found? {
        Expansion::Resize(grow) => Some((grow.size / MIB, grow.claim)),
        Expansion::ReadOnly => None,
    }
}

/// Upstream's TestNodeExpander, TestCheckVolumeFSResize and TestOperationGenerator_nodeExpandVolume.
#[test]
fn a_volume_grows_when_its_claim_lags_and_it_is_the_nodes_turn() {
    use ClaimStatusUpdate::{Needed, SizeOnly, UpToDate};
    type Case = (
        &'static str,
        &'static str,
        Option<u64>,
        Option<(u64, ClaimStatusUpdate)>,
    );
    let cases: [Case; 11] = [
        ("1Gi", "", None, None),
        ("2Gi", "", None, Some((2048, SizeOnly))),
        ("2Gi", "", Some(2 << 30), None),
        ("512Mi", "", None, None),
        // Another node has updated the claim; this one has not expanded it.
        ("1Gi", "", Some(1 << 29), Some((1024, UpToDate))),
        (
            "2Gi",
            "allocatedResources: {storage: 2Gi}, allocatedResourceStatuses: {storage: NodeResizePending}",
            None,
            Some((2048, Needed)),
        ),
        (
            "2Gi",
            "allocatedResources: {storage: 3Gi}, allocatedResourceStatuses: {storage: NodeResizeInProgress}",
            None,
            Some((3072, Needed)),
        ),
        (
            "2Gi",
            "allocatedResources: {storage: 2Gi}, allocatedResourceStatuses: {storage: ControllerResizeInProgress}",
            None,
            None,
        ),
        (
            "2Gi",
            "allocatedResources: {storage: 2Gi}, allocatedResourceStatuses: {storage: NodeResizeInfeasible}",
            None,
            None,
        ),
        ("2Gi", "allocatedResources: {storage: 1Gi}", None, None),
        ("2Gi", "allocatedResources: {storage: 2Gi}", None, None),
    ];
    for (volume, status, grown, expected) in cases {
        let found = size(asked(&node(volume, status), CLAIMING, grown));
        assert_eq!(found, expected, "{volume} {status} {grown:?}");
    }
}

/// Upstream's TestNodeExpander, "RWX volume already expanded".
#[test]
fn a_shared_volume_grows_on_each_node_and_the_claim_is_told_once() {
    let mut node = node("1Gi", "allocatedResources: {storage: 1Gi}");
    let grown = Some(512 * MIB);
    assert_eq!(asked(&node, CLAIMING, grown), None);
    let claim = node.objects.claims.values_mut().next().unwrap();
    let spec = std::sync::Arc::make_mut(claim).spec.as_mut().unwrap();
    spec.access_modes = Some(vec!["ReadWriteMany".into()]);
    assert_eq!(
        size(asked(&node, CLAIMING, grown)),
        Some((1024, ClaimStatusUpdate::UpToDate))
    );
    let claim = node.objects.claims.values_mut().next().unwrap();
    let metadata = &mut std::sync::Arc::make_mut(claim).metadata;
    metadata.annotations = Some([(NOT_REQUIRED.to_owned(), "true".to_owned())].into());
    assert_eq!(asked(&node, CLAIMING, grown), None);
}

/// Upstream's TestNodeExpander, and `markExpansionInfeasibleOnFailure` of node_expander.go.
#[test]
fn a_size_that_fails_is_given_up_when_its_claim_was_changed_meanwhile() {
    use ClaimRequest::{Changed, Same};
    use ClaimStatusUpdate::{Needed, SizeOnly, UpToDate};
    use EarlierFailure::{No, Yes};
    let why = || "no".to_owned();
    let (failed, refused) = (ResizeEnd::Failed(why()), ResizeEnd::Refused(why()));
    let shown = ResizeOutcome::Failed(why());
    let given_up = ResizeOutcome::Infeasible(why());
    let cases = [
        (&failed, Needed, Same, Yes, Some(&shown)),
        (&failed, Needed, Changed, No, Some(&shown)),
        (&failed, Needed, Changed, Yes, Some(&given_up)),
        (&refused, Needed, Same, No, Some(&given_up)),
        (
            &ResizeEnd::Grown,
            Needed,
            Changed,
            Yes,
            Some(&ResizeOutcome::Grown),
        ),
        (
            &ResizeEnd::Grown,
            SizeOnly,
            Same,
            No,
            Some(&ResizeOutcome::Grown),
        ),
        (&failed, SizeOnly, Changed, Yes, None),
        (&refused, SizeOnly, Same, No, None),
        (&ResizeEnd::Grown, UpToDate, Same, No, None),
        (&failed, UpToDate, Changed, Yes, None),
    ];
    for (end, claim, request, earlier, expected) in cases {
        let grow = NodeResize {
            size: 2 << 30,
            quantity: "2Gi".into(),
            claim,
            request,
        };
        let outcome = grow.ended(end.clone(), earlier);
        assert_eq!(
            outcome.as_ref(),
            expected,
            "{end:?} {claim:?} {request:?} {earlier:?}"
        );
        assert_eq!(grow.begun().is_some(), claim == Needed);
    }
}

#[test]
fn a_claim_that_asks_for_another_size_than_is_allocated_was_changed() {
    let pending = "allocatedResources: {storage: 2Gi}, allocatedResourceStatuses: {storage: NodeResizeInProgress}";
    for (asks, expected) in [
        (None, ClaimRequest::Same),
        (Some("2Gi"), ClaimRequest::Same),
        (Some("2048Mi"), ClaimRequest::Same),
        (Some("1536Mi"), ClaimRequest::Changed),
        (Some("3Gi"), ClaimRequest::Changed),
    ] {
        let mut node = node("2Gi", pending);
        let claim = node.objects.claims.values_mut().next().unwrap();
        let spec = std::sync::Arc::make_mut(claim).spec.as_mut().unwrap();
        let requests = asks.map(|asks| [(STORAGE.to_owned(), Quantity(asks.to_owned()))].into());
        spec.resources = Some(core::VolumeResourceRequirements {
            requests,
            limits: None,
        });
        let Some(Expansion::Resize(grow)) = asked(&node, CLAIMING, None) else {
            panic!("{asks:?}");
        };
        assert_eq!(grow.request, expected, "{asks:?}");
    }
}

#[test]
fn what_cannot_grow_here_is_left_and_a_reader_is_told() {
    let mut plain = node("2Gi", "");
    plain
        .backends
        .get_mut("csi.example.com")
        .unwrap()
        .abilities
        .clear();
    assert_eq!(asked(&plain, CLAIMING, None), None);
    let able = node("2Gi", "");
    let reading = "persistentVolumeClaim: {claimName: claim, readOnly: true}";
    assert_eq!(asked(&able, reading, None), Some(Expansion::ReadOnly));
    assert_eq!(asked(&able, "emptyDir: {}", None), None);
    assert_eq!(asked(&ResolveRig::of(""), CLAIMING, None), None);
    let silent =
        ResolveRig::of(&bound("local: {path: /mnt}").replace(", capacity: {storage: 1Gi}}", "}"));
    assert_eq!(asked(&silent, CLAIMING, None), None);
}

/// Upstream's TestMergeResizeCondition, TestResizeFunctions and TestCreatePVCPatch.
#[test]
fn the_claim_follows_each_step() {
    let grow = NodeResize {
        size: 2 << 30,
        quantity: "2Gi".into(),
        claim: ClaimStatusUpdate::Needed,
        request: ClaimRequest::Same,
    };
    let before: PersistentVolumeClaimStatus = serde_saphyr::from_str(
        "{capacity: {storage: 1Gi}, allocatedResourceStatuses: {storage: NodeResizePending, other: x}, conditions: [{type: FileSystemResizePending, status: 'True'}, {type: Other, status: 'True'}]}",
    )
    .unwrap();
    let after = |outcome| status_after(&before, &grow, &outcome, at(5));
    let words = |status: &PersistentVolumeClaimStatus| -> Vec<String> {
        let words = status.allocated_resource_statuses.iter().flatten();
        let words = words.map(|(key, word)| format!("{key}={word}"));
        let conditions = status.conditions.iter().flatten();
        let conditions =
            conditions.map(|c| format!("{} {}", c.type_, c.message.clone().unwrap_or_default()));
        words.chain(conditions).collect()
    };
    assert_eq!(
        words(&after(ResizeOutcome::Begun)),
        [
            "other=x",
            "storage=NodeResizeInProgress",
            "FileSystemResizePending ",
            "Other "
        ]
    );
    let grown = after(ResizeOutcome::Grown);
    assert_eq!(words(&grown), ["other=x", "Other "]);
    assert_eq!(grown.capacity.unwrap()["storage"].0, "2Gi");
    assert_eq!(
        words(&after(ResizeOutcome::Failed("no".into()))),
        [
            "other=x",
            "storage=NodeResizePending",
            "FileSystemResizePending ",
            "Other ",
            "NodeResizeError failed to expand pvc with no"
        ]
    );
    let lost = after(ResizeOutcome::Infeasible("never".into()));
    assert_eq!(words(&lost)[1], "storage=NodeResizeInfeasible");
    let again = status_after(&lost, &grow, &ResizeOutcome::Failed("later".into()), at(9));
    assert_eq!(
        words(&again)[4],
        "NodeResizeError failed to expand pvc with never"
    );
    let empty = PersistentVolumeClaimStatus::default();
    let done = status_after(&empty, &grow, &ResizeOutcome::Grown, at(0));
    assert_eq!(done.allocated_resource_statuses, None);
}
