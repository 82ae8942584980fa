//! The kinds of volumes, and what they are made of.

pub(crate) mod block;
pub(crate) mod disk;
pub(crate) mod empty_dir;
pub(crate) mod files;
pub(crate) mod host_path;
pub(crate) mod local;
pub(crate) mod nfs;
pub(crate) mod propagation;
pub(crate) mod selinux;
