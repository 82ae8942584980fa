//! Laws of measuring.

use futures_util::FutureExt;
use futures_util::future::join_all;
use proto::storage::batch_stats_result::Result as Outcome;
use proto::storage::{BatchStatsRequest, Measure, Mode, StatsRequest, StatsResponse};
use tonic::Code;

use super::super::{CheckResult, CheckStop, holds, refused};
use super::case::{Mounted, StorageCase, each, text};
use super::{Sample, StorageCheck};

pub(super) const LAWS: &[(&str, StorageCheck)] = &[
    ("volume that is mounted is measured", |case| {
        each(case, Mode::FileSystem, |case, it| {
            measured(case, it).boxed()
        })
        .boxed()
    }),
    ("volume is measured for many at once", |case| {
        each(case, Mode::FileSystem, |case, it| {
            for_many(case, it).boxed()
        })
        .boxed()
    }),
    (
        "volumes are measured in one answer, each for itself",
        |case| {
            each(case, Mode::FileSystem, |case, it| {
                together(case, it).boxed()
            })
            .boxed()
        },
    ),
    ("volume that is not there is not measured", |case| {
        each(case, Mode::FileSystem, |case, it| missing(case, it).boxed()).boxed()
    }),
];

fn request(mounted: &Mounted) -> StatsRequest {
    let asked = &mounted.asked;
    let (driver, volume_handle) = match asked.volume().source {
        Some(proto::storage::volume::Source::Csi(csi)) => (csi.driver, csi.volume_handle),
        Some(_) | None => Default::default(),
    };
    StatsRequest {
        volume_id: asked.id(),
        kind: asked.kind(),
        name: asked.name(),
        path: text(&mounted.path),
        within_ms: 0,
        driver,
        volume_handle,
        staged: String::new(),
    }
}

async fn ask(case: &mut StorageCase, request: StatsRequest) -> Result<StatsResponse, CheckStop> {
    match case.storage.stats(request).await {
        Ok(answer) => Ok(answer.into_inner()),
        Err(status) if status.code() == Code::Unimplemented => {
            Err(CheckStop::Skipped("no sample is measured"))
        }
        Err(status) => Err(status.into()),
    }
}

async fn measured(case: &mut StorageCase, sample: &Sample) -> CheckResult {
    let mounted = case.mounted(sample).await?;
    let stats = ask(case, request(&mounted)).await?;
    sensible(&stats)
}

fn sensible(stats: &StatsResponse) -> CheckResult {
    holds(stats.measure() != Measure::Unspecified, || {
        "measure is missing".to_owned()
    })?;
    holds(stats.taken_ms > 1_500_000_000_000, || {
        format!(
            "taken_ms is {}, expected milliseconds since 1970",
            stats.taken_ms
        )
    })?;
    let parts = [
        ("available", stats.available, stats.capacity),
        ("used", stats.used, stats.capacity),
        ("inodes_free", stats.inodes_free, stats.inodes),
    ];
    for (what, part, whole) in parts {
        let fits = part.zip(whole).is_none_or(|(part, whole)| part <= whole);
        holds(fits, || format!("{what} is {part:?} of {whole:?}"))?;
    }
    let known = [stats.capacity, stats.used, stats.inodes_used];
    holds(known.iter().any(Option::is_some), || {
        "nothing is known".to_owned()
    })
}

async fn for_many(case: &mut StorageCase, sample: &Sample) -> CheckResult {
    let mounted = case.mounted(sample).await?;
    ask(case, request(&mounted)).await?;
    let calls = (0..16).map(|_| {
        let (mut storage, request) = (case.storage.clone(), request(&mounted));
        async move { storage.stats(request).await }
    });
    for answer in join_all(calls).await {
        sensible(&answer?.into_inner())?;
    }
    Ok(())
}

async fn together(case: &mut StorageCase, sample: &Sample) -> CheckResult {
    let mounted = case.mounted(sample).await?;
    let there = request(&mounted);
    let missing = StatsRequest {
        path: format!("{}-is-not-there", there.path),
        ..there.clone()
    };
    let request = BatchStatsRequest {
        volumes: vec![there, missing],
        within_ms: 0,
    };
    let results = match case.storage.batch_stats(request).await {
        Ok(answer) => answer.into_inner().results,
        Err(status) if status.code() == Code::Unimplemented => {
            return Err(CheckStop::Skipped("volumes are measured one by one"));
        }
        Err(status) => return Err(status.into()),
    };
    let results: Vec<_> = results.into_iter().map(|one| one.result).collect();
    match results.as_slice() {
        [Some(Outcome::Stats(stats)), Some(Outcome::Refused(why))] if !why.is_empty() => {
            sensible(stats)
        }
        [Some(Outcome::Refused(here)), Some(Outcome::Refused(why))]
            if !here.is_empty() && !why.is_empty() =>
        {
            Ok(())
        }
        others => holds(false, || {
            format!("of a volume that is there and one that is not, {others:?} is told")
        }),
    }
}

async fn missing(case: &mut StorageCase, sample: &Sample) -> CheckResult {
    let mounted = case.mounted(sample).await?;
    if mounted.asked.of_the_node() {
        return Err(CheckStop::Skipped(
            "volumes of the node stay where they are",
        ));
    }
    case.unmount(&mounted.asked).await?;
    refused("the measuring", case.storage.stats(request(&mounted)).await)?;
    Ok(())
}
