//! What is counted and measured, by the names that dashboards know.
//!
//! One file an area. A metric is a static that enters the registry when it is first touched; [`text`] touches them
//! all, so that a counter that never counted shows its nought. Names, labels, units and buckets are upstream's
//! (test/instrumentation/documentation/documentation.md, 1.36); ours begin with `oxlet_`.

mod registry;
pub mod rest_client;

pub use registry::text;
