//! Where desired pods come from: one actor a source, each independent of the others.
//!
//! A source reads manifests, refuses what is bad with a sentence, and tells the pod manager the whole
//! set of its pods again and again. A pod whose manifest has not changed is the very same `Arc`, so
//! that telling it again costs nothing.
//!
//! Deliberately unlike upstream: a manifest that was good and becomes bad keeps its old pods until it
//! is mended or removed. A typing mistake does not end what runs.

pub mod file;
pub mod http;

mod manifest;
mod source_problems;
mod unique;

pub(crate) use manifest::sentence;
