//! What storage plugins do with paths of the node: never across a mount, never out of a volume, never
//! without a deadline.
//!
//! Read in this order: [`bench`] runs whatever may hang on threads that can be given up, [`turns`] makes calls
//! about one volume wait for each other, [`requests`] checks what comes over the wire. [`table`], [`mount`] and
//! [`safe`] are the ground: what is mounted, mounting, and opening below a folder. On them stand [`ownership`],
//! [`subpath`], [`remove`], [`measure`] and [`content`].
//!
//! Everything but [`bench`], [`turns`] and [`measure::Walks`] blocks: call it on the bench.

pub mod answer;
pub mod bench;
pub mod content;
#[cfg(test)]
mod ground;
pub mod measure;
pub mod mount;
pub mod ownership;
pub mod remove;
pub mod requests;
pub mod safe;
pub mod subpath;
pub mod table;
pub mod turns;
mod walk;

pub use content::read_file;
