//! The adapter over real gRPC, with scripted runtimes behind it.

mod configuration;
mod double;
mod events;
mod native_events;
mod passthrough;
