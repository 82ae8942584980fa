//! What storage plugins do with paths of the node: never across a mount, never out of a volume, never
//! without a deadline.
//!
//! Read in this order: [`requests`] checks what comes over the wire. [`table`], [`mount`] and [`safe`] are what the
//! rest is built on: what is mounted, mounting, and opening below a folder. On them stand [`ownership`],
//! [`subpath`], [`remove`], [`measure`] and [`content`].
//!
//! Everything but [`measure::Walks`] blocks: call it on a [`blocking_pool::BlockingPool`].

pub mod answer;
pub mod content;
pub mod measure;
pub mod mount;
pub mod ownership;
pub mod remove;
pub mod requests;
pub mod safe;
pub mod subpath;
pub mod table;
#[cfg(test)]
mod test_dir;

pub use content::read_file;
