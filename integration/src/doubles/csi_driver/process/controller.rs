//! Volumes made and removed over the wire, as a provisioner would.

use std::fs::{self, File};

use anyhow::Context;
use proto::csi::controller_service_capability::rpc::Type as Word;
use proto::csi::controller_service_capability::{Rpc, Type};
use proto::csi::volume_capability::AccessType;
use proto::csi::{
    ControllerGetCapabilitiesRequest, ControllerGetCapabilitiesResponse,
    ControllerServiceCapability, CreateVolumeRequest, CreateVolumeResponse, DeleteVolumeRequest,
    DeleteVolumeResponse, Volume,
};
use tonic::Status;

use super::dispatcher::{CallContext, failed};
use super::record::{self, DriverVolume, VolumeRecord};
use crate::doubles::csi_driver::{DriverCapability, DriverOptions};

pub(super) fn capabilities(
    context: &CallContext,
    _: ControllerGetCapabilitiesRequest,
) -> Result<ControllerGetCapabilitiesResponse, Status> {
    let mut words = vec![Word::CreateDeleteVolume];
    if context.options.can(DriverCapability::MultiWriter) {
        words.push(Word::SingleNodeMultiWriter);
    }
    let capability = |word: Word| ControllerServiceCapability {
        r#type: Some(Type::Rpc(Rpc {
            r#type: word.into(),
        })),
    };
    Ok(ControllerGetCapabilitiesResponse {
        capabilities: words.into_iter().map(capability).collect(),
    })
}

pub(super) fn create(
    context: &CallContext,
    request: CreateVolumeRequest,
) -> Result<CreateVolumeResponse, Status> {
    let size = request.capacity_range.unwrap_or_default().required_bytes;
    let mut types = request
        .volume_capabilities
        .iter()
        .map(|capability| capability.access_type.as_ref());
    let block = types.any(|wanted| matches!(wanted, Some(AccessType::Block(_))));
    make(&context.options, &request.name, block, size).map_err(failed)?;
    Ok(CreateVolumeResponse {
        volume: Some(Volume {
            capacity_bytes: size,
            volume_id: request.name,
            ..Default::default()
        }),
    })
}

fn make(options: &DriverOptions, volume: &str, block: bool, size: i64) -> anyhow::Result<()> {
    match block {
        false => fs::create_dir_all(record::folder(&options.dir, volume))?,
        true => {
            let file = record::block_file(&options.dir, volume);
            let opened = File::options()
                .create(true)
                .truncate(false)
                .write(true)
                .open(file)?;
            opened.set_len(u64::try_from(size)?)?;
        }
    }
    let mut record = VolumeRecord::load(&options.dir, volume)?;
    record.size = record.size.max(size);
    record.save(&options.dir, volume)
}

pub(super) fn delete(
    context: &CallContext,
    request: DeleteVolumeRequest,
) -> Result<DeleteVolumeResponse, Status> {
    let volume = &request.volume_id;
    let record = context.load(volume)?;
    if record.staged.is_some() || !record.published.is_empty() {
        let text = format!("volume {volume} is in use: {record:?}");
        return Err(Status::failed_precondition(text));
    }
    let removed = match DriverVolume::find(&context.options.dir, volume) {
        Some(DriverVolume::Folder(folder)) => fs::remove_dir_all(folder),
        Some(DriverVolume::File(file)) => fs::remove_file(file),
        None => Ok(()),
    };
    removed.context("delete").map_err(failed)?;
    Ok(DeleteVolumeResponse {})
}
