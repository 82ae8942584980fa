//! The pod's needs besides resources: AppArmor, and features behind a gate.
//!
//! Mirrors upstream's `NewAppArmorAdmitHandler`, pkg/security/apparmor, `NewPodFeaturesAdmitHandler`,
//! `NewDeclaredFeaturesAdmitHandler` and HandlePodUpdates at v1.36.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{AppArmorProfile, Pod};
use logic_api::pod::PodView;
use logic_api::pod::requests;
use logic_api::types::{EventLevel, HistoryEvent, PodFailure};
use logic_node::node_status::{features_of_change, needed_features};
use logic_resources::node::{NodeFacts, Support};

use super::refuse;

/// The annotation that named a profile before there was a field, up to the container's name.
const ANNOTATION: &str = "container.apparmor.security.beta.kubernetes.io/";

pub(super) fn app_armor(pod: &Pod, node: &NodeFacts) -> Result<(), PodFailure> {
    let cannot = |why: &str| refuse("AppArmor", format!("Cannot enforce AppArmor: {why}"));
    if !wants_app_armor(pod) {
        return Ok(());
    }
    if node.app_armor == Support::No {
        return Err(cannot("AppArmor is not enabled on the host"));
    }
    let unnamed = |profile: &AppArmorProfile| {
        let name = profile.localhost_profile.as_deref().unwrap_or_default();
        profile.type_ == "Localhost" && name.trim().is_empty()
    };
    match profiles(pod).any(unnamed) {
        true => Err(cannot("invalid empty AppArmor profile name")),
        false => Ok(()),
    }
}

fn wants_app_armor(pod: &Pod) -> bool {
    let by_field = profiles(pod).any(|profile| profile.type_ != "Unconfined");
    let mut named = pod
        .annotations()
        .iter()
        .filter(|(key, _)| key.starts_with(ANNOTATION));
    by_field || named.any(|(_, profile)| profile != "unconfined")
}

/// The pod's profile and those of its containers.
fn profiles(pod: &Pod) -> impl Iterator<Item = &AppArmorProfile> {
    let own = pod.security().and_then(|s| s.app_armor_profile.as_ref());
    let lasting = pod
        .all_containers()
        .map(|(_, c)| c.security_context.as_ref());
    let ephemeral = pod.spec().and_then(|s| s.ephemeral_containers.as_deref());
    let ephemeral = ephemeral.unwrap_or_default().iter();
    let all = lasting.chain(ephemeral.map(|c| c.security_context.as_ref()));
    own.into_iter()
        .chain(all.filter_map(|security| security?.app_armor_profile.as_ref()))
}

pub(super) fn gates(pod: &Pod, node: &NodeFacts) -> Result<(), PodFailure> {
    match node.pod_level_resources {
        Support::No if requests::has_pod_level(pod) => Err(refuse(
            "PodLevelResourcesNotSupported",
            "PodLevelResources feature gate is disabled",
        )),
        Support::No | Support::Yes => Ok(()),
    }
}

/// The node must have declared the features that the pod needs: schedulers place pods by them.
pub(super) fn declared(pod: &Pod, node: &NodeFacts) -> Result<(), PodFailure> {
    let Some(declared) = &node.declared_features else {
        return Ok(());
    };
    match lacking(needed_features(pod), declared) {
        None => Ok(()),
        Some(message) => Err(refuse("PodFeatureUnsupported", message)),
    }
}

/// The event of a change that the node cannot carry out, since it needs what the node has not declared.
pub fn change_not_supported(old: &Pod, new: &Pod, node: &NodeFacts) -> Option<HistoryEvent> {
    let declared = node.declared_features.as_ref()?;
    let message = lacking(features_of_change(old, new), declared)?;
    Some(HistoryEvent {
        object: None,
        weight: EventLevel::Warning,
        reason: "FailedNodeDeclaredFeaturesCheck".to_owned(),
        message,
    })
}

fn lacking(mut needed: Vec<&'static str>, declared: &BTreeSet<String>) -> Option<String> {
    needed.retain(|feature| !declared.contains(*feature));
    let missing = needed.join(", ");
    (!missing.is_empty())
        .then(|| format!("Pod requires node features that are not available: {missing}"))
}
