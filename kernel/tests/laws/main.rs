//! The kernel's laws, one module an area, each test named by the law it proves.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so")]

mod asking;
mod checkpoints;
mod failing;
mod hanging;
mod mailboxes;
mod observing;
mod probe;
mod supervising;
