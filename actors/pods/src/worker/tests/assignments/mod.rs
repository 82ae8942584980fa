//! What pods have to themselves: CPUs, and devices of device plugins.

mod counts;
mod cpus;
mod devices;
