//! What is measured ahead of the calls that ask for it: what containers have written, and rates of CPU use.
//!
//! To a container's writable layer counts all that it can write to on the plugin's disk: its layer over the image, its
//! image's volumes, and for a pod's oldest container the files that the pod's containers share, once a pod. So whatever
//! a pod writes is held against its limit. Shared memory is not on the disk: its pages count to who wrote them.
//!
//! A call never waits for a walk, except for a container's first one where metrics are asked for. It gets what the last
//! one found, and has the next one begun in the background where that is older than containerd's period: who asks every
//! ten seconds has figures of twenty seconds at most, and where nobody asks nothing is walked.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mounts::measure::Walks;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tonic::Status;

use crate::clock;
use crate::container::VOLUMES;
use crate::node::Node;
use crate::record::ContainerRecord;
use crate::sandbox::files::SHARED_FILES;

/// containerd's `stats_collect_period`.
const PERIOD: Duration = Duration::from_secs(10);
/// So much of the time a large layer may be walked: one that takes a minute is walked every twenty.
const REST_FACTOR: u32 = 20;
/// The longest walk: 20,000 entries a second are looked at.
const WALK_TIMEOUT: Duration = Duration::from_secs(120);
/// Layers that are walked at a time.
const WALKS: usize = 2;
/// What a call for metrics waits for the first figure of a layer.
const FIRST_WALK: Duration = Duration::from_millis(500);
/// Two samples nearer than this say little of a rate.
const MIN_INTERVAL: Duration = Duration::from_secs(1);

/// What a container has written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LayerUsage {
    pub(crate) bytes: u64,
    pub(crate) inodes: u64,
    /// When, in nanoseconds since 1970.
    pub(crate) taken: i64,
    /// Whether there may be more: a walk did not reach everything.
    pub(crate) at_least: bool,
}

impl LayerUsage {
    fn plus(self, other: LayerUsage) -> LayerUsage {
        LayerUsage {
            bytes: self.bytes.saturating_add(other.bytes),
            inodes: self.inodes.saturating_add(other.inodes),
            taken: self.taken.max(other.taken),
            at_least: self.at_least || other.at_least,
        }
    }

    /// What is known after a walk: one that did not reach everything never lowers what was counted before.
    fn after(self, before: Option<LayerUsage>) -> LayerUsage {
        match before.filter(|_| self.at_least) {
            Some(before) => LayerUsage {
                bytes: self.bytes.max(before.bytes),
                inodes: self.inodes.max(before.inodes),
                ..self
            },
            None => self,
        }
    }
}

#[derive(Debug, Default)]
struct Figures {
    layer: Option<LayerUsage>,
    /// When the layer may be walked next; none for at once.
    next_walk: Option<Instant>,
    walking: bool,
    rate: CpuRate,
}

/// CPU use between two samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct CpuRate {
    last: Option<(Instant, u64)>,
    nano_cores: Option<u64>,
}

impl CpuRate {
    /// Takes the nanoseconds used until `now`.
    fn sampled(self, now: Instant, nanos: u64) -> CpuRate {
        let Some((then, before)) = self.last else {
            let last = Some((now, nanos));
            return CpuRate { last, ..self };
        };
        let passed = now.saturating_duration_since(then);
        if passed < MIN_INTERVAL {
            return self;
        }
        let used = nanos.checked_sub(before);
        let rate = used.map(|used| u128::from(used) * 1_000_000_000 / passed.as_nanos());
        CpuRate {
            last: Some((now, nanos)),
            nano_cores: rate.and_then(|rate| u64::try_from(rate).ok()),
        }
    }
}

/// The figures of all containers that were asked for. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct UsageCache {
    figures: Arc<Mutex<BTreeMap<String, Figures>>>,
    walks: Walks,
    places: Arc<Semaphore>,
}

impl UsageCache {
    pub(crate) fn new() -> UsageCache {
        UsageCache {
            figures: Arc::default(),
            walks: Walks::new(),
            places: Arc::new(Semaphore::new(WALKS)),
        }
    }

    fn figures(&self) -> MutexGuard<'_, BTreeMap<String, Figures>> {
        self.figures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a sample of a container's CPU use; returns its rate, once there are two.
    pub(crate) fn rate(&self, container: &str, nanos: Option<u64>) -> Option<u64> {
        let mut figures = self.figures();
        let figures = figures.entry(container.to_owned()).or_default();
        if let Some(nanos) = nanos {
            figures.rate = figures.rate.sampled(Instant::now(), nanos);
        }
        figures.rate.nano_cores
    }

    /// Forgets a container that is removed.
    pub(crate) fn forget(&self, container: &str) {
        self.figures().remove(container);
    }

    /// Reports what was last found, and whether the layer is to be walked; it then counts as being walked.
    fn look(&self, container: &str) -> (Option<LayerUsage>, bool) {
        let mut figures = self.figures();
        let figures = figures.entry(container.to_owned()).or_default();
        let due = figures.next_walk.is_none_or(|next| next <= Instant::now());
        let walk = due && !figures.walking;
        figures.walking |= walk;
        (figures.layer, walk)
    }

    /// Notes what a walk found; one that failed keeps what was known. A container that was removed meanwhile stays so.
    fn walked(&self, container: &str, found: Option<LayerUsage>, took: Duration) {
        if let Some(figures) = self.figures().get_mut(container) {
            figures.walking = false;
            figures.next_walk = Some(Instant::now() + PERIOD.max(took * REST_FACTOR));
            figures.layer = found
                .map(|found| found.after(figures.layer))
                .or(figures.layer);
        }
    }
}

impl Node {
    /// Returns what is known of a container's writable layer, and has it measured where that is due.
    pub(super) fn writable_layer(self: &Arc<Node>, container: &str) -> Option<LayerUsage> {
        let (known, walk) = self.usage.look(container);
        if walk {
            self.begin_walk(container);
        }
        known
    }

    /// Returns what is known of a container's writable layer; where nothing is yet, a first walk has a moment to end.
    pub(super) async fn first_writable_layer(
        self: &Arc<Node>,
        container: &str,
    ) -> Option<LayerUsage> {
        let (known, walk) = self.usage.look(container);
        if !walk {
            return known;
        }
        let walking = self.begin_walk(container);
        if known.is_none() {
            // A walk that takes longer is looked at by the next call.
            drop(tokio::time::timeout(FIRST_WALK, walking).await);
        }
        self.usage.look(container).0
    }

    fn begin_walk(self: &Arc<Node>, container: &str) -> JoinHandle<()> {
        let trees = self.written_by(container);
        let (node, container) = (self.clone(), container.to_owned());
        tokio::spawn(async move { node.walk(&container, trees).await })
    }

    /// The folders and files that are a container's to write, and count to it.
    fn written_by(&self, container: &str) -> Vec<PathBuf> {
        let layout = &self.parts.layout;
        let folder = layout.container(container);
        let mut trees = vec![folder.join("upper"), folder.join(VOLUMES)];
        let state = self.state();
        if let Some(record) = state.any_container(container) {
            // Exited ones are not measured.
            let mut of_pod = state.records_of(&record.sandbox).into_iter();
            let oldest = of_pod.find(ContainerRecord::running);
            if oldest.is_some_and(|oldest| oldest.id == container) {
                let sandbox = layout.sandbox(&record.sandbox);
                trees.extend(SHARED_FILES.map(|file| sandbox.join(file)));
            }
        }
        trees
    }

    async fn walk(&self, container: &str, trees: Vec<PathBuf>) {
        let place = self.usage.places.acquire().await;
        let _place = place.expect("the semaphore is never closed");
        let begun = Instant::now();
        let mut found = Some(LayerUsage::default());
        for tree in trees {
            found = match (found, self.measure_tree(&tree).await) {
                (Some(sum), Ok(part)) => Some(sum.plus(part)),
                (_, Err(status)) => {
                    let error = status.message();
                    tracing::debug!(container, error, "a writable layer is not measured");
                    None
                }
                (None, Ok(_)) => None,
            };
        }
        let found = found.map(|found| LayerUsage {
            taken: clock::now(),
            ..found
        });
        self.usage.walked(container, found, begun.elapsed());
    }

    /// Measures what is at a path; nothing there is nothing.
    async fn measure_tree(&self, tree: &Path) -> Result<LayerUsage, Status> {
        let (walks, pool) = (&self.usage.walks, &self.parts.pool);
        match walks.folder(pool, tree, WALK_TIMEOUT).await {
            Ok(found) => Ok(LayerUsage {
                bytes: found.used.unwrap_or(0),
                inodes: found.inodes_used.unwrap_or(0),
                taken: 0,
                at_least: found.at_least,
            }),
            Err(_) if !tree.exists() => Ok(LayerUsage::default()),
            Err(status) => Err(status),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn a_rate_is_of_two_samples_that_are_apart() {
        let start = Instant::now();
        let first = CpuRate::default().sampled(start, 5_000);
        assert_eq!(first.nano_cores, None);
        assert_eq!(first.sampled(start + SECOND / 2, 9_000), first);
        let second = first.sampled(start + SECOND * 2, 1_000_005_000);
        assert_eq!(second.nano_cores, Some(500_000_000));
        // Less than before: it is another cgroup.
        let third = second.sampled(start + SECOND * 4, 7);
        assert_eq!(third.nano_cores, None);
        assert_eq!(third.sampled(start + SECOND * 5, 17).nano_cores, Some(10));
    }

    #[tokio::test(start_paused = true)]
    async fn a_layer_is_walked_once_a_period_and_less_often_if_that_takes_long() {
        let cache = UsageCache::new();
        let found = LayerUsage {
            bytes: 1,
            inodes: 2,
            taken: 3,
            at_least: false,
        };
        assert_eq!(cache.look("a"), (None, true));
        assert_eq!(cache.look("a"), (None, false), "it is being walked");
        cache.walked("a", Some(found), SECOND / 10);
        assert_eq!(cache.look("a"), (Some(found), false));
        tokio::time::advance(PERIOD).await;
        assert_eq!(cache.look("a"), (Some(found), true));
        cache.walked("a", None, SECOND * 3);
        tokio::time::advance(SECOND * 59).await;
        assert_eq!(cache.look("a"), (Some(found), false));
        tokio::time::advance(SECOND).await;
        assert!(cache.look("a").1);
        let part = |bytes| LayerUsage {
            bytes,
            at_least: true,
            ..found
        };
        cache.walked("a", Some(part(0)), SECOND);
        assert_eq!(
            cache.look("a").0,
            Some(LayerUsage {
                at_least: true,
                ..found
            })
        );
        cache.walked("a", Some(part(9)), SECOND);
        assert_eq!(cache.look("a").0, Some(part(9)));
        cache.forget("a");
        cache.walked("a", Some(found), SECOND);
        assert_eq!(cache.look("a"), (None, true), "nothing came back");
    }
}
