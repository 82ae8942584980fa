//! Thresholds of the configuration, and those that follow from others.
//!
//! Mirrors upstream's `ParseThresholdConfig`, `addAllocatableThresholds` and `UpdateContainerFsThresholds`
//! (eviction/helpers.go) at v1.36.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use logic_api::quantity::Quantity;
use logic_api::text::go_duration::GoDuration;
use thiserror::Error;

use super::{Signal, Threshold, ThresholdLimit, WrittenAmount};
use crate::eviction::FsLayout;

/// The texts of the configuration, by the names of signals.
#[derive(Clone, Copy, Debug)]
pub struct ThresholdTexts<'a> {
    /// `evictionHard`
    pub hard: &'a BTreeMap<String, String>,
    /// `evictionSoft`
    pub soft: &'a BTreeMap<String, String>,
    /// `evictionSoftGracePeriod`
    pub soft_grace: &'a BTreeMap<String, String>,
    /// `evictionMinimumReclaim`
    pub min_reclaim: &'a BTreeMap<String, String>,
    pub allocatable: AllocatableThresholds,
}

/// Whether what all pods may take together has a threshold of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllocatableThresholds {
    /// `enforceNodeAllocatable` has `pods`: the hard threshold of memory counts below the pods' cgroup too.
    Derived,
    Left,
}

/// Which text is no threshold.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ThresholdError {
    #[error("unsupported eviction signal {0}")]
    Signal(String),
    #[error("eviction threshold of {signal} is no amount: {text:?}")]
    Amount { signal: String, text: String },
    #[error("eviction threshold {signal} must be positive: {text}")]
    NotPositive { signal: String, text: String },
    #[error("eviction percentage threshold {signal} must be within 0% and 100%: {text}")]
    Share { signal: String, text: String },
    #[error("grace period must be specified for the soft eviction threshold {0}")]
    NoGrace(String),
    #[error("invalid eviction grace period specified: {0}, must be a positive value")]
    Grace(String),
    #[error("eviction minimum reclaim of {signal} must not be negative: {text}")]
    Reclaim { signal: String, text: String },
}

/// All thresholds of the configuration.
///
/// # Errors
/// The first text that is not what it should be; the configuration's validation tells all of them.
pub fn parse(texts: &ThresholdTexts<'_>) -> Result<BTreeSet<Threshold>, ThresholdError> {
    let graces = graces(texts.soft_grace)?;
    let reclaims = reclaims(texts.min_reclaim)?;
    let mut thresholds = BTreeSet::new();
    let mut add = |signal: Signal, limit: ThresholdLimit, grace: Duration| {
        let reclaim = reclaims.get(&signal).copied();
        thresholds.insert(Threshold {
            signal,
            grace,
            limit,
            min_reclaim: reclaim.unwrap_or(ThresholdLimit::amount(0)),
        });
    };
    for (signal, limit) in limits(texts.hard)? {
        add(signal, limit, Duration::ZERO);
    }
    for (signal, limit) in limits(texts.soft)? {
        let no_grace = || ThresholdError::NoGrace(signal.name().to_owned());
        add(signal, limit, *graces.get(&signal).ok_or_else(no_grace)?);
    }
    if texts.allocatable == AllocatableThresholds::Derived {
        add_allocatable(&mut thresholds);
    }
    Ok(thresholds)
}

/// Copies each hard threshold of the node's memory to the memory of the cgroup above the pods.
fn add_allocatable(thresholds: &mut BTreeSet<Threshold>) {
    let of_pods: Vec<Threshold> = thresholds
        .iter()
        .filter(|threshold| threshold.signal == Signal::MemoryAvailable && threshold.is_hard())
        .map(|threshold| Threshold {
            signal: Signal::AllocatableMemoryAvailable,
            ..*threshold
        })
        .collect();
    thresholds.extend(of_pods);
}

/// A quantity or a percentage; none where the text is neither, or negative.
pub fn amount(text: &str) -> Option<ThresholdLimit> {
    if let Some(percent) = text.strip_suffix('%') {
        let thousandths = Quantity::parse(percent).ok()?.milli_value();
        return u32::try_from(thousandths.checked_mul(10)?)
            .ok()
            .map(ThresholdLimit::PerMillion);
    }
    let quantity = Quantity::parse(text).ok()?;
    WrittenAmount::of(&quantity).map(ThresholdLimit::Amount)
}

fn signal(name: &str) -> Result<Signal, ThresholdError> {
    Signal::from_name(name).ok_or_else(|| ThresholdError::Signal(name.to_owned()))
}

/// Nothing and the whole both switch a signal off.
fn is_off(text: &str) -> bool {
    text == "0%" || text == "100%"
}

/// The limit of a hard threshold; none where it is off, or no amount.
pub fn hard_limit(text: &str) -> Option<ThresholdLimit> {
    amount(text).filter(|_| !is_off(text))
}

fn limits(
    texts: &BTreeMap<String, String>,
) -> Result<Vec<(Signal, ThresholdLimit)>, ThresholdError> {
    let mut limits = Vec::new();
    for (name, text) in texts {
        let named = signal(name)?;
        if is_off(text) {
            continue;
        }
        limits.push((named, limit(name, text)?));
    }
    Ok(limits)
}

fn limit(signal: &str, text: &str) -> Result<ThresholdLimit, ThresholdError> {
    const WHOLE: u32 = 1_000_000;
    let (signal, text) = (signal.to_owned(), text.to_owned());
    match amount(&text) {
        Some(ThresholdLimit::PerMillion(share)) if share > WHOLE => {
            Err(ThresholdError::Share { signal, text })
        }
        Some(limit) if limit == ThresholdLimit::amount(0) => {
            Err(ThresholdError::NotPositive { signal, text })
        }
        Some(limit) => Ok(limit),
        None => Err(ThresholdError::Amount { signal, text }),
    }
}

fn graces(texts: &BTreeMap<String, String>) -> Result<BTreeMap<Signal, Duration>, ThresholdError> {
    let grace = |(name, text): (&String, &String)| {
        let signal = signal(name)?;
        let grace: Option<GoDuration> = text.parse().ok();
        let grace = grace.filter(|grace| *grace >= GoDuration::ZERO);
        let grace = grace.ok_or_else(|| ThresholdError::Grace(text.clone()))?;
        Ok((signal, grace.as_std()))
    };
    texts.iter().map(grace).collect()
}

fn reclaims(
    texts: &BTreeMap<String, String>,
) -> Result<BTreeMap<Signal, ThresholdLimit>, ThresholdError> {
    let reclaim = |(name, text): (&String, &String)| {
        let signal = signal(name)?;
        let amount = amount(text).filter(|amount| *amount != ThresholdLimit::PerMillion(0));
        let wrong = || ThresholdError::Reclaim {
            signal: name.clone(),
            text: text.clone(),
        };
        Ok((signal, amount.ok_or_else(wrong)?))
    };
    texts.iter().map(reclaim).collect()
}

/// Gives the file system of the writable layers the thresholds of the one that it lies on; returns what the
/// configuration says of it, which counts for nothing, in upstream's words.
pub fn with_container_fs(
    thresholds: &BTreeSet<Threshold>,
    layout: FsLayout,
) -> (BTreeSet<Threshold>, Vec<String>) {
    let mut made = BTreeSet::new();
    let mut ignored = Vec::new();
    for threshold in thresholds {
        if is_of_container_fs(threshold.signal) {
            let kind = if threshold.is_hard() { "hard" } else { "soft" };
            let name = threshold.signal.name();
            ignored.push(format!("found {name} for {kind} eviction. ignoring"));
            continue;
        }
        made.insert(*threshold);
        if let Some(signal) = container_fs_signal(threshold.signal, layout) {
            made.insert(Threshold {
                signal,
                ..*threshold
            });
        }
    }
    (made, ignored)
}

fn is_of_container_fs(signal: Signal) -> bool {
    matches!(
        signal,
        Signal::ContainerFsAvailable | Signal::ContainerFsInodesFree
    )
}

/// The writable layers lie beside the images on a dedicated file system, else on the node's own.
fn container_fs_signal(signal: Signal, layout: FsLayout) -> Option<Signal> {
    match (signal, layout) {
        (Signal::NodeFsAvailable, FsLayout::Shared | FsLayout::SplitImages)
        | (Signal::ImageFsAvailable, FsLayout::DedicatedImages) => {
            Some(Signal::ContainerFsAvailable)
        }
        (Signal::NodeFsInodesFree, FsLayout::Shared | FsLayout::SplitImages)
        | (Signal::ImageFsInodesFree, FsLayout::DedicatedImages) => {
            Some(Signal::ContainerFsInodesFree)
        }
        _ => None,
    }
}
