//! Safe handling of file trees that somebody else has written: a pod, an image, a plugin or a registry.
//!
//! Nothing here recurses, follows a symbolic link that it does not own, blocks on a FIFO, or needs memory that grows
//! with what it finds, beyond the bounds that each function states. `std::fs::remove_dir_all`, `std::fs::copy` and
//! recursive walks are rejected elsewhere (`integration/tidy`).
//!
//! Every function blocks: call it where blocking work is done.

mod copy;
mod open;
mod remove;
pub mod walk;

pub use copy::copy_sparse;
pub use open::{
    make_folder, open_folder, open_in_root, open_owned, open_owned_at, open_regular, read_regular,
};
pub use remove::{Removal, remove_tree, remove_tree_while};
