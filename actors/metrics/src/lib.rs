//! The agent's metrics, under the names that dashboards know.
//!
//! One file an area. A metric is a static that enters the registry when it is first touched; [`text`] touches them
//! all, so that a counter that never counted shows zero. Names, labels, units and buckets are upstream's
//! (test/instrumentation/documentation/documentation.md, 1.36); ours begin with `oxlet_`.

pub mod api;
pub mod component;
pub mod exposition;
pub mod node;
pub mod pods;
mod process;
#[cfg(test)]
mod reference;
mod registry;
pub mod runtime;
pub mod slis;
#[cfg(test)]
mod tests;

pub use pods::prober::text as probes;

/// Registers the metrics of each area.
const AREAS: &[fn()] = &[
    api::callers::declare,
    api::certificates::declare,
    node::cgroups::declare,
    node::device_plugins::declare,
    node::dynamic_resources::declare,
    component::declare,
    api::http::declare,
    runtime::images::declare,
    node::declare,
    runtime::pleg::declare,
    pods::placement::declare,
    pods::pod_resources::declare,
    pods::pods_api::declare,
    pods::pod_starts::declare,
    pods::declare,
    node::queues::declare,
    pods::resizes::declare,
    api::rest_client::declare,
    runtime::declare,
    node::startup::declare,
    pods::status::declare,
    node::volumes::declare,
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
