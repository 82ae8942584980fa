//! What a node keeps and tells, alone or in a cluster: statuses, events, objects, checkpoints. One file or folder an
//! actor.
//!
//! Nothing here knows pods' or volumes' actors: they are reached through [`kernel::Recipient`].

pub mod area;

// What outlives the process.
pub mod assignments;
pub mod checkpoints;
pub mod offline;
pub mod placement_files;
pub mod take_over;
pub mod user_namespaces;

// What pods refer to, and how folders are read and watched.
pub mod folder;
pub mod objects;

// What the API server is told.
pub mod events;
pub mod status;
