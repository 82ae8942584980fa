//! Usage of volumes: upstream's method for each kind (pkg/volume/metrics_*.go, 1.36).

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use mounts::answer::failed;
use mounts::{measure, requests};
use proto::storage::batch_stats_result::Result as BatchStatsResultKind;
use proto::storage::{BatchStatsResult, Measure, StatsRequest, StatsResponse};
use tonic::Status;

use crate::kind::{Backing, LocalVolumeKind};
use crate::volumes::empty_dir;
use crate::volumes::host_path::{self, Found};

/// As the contract has it.
const MAX_BATCH: usize = 256;

/// How a volume is measured.
#[derive(Debug)]
pub(crate) enum Figures {
    /// At once.
    Known(StatsResponse),
    /// By a walk through its files.
    Walk,
}

/// Measures what can be measured without a walk.
pub(crate) fn figures(kind: LocalVolumeKind, path: &Path) -> Result<Figures, Status> {
    match kind {
        LocalVolumeKind::HostPath => Err(Status::unimplemented(
            "metrics are not supported for MetricsNil Volumes",
        )),
        LocalVolumeKind::EmptyDir
        | LocalVolumeKind::ConfigMap
        | LocalVolumeKind::Secret
        | LocalVolumeKind::Projected
        | LocalVolumeKind::DownwardApi => match empty_dir::own_file_system(path)? {
            true => measure::file_system(path).map(Figures::Known),
            false => Ok(Figures::Walk),
        },
        LocalVolumeKind::Nfs => measure::file_system(path).map(Figures::Known),
        LocalVolumeKind::Local => match host_path::probe(path) {
            Ok(Found::BlockDevice) => device(path).map(Figures::Known),
            Ok(_) | Err(_) => measure::file_system(path).map(Figures::Known),
        },
    }
}

/// Checks what a Stats names.
pub(crate) fn target(request: &StatsRequest) -> Result<(LocalVolumeKind, PathBuf), Status> {
    let kind = LocalVolumeKind::read(&request.kind)?;
    Ok((kind, requests::absolute("path", &request.path)?))
}

/// Refuses a batch that is longer than the contract has it.
pub(crate) fn check_batch(volumes: &[StatsRequest]) -> Result<(), Status> {
    match volumes.len() {
        0..=MAX_BATCH => Ok(()),
        many => Err(Status::invalid_argument(format!(
            "{many} volumes are to be measured at once, expected {MAX_BATCH} at most"
        ))),
    }
}

/// Measures one volume of a batch; one that has to be walked through is refused.
pub(crate) fn in_memory(request: &StatsRequest) -> BatchStatsResult {
    let measured = target(request).and_then(|(kind, path)| match kind.backing() {
        Backing::Own => figures(kind, &path),
        Backing::Foreign => Ok(Figures::Walk),
    });
    let result = match measured {
        Ok(Figures::Known(stats)) => BatchStatsResultKind::Stats(stats),
        Ok(Figures::Walk) => {
            let path = &request.path;
            let why = format!("{path} does not lie in memory: only Stats measures it");
            BatchStatsResultKind::Refused(why)
        }
        Err(refused) => BatchStatsResultKind::Refused(refused.message().to_owned()),
    };
    BatchStatsResult {
        result: Some(result),
    }
}

/// Of a raw device only its size is known.
fn device(path: &Path) -> Result<StatsResponse, Status> {
    let size = || -> io::Result<u64> { File::open(path)?.seek(SeekFrom::End(0)) };
    let size =
        size().map_err(|error| failed(format!("cannot measure {}", path.display()), error))?;
    Ok(StatsResponse {
        capacity: Some(size),
        measure: Measure::Backend.into(),
        ..StatsResponse::default()
    })
}

#[cfg(test)]
mod tests {
    use mounts::mount::{self, TmpfsOptions};

    use super::*;
    use crate::testing::Node;

    const OWN: [LocalVolumeKind; 5] = [
        LocalVolumeKind::EmptyDir,
        LocalVolumeKind::ConfigMap,
        LocalVolumeKind::Secret,
        LocalVolumeKind::Projected,
        LocalVolumeKind::DownwardApi,
    ];

    #[test]
    fn a_file_system_of_its_own_is_asked_and_a_folder_is_walked() {
        let node = Node::new();
        let (folder, memory) = (node.folder("folder"), node.folder("memory"));
        let options = TmpfsOptions {
            size: 1 << 20,
            ..TmpfsOptions::default()
        };
        mount::tmpfs(&memory, &options).unwrap();
        std::fs::write(memory.join("x"), vec![1; 100_000]).unwrap();
        for kind in OWN {
            assert!(matches!(figures(kind, &folder).unwrap(), Figures::Walk));
            let Figures::Known(known) = figures(kind, &memory).unwrap() else {
                panic!("{kind:?} in memory is walked through");
            };
            assert_eq!(
                (known.capacity, known.used),
                (Some(1 << 20), Some(25 * 4096))
            );
        }
        for kind in [LocalVolumeKind::Local, LocalVolumeKind::Nfs] {
            assert!(matches!(figures(kind, &memory).unwrap(), Figures::Known(_)));
        }
    }

    #[test]
    fn of_a_batch_each_volume_in_memory_is_measured_and_each_other_is_refused_with_its_reason() {
        let node = Node::new();
        let (folder, memory) = (node.folder("folder"), node.folder("memory"));
        mount::tmpfs(&memory, &TmpfsOptions::default()).unwrap();
        let asked = |kind: &str, path: &Path| StatsRequest {
            kind: kind.to_owned(),
            path: path.display().to_string(),
            ..StatsRequest::default()
        };
        let told = |kind: &str, path: &Path| match in_memory(&asked(kind, path)).result.unwrap() {
            BatchStatsResultKind::Stats(stats) => Ok(stats.used.is_some()),
            BatchStatsResultKind::Refused(why) => Err(why),
        };
        assert_eq!(told("projected", &memory), Ok(true));
        for (kind, path, why) in [
            ("projected", folder.as_path(), "does not lie in memory"),
            ("nfs", memory.as_path(), "does not lie in memory"),
            ("host-path", memory.as_path(), "does not lie in memory"),
            ("secret", Path::new("/no/such/volume"), "/no/such/volume"),
            ("secret", Path::new("here"), "here"),
            ("cake", memory.as_path(), "cake"),
        ] {
            let refused = told(kind, path).unwrap_err();
            assert!(refused.contains(why), "{kind} {path:?}: {refused}");
        }
    }

    #[test]
    fn a_batch_has_256_volumes_at_most() {
        let volumes = vec![StatsRequest::default(); 257];
        assert!(check_batch(&volumes[1..]).is_ok());
        let refused = check_batch(&volumes).unwrap_err();
        assert_eq!(refused.code(), tonic::Code::InvalidArgument);
    }

    #[test]
    fn a_path_of_the_node_has_no_figures() {
        let refused = figures(LocalVolumeKind::HostPath, Path::new("/")).unwrap_err();
        assert_eq!(
            (refused.code(), refused.message()),
            (
                tonic::Code::Unimplemented,
                "metrics are not supported for MetricsNil Volumes"
            )
        );
    }

    #[test]
    fn of_a_raw_disk_the_size_is_known() {
        let mut node = Node::new();
        let device = node.disk("image");
        let Figures::Known(known) = figures(LocalVolumeKind::Local, &device).unwrap() else {
            panic!("a disk is walked through");
        };
        assert_eq!((known.capacity, known.used), (Some(16 << 20), None));
    }

    #[test]
    fn a_volume_that_is_not_there_is_not_found() {
        for kind in [LocalVolumeKind::Local, LocalVolumeKind::Nfs] {
            let refused = figures(kind, Path::new("/no/such/volume")).unwrap_err();
            assert_eq!(refused.code(), tonic::Code::NotFound);
        }
    }
}
