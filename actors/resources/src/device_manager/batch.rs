//! Calls that belong together: all that a pod is to be given, or all that a container needs before it starts.

use kernel::Reply;
use logic_api::types::PodUid;
use logic_placement::devices::{ContainerDevices, DeviceAllocation, DeviceCallError};

/// Calls to plugins that are answered as one.
#[derive(Debug)]
pub(super) struct Batch {
    pub pod: PodUid,
    /// Calls that are not answered yet.
    waiting: usize,
    /// Why the first one failed that did.
    failure: Option<DeviceCallError>,
    pub end: BatchEnd,
}

/// What comes of a batch once every call is answered.
#[derive(Debug)]
pub(super) enum BatchEnd {
    Allocate {
        /// With the container and the resource.
        done: Vec<(String, String, DeviceAllocation)>,
        reply: Reply<Result<(), DeviceCallError>>,
    },
    PreStart {
        container: String,
        reply: Reply<Result<Option<ContainerDevices>, DeviceCallError>>,
    },
}

impl Batch {
    /// A batch of so many calls.
    pub(super) fn new(pod: PodUid, calls: usize, end: BatchEnd) -> Self {
        Batch {
            pod,
            waiting: calls,
            failure: None,
            end,
        }
    }

    /// Nothing of this batch is to be kept.
    pub(super) fn fail(&mut self, why: DeviceCallError) {
        self.failure.get_or_insert(why);
    }

    /// A call has been answered.
    pub(super) fn answered(&mut self, result: Result<(), DeviceCallError>) {
        self.waiting = self.waiting.saturating_sub(1);
        if let Err(why) = result {
            self.fail(why);
        }
    }

    pub(super) fn is_done(&self) -> bool {
        self.waiting == 0
    }

    /// Why it has failed, if it has.
    pub(super) fn result(&self) -> Result<(), DeviceCallError> {
        self.failure.clone().map_or(Ok(()), Err)
    }
}
