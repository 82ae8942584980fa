//! The driver's services.

use std::path::Path;
use std::{fs, io};

use mounts::table;
use proto::csi::identity_server::Identity;
use proto::csi::node_server::Node;
use proto::csi::node_service_capability::{Rpc, Type};
use proto::csi::volume_capability::AccessType;
use proto::csi::volume_usage::Unit;
use proto::csi::*;
use rustix::mount::{MountFlags, UnmountFlags, mount_bind, mount_remount, unmount};
use tonic::{Request, Response, Status};

use super::{Call, Double, Fault};

type Answer<T> = Result<Response<T>, Status>;

impl Double {
    /// Does it, or fails as ordered.
    async fn does<T: Default>(
        &self,
        call: Call,
        work: impl FnOnce() -> io::Result<()>,
    ) -> Answer<T> {
        let work = || work().map_err(|error| Status::internal(error.to_string()));
        match self.note(call) {
            None | Some(Fault::Link) => work()?,
            Some(Fault::Nothing) => {}
            Some(Fault::Rambles) => return Err(Status::internal("boom ".repeat(20_000))),
            Some(Fault::Says(code)) => return Err(Status::new(code, "boom")),
            Some(Fault::DoesAndSays(code)) => {
                work()?;
                return Err(Status::new(code, "boom"));
            }
            Some(Fault::Hangs) => return std::future::pending().await,
        }
        Ok(Response::new(T::default()))
    }

    fn bring(&self, volume: &str, raw: bool, target: &str, read_only: bool) -> io::Result<()> {
        let (kept, target) = (self.kept(volume), Path::new(target));
        if raw {
            fs::write(&kept, vec![0; 64 << 10])?;
            fs::OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(false)
                .open(target)?;
        } else {
            fs::create_dir_all(&kept)?;
            fs::create_dir_all(target)?;
        }
        if !table::is_mount_point(target)? {
            mount_bind(&kept, target)?;
            if read_only {
                mount_remount(target, MountFlags::BIND | MountFlags::RDONLY, "")?;
            }
        }
        Ok(())
    }
}

fn take(target: &str) -> io::Result<()> {
    let target = Path::new(target);
    if target.parent().is_some_and(Path::exists) && table::is_mount_point(target)? {
        unmount(target, UnmountFlags::empty())?;
    }
    Ok(())
}

fn is_raw(capability: Option<&VolumeCapability>) -> bool {
    let access = capability.and_then(|capability| capability.access_type.as_ref());
    matches!(access, Some(AccessType::Block(_)))
}

#[tonic::async_trait]
impl Node for Double {
    async fn node_stage_volume(
        &self,
        request: Request<NodeStageVolumeRequest>,
    ) -> Answer<NodeStageVolumeResponse> {
        let asked = request.into_inner();
        self.does(Call::Stage(asked.clone()), || {
            let raw = is_raw(asked.volume_capability.as_ref());
            // A raw volume needs nothing but its folder.
            if raw {
                return fs::read_dir(&asked.staging_target_path).map(drop);
            }
            self.bring(&asked.volume_id, raw, &asked.staging_target_path, false)
        })
        .await
    }

    async fn node_unstage_volume(
        &self,
        request: Request<NodeUnstageVolumeRequest>,
    ) -> Answer<NodeUnstageVolumeResponse> {
        let asked = request.into_inner();
        self.does(Call::Unstage(asked.clone()), || {
            take(&asked.staging_target_path)
        })
        .await
    }

    async fn node_publish_volume(
        &self,
        request: Request<NodePublishVolumeRequest>,
    ) -> Answer<NodePublishVolumeResponse> {
        let asked = request.into_inner();
        let faults = self
            .inner()
            .faults
            .get("publish")
            .and_then(|faults| faults.first().copied());
        if matches!(faults, Some(Fault::Link)) {
            std::os::unix::fs::symlink("/", &asked.target_path)?;
            return self.does(Call::Publish(asked), || Ok(())).await;
        }
        self.does(Call::Publish(asked.clone()), || {
            let raw = is_raw(asked.volume_capability.as_ref());
            self.bring(&asked.volume_id, raw, &asked.target_path, asked.readonly)
        })
        .await
    }

    async fn node_unpublish_volume(
        &self,
        request: Request<NodeUnpublishVolumeRequest>,
    ) -> Answer<NodeUnpublishVolumeResponse> {
        let asked = request.into_inner();
        self.does(Call::Unpublish(asked.clone()), || take(&asked.target_path))
            .await
    }

    async fn node_get_volume_stats(
        &self,
        request: Request<NodeGetVolumeStatsRequest>,
    ) -> Answer<NodeGetVolumeStatsResponse> {
        let asked = request.into_inner();
        let mut answer: Response<NodeGetVolumeStatsResponse> = self
            .does(Call::Stats(asked.clone()), || {
                fs::metadata(&asked.volume_path).map(drop)
            })
            .await?;
        answer.get_mut().usage = vec![VolumeUsage {
            available: 60,
            total: 100,
            used: 40,
            unit: Unit::Bytes.into(),
        }];
        answer.get_mut().volume_condition = Some(VolumeCondition {
            abnormal: false,
            message: "fine".to_owned(),
        });
        Ok(answer)
    }

    async fn node_expand_volume(
        &self,
        request: Request<NodeExpandVolumeRequest>,
    ) -> Answer<NodeExpandVolumeResponse> {
        let asked = request.into_inner();
        let size = asked
            .capacity_range
            .as_ref()
            .map_or(0, |range| range.required_bytes);
        let mut answer: Response<NodeExpandVolumeResponse> =
            self.does(Call::Expand(asked), || Ok(())).await?;
        answer.get_mut().capacity_bytes = size;
        Ok(answer)
    }

    async fn node_get_capabilities(
        &self,
        _: Request<NodeGetCapabilitiesRequest>,
    ) -> Answer<NodeGetCapabilitiesResponse> {
        let capabilities = self
            .manner
            .abilities
            .iter()
            .map(|&ability| NodeServiceCapability {
                r#type: Some(Type::Rpc(Rpc {
                    r#type: ability.into(),
                })),
            });
        Ok(Response::new(NodeGetCapabilitiesResponse {
            capabilities: capabilities.collect(),
        }))
    }

    async fn node_get_info(&self, _: Request<NodeGetInfoRequest>) -> Answer<NodeGetInfoResponse> {
        let mut answer: Response<NodeGetInfoResponse> = self.does(Call::Info, || Ok(())).await?;
        answer.get_mut().node_id = self.manner.node_id.to_owned();
        answer.get_mut().max_volumes_per_node = 7 + self.inner().more;
        answer.get_mut().accessible_topology = Some(Topology {
            segments: [("zone".to_owned(), "a".to_owned())].into(),
        });
        Ok(answer)
    }
}

#[tonic::async_trait]
impl Identity for Double {
    async fn get_plugin_info(
        &self,
        _: Request<GetPluginInfoRequest>,
    ) -> Answer<GetPluginInfoResponse> {
        let name = self.manner.own_name.unwrap_or(self.manner.name);
        Ok(Response::new(GetPluginInfoResponse {
            name: name.to_owned(),
            ..GetPluginInfoResponse::default()
        }))
    }

    async fn get_plugin_capabilities(
        &self,
        _: Request<GetPluginCapabilitiesRequest>,
    ) -> Answer<GetPluginCapabilitiesResponse> {
        Ok(Response::new(Default::default()))
    }

    async fn probe(&self, _: Request<ProbeRequest>) -> Answer<ProbeResponse> {
        Ok(Response::new(Default::default()))
    }
}
