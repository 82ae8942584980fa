//! The adapter over real gRPC, with scripted runtimes behind it.

#![allow(clippy::unwrap_used, reason = "all of a test binary is test")]

mod bad_backends;
mod configuration;
mod double;
mod event_scene;
mod events;
mod native_events;
mod passthrough;
