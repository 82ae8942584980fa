//! Laws of mounting and unmounting.

use std::fs;

use futures_util::FutureExt;
use proto::storage::{Found, Mode, State, UnmountRequest};

use super::super::{CheckResult, holds, same};
use super::case::{Asked, Mounted, StorageCase, each, exists, text};
use super::table::layers;
use super::{Sample, StorageCheck};

pub(super) const LAWS: &[(&str, StorageCheck)] = &[
    (
        "volume that is mounted is there, and mounting it again changes nothing",
        |case| {
            each(case, Mode::FileSystem, |case, it| {
                repeated(case, it).boxed()
            })
            .boxed()
        },
    ),
    (
        "volume that is unmounted is gone, and may be unmounted again",
        |case| each(case, Mode::FileSystem, |case, it| gone(case, it).boxed()).boxed(),
    ),
    ("volume that was unmounted may be mounted again", |case| {
        each(case, Mode::FileSystem, |case, it| {
            returned(case, it).boxed()
        })
        .boxed()
    }),
    ("volume that was never mounted may be unmounted", |case| {
        each(case, Mode::FileSystem, |case, it| never(case, it).boxed()).boxed()
    }),
    (
        "volume is listed as what it is while it is mounted, and not after that",
        |case| each(case, Mode::FileSystem, |case, it| listed(case, it).boxed()).boxed(),
    ),
    ("volume that is unmounted takes no other with it", |case| {
        each(case, Mode::FileSystem, |case, it| alone(case, it).boxed()).boxed()
    }),
];

/// Breaks the law unless the volume can be used, and is mounted once at most.
pub(super) fn there(mounted: &Mounted) -> CheckResult {
    let path = &mounted.path;
    let found = fs::metadata(path);
    holds(found.is_ok(), || {
        format!("there is nothing at {path:?}: {found:?}")
    })?;
    let target = mounted.asked.target();
    let now = layers(target)?;
    holds(now <= mounted.before + 1, || {
        format!(
            "{now} mounts are at {target:?}, before there were {}",
            mounted.before
        )
    })
}

/// Breaks the law if there is still something of the volume.
fn nothing_left(mounted: &Mounted) -> CheckResult {
    let target = mounted.asked.target();
    same(
        "number of mounts at the target",
        layers(target)?,
        mounted.before,
    )?;
    if mounted.asked.of_the_node() {
        return there(mounted);
    }
    holds(!exists(target), || format!("{target:?} is still there"))
}

async fn repeated(case: &mut StorageCase, sample: &Sample) -> CheckResult {
    let mounted = case.mounted(sample).await?;
    there(&mounted)?;
    let first = layers(mounted.asked.target())?;
    for _ in 0..3 {
        case.prepare(&mounted.asked).await?;
        let again = case.mount(&mounted.asked).await?;
        same("path", again.path, text(&mounted.path))?;
        same(
            "number of mounts at the target",
            layers(mounted.asked.target())?,
            first,
        )?;
    }
    there(&mounted)
}

async fn gone(case: &mut StorageCase, sample: &Sample) -> CheckResult {
    let mounted = case.mounted(sample).await?;
    for _ in 0..3 {
        case.unmount(&mounted.asked).await?;
        nothing_left(&mounted)?;
    }
    Ok(())
}

async fn returned(case: &mut StorageCase, sample: &Sample) -> CheckResult {
    let mounted = case.mounted(sample).await?;
    for _ in 0..2 {
        case.unmount(&mounted.asked).await?;
        case.mount(&mounted.asked).await?;
        there(&mounted)?;
    }
    Ok(())
}

async fn never(case: &mut StorageCase, sample: &Sample) -> CheckResult {
    let asked = case.ask(sample).await?;
    case.unmount(&asked).await?;
    let without_id = UnmountRequest {
        volume_id: String::new(),
        ..asked.unmount()
    };
    case.storage.unmount(without_id).await?;
    same("what is listed", case.listed(&asked).await?, vec![])
}

async fn listed(case: &mut StorageCase, sample: &Sample) -> CheckResult {
    let mounted = case.mounted(sample).await?;
    let asked = &mounted.asked;
    let found = case.listed(asked).await?;
    let found: Vec<_> = found
        .into_iter()
        .filter(|found| found.state() != State::Staged)
        .collect();
    match found.as_slice() {
        // What is the node's own leaves no trace that could be found.
        [] if asked.of_the_node() => {}
        [one] => as_mounted(one, asked)?,
        other => {
            holds(false, || {
                format!("listed are {other:?}, expected one volume")
            })?;
        }
    }
    case.unmount(asked).await?;
    let left = case.listed(asked).await?.into_iter();
    let left: Vec<_> = left
        .filter(|found| found.state() != State::Staged)
        .collect();
    same("what is listed after unmounting", left, vec![])
}

fn as_mounted(found: &Found, asked: &Asked) -> CheckResult {
    same("state", found.state(), State::Mounted)?;
    same("kind", &found.kind, &asked.kind())?;
    same("name", &found.name, &asked.name())?;
    same("pod_uid", &found.pod_uid, &asked.names.pod)?;
    same("path", &found.path, &asked.request.target)?;
    // Not every plugin writes down what the agent calls it.
    holds(
        found.volume_id.is_empty() || found.volume_id == asked.id(),
        || {
            format!(
                "volume_id is {:?}, expected {:?}",
                found.volume_id,
                asked.id()
            )
        },
    )
}

async fn alone(case: &mut StorageCase, sample: &Sample) -> CheckResult {
    let (one, other) = (case.mounted(sample).await?, case.mounted(sample).await?);
    case.unmount(&one.asked).await?;
    there(&other)?;
    let mounts = layers(other.asked.target())?;
    case.mount(&other.asked).await?;
    same(
        "number of mounts at the other",
        layers(other.asked.target())?,
        mounts,
    )
}
