//! A volume grown on the node (upstream's expander.go, 1.36).

use mounts::requests;
use proto::csi::{CapacityRange, NodeExpandVolumeRequest};
use proto::storage::{Csi, ExpandRequest, ExpandResponse, Mode};
use tonic::{Code, Status};

use super::{Volumes, request, source};
use crate::driver::capability::{self, FileCapability};
use crate::driver::failure::{CallKind, DriverFailure, Failure};
use crate::driver::{Ability, Driver};

impl Volumes {
    /// Has the driver grow a volume that its backend has made larger.
    pub(crate) async fn expand(&self, request: ExpandRequest) -> Result<ExpandResponse, Status> {
        let volume = requests::volume(request.volume.as_ref())?;
        let csi = source(volume)?;
        let size = i64::try_from(request.size)
            .map_err(|_| requests::invalid(format!("size {} is too large", request.size)))?;
        let job = self.job(&volume.id, request.within_ms).await?;
        let driver = self.driver(&csi.driver, &job, "").await;
        // It may come: neither the size nor the volume was refused.
        let driver = driver.map_err(|status| Status::unavailable(status.message()))?;
        if !driver.can(Ability::ExpandVolume) {
            return Err(Status::unimplemented(format!(
                "NodeExpand is not supported by the CSI driver {}",
                driver.name
            )));
        }
        let message = self.message(&request, csi, &driver, size)?;
        let expanded = driver.call(job.left(), message, |mut node, request| async move {
            node.node_expand_volume(request).await
        });
        match expanded.await {
            Ok(answer) => Ok(ExpandResponse {
                size: answer.capacity_bytes.try_into().unwrap_or_default(),
            }),
            Err(failure) => Err(refused(&failure)),
        }
    }

    fn message(
        &self,
        request: &ExpandRequest,
        csi: &Csi,
        driver: &Driver,
        size: i64,
    ) -> Result<NodeExpandVolumeRequest, Status> {
        let staging = match request.mode() {
            _ if !request.staged.is_empty() => request.staged.clone(),
            Mode::FileSystem if driver.can(Ability::StageUnstageVolume) => {
                request::text(&self.layout.global_mount(&csi.driver, &csi.volume_handle))
            }
            Mode::FileSystem | Mode::Block => String::new(),
        };
        // Upstream grows a volume that is mounted nowhere yet where it is staged.
        let path = if request.path.is_empty() {
            &staging
        } else {
            &request.path
        };
        if path.is_empty() {
            return Err(requests::invalid("missing volume path"));
        }
        requests::target("path", self.layout.root(), path)?;
        let capability = match request.mode() {
            Mode::FileSystem => {
                let asked = FileCapability {
                    options: &[],
                    ownership: None,
                    label: None,
                };
                capability::files(driver, csi, &asked)
            }
            Mode::Block => capability::block(driver, csi),
        };
        Ok(NodeExpandVolumeRequest {
            volume_id: csi.volume_handle.clone(),
            volume_path: path.clone(),
            capacity_range: Some(CapacityRange {
                required_bytes: size,
                limit_bytes: 0,
            }),
            staging_target_path: staging,
            volume_capability: Some(capability),
            secrets: request::values(csi.expand_secrets.as_ref()),
        })
    }
}

/// Upstream words it differently when the driver says that it never will.
fn refused(failure: &Failure) -> Status {
    const BEFORE: &str = "Expander.NodeExpand failed to expand the volume ";
    let status = failure.answer(CallKind::Growth, BEFORE);
    if status.code() == Code::InvalidArgument {
        return status;
    }
    failure.answer(CallKind::Growth, &format!("{BEFORE}: "))
}
