//! Startup latency of the node. Upstream: pkg/kubelet/util/node_startup_latency_tracker.go (1.36).
//!
//! Measured once, and only of a node that was new to its cluster: for one that was there before there is nothing to
//! measure.

use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use prometheus::Gauge;

use crate::process;
use crate::registry::gauge;

static BEFORE: LazyLock<Gauge> = LazyLock::new(|| {
    gauge(
        "kubelet_node_startup_pre_kubelet_duration_seconds",
        "Duration in seconds of node startup before kubelet starts.",
    )
});

static BEFORE_REGISTRATION: LazyLock<Gauge> = LazyLock::new(|| {
    gauge(
        "kubelet_node_startup_pre_registration_duration_seconds",
        "Duration in seconds of node startup before registration.",
    )
});

static REGISTRATION: LazyLock<Gauge> = LazyLock::new(|| {
    gauge(
        "kubelet_node_startup_registration_duration_seconds",
        "Duration in seconds of node startup during registration.",
    )
});

static AFTER_REGISTRATION: LazyLock<Gauge> = LazyLock::new(|| {
    gauge(
        "kubelet_node_startup_post_registration_duration_seconds",
        "Duration in seconds of node startup after registration.",
    )
});

static WHOLE: LazyLock<Gauge> = LazyLock::new(|| {
    gauge(
        "kubelet_node_startup_duration_seconds",
        "Duration in seconds of node startup in total.",
    )
});

static OWN: Mutex<Startup> = Mutex::new(Startup {
    attempted: None,
    registered: None,
    ready: None,
});

/// The steps of this node's startup, in seconds since the epoch; none while not reached.
#[derive(Debug, Default)]
struct Startup {
    attempted: Option<f64>,
    registered: Option<f64>,
    ready: Option<f64>,
}

/// When the machine and the agent started, in seconds since the epoch.
type Beginnings = (Option<f64>, Option<f64>);

/// The first attempt to register.
pub fn attempted(now: SystemTime) {
    own(|startup| startup.attempted(seconds(now)));
}

/// The node's object was created.
pub fn registered(now: SystemTime) {
    own(|startup| startup.registered(seconds(now), process::beginnings));
}

/// The node is ready.
pub fn ready(now: SystemTime) {
    own(|startup| startup.ready(seconds(now), process::beginnings));
}

fn own(note: impl FnOnce(&mut Startup)) {
    note(&mut OWN.lock().unwrap_or_else(PoisonError::into_inner));
}

fn seconds(now: SystemTime) -> f64 {
    let since = now.duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap_or(Duration::ZERO).as_secs_f64()
}

impl Startup {
    fn attempted(&mut self, now: f64) {
        self.attempted.get_or_insert(now);
    }

    fn registered(&mut self, now: f64, beginnings: impl Fn() -> Beginnings) {
        let (Some(attempted), None) = (self.attempted, self.registered) else {
            return;
        };
        self.registered = Some(now);
        let (booted, began) = beginnings();
        if let (Some(booted), Some(began)) = (booted, began) {
            BEFORE.set((began - booted).max(0.0));
        }
        if let Some(began) = began {
            BEFORE_REGISTRATION.set((attempted - began).max(0.0));
        }
        REGISTRATION.set((now - attempted).max(0.0));
    }

    fn ready(&mut self, now: f64, beginnings: impl Fn() -> Beginnings) {
        let (Some(registered), None) = (self.registered, self.ready) else {
            return;
        };
        self.ready = Some(now);
        AFTER_REGISTRATION.set((now - registered).max(0.0));
        if let (Some(booted), _) = beginnings() {
            WHOLE.set((now - booted).max(0.0));
        }
    }
}

pub(crate) fn declare() {
    for gauge in [
        &BEFORE,
        &BEFORE_REGISTRATION,
        &REGISTRATION,
        &AFTER_REGISTRATION,
        &WHOLE,
    ] {
        LazyLock::force(gauge);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Upstream's TestMultipleSingleNodeFirstNodeReady and its likes, as one.
    #[test]
    fn each_leg_of_the_way_is_measured_once_and_only_for_a_new_node() {
        let beginnings = || (Some(100.0), Some(130.0));
        let all = || {
            let gauges = [
                &BEFORE,
                &BEFORE_REGISTRATION,
                &REGISTRATION,
                &AFTER_REGISTRATION,
                &WHOLE,
            ];
            gauges.map(|gauge| gauge.get())
        };
        let mut known = Startup::default();
        known.attempted(131.0);
        known.ready(132.0, beginnings);
        assert_eq!(all(), [0.0; 5], "it was there before");
        let mut new = Startup::default();
        new.registered(134.0, beginnings);
        assert_eq!(all(), [0.0; 5], "nobody tried");
        for now in [131.0, 132.0] {
            new.attempted(now);
        }
        for now in [134.0, 150.0] {
            new.registered(now, beginnings);
        }
        assert_eq!(all(), [30.0, 1.0, 3.0, 0.0, 0.0]);
        for now in [139.0, 200.0] {
            new.ready(now, beginnings);
        }
        assert_eq!(all(), [30.0, 1.0, 3.0, 5.0, 39.0]);
    }
}
