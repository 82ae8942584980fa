//! The node's resources on a real containerd: the cgroup tree by either driver, what the kubelet writes, eviction, garbage; and
//! the agent's own process.

mod cgroup_values;
mod cgroups;
mod devices;
mod dynamic_resources;
mod eviction;
mod exclusive;
mod garbage;
mod log_lines;
mod own_process;
mod own_settings;
mod pods_api;
mod spans;
mod systemd_slices;
