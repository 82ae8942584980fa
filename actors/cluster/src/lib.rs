//! The node in its cluster: what comes from the API server, and what is sent to it. One file or folder an actor.
//!
//! Nothing here knows the pods' area: its actors are reached through [`kernel::Recipient`].

// The API server's client, and reviews of the node's callers.
pub mod certificates;
pub mod client;
pub mod reviews;

// What comes from the API server, and outlives the process.
pub mod objects;
pub mod offline;
pub mod pods;

// How folders are read and watched.
pub mod folder;

// What is sent to the API server.
pub mod events;
pub mod node;
pub mod status;

#[cfg(test)]
mod outages;
