//! A suite that any plugin passes is worth nothing: this one nods at everything and does nothing.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::pin::Pin;

use futures_util::Stream;
use proto::storage::storage_server::{Storage, StorageServer};
use proto::storage::volume::Source;
use proto::storage::{
    BatchStatsRequest, BatchStatsResponse, BindSubpathRequest, BindSubpathResponse,
    CapabilitiesRequest, CapabilitiesResponse, EmptyDir, Event, ExpandRequest, ExpandResponse,
    FileSet, InquireRequest, InquireResponse, KindCapability, ListRequest, ListResponse,
    MapBlockRequest, MapBlockResponse, MountResponse, Pod, ReadFileRequest, ReadFileResponse,
    ReleaseSubpathsRequest, ReleaseSubpathsResponse, RemovePodRequest, RemovePodResponse,
    StageRequest, StageResponse, StatsRequest, StatsResponse, UnmapBlockRequest,
    UnmapBlockResponse, UnmountRequest, UnmountResponse, UnstageRequest, UnstageResponse, Volume,
    WatchRequest,
};
use tonic::{Request, Response, Status};

use super::super::Outcome;
use super::*;

/// Says yes, and does nothing but make the folder that it is asked for.
struct Nodder;

type Answer<T> = Result<Response<T>, Status>;

fn yes<T: Default>() -> Answer<T> {
    Ok(Response::new(T::default()))
}

#[tonic::async_trait]
impl Storage for Nodder {
    type WatchStream = Pin<Box<dyn Stream<Item = Result<Event, Status>> + Send>>;

    async fn capabilities(&self, _: Request<CapabilitiesRequest>) -> Answer<CapabilitiesResponse> {
        let kind = |kind: &str| KindCapability {
            kind: kind.to_owned(),
            staged: true,
            block: kind != "example-files",
            expand: true,
            updates: true,
            expand_offline_only: false,
        };
        let kinds = ["example", "example", "example-files"].map(kind).into();
        Ok(Response::new(CapabilitiesResponse { kinds }))
    }

    async fn stage(&self, _: Request<StageRequest>) -> Answer<StageResponse> {
        yes()
    }

    async fn unstage(&self, _: Request<UnstageRequest>) -> Answer<UnstageResponse> {
        yes()
    }

    async fn mount(&self, request: Request<MountRequest>) -> Answer<MountResponse> {
        let path = request.into_inner().target;
        if path.contains("/pods/law-") && !path.contains("..") {
            drop(std::fs::create_dir_all(&path));
        }
        Ok(Response::new(MountResponse {
            path,
            ..MountResponse::default()
        }))
    }

    async fn unmount(&self, _: Request<UnmountRequest>) -> Answer<UnmountResponse> {
        yes()
    }

    async fn map_block(&self, _: Request<MapBlockRequest>) -> Answer<MapBlockResponse> {
        yes()
    }

    async fn unmap_block(&self, _: Request<UnmapBlockRequest>) -> Answer<UnmapBlockResponse> {
        yes()
    }

    async fn list(&self, _: Request<ListRequest>) -> Answer<ListResponse> {
        yes()
    }

    async fn stats(&self, _: Request<StatsRequest>) -> Answer<StatsResponse> {
        yes()
    }

    async fn batch_stats(&self, _: Request<BatchStatsRequest>) -> Answer<BatchStatsResponse> {
        yes()
    }

    async fn expand(&self, _: Request<ExpandRequest>) -> Answer<ExpandResponse> {
        Ok(Response::new(ExpandResponse { size: 1 }))
    }

    async fn bind_subpath(&self, _: Request<BindSubpathRequest>) -> Answer<BindSubpathResponse> {
        yes()
    }

    async fn release_subpaths(
        &self,
        _: Request<ReleaseSubpathsRequest>,
    ) -> Answer<ReleaseSubpathsResponse> {
        yes()
    }

    async fn read_file(&self, _: Request<ReadFileRequest>) -> Answer<ReadFileResponse> {
        yes()
    }

    async fn remove_pod(&self, request: Request<RemovePodRequest>) -> Answer<RemovePodResponse> {
        let folder = request.into_inner().folder;
        let lies = folder.contains("/pods/law-") && !folder.contains("volumes");
        if lies {
            drop(std::fs::remove_dir_all(folder));
        }
        yes()
    }

    async fn watch(&self, _: Request<WatchRequest>) -> Answer<Self::WatchStream> {
        Ok(Response::new(Box::pin(futures_util::stream::empty())))
    }

    async fn inquire(&self, _: Request<InquireRequest>) -> Answer<InquireResponse> {
        yes()
    }
}

fn sample(words: &'static str, mode: Mode, source: Source) -> Sample {
    let make = move |names: &Names| {
        let files = matches!(source, Source::Files(_));
        let kind = if files { "example-files" } else { "example" };
        MountRequest {
            volume: Some(Volume {
                id: format!("example/{}", names.volume),
                kind: kind.to_owned(),
                name: names.volume.clone(),
                source: Some(source.clone()),
            }),
            pod: Some(Pod {
                uid: names.pod.clone(),
                ..Pod::default()
            }),
            target: match mode {
                Mode::FileSystem => names.target(kind),
                Mode::Block => names.device(kind),
            },
            ..MountRequest::default()
        }
    };
    Sample {
        words,
        mode,
        make: Arc::new(make),
    }
}

/// What a plugin keeps that leaves a folder where it was asked for one, and nothing else.
const EASY: &[&str] = &[
    "volume that is mounted is there, and mounting it again changes nothing",
    "volume that was unmounted may be mounted again",
    "volume that was never mounted may be unmounted",
    "volume that is unmounted takes no other with it",
    "volume that is unstaged is gone, and may be unstaged again",
    "volume that was never staged may be unstaged",
    "raw device that is unmapped is gone, and may be unmapped again",
    "pod whose volumes are unmounted is removed, and may be removed again",
    "link in a pod's folder is never followed",
    "volume mounted by many calls at once is mounted once",
    "volume mounted and unmounted at once ends as either",
    "different volumes are mounted at the same time",
    "call with all the time of the world is carried out",
    "call with hardly any time leaves nothing that a repeat cannot use",
];

#[tokio::test]
async fn a_plugin_that_nods_and_does_nothing_breaks_the_laws() {
    let home = tempfile::tempdir().unwrap();
    let info = sdk::Info {
        name: "storage-nodder",
        version: "1",
        kind: sdk::Kind::Storage,
        capabilities: vec![],
    };
    let plugin = sdk::testing::start(home.path(), info, serde_json::Value::Null, |_| async {
        Ok(sdk::Routes::new(StorageServer::new(Nodder)))
    })
    .await
    .unwrap();
    let report = run(Target {
        channel: plugin.channel.clone(),
        root: home.path().join("root"),
        samples: vec![
            sample(
                "folder",
                Mode::FileSystem,
                Source::EmptyDir(EmptyDir::default()),
            ),
            sample("files", Mode::FileSystem, Source::Files(FileSet::default())),
            sample("device", Mode::Block, Source::EmptyDir(EmptyDir::default())),
        ],
    })
    .await;
    let kept: BTreeSet<_> = report
        .laws
        .iter()
        .filter(|law| law.outcome == Outcome::Kept)
        .map(|law| law.words)
        .collect();
    assert_eq!(kept, EASY.iter().copied().collect(), "{report}");
}

/// A volume of three files in upstream's layout, changed by a fault; what its reader says.
fn look_after(fault: impl Fn(&Path) -> std::io::Result<()>) -> Result<(), String> {
    let home = tempfile::tempdir().unwrap();
    let volume = home.path();
    let generation = volume.join("..one");
    fs::create_dir_all(generation.join("folder")).unwrap();
    for name in ["first", "folder/middle", "last"] {
        fs::write(generation.join(name), vec![b'a'; 64 << 10]).unwrap();
    }
    for (link, target) in [
        ("..data", "..one"),
        ("first", "..data/first"),
        ("folder", "..data/folder"),
        ("last", "..data/last"),
    ] {
        symlink(target, volume.join(link)).unwrap();
    }
    fault(&generation).unwrap();
    updates::look(volume)
}

#[test]
fn a_reader_excuses_nothing_while_the_link_stays() {
    assert_eq!(look_after(|_| Ok(())), Ok(()));
    let missing = look_after(|generation| fs::remove_file(generation.join("first")));
    assert!(missing.unwrap_err().contains("No such file"));
    let half = look_after(|generation| fs::write(generation.join("folder/middle"), "aaaa"));
    assert!(half.unwrap_err().contains("half-written"));
    let mixed = look_after(|generation| fs::write(generation.join("last"), vec![b'b'; 64 << 10]));
    assert!(mixed.unwrap_err().contains("several generations"));
}
