//! The node's resources on a real containerd: the cgroup tree by either driver, what the kubelet writes, eviction, garbage.

mod cgroup_values;
mod cgroups;
mod devices;
mod eviction;
mod exclusive;
mod garbage;
mod systemd_slices;
