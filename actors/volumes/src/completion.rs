//! The results of the volume manager's own tasks.

use clients::storage::{DriverEvent, StorageError, StoragePlugin};
use kernel::Context;
use logic_api::types::PodUid;

use super::executor::{FinishedOperation, StuckProcess};
use super::{Msg, VolumeManager};
use crate::executor::batches::BatchResult;
use crate::executor::drivers::PluginListing;
use crate::executor::measurements::MeasurementResult;

/// The result of a task that the volume manager began.
#[derive(Debug)]
pub enum VolumeCompletion {
    /// A plugin's capabilities and volumes.
    Listed(StoragePlugin, Result<PluginListing, StorageError>),
    /// The pods that have folders on the node.
    Folders(Vec<PodUid>),
    /// An event of the CSI plugin's drivers; none: the stream ended.
    Driver(Option<DriverEvent>),
    /// The result of an operation.
    OperationFinished(FinishedOperation),
    /// The end of work within a pod's volumes, with the plugin processes that got stuck over it.
    AccessEnded {
        uid: PodUid,
        stuck: Vec<StuckProcess>,
    },
    /// A plugin's process has ended, which was stuck: by the plugin and its generation.
    ProcessReplaced(StoragePlugin, u64),
    /// The answer of a driver that was asked for its limit; the limit itself comes as an event of the driver.
    LimitsRefreshed {
        driver: String,
        answer: Result<(), StorageError>,
    },
    /// The result of a measurement.
    Measured(MeasurementResult),
    /// The result of a batch of measurements.
    BatchMeasured(BatchResult),
    /// The node object changed: its labels, which drivers' topology must match, or its attached volumes.
    NodeChanged,
    /// Objects changed, from which volumes are made.
    ObjectsChanged,
}

impl From<VolumeCompletion> for Msg {
    fn from(completion: VolumeCompletion) -> Msg {
        Msg::Completed(Box::new(completion))
    }
}

impl VolumeManager {
    pub(super) fn completed(&mut self, completion: VolumeCompletion, ctx: &mut Context<Msg>) {
        match completion {
            VolumeCompletion::Listed(plugin, answer) => self.on_listed(plugin, answer, ctx),
            VolumeCompletion::Folders(uids) => self.world.folders(uids),
            VolumeCompletion::Driver(event) => self.on_driver_event(event, ctx),
            VolumeCompletion::OperationFinished(finished) => {
                self.on_operation_finished(finished, ctx)
            }
            VolumeCompletion::AccessEnded { uid, stuck: worn } => {
                self.on_access_ended(&uid, worn, ctx)
            }
            VolumeCompletion::ProcessReplaced(plugin, generation) => {
                self.on_process_replaced(plugin, generation)
            }
            VolumeCompletion::LimitsRefreshed { driver, answer } => {
                self.on_limits_refreshed(&driver, answer, ctx)
            }
            VolumeCompletion::Measured(measured) => self.on_measured(measured, ctx),
            VolumeCompletion::BatchMeasured(result) => self.on_batch_measured(result, ctx),
            VolumeCompletion::NodeChanged => self.node_changed(ctx),
            VolumeCompletion::ObjectsChanged => self.await_objects(ctx),
        }
    }
}
