//! Laws of what is done once for all pods of a volume: staging and growing.

use futures_util::FutureExt;
use proto::storage::{ExpandRequest, Found, Mode, State};
use tonic::Code;

use super::super::{CheckResult, CheckStop, holds, refused, same};
use super::case::{Asked, StorageCase, each, text};
use super::mounts::there;
use super::table::layers;
use super::{Sample, StorageCheck};

pub(super) const LAWS: &[(&str, StorageCheck)] = &[
    (
        "volume that is staged again is staged once, and is listed as that",
        |case| each(case, Mode::FileSystem, |case, it| staged(case, it).boxed()).boxed(),
    ),
    (
        "volume that is unstaged is gone, and may be unstaged again",
        |case| {
            each(case, Mode::FileSystem, |case, it| {
                unstaged(case, it).boxed()
            })
            .boxed()
        },
    ),
    ("volume that was never staged may be unstaged", |case| {
        each(case, Mode::FileSystem, |case, it| never(case, it).boxed()).boxed()
    }),
    (
        "volume grows where its kind can, and may be told again",
        |case| each(case, Mode::FileSystem, |case, it| grown(case, it).boxed()).boxed(),
    ),
];

/// Larger than any sample needs to be.
const SIZE: u64 = 2 << 30;

async fn ask(case: &mut StorageCase, sample: &Sample) -> Result<Asked, CheckStop> {
    let asked = case.ask(sample).await?;
    match asked.staged {
        true => Ok(asked),
        false => Err(CheckStop::Skipped("no sample is staged")),
    }
}

async fn of_stage(case: &mut StorageCase, asked: &Asked) -> Result<Vec<Found>, CheckStop> {
    let found = case.listed(asked).await?.into_iter();
    Ok(found
        .filter(|found| matches!(found.state(), State::Staged | State::StagedBlock))
        .collect())
}

async fn staged(case: &mut StorageCase, sample: &Sample) -> CheckResult {
    let asked = ask(case, sample).await?;
    let first = case.storage.stage(asked.stage()).await?.into_inner().path;
    holds(first.starts_with('/'), || {
        format!("path is {first:?}, expected an absolute one")
    })?;
    let mounts = layers(first.as_ref())?;
    holds(mounts <= 1, || format!("{mounts} mounts are at {first:?}"))?;
    for _ in 0..3 {
        let again = case.storage.stage(asked.stage()).await?.into_inner().path;
        same("path", &again, &first)?;
        same("number of mounts there", layers(first.as_ref())?, mounts)?;
    }
    let found = of_stage(case, &asked).await?;
    match found.as_slice() {
        // A driver that stages nothing leaves no trace.
        [] if mounts == 0 => Ok(()),
        [one] => {
            same("kind", &one.kind, &asked.kind())?;
            same("path", &one.path, &first)?;
            same("pod_uid", one.pod_uid.as_str(), "")
        }
        other => Err(CheckStop::Broken(format!(
            "listed are {other:?}, expected one staged volume"
        ))),
    }
}

async fn unstaged(case: &mut StorageCase, sample: &Sample) -> CheckResult {
    let asked = ask(case, sample).await?;
    let path = case.storage.stage(asked.stage()).await?.into_inner().path;
    for _ in 0..3 {
        case.storage.unstage(asked.unstage()).await?;
        same("number of mounts where it was", layers(path.as_ref())?, 0)?;
        same("what is listed", of_stage(case, &asked).await?, vec![])?;
    }
    case.storage.stage(asked.stage()).await?;
    case.storage.unstage(asked.unstage()).await?;
    Ok(())
}

async fn never(case: &mut StorageCase, sample: &Sample) -> CheckResult {
    let asked = ask(case, sample).await?;
    case.storage.unstage(asked.unstage()).await?;
    same("what is listed", of_stage(case, &asked).await?, vec![])
}

async fn grown(case: &mut StorageCase, sample: &Sample) -> CheckResult {
    let mounted = case.mounted(sample).await?;
    let asked = &mounted.asked;
    let ability = case.ability(asked).await?;
    let staged = match asked.staged {
        true => case.storage.stage(asked.stage()).await?.into_inner().path,
        false => String::new(),
    };
    let mut request = ExpandRequest {
        volume: asked.request.volume.clone(),
        path: text(&mounted.path),
        staged,
        size: SIZE,
        within_ms: 0,
        mode: Mode::FileSystem.into(),
    };
    if !ability.expand {
        let status = refused("the expansion", case.storage.expand(request).await)?;
        return same("code", status.code(), Code::Unimplemented);
    }
    if ability.expand_offline_only {
        case.unmount(asked).await?;
        request.path.clear();
    }
    for _ in 0..2 {
        let size = case
            .storage
            .expand(request.clone())
            .await?
            .into_inner()
            .size;
        holds(size == 0 || size >= SIZE, || {
            format!("size is {size}, expected 0 or at least {SIZE}")
        })?;
    }
    match ability.expand_offline_only {
        true => Ok(()),
        false => there(&mounted),
    }
}
