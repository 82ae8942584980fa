//! The plugin host with real processes, on a clock that runs.
//!
//! The plugins are this very binary: see [`process`].
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod abandoned;
mod calls;
mod confined;
mod external;
mod handshake;
mod life;
mod process;
mod rig;
mod swap;
