//! Trust anchors from ClusterTrustBundles: each once, in one order, without anything else that PEM may hold.
//!
//! Mirrors upstream's pkg/kubelet/clustertrustbundle, but for its order, which is another at each start.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::certificates::v1beta1::ClusterTrustBundle;
use k8s_openapi::api::core::v1::ClusterTrustBundleProjection;
use logic_api::objects::pem;

use super::permissions::FilePermissions;
use super::problem::FilesProblem;
use super::selector::{self, MAX_SELECTOR_BYTES};
use super::{FilesBuilder, FilesContext};

pub(super) fn collect(
    builder: &mut FilesBuilder<'_>,
    source: &ClusterTrustBundleProjection,
    rights: FilePermissions,
) {
    builder.uses(
        "ClusterTrustBundle",
        "",
        source.name.as_deref().unwrap_or_default(),
    );
    match anchors(source, builder.context) {
        Ok(text) => builder.put(&source.path, rights.file(text.into_bytes())),
        Err(problem) => builder.problems.push(problem),
    }
}

fn anchors(
    source: &ClusterTrustBundleProjection,
    context: &FilesContext<'_>,
) -> Result<String, FilesProblem> {
    let bundles = match (&source.name, &source.signer_name) {
        (Some(name), _) => named(name, context),
        (None, Some(signer)) => selected(source, signer, context)?,
        (None, None) => return Err(FilesProblem::BundleUnnamed),
    };
    let unknown = context.objects.refused("ClusterTrustBundle", "", "");
    match (bundles.as_slice(), unknown) {
        ([], Some(why)) => Err(FilesProblem::Bundles(why)),
        _ => found(source, &bundles, context),
    }
}

fn found(
    source: &ClusterTrustBundleProjection,
    bundles: &[Arc<ClusterTrustBundle>],
    context: &FilesContext<'_>,
) -> Result<String, FilesProblem> {
    match bundles {
        [] if source.optional == Some(true) => Ok(String::new()),
        [] => Err(missing(source, context)),
        bundles => Ok(normalised(bundles)),
    }
}

fn named(name: &str, context: &FilesContext<'_>) -> Vec<Arc<ClusterTrustBundle>> {
    let mut bundles = context.objects.trust_bundles();
    bundles.retain(|bundle| bundle.metadata.name.as_deref() == Some(name));
    bundles
}

fn missing(source: &ClusterTrustBundleProjection, context: &FilesContext<'_>) -> FilesProblem {
    match &source.name {
        Some(name) => FilesProblem::Bundle {
            name: name.clone(),
            refused: context.objects.refused("ClusterTrustBundle", "", name),
        },
        None => FilesProblem::NoBundle,
    }
}

fn selected(
    source: &ClusterTrustBundleProjection,
    signer: &str,
    context: &FilesContext<'_>,
) -> Result<Vec<Arc<ClusterTrustBundle>>, FilesProblem> {
    let Some(selector) = &source.label_selector else {
        // No selector selects nothing, an empty one everything.
        return Ok(Vec::new());
    };
    selector::check(selector)?;
    let bytes = selector::length(selector);
    if bytes > MAX_SELECTOR_BYTES {
        return Err(FilesProblem::SelectorSize(bytes));
    }
    let mut bundles = context.objects.trust_bundles();
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
