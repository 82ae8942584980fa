//! What the agent's own process holds: the lock of its node and its root directory, and as many open files as it may need.

pub mod lock_file;
pub mod open_files;
pub mod root_dir;
