//! The agent's metrics, under the names that dashboards know.
//!
//! One file an area. A metric is a static that enters the registry when it is first touched; [`text`] touches them
//! all, so that a counter that never counted shows zero. Names, labels, units and buckets are upstream's
//! (test/instrumentation/documentation/documentation.md, 1.36); ours begin with `oxlet_`.

pub mod callers;
pub mod certificates;
pub mod cgroups;
pub mod component;
pub mod exposition;
pub mod http;
pub mod images;
pub mod logs;
pub mod node;
pub mod pleg;
pub mod pod_resources;
pub mod pod_starts;
pub mod pods;
pub mod prober;
mod process;
pub mod queues;
mod registry;
pub mod resizes;
pub mod rest_client;
pub mod runtime;
pub mod slis;
pub mod startup;
pub mod status;
#[cfg(test)]
mod tests;
pub mod volumes;

pub use prober::text as probes;

/// Registers the metrics of each area.
const AREAS: &[fn()] = &[
    callers::declare,
    certificates::declare,
    cgroups::declare,
    component::declare,
    http::declare,
    images::declare,
    node::declare,
    pleg::declare,
    pod_resources::declare,
    pod_starts::declare,
    pods::declare,
    queues::declare,
    resizes::declare,
    rest_client::declare,
    runtime::declare,
    startup::declare,
    status::declare,
    volumes::declare,
];

/// Returns every metric in the text format 0.0.4.
pub fn text() -> String {
    for declare in AREAS {
        declare();
    }
    let mut text = registry::text();
    text.push_str(&component::text());
    text.push_str(&process::text());
    text
}
