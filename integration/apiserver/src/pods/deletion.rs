//! The grace of pods: upstream's `BeforeDelete` and the pods' `CheckGracefulDelete`.

use serde_json::{Value, json};

use crate::clock;
use crate::kinds::Resource;
use crate::verbs::{DeletionStep, GracePeriod, raise_generation};

/// Marks an object as a deletion with this grace does, and says how the deletion goes on.
pub(crate) fn step(resource: &Resource, object: &mut Value, asked: Option<i64>) -> DeletionStep {
    // A negative grace is the shortest that there is.
    let asked = asked.map(|grace| if grace < 0 { 1 } else { grace });
    let pod = resource.storage_key == "pods";
    if object["metadata"].get("deletionTimestamp").is_some() {
        return if pod
            || object["metadata"]
                .get("deletionGracePeriodSeconds")
                .is_some()
        {
            shortened(object, asked)
        } else {
            DeletionStep::AtOnce
        };
    }
    if !pod {
        return DeletionStep::AtOnce;
    }
    let grace = grace_of(object, asked);
    object["metadata"]["deletionTimestamp"] = json!(clock::text(clock::later(clock::now(), grace)));
    object["metadata"]["deletionGracePeriodSeconds"] = json!(grace);
    raise_generation(object);
    DeletionStep::Graceful(waits(grace))
}

/// What is already being deleted can only be deleted sooner.
fn shortened(object: &mut Value, asked: Option<i64>) -> DeletionStep {
    let Some(had) = object["metadata"]["deletionGracePeriodSeconds"].as_i64() else {
        return DeletionStep::AtOnce;
    };
    let Some(grace) = asked.filter(|grace| *grace < had) else {
        return DeletionStep::Pending;
    };
    let ends = object["metadata"]["deletionTimestamp"]
        .as_str()
        .and_then(clock::parse)
        .unwrap_or_else(clock::now);
    object["metadata"]["deletionTimestamp"] = json!(clock::text(clock::later(ends, grace - had)));
    object["metadata"]["deletionGracePeriodSeconds"] = json!(grace);
    DeletionStep::Graceful(waits(grace))
}

fn grace_of(pod: &Value, asked: Option<i64>) -> i64 {
    let ended = matches!(
        pod["status"]["phase"].as_str(),
        Some("Succeeded" | "Failed")
    );
    if ended || pod["spec"]["nodeName"].as_str().is_none_or(str::is_empty) {
        return 0;
    }
    let grace = asked
        .or_else(|| pod["spec"]["terminationGracePeriodSeconds"].as_i64())
        .unwrap_or_default();
    if grace < 0 { 1 } else { grace }
}

fn waits(grace: i64) -> GracePeriod {
    if grace > 0 {
        GracePeriod::Waits
    } else {
        GracePeriod::Over
    }
}
