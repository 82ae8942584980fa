//! Who is told a set of pods, and what each was told last: nobody hears the same twice.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kernel::{Full, Recipient};

use super::PodSubscribers;

/// Everybody who is told.
pub(super) struct Subscribers {
    pub(super) directory: Subscriber,
    pub(super) remembered: Subscriber,
    pub(super) objects: Subscriber,
    pub(super) alone: Subscriber,
    pub(super) statuses: Subscriber,
}

/// One of them.
pub(super) struct Subscriber {
    to: Recipient<Vec<Arc<Pod>>>,
    last: Option<Vec<Arc<Pod>>>,
}

impl Subscribers {
    pub(super) fn new(told: PodSubscribers) -> Subscribers {
        let outlet = |to| Subscriber { to, last: None };
        Subscribers {
            directory: outlet(told.directory),
            remembered: outlet(told.remembered),
            objects: outlet(told.objects),
            alone: outlet(told.alone),
            statuses: outlet(told.statuses),
        }
    }
}

impl Subscriber {
    /// Tells the next set whatever it is.
    pub(super) fn forget(&mut self) {
        self.last = None;
    }

    /// Tells the set, unless it is the one of before: the same pods as the same `Arc`s.
    pub(super) fn tell(&mut self, pods: &[Arc<Pod>]) -> Result<(), Full> {
        let same = |last: &Vec<Arc<Pod>>| {
            last.len() == pods.len() && last.iter().zip(pods).all(|(a, b)| Arc::ptr_eq(a, b))
        };
        if self.last.as_ref().is_some_and(same) {
            return Ok(());
        }
        self.to.tell(pods.to_vec())?;
        self.last = Some(pods.to_vec());
        Ok(())
    }
}
