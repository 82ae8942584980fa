//! The seccomp section of an OCI spec (`linux.seccomp`) as a BPF program, and its installation.
//!
//! Rules are tried in their order and the first that fits decides. As with runc, system calls that this build does
//! not know are skipped, rules that say what the default says are skipped, an argument that stands twice in a rule
//! makes alternatives, and a system call newer than all of the profile gets `ENOSYS` where the default is an error.
//! System calls of another architecture never pass: `ENOSYS` where the profile lists that architecture, death
//! otherwise.

pub(crate) mod install;
pub(crate) mod profile;
pub(crate) mod program;
