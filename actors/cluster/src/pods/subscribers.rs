//! The subscribers to a set of pods, and the last set sent to each: the same set is not sent twice.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kernel::{Full, Recipient};

use super::PodSubscribers;

/// All subscribers.
pub(super) struct Subscribers {
    pub(super) directory: Subscriber,
    pub(super) remembered: Subscriber,
    pub(super) objects: Subscriber,
    pub(super) alone: Subscriber,
    pub(super) statuses: Subscriber,
}

/// One subscriber, and the last set sent to it.
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
    /// Makes the next set be sent whatever it is.
    pub(super) fn forget(&mut self) {
        self.last = None;
    }

    /// Sends the set, unless it is the last one: the same pods as the same `Arc`s.
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
