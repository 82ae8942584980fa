//! Usage of a volume, from its driver's NodeGetVolumeStats (upstream's csi_metrics.go, 1.36).

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use mounts::requests;
use proto::csi::volume_usage::Unit;
use proto::csi::{NodeGetVolumeStatsRequest, NodeGetVolumeStatsResponse, VolumeUsage};
use proto::storage::{Health, Measure, StatsRequest, StatsResponse};
use tonic::Status;

use super::{Job, Volumes, check_driver, check_kind};
use crate::data::VolumeData;
use crate::driver::Ability;
use crate::driver::failure::{CallKind, DriverFailure};
use crate::layout::{ESCAPED_PLUGIN, MOUNT};

impl Volumes {
    /// Asks a volume's driver for its figures.
    ///
    /// Stats have a lock of their own: a driver that hangs in NodeGetVolumeStats does not block an unmount.
    pub(crate) async fn stats(&self, request: StatsRequest) -> Result<StatsResponse, Status> {
        check_kind(&request.kind)?;
        let path = requests::target("path", self.layout.root(), &request.path)?;
        let id = if request.volume_id.is_empty() {
            &request.path
        } else {
            &request.volume_id
        };
        let job = self
            .job(&format!("figures of {id}"), request.within_ms)
            .await?;
        let (driver, handle) = self.subject_of(&job, &request, &path).await?;
        check_driver(&driver)?;
        let driver = self.driver(&driver, &job, "").await?;
        if !driver.can(Ability::GetVolumeStats) {
            return Err(Status::unimplemented(format!(
                "metrics are not supported for {} volumes",
                driver.name
            )));
        }
        let message = NodeGetVolumeStatsRequest {
            volume_id: handle,
            volume_path: self.measured(&path),
            staging_target_path: String::new(),
        };
        let answer = driver.call(job.left(), message, |mut node, request| async move {
            node.node_get_volume_stats(request).await
        });
        match answer.await {
            Ok(answer) => figures(answer, driver.can(Ability::VolumeCondition)),
            Err(failure) => Err(failure.answer(CallKind::Work, "")),
        }
    }

    /// Returns the driver and the volume's handle; where the request lacks them, from `vol_data.json` beside the path.
    async fn subject_of(
        &self,
        job: &Job,
        request: &StatsRequest,
        path: &Path,
    ) -> Result<(String, String), Status> {
        if !request.driver.is_empty() && !request.volume_handle.is_empty() {
            return Ok((request.driver.clone(), request.volume_handle.clone()));
        }
        let folder = match path.file_name().is_some_and(|name| name == MOUNT) {
            true => path.parent().map(Path::to_owned),
            false => self
                .device_name(path)
                .map(|name| self.layout.block(&name).data),
        };
        let folder = folder.ok_or_else(|| requests::missing("driver"))?;
        let what = format!("looking at {}", folder.display());
        let data = job.on_disk(&what, move || {
            VolumeData::load(&folder).map_err(|error| Status::not_found(error.to_string()))
        });
        let data = data.await?;
        Ok((data.driver().to_owned(), data.handle().to_owned()))
    }

    /// Where upstream has a volume measured: a raw one where it is bound below its own folder.
    fn measured(&self, path: &Path) -> String {
        let pod = path
            .strip_prefix(self.layout.pods())
            .ok()
            .and_then(|rest| rest.iter().next());
        let bound = self.device_name(path).zip(pod);
        let bound = bound.map(|(name, pod)| self.layout.block(&name).map.join(pod));
        super::request::text(bound.as_deref().unwrap_or(path))
    }

    /// The volume of a pod's link to a raw device.
    fn device_name(&self, path: &Path) -> Option<String> {
        let name = path.file_name()?.to_str()?;
        let pods = path.strip_prefix(self.layout.pods()).ok()?;
        let pod = pods.iter().next()?.to_str()?;
        (self.layout.device_link(pod, name) == path && pods.parent()?.ends_with(ESCAPED_PLUGIN))
            .then(|| name.to_owned())
    }
}

fn figures(
    answer: NodeGetVolumeStatsResponse,
    tells_health: bool,
) -> Result<StatsResponse, Status> {
    if answer.usage.is_empty() && !tells_health {
        return Err(Status::internal(
            "failed to get usage from response. usage is nil",
        ));
    }
    let mut figures = StatsResponse {
        measure: Measure::Backend.into(),
        taken_ms: now_ms(),
        ..StatsResponse::default()
    };
    for usage in &answer.usage {
        add(&mut figures, usage);
    }
    let condition = answer.volume_condition.filter(|_| tells_health);
    figures.health = condition.map(|condition| Health {
        abnormal: condition.abnormal,
        message: condition.message,
    });
    Ok(figures)
}

fn add(figures: &mut StatsResponse, usage: &VolumeUsage) {
    // A negative number is none.
    let number = |value: i64| Some(u64::try_from(value).unwrap_or_default());
    match usage.unit() {
        Unit::Bytes => {
            figures.available = number(usage.available);
            figures.capacity = number(usage.total);
            figures.used = number(usage.used);
        }
        Unit::Inodes => {
            figures.inodes_free = number(usage.available);
            figures.inodes = number(usage.total);
            figures.inodes_used = number(usage.used);
        }
        Unit::Unknown => {}
    }
}

#[allow(
    clippy::disallowed_methods,
    reason = "the one place where this plugin reads the wall"
)]
fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis().try_into().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use proto::csi::VolumeCondition;

    use super::*;

    fn usage(unit: Unit, total: i64) -> VolumeUsage {
        VolumeUsage {
            available: total - 1,
            total,
            used: 1,
            unit: unit.into(),
        }
    }

    /// Upstream's TestNodeGetVolumeStats and TestGetMetrics.
    #[test]
    fn figures_are_the_driver_s_own() {
        let answer = NodeGetVolumeStatsResponse {
            usage: vec![
                usage(Unit::Bytes, 100),
                usage(Unit::Inodes, 10),
                usage(Unit::Unknown, 1),
            ],
            volume_condition: Some(VolumeCondition {
                abnormal: true,
                message: "bad".to_owned(),
            }),
        };
        let seen = figures(answer.clone(), true).unwrap();
        assert_eq!(
            (seen.capacity, seen.available, seen.used),
            (Some(100), Some(99), Some(1))
        );
        assert_eq!(
            (seen.inodes, seen.inodes_free, seen.inodes_used),
            (Some(10), Some(9), Some(1))
        );
        assert_eq!(seen.health.unwrap().message, "bad");
        assert_eq!(seen.measure, i32::from(Measure::Backend));
        assert!(seen.taken_ms > 0);
        assert_eq!(figures(answer, false).unwrap().health, None);
    }

    /// Upstream's TestNodeGetVolumeStats: no usage.
    #[test]
    fn an_answer_without_figures_is_none_unless_it_tells_health() {
        let empty = NodeGetVolumeStatsResponse::default();
        let why = figures(empty.clone(), false).unwrap_err();
        assert_eq!(
            why.message(),
            "failed to get usage from response. usage is nil"
        );
        assert_eq!(figures(empty, true).unwrap().capacity, None);
        let negative = NodeGetVolumeStatsResponse {
            usage: vec![usage(Unit::Bytes, -5)],
            volume_condition: None,
        };
        assert_eq!(figures(negative, false).unwrap().capacity, Some(0));
    }
}
