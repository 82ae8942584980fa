//! Laws of what a plugin says of itself.

use futures_util::FutureExt;
use proto::storage::{CapabilitiesRequest, Mode};
use tonic::Code;

use super::super::{CheckResult, CheckStop, holds, refused, same};
use super::case::StorageCase;
use super::{Names, StorageCheck};

pub(super) const LAWS: &[(&str, StorageCheck)] = &[
    ("Capabilities names each kind once", |case| {
        named_once(case).boxed()
    }),
    (
        "kind that Capabilities does not name is refused by its name",
        |case| unknown(case).boxed(),
    ),
];

async fn named_once(case: &mut StorageCase) -> CheckResult {
    let answer = case.storage.capabilities(CapabilitiesRequest {}).await?;
    let kinds = answer.into_inner().kinds;
    holds(!kinds.is_empty(), || "there is no kind".to_owned())?;
    let mut words: Vec<_> = kinds.iter().map(|kind| kind.kind.as_str()).collect();
    words.sort_unstable();
    holds(!words.contains(&""), || "a kind has no name".to_owned())?;
    let all = words.len();
    words.dedup();
    same("number of different kinds", words.len(), all)?;
    for kind in &kinds {
        holds(kind.expand || !kind.expand_offline_only, || {
            format!("{} expands offline only, and not at all", kind.kind)
        })?;
    }
    for sample in case.target.samples.clone() {
        let asked = case.ask(&sample).await?;
        let ability = case.ability(&asked).await?;
        holds(ability.block || sample.mode != Mode::Block, || {
            format!(
                "{}: kind {} has no raw block volumes",
                sample.words, ability.kind
            )
        })?;
    }
    Ok(())
}

async fn unknown(case: &mut StorageCase) -> CheckResult {
    let sample = case.target.samples.first().cloned();
    let sample = sample.ok_or(CheckStop::Skipped("there is no sample for it"))?;
    let kind = "no-such-kind";
    let names = Names {
        root: case.target.root.clone(),
        pod: case.name.clone(),
        volume: case.name.clone(),
    };
    let mut request = (sample.make)(&names);
    request.target = names.target(kind);
    if let Some(volume) = request.volume.as_mut() {
        volume.kind = kind.to_owned();
    }
    let status = refused("the mount", case.storage.mount(request).await)?;
    same("code", status.code(), Code::InvalidArgument)?;
    holds(status.message().contains(kind), || {
        format!("{:?} does not name {kind:?}", status.message())
    })
}
