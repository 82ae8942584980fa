//! The node in its cluster: what comes from the API server, and what is told to it. One file or folder an actor.
//!
//! Nothing here knows the pods' area: whoever there is told something is a [`kernel::Recipient`].

// How the API server is called, and asked about those who call the node.
pub mod certificates;
pub mod client;
pub mod reviews;

// What comes from it, and outlives the process.
pub mod objects;
pub mod offline;
pub mod pods;

// How what lies in a folder is read and watched.
pub mod folder;

// What is told to it.
pub mod events;
pub mod node;
pub mod status;

#[cfg(test)]
mod outages;
