//! What pods have to themselves: CPUs, and devices of device plugins.

mod cpus;
mod devices;
