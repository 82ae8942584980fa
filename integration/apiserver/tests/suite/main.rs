//! The double over the wire: watches, faults, outages, and kubectl.

#![allow(
    clippy::unwrap_used,
    reason = "what fails in a shorthand fails the test that uses it"
)]

mod cluster;
mod faults;
mod kubectl;
mod outage;
mod secure;
mod watch;
mod wire;
