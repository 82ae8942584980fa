//! Laws of raw block volumes.

use std::fs;

use futures_util::FutureExt;
use proto::storage::{Mode, State};
use tonic::Code;

use super::super::{CheckResult, CheckStop, holds, refused, same};
use super::case::{StorageCase, each, exists};
use super::{Sample, StorageCheck};

pub(super) const LAWS: &[(&str, StorageCheck)] = &[
    (
        "raw device is mapped to the pod, and mapping it again changes nothing",
        |case| each(case, Mode::Block, |case, it| mapped(case, it).boxed()).boxed(),
    ),
    (
        "raw device is listed while it is mapped, and not after that",
        |case| each(case, Mode::Block, |case, it| listed(case, it).boxed()).boxed(),
    ),
    (
        "raw device that is unmapped is gone, and may be unmapped again",
        |case| each(case, Mode::Block, |case, it| unmapped(case, it).boxed()).boxed(),
    ),
    (
        "kind without raw block volumes refuses to map one",
        |case| {
            each(case, Mode::FileSystem, |case, it| {
                refused_kind(case, it).boxed()
            })
            .boxed()
        },
    ),
];

async fn mapped(case: &mut StorageCase, sample: &Sample) -> CheckResult {
    let (asked, answer) = case.mapped(sample).await?;
    let target = asked.target();
    let device = &answer.device;
    let found = fs::metadata(device);
    holds(found.is_ok(), || {
        format!("there is no device at {device:?}: {found:?}")
    })?;
    let link = fs::symlink_metadata(target);
    let is_link = link.as_ref().is_ok_and(fs::Metadata::is_symlink);
    holds(is_link, || {
        format!("{target:?} is {link:?}, expected a link")
    })?;
    let aim = fs::read_link(target)?;
    for _ in 0..3 {
        case.prepare(&asked).await?;
        let again = case.storage.map_block(asked.map()).await?.into_inner();
        same("device", &again.device, device)?;
        same("aim of the link", fs::read_link(target)?, aim.clone())?;
    }
    Ok(())
}

async fn listed(case: &mut StorageCase, sample: &Sample) -> CheckResult {
    let (asked, _) = case.mapped(sample).await?;
    let found = case.listed(&asked).await?.into_iter();
    let found: Vec<_> = found
        .filter(|found| !matches!(found.state(), State::Staged | State::StagedBlock))
        .collect();
    let [one] = found.as_slice() else {
        return Err(CheckStop::Broken(format!(
            "listed are {found:?}, expected one mapped volume"
        )));
    };
    same("state", one.state(), State::Mapped)?;
    same("kind", &one.kind, &asked.kind())?;
    same("name", &one.name, &asked.name())?;
    same("pod_uid", &one.pod_uid, &asked.names.pod)?;
    same("path", &one.path, &asked.request.target)?;
    case.storage.unmap_block(asked.unmap()).await?;
    let left = case.listed(&asked).await?.into_iter();
    let left: Vec<_> = left
        .filter(|found| found.state() == State::Mapped)
        .collect();
    same("what is listed after unmapping", left, vec![])
}

async fn unmapped(case: &mut StorageCase, sample: &Sample) -> CheckResult {
    let (asked, _) = case.mapped(sample).await?;
    for _ in 0..3 {
        case.storage.unmap_block(asked.unmap()).await?;
        let target = asked.target();
        holds(!exists(target), || format!("{target:?} is still there"))?;
    }
    case.storage.map_block(asked.map()).await?;
    Ok(())
}

async fn refused_kind(case: &mut StorageCase, sample: &Sample) -> CheckResult {
    let asked = case.ask(sample).await?;
    if case.ability(&asked).await?.block {
        return Err(CheckStop::Skipped("each kind has raw block volumes"));
    }
    let mut request = asked.map();
    request.target = asked.names.device(&asked.kind());
    let status = refused("the mapping", case.storage.map_block(request).await)?;
    same("code", status.code(), Code::Unimplemented)
}
