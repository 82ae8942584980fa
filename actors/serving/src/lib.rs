//! The kubelet's HTTPS API: callers are known and permitted, then answered.
