//! Sources of desired pods: one actor each, independent of the others.
//!
//! A source reads manifests, refuses bad ones with a sentence, and sends the pod manager the whole
//! set of its pods again and again. A pod whose manifest has not changed keeps its `Arc`, so
//! that sending it again costs nothing.
//!
//! Deliberately unlike upstream: a manifest that was good and becomes bad keeps its old pods until it
//! is corrected or removed. A typing mistake does not end running pods.

pub mod file;
pub mod http;

mod manifest;
mod source_problems;
mod unique;
