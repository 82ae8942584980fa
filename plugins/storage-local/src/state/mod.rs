//! What is on the disk: where volumes lie, who holds them, what was set up before.

pub(crate) mod list;
pub(crate) mod lock;
pub(crate) mod marker;
pub(crate) mod place;
pub(crate) mod stamp;
pub(crate) mod tree;
