//! Desired and actual mounts, and what is done next.
