//! Laws of removing what is left of a pod: never across a mount point, never data.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use futures_util::FutureExt;
use proto::storage::{Mode, RemovePodRequest};
use tonic::Code;

use super::super::{CheckResult, CheckStop, holds, refused, same};
use super::case::{StorageCase, each, exists, text};
use super::mounts::there;
use super::table::layers;
use super::{Names, Sample, StorageCheck};

pub(super) const LAWS: &[(&str, StorageCheck)] = &[
    (
        "pod whose volumes are unmounted is removed, and may be removed again",
        |case| each(case, Mode::FileSystem, |case, it| removed(case, it).boxed()).boxed(),
    ),
    (
        "pod with a mounted volume is kept, with all that is in it",
        |case| each(case, Mode::FileSystem, |case, it| kept(case, it).boxed()).boxed(),
    ),
    (
        "data of a volume that is not mounted is kept, and told",
        |case| data(case).boxed(),
    ),
    ("link in a pod's folder is never followed", |case| {
        link(case).boxed()
    }),
    ("folder that is no pod's is not removed", |case| {
        elsewhere(case).boxed()
    }),
];

async fn remove(case: &mut StorageCase, folder: &Path) -> Result<Vec<String>, CheckStop> {
    let request = RemovePodRequest {
        folder: text(folder),
        within_ms: 0,
    };
    Ok(case.storage.remove_pod(request).await?.into_inner().kept)
}

/// Makes the files that an agent and a runtime leave beside volumes.
fn furnish(folder: &Path) -> std::io::Result<()> {
    fs::create_dir_all(folder.join("containers/main"))?;
    fs::create_dir_all(folder.join("plugins/kubernetes.io~empty-dir/wrapped"))?;
    fs::write(
        folder.join("plugins/kubernetes.io~empty-dir/wrapped/ready"),
        "",
    )?;
    fs::write(folder.join("containers/main/4711"), "log")?;
    fs::write(folder.join("etc-hosts"), "127.0.0.1 localhost")
}

async fn removed(case: &mut StorageCase, sample: &Sample) -> CheckResult {
    let mounted = case.mounted(sample).await?;
    let folder = mounted.asked.names.folder();
    case.unmount(&mounted.asked).await?;
    furnish(&folder)?;
    for _ in 0..3 {
        same("what is kept", remove(case, &folder).await?, vec![])?;
        holds(!exists(&folder), || format!("{folder:?} is still there"))?;
    }
    Ok(())
}

async fn kept(case: &mut StorageCase, sample: &Sample) -> CheckResult {
    let mounted = case.mounted(sample).await?;
    let (folder, target) = (mounted.asked.names.folder(), mounted.asked.target());
    let mounts = layers(target)?;
    if mounts == 0 {
        return Err(CheckStop::Skipped("no sample is a mount"));
    }
    furnish(&folder)?;
    let kept = remove(case, &folder).await?;
    let told = kept.iter().any(|line| line.starts_with(&text(target)));
    holds(told, || {
        format!("kept are {kept:?}, expected {target:?} among them")
    })?;
    same("number of mounts at the target", layers(target)?, mounts)?;
    there(&mounted)
}

fn names(case: &StorageCase) -> Names {
    Names {
        root: case.target.root.clone(),
        pod: case.name.clone(),
        volume: case.name.clone(),
    }
}

async fn data(case: &mut StorageCase) -> CheckResult {
    let names = names(case);
    let folder = names.folder();
    for kind in ["empty-dir", "nfs", "local-volume", "example"] {
        let volume = folder.join("volumes").join(format!("kubernetes.io~{kind}"));
        let volume = volume.join(&names.volume);
        fs::create_dir_all(volume.join("deep"))?;
        fs::write(volume.join("deep/file"), "data")?;
        furnish(&folder)?;
        let kept = remove(case, &folder).await;
        let left = fs::read_to_string(volume.join("deep/file"));
        fs::remove_dir_all(&folder)?;
        let kept = kept?;
        let told = kept.iter().any(|line| line.starts_with(&text(&volume)));
        holds(told, || {
            format!("kept are {kept:?}, expected {volume:?} among them")
        })?;
        same(
            "what is left of the data",
            left.ok().as_deref(),
            Some("data"),
        )?;
    }
    Ok(())
}

async fn link(case: &mut StorageCase) -> CheckResult {
    let folder = names(case).folder();
    let outside = case.target.root.join(format!("outside-{}", case.name));
    fs::create_dir_all(&outside)?;
    fs::write(outside.join("file"), "data")?;
    fs::create_dir_all(folder.join("containers"))?;
    symlink(&outside, folder.join("containers/link"))?;
    let inner = remove(case, &folder).await;
    // The pod's own folder is a link.
    drop(fs::remove_dir_all(&folder));
    symlink(&outside, &folder)?;
    drop(remove(case, &folder).await);
    let left = fs::read_to_string(outside.join("file"));
    drop(fs::remove_file(&folder));
    fs::remove_dir_all(&outside)?;
    same("what is kept", inner?, vec![])?;
    same("what the links led to", left.ok().as_deref(), Some("data"))
}

async fn elsewhere(case: &mut StorageCase) -> CheckResult {
    let root = text(&case.target.root);
    let pod = text(&names(case).folder());
    let volumes = Path::new(&pod).join("volumes/kubernetes.io~nfs/x");
    fs::create_dir_all(&volumes)?;
    fs::write(volumes.join("file"), "data")?;
    for folder in [
        "/".to_owned(),
        "/tmp".to_owned(),
        root.clone(),
        format!("{root}/pods"),
        format!("{pod}/volumes"),
        format!("{pod}/volumes/kubernetes.io~nfs/x"),
        format!("{pod}/../{}", case.name),
        "pods/x".to_owned(),
        String::new(),
    ] {
        let request = RemovePodRequest {
            folder: folder.clone(),
            within_ms: 0,
        };
        let what = format!("the folder {folder:?}");
        let status = refused(&what, case.storage.remove_pod(request).await)?;
        same(&what, status.code(), Code::InvalidArgument)?;
    }
    let left = fs::read_to_string(volumes.join("file"));
    fs::remove_dir_all(&pod)?;
    same(
        "what is left of the data",
        left.ok().as_deref(),
        Some("data"),
    )
}
