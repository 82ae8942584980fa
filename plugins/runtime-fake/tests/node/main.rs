//! The simulated node over real gRPC on a Unix socket, most of it under a paused clock.

mod containers;
mod events;
mod faults;
mod images;
mod life;
mod process;
mod rig;
mod sandboxes;
mod scale;
