//! What the kernel filters a container by, as programs of its two machines: system calls by seccomp (classic BPF),
//! devices by a cgroup of version 2 (eBPF). Both are compiled from sections of an OCI spec by plain functions; this is
//! the one crate of the runtime that says `unsafe`, for the calls that hand them over (decisions 27 and 34), and for
//! signals that no library sends (decision 38) or gives back to programs.

mod devices;
mod seccomp;
mod signal;

pub use devices::attach::{AttachError, attach};
pub use devices::program::{DeviceError, DeviceFilter};
pub use devices::rule::{DeviceRule, default_rules};
pub use seccomp::install::install;
pub use seccomp::profile::{Action, Argument, Operator, Profile, Rule};
pub use seccomp::program::{Filter, SeccompError};
pub use signal::{RTMAX, RTMIN, restore_sigpipe, send_signal, signal_name, signal_number};
