//! The pod and the API: which pods the node runs, mirrors of static ones, objects that they refer to, features that they need,
//! and what another kubelet left.

pub mod api_pods;
pub mod mirrors;
pub mod needed;
pub mod protobuf;
pub mod references;
pub mod take_over;
