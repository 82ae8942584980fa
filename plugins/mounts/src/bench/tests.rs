//! The laws of the bench.
