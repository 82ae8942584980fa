//! What needs an API server: the pods that it assigns, the node's object and lease, certificates, reviews of callers. One
//! file or folder an actor.
//!
//! Nothing here knows the pods' area: its actors are reached through [`kernel::Recipient`].

pub mod certificates;
pub mod claims;
pub mod node;
pub mod pods;
pub mod reviews;

#[cfg(test)]
mod outages;
