//! The mapping of a pod's user ids to ids of the node (upstream's pkg/kubelet/userns and `getKubeletMappings` at
//! v1.36).
//!
//! The node's pool of ids is cut into ranges of one size; each pod with `hostUsers: false` has one to itself, from its
//! first sandbox to the removal of its directory.

mod pool;
mod record;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use logic_api::pod::PodView;
pub use pool::{IdPool, PoolError, SubIdsError, sub_ids};
pub use record::{FILE, UserNamespaceRecordError, decode_record, encode_record};
use thiserror::Error;

use crate::runtime::runtime_class::HandlerFeatures;

/// Whether a pod wants users of its own.
pub fn requests_user_namespace(pod: &Pod) -> bool {
    pod.spec()
        .is_some_and(|spec| spec.host_users == Some(false))
}

/// The pod wants users of its own, and its runtime cannot give them.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum UserNamespaceUnsupported {
    #[error("can't set `spec.hostUsers: false`, runtime does not support user namespaces")]
    Runtime,
    #[error(
        "can't set `spec.hostUsers: false`, RuntimeClass handler {handler:?} does not support user namespaces"
    )]
    Handler { handler: String },
    #[error(
        "can't set `spec.hostUsers: false`, runtime does not support user namespaces: the handler \"\" is not known"
    )]
    DefaultUnknown,
    #[error(
        "can't set `spec.hostUsers: false`, RuntimeClass handler {handler:?} does not support user namespaces: the handler {handler:?} is not known"
    )]
    HandlerUnknown { handler: String },
}

/// Whether the handler can give a pod users of its own. A runtime too old to tell of its handlers cannot.
pub fn check_support(
    handler: &str,
    handlers: &BTreeMap<String, HandlerFeatures>,
) -> Result<(), UserNamespaceUnsupported> {
    let name = || handler.to_owned();
    match (handlers.get(handler), handler) {
        (Some(features), _) if features.user_namespaces => Ok(()),
        (Some(_), "") => Err(UserNamespaceUnsupported::Runtime),
        (None, "") if handlers.is_empty() => Err(UserNamespaceUnsupported::Runtime),
        (None, "") => Err(UserNamespaceUnsupported::DefaultUnknown),
        (None, _) if !handlers.is_empty() => {
            Err(UserNamespaceUnsupported::HandlerUnknown { handler: name() })
        }
        (Some(_) | None, _) => Err(UserNamespaceUnsupported::Handler { handler: name() }),
    }
}

#[cfg(test)]
mod tests;
