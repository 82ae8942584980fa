//! Refreshes a driver's volume limit on this node (upstream's `updateCSIDriver` of csi_plugin.go, 1.36).

use proto::storage::InquireRequest;
use tonic::Status;

use super::{Volumes, check_driver};
use crate::driver::failure::{CallKind, DriverFailure};

impl Volumes {
    /// Asks a driver anew; a difference is sent to subscribers.
    pub(crate) async fn inquire(&self, request: InquireRequest) -> Result<(), Status> {
        check_driver(&request.name)?;
        let name = &request.name;
        // One question at a time: an answer from before never comes last.
        let job = self
            .job(&format!("driver {name}"), request.within_ms)
            .await?;
        let driver = self.driver(name, &job, "").await?;
        let most = driver.most_volumes(job.left()).await.map_err(|failure| {
            let before = format!("failed to get NodeGetInfo from driver {name:?}: ");
            failure.answer(CallKind::Work, &before)
        })?;
        self.registry.set_max_volumes(&driver, most);
        Ok(())
    }
}
