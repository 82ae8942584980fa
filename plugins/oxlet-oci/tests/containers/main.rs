//! Real containers by the command line: what the machine and a container must not do to each other. Needs root.

#![allow(clippy::unwrap_used, reason = "all of a test binary is test")]

mod groups;
mod hostile;
mod life;
mod ordinary;
mod rig;
