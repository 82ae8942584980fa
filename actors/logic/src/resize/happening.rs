//! What is told of a resize: the events' reasons and texts.
//!
//! Mirrors upstream's pkg/kubelet/events/{event,pod_resize}.go at v1.36.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde::Serialize;

use super::Refusal;
use crate::pod::PodView;
use crate::requests;
use crate::types::{Weight, Why};

/// Something that happened to a resize.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Happening {
    Started,
    Completed,
    /// The attempt failed: why.
    Failed(String),
    /// It is not allocated: why.
    Waits(Refusal, String),
}

impl Happening {
    /// The event about a pod with the resources that it is allocated, or that it wants where it waits.
    pub fn event(&self, pod: &Pod, generation: i64) -> Why {
        let (weight, reason, title, error) = match self {
            Self::Started => (Weight::Normal, "ResizeStarted", "started", None),
            Self::Completed => (Weight::Normal, "ResizeCompleted", "completed", None),
            Self::Failed(why) => (Weight::Warning, "ResizeError", "error", Some(why)),
            Self::Waits(refusal, why) => {
                let reason = match refusal {
                    Refusal::Deferred => "ResizeDeferred",
                    Refusal::Infeasible => "ResizeInfeasible",
                };
                (Weight::Warning, reason, refusal.as_str(), Some(why))
            }
        };
        let text = summary(pod, generation, error);
        Why {
            object: None,
            weight,
            reason: reason.to_owned(),
            message: format!("Pod resize {title}: {text}"),
        }
    }
}

fn summary(pod: &Pod, generation: i64, error: Option<&String>) -> String {
    let summary = Summary {
        init_containers: pod.init_containers().iter().map(Share::of).collect(),
        containers: pod.app_containers().iter().map(Share::of).collect(),
        generation,
        error: error.map(String::as_str).unwrap_or_default(),
    };
    serde_json::to_string(&summary).expect("names and amounts are plain data")
}

/// The order of the fields is the order of upstream's text.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Summary<'a> {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    init_containers: Vec<Share<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    containers: Vec<Share<'a>>,
    generation: i64,
    #[serde(skip_serializing_if = "str::is_empty")]
    error: &'a str,
}

#[derive(Serialize)]
struct Share<'a> {
    name: &'a str,
    resources: Amounts,
}

#[derive(Serialize)]
struct Amounts {
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    limits: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    requests: BTreeMap<String, String>,
}

impl<'a> Share<'a> {
    fn of(container: &'a Container) -> Self {
        let resources = container.resources.as_ref();
        Self {
            name: &container.name,
            resources: Amounts {
                limits: printed(resources.and_then(|r| r.limits.as_ref())),
                requests: printed(resources.and_then(|r| r.requests.as_ref())),
            },
        }
    }
}

fn printed(list: Option<&BTreeMap<String, Quantity>>) -> BTreeMap<String, String> {
    let amounts = requests::read(list).into_iter();
    amounts
        .map(|(name, amount)| (name, amount.to_string()))
        .collect()
}
