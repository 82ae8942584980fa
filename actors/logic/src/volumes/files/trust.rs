//! Trust anchors from ClusterTrustBundles: each once, in one order, without anything else that PEM may hold.
//!
//! Mirrors upstream's pkg/kubelet/clustertrustbundle, but for its order, which is another at each start.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::certificates::v1beta1::ClusterTrustBundle;
use k8s_openapi::api::core::v1::ClusterTrustBundleProjection;

use super::problem::Problem;
use super::projected::Rights;
use super::selector::{self, MAX_SELECTOR_BYTES};
use super::{Draft, Ground};
use crate::objects::pem;

pub(super) fn collect(
    draft: &mut Draft<'_>,
    source: &ClusterTrustBundleProjection,
    rights: Rights,
) {
    draft.uses(
        "ClusterTrustBundle",
        "",
        source.name.as_deref().unwrap_or_default(),
    );
    match anchors(source, draft.ground) {
        Ok(text) => draft.put(&source.path, rights.file(text.into_bytes())),
        Err(problem) => draft.problems.push(problem),
    }
}

fn anchors(source: &ClusterTrustBundleProjection, ground: &Ground<'_>) -> Result<String, Problem> {
    let bundles = match (&source.name, &source.signer_name) {
        (Some(name), _) => named(name, ground),
        (None, Some(signer)) => selected(source, signer, ground)?,
        (None, None) => return Err(Problem::BundleUnnamed),
    };
    let unknown = ground.objects.refused("ClusterTrustBundle", "", "");
    match (bundles.as_slice(), unknown) {
        ([], Some(why)) => Err(Problem::Bundles(why)),
        _ => found(source, &bundles, ground),
    }
}

fn found(
    source: &ClusterTrustBundleProjection,
    bundles: &[Arc<ClusterTrustBundle>],
    ground: &Ground<'_>,
) -> Result<String, Problem> {
    match bundles {
        [] if source.optional == Some(true) => Ok(String::new()),
        [] => Err(missing(source, ground)),
        bundles => Ok(normalised(bundles)),
    }
}

fn named(name: &str, ground: &Ground<'_>) -> Vec<Arc<ClusterTrustBundle>> {
    let mut bundles = ground.objects.trust_bundles();
    bundles.retain(|bundle| bundle.metadata.name.as_deref() == Some(name));
    bundles
}

fn missing(source: &ClusterTrustBundleProjection, ground: &Ground<'_>) -> Problem {
    match &source.name {
        Some(name) => Problem::Bundle {
            name: name.clone(),
            refused: ground.objects.refused("ClusterTrustBundle", "", name),
        },
        None => Problem::NoBundle,
    }
}

fn selected(
    source: &ClusterTrustBundleProjection,
    signer: &str,
    ground: &Ground<'_>,
) -> Result<Vec<Arc<ClusterTrustBundle>>, Problem> {
    let Some(selector) = &source.label_selector else {
        // No selector selects nothing, an empty one everything.
        return Ok(Vec::new());
    };
    selector::check(selector)?;
    let bytes = selector::length(selector);
    if bytes > MAX_SELECTOR_BYTES {
        return Err(Problem::SelectorSize(bytes));
    }
    let mut bundles = ground.objects.trust_bundles();
    bundles.retain(|bundle| {
        let labels = bundle.metadata.labels.clone().unwrap_or_default();
        bundle.spec.signer_name.as_deref() == Some(signer) && selector::matches(selector, &labels)
    });
    Ok(bundles)
}

fn normalised(bundles: &[Arc<ClusterTrustBundle>]) -> String {
    let blocks = bundles
        .iter()
        .flat_map(|bundle| pem::blocks(&bundle.spec.trust_bundle));
    let anchors: BTreeSet<Vec<u8>> = blocks.map(|block| block.bytes).collect();
    pem::certificates(anchors.iter().map(Vec::as_slice))
}
