//! The double over the wire: watches, faults, outages, and kubectl.

mod cluster;
mod faults;
mod kubectl;
mod outage;
mod watch;
mod wire;
