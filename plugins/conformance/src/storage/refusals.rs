//! Laws of requests that make no sense: refused by the name of what is wrong, with nothing done.

use std::path::Path;

use futures_util::FutureExt;
use proto::storage::{Mode, MountRequest, UnmountRequest, Volume};
use tonic::{Code, Response, Status};

use super::super::{CheckResult, CheckStop, holds, refused, same};
use super::case::{Asked, StorageCase, each, exists, text};
use super::{Sample, StorageCheck};

pub(super) const LAWS: &[(&str, StorageCheck)] = &[
    (
        "request without a field is refused by the field's name",
        |case| each(case, Mode::FileSystem, |case, it| missing(case, it).boxed()).boxed(),
    ),
    ("name that is a path is refused", |case| {
        each(case, Mode::FileSystem, |case, it| {
            paths_for_names(case, it).boxed()
        })
        .boxed()
    }),
    ("target outside the agent's root is refused", |case| {
        each(case, Mode::FileSystem, |case, it| outside(case, it).boxed()).boxed()
    }),
    (
        "raw device's target outside the agent's root is refused",
        |case| {
            each(case, Mode::Block, |case, it| {
                device_outside(case, it).boxed()
            })
            .boxed()
        },
    ),
    ("source of another kind is refused", |case| {
        each(case, Mode::FileSystem, |case, it| {
            no_source(case, it).boxed()
        })
        .boxed()
    }),
];

/// Breaks the law unless the answer is INVALID_ARGUMENT with `word` in its text.
fn invalid<T>(
    what: &str,
    word: &str,
    answer: Result<Response<T>, Status>,
) -> Result<Status, CheckStop> {
    let status = refused(what, answer)?;
    holds(status.code() == Code::InvalidArgument, || {
        format!("{what} was refused with {status}, expected INVALID_ARGUMENT")
    })?;
    holds(status.message().contains(word), || {
        format!(
            "the refusal of {what} is {:?}, which does not name {word:?}",
            status.message()
        )
    })?;
    Ok(status)
}

fn with_volume(request: &MountRequest, change: impl FnOnce(&mut Volume)) -> MountRequest {
    let mut request = request.clone();
    request.volume.as_mut().map(change);
    request
}

async fn missing(case: &mut StorageCase, sample: &Sample) -> CheckResult {
    let asked = case.ask(sample).await?;
    let full = &asked.request;
    let without_pod = MountRequest {
        pod: None,
        ..full.clone()
    };
    let mut without_uid = full.clone();
    if let Some(pod) = without_uid.pod.as_mut() {
        pod.uid.clear();
    }
    let mut requests = vec![
        (
            "volume",
            MountRequest {
                volume: None,
                ..full.clone()
            },
        ),
        ("id", with_volume(full, |volume| volume.id.clear())),
        ("kind", with_volume(full, |volume| volume.kind.clear())),
        ("name", with_volume(full, |volume| volume.name.clear())),
        ("pod", without_pod),
        ("uid", without_uid),
    ];
    if !asked.of_the_node() {
        let request = MountRequest {
            target: String::new(),
            ..full.clone()
        };
        requests.push(("target", request));
        let request = UnmountRequest {
            target: String::new(),
            ..asked.unmount()
        };
        invalid(
            "an Unmount without target",
            "target",
            case.storage.unmount(request).await,
        )?;
    }
    for (field, request) in requests {
        let what = format!("a Mount without {field}");
        invalid(&what, field, case.storage.mount(request).await)?;
    }
    nothing_made(&asked)
}

fn nothing_made(asked: &Asked) -> CheckResult {
    let target = asked.target();
    holds(asked.of_the_node() || !exists(target), || {
        format!("a refused request made {target:?}")
    })
}

async fn paths_for_names(case: &mut StorageCase, sample: &Sample) -> CheckResult {
    let asked = case.ask(sample).await?;
    for name in ["a/b", "..", ".", "/", "../../etc", "a\0b"] {
        let request = with_volume(&asked.request, |volume| name.clone_into(&mut volume.name));
        let what = format!("a volume named {name:?}");
        invalid(&what, "name", case.storage.mount(request).await)?;
        let mut request = asked.request.clone();
        if let Some(pod) = request.pod.as_mut() {
            name.clone_into(&mut pod.uid);
        }
        let what = format!("a pod with the UID {name:?}");
        invalid(&what, "uid", case.storage.mount(request).await)?;
    }
    nothing_made(&asked)
}

/// Paths that are no place for a volume; the last name of each is `name`.
fn elsewhere(root: &Path, name: &str) -> Vec<String> {
    let root = text(root);
    vec![
        format!("{root}-{name}"),
        format!("{root}/../{name}"),
        format!("{root}/pods/../../{name}"),
        format!("pods/{name}"),
        root,
    ]
}

async fn outside(case: &mut StorageCase, sample: &Sample) -> CheckResult {
    let asked = case.ask(sample).await?;
    if asked.of_the_node() {
        return Err(CheckStop::Skipped("volumes of the node have no target"));
    }
    case.prepare(&asked).await?;
    for target in elsewhere(&case.target.root, &case.name) {
        let what = format!("the target {target:?}");
        let request = MountRequest {
            target: target.clone(),
            ..asked.request.clone()
        };
        invalid(&what, "target", case.storage.mount(request).await)?;
        let request = UnmountRequest {
            target: target.clone(),
            ..asked.unmount()
        };
        invalid(&what, "target", case.storage.unmount(request).await)?;
        let made = target.ends_with(&case.name) && exists(Path::new(&target));
        holds(!made, || format!("{target} was made"))?;
    }
    nothing_made(&asked)
}

async fn device_outside(case: &mut StorageCase, sample: &Sample) -> CheckResult {
    let asked = case.ask(sample).await?;
    case.prepare(&asked).await?;
    for target in elsewhere(&case.target.root, &case.name) {
        let what = format!("the target {target:?}");
        let (mut map, mut unmap) = (asked.map(), asked.unmap());
        target.clone_into(&mut map.target);
        target.clone_into(&mut unmap.target);
        invalid(&what, "target", case.storage.map_block(map).await)?;
        invalid(&what, "target", case.storage.unmap_block(unmap).await)?;
    }
    nothing_made(&asked)
}

async fn no_source(case: &mut StorageCase, sample: &Sample) -> CheckResult {
    let asked = case.ask(sample).await?;
    case.prepare(&asked).await?;
    let request = with_volume(&asked.request, |volume| volume.source = None);
    let status = refused(
        "a volume without a source",
        case.storage.mount(request).await,
    )?;
    same("code", status.code(), Code::InvalidArgument)?;
    nothing_made(&asked)
}
