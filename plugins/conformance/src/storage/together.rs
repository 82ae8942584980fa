//! Laws of calls at the same time, and of calls with hardly any time.

use futures_util::FutureExt;
use futures_util::future::join_all;
use proto::storage::{Mode, MountRequest, UnmountRequest};
use tonic::Code;

use super::super::{CheckResult, CheckStop, holds, same};
use super::case::{Asked, Mounted, StorageCase, each, text};
use super::mounts::there;
use super::table::layers;
use super::{Sample, StorageCheck};

pub(super) const LAWS: &[(&str, StorageCheck)] = &[
    (
        "volume mounted by many calls at once is mounted once",
        |case| each(case, Mode::FileSystem, |case, it| at_once(case, it).boxed()).boxed(),
    ),
    (
        "volume mounted and unmounted at once ends as either",
        |case| each(case, Mode::FileSystem, |case, it| mixed(case, it).boxed()).boxed(),
    ),
    ("different volumes are mounted at the same time", |case| {
        each(case, Mode::FileSystem, |case, it| {
            different(case, it).boxed()
        })
        .boxed()
    }),
    (
        "call with all the time of the world is carried out",
        |case| each(case, Mode::FileSystem, |case, it| endless(case, it).boxed()).boxed(),
    ),
    (
        "call with hardly any time leaves nothing that a repeat cannot use",
        |case| each(case, Mode::FileSystem, |case, it| hurried(case, it).boxed()).boxed(),
    ),
];

const MANY: usize = 8;

fn mounts(
    case: &StorageCase,
    asked: &[Asked],
) -> Vec<impl Future<Output = Result<String, tonic::Status>> + use<>> {
    let calls = asked.iter().map(|asked| {
        let (mut storage, request) = (case.storage.clone(), asked.request.clone());
        async move { Ok(storage.mount(request).await?.into_inner().path) }
    });
    calls.collect()
}

async fn at_once(case: &mut StorageCase, sample: &Sample) -> CheckResult {
    let mounted = case.mounted(sample).await?;
    case.unmount(&mounted.asked).await?;
    let asked = vec![mounted.asked.clone(); MANY];
    for path in join_all(mounts(case, &asked)).await {
        same("path", path?, text(&mounted.path))?;
    }
    there(&mounted)?;
    let unmounts = (0..MANY).map(|_| {
        let (mut storage, request) = (case.storage.clone(), mounted.asked.unmount());
        async move { storage.unmount(request).await }
    });
    for answer in join_all(unmounts).await {
        answer?;
    }
    same(
        "number of mounts left",
        layers(mounted.asked.target())?,
        mounted.before,
    )
}

async fn mixed(case: &mut StorageCase, sample: &Sample) -> CheckResult {
    let mounted = case.mounted(sample).await?;
    let calls = (0..MANY * 2).map(|number| {
        let mut storage = case.storage.clone();
        let asked = mounted.asked.clone();
        async move {
            match number % 2 {
                0 => storage.mount(asked.request).await.map(drop),
                _ => storage.unmount(asked.unmount()).await.map(drop),
            }
        }
    });
    for answer in join_all(calls).await {
        answer?;
    }
    let now = layers(mounted.asked.target())?;
    holds(now <= mounted.before + 1, || {
        format!("there are {now} mounts")
    })?;
    case.mount(&mounted.asked).await?;
    there(&mounted)?;
    case.unmount(&mounted.asked).await?;
    same(
        "number of mounts left",
        layers(mounted.asked.target())?,
        mounted.before,
    )
}

async fn different(case: &mut StorageCase, sample: &Sample) -> CheckResult {
    let mut asked = Vec::new();
    for _ in 0..MANY {
        let one = case.ask(sample).await?;
        case.prepare(&one).await?;
        asked.push(one);
    }
    let paths = join_all(mounts(case, &asked)).await;
    for (asked, path) in asked.into_iter().zip(paths) {
        let path = path?.into();
        there(&Mounted {
            asked,
            path,
            before: 0,
        })?;
    }
    Ok(())
}

async fn endless(case: &mut StorageCase, sample: &Sample) -> CheckResult {
    let mounted = case.mounted(sample).await?;
    let request = UnmountRequest {
        within_ms: u32::MAX,
        ..mounted.asked.unmount()
    };
    case.storage.unmount(request).await?;
    let request = MountRequest {
        within_ms: u32::MAX,
        ..mounted.asked.request.clone()
    };
    case.storage.mount(request).await?;
    there(&mounted)
}

async fn hurried(case: &mut StorageCase, sample: &Sample) -> CheckResult {
    let mounted = case.mounted(sample).await?;
    for _ in 0..10 {
        let request = UnmountRequest {
            within_ms: 1,
            ..mounted.asked.unmount()
        };
        in_time_or_late(case.storage.unmount(request).await)?;
        let request = MountRequest {
            within_ms: 1,
            ..mounted.asked.request.clone()
        };
        in_time_or_late(case.storage.mount(request).await)?;
    }
    case.mount(&mounted.asked).await?;
    there(&mounted)?;
    case.unmount(&mounted.asked).await?;
    same(
        "number of mounts left",
        layers(mounted.asked.target())?,
        mounted.before,
    )
}

fn in_time_or_late<T>(answer: Result<T, tonic::Status>) -> CheckResult {
    match answer {
        Err(status) if status.code() != Code::DeadlineExceeded => {
            Err(CheckStop::Broken(format!("a call with 1 ms got {status}")))
        }
        Ok(_) | Err(_) => Ok(()),
    }
}
