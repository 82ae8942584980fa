//! The events of a resize: their reasons and messages.
//!
//! Mirrors upstream's pkg/kubelet/events/{event,pod_resize}.go at v1.36.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use logic_api::pod::PodView;
use logic_api::pod::requests;
use logic_api::types::{EventLevel, HistoryEvent};
use serde::Serialize;

use super::ResizeRefusal;

/// Something that happened to a resize.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResizeEvent {
    Started,
    Completed,
    /// The attempt failed: why.
    Failed(String),
    /// It is not allocated: why.
    Waits(ResizeRefusal, String),
}

impl ResizeEvent {
    /// The event about a pod with its allocated resources, or with the desired ones while it waits.
    pub fn event(&self, pod: &Pod, generation: i64) -> HistoryEvent {
        let (weight, reason, title, error) = match self {
            Self::Started => (EventLevel::Normal, "ResizeStarted", "started", None),
            Self::Completed => (EventLevel::Normal, "ResizeCompleted", "completed", None),
            Self::Failed(why) => (EventLevel::Warning, "ResizeError", "error", Some(why)),
            Self::Waits(refusal, why) => {
                let reason = match refusal {
                    ResizeRefusal::Deferred => "ResizeDeferred",
                    ResizeRefusal::Infeasible => "ResizeInfeasible",
                };
                (EventLevel::Warning, reason, refusal.as_str(), Some(why))
            }
        };
        let text = summary(pod, generation, error);
        HistoryEvent {
            object: None,
            weight,
            reason: reason.to_owned(),
            message: format!("Pod resize {title}: {text}"),
        }
    }
}

fn summary(pod: &Pod, generation: i64, error: Option<&String>) -> String {
    let summary = ResizeEventBody {
        init_containers: pod
            .init_containers()
            .iter()
            .map(ContainerResize::of)
            .collect(),
        containers: pod
            .app_containers()
            .iter()
            .map(ContainerResize::of)
            .collect(),
        generation,
        error: error.map(String::as_str).unwrap_or_default(),
    };
    serde_json::to_string(&summary).expect("names and amounts are plain data")
}

/// The order of the fields is the order of upstream's text.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ResizeEventBody<'a> {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    init_containers: Vec<ContainerResize<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    containers: Vec<ContainerResize<'a>>,
    generation: i64,
    #[serde(skip_serializing_if = "str::is_empty")]
    error: &'a str,
}

#[derive(Serialize)]
struct ContainerResize<'a> {
    name: &'a str,
    resources: ResizeEventResources,
}

#[derive(Serialize)]
struct ResizeEventResources {
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    limits: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    requests: BTreeMap<String, String>,
}

impl<'a> ContainerResize<'a> {
    fn of(container: &'a Container) -> Self {
        let resources = container.resources.as_ref();
        Self {
            name: &container.name,
            resources: ResizeEventResources {
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
