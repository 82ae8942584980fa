//! A list kept up to date: listed once, then watched, resumed where it broke off, listed again when it must be.
//!
//! The list is always requested fresh (no resourceVersion), so that a lagging server never takes back what it sent
//! before. A watch that fails, closes early or sends nonsense waits by client-go's back-off before the next try.
//!
//! Upstream: client-go tools/cache/reflector.go (1.36).

mod backoff;

use std::fmt::Debug;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use kube::api::{Api, ListParams, WatchEvent, WatchParams};
use kube::{Resource, ResourceExt};
use serde::de::DeserializeOwned;

use super::by_value::ByValue;
use super::error::ApiError;
use crate::reflector::backoff::{Backoff, FIRST, FIRST_REFUSED};

/// The server ends a watch after this long, and up to as long again.
const LEAST: u32 = 300;
/// How much longer than that a watch may stay silent before it is given up.
const GRACE: Duration = Duration::from_secs(30);
/// The kind of a list that names no item kind.
const ANY_LIST: &str = "List";
/// A watch that ended sooner without an event failed.
const SHORT: Duration = Duration::from_secs(1);

/// A field and a label selector; the default selects all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObjectSelector {
    /// A field selector, e.g. `spec.nodeName=worker-1`.
    pub fields: Option<String>,
    /// A label selector, e.g. `app=web`.
    pub labels: Option<String>,
}

impl ObjectSelector {
    /// Selects by fields, e.g. `spec.nodeName=worker-1`.
    pub fn fields(fields: impl Into<String>) -> ObjectSelector {
        ObjectSelector {
            fields: Some(fields.into()),
            labels: None,
        }
    }

    /// Selects the one object of this name.
    pub fn named(name: &str) -> ObjectSelector {
        ObjectSelector::fields(format!("metadata.name={name}"))
    }
}

/// A change of the selected objects. managedFields are stripped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ObjectEvent<K> {
    /// The complete list: objects not in it are gone.
    Listed(Vec<K>),
    /// The object is new, or changed.
    Applied(K),
    /// The object was deleted; this is its last state.
    Deleted(K),
}

/// Follows the selected objects for as long as the stream is held.
///
/// It never ends: an error is an item, and the stream goes on by itself, after a wait that grows.
pub fn watch<K>(
    api: Api<ByValue<K>>,
    selection: ObjectSelector,
) -> BoxStream<'static, Result<ObjectEvent<K>, ApiError>>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
    K::DynamicType: Default,
{
    let watching = Reflector {
        api,
        selection,
        version: None,
        events: None,
        backoff: Backoff::default(),
        wait: None,
    };
    let steps = stream::unfold(watching, |mut watching| async move {
        let step = watching.step().await;
        Some((step, watching))
    });
    steps.boxed()
}

type WatchEventStream<K> = BoxStream<'static, Result<WatchEvent<ByValue<K>>, kube::Error>>;

struct Reflector<K> {
    api: Api<ByValue<K>>,
    selection: ObjectSelector,
    /// The last resource version; none before the first list, and after the server has forgotten it.
    version: Option<String>,
    events: Option<OpenWatch<K>>,
    backoff: Backoff,
    wait: Option<Duration>,
}

struct OpenWatch<K> {
    events: WatchEventStream<K>,
    began: std::time::Instant,
    heard: bool,
    until: tokio::time::Instant,
}

impl<K> Reflector<K>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
    K::DynamicType: Default,
{
    /// Goes on until there is an event.
    async fn step(&mut self) -> Result<ObjectEvent<K>, ApiError> {
        loop {
            if let Some(wait) = self.wait.take() {
                tokio::time::sleep(wait).await;
            }
            let step = match (self.version.clone(), self.events.is_some()) {
                (None, _) => self.list().await.map(Some),
                (Some(version), false) => self.open(&version).await.map(|()| None),
                (Some(_), true) => self.next().await,
            };
            match step {
                Ok(Some(event)) => return Ok(event),
                Ok(None) => {}
                Err(trouble) => {
                    let forgotten = self.failed(&trouble);
                    if !forgotten {
                        return Err(trouble);
                    }
                    tracing::debug!(kind = std::any::type_name::<K>(), "listed again: {trouble}");
                }
            }
        }
    }

    /// Sets the wait before the next try; returns true if a known version has only expired, which is no error.
    fn failed(&mut self, trouble: &ApiError) -> bool {
        self.events = None;
        let first = match matches!(trouble, ApiError::Forbidden { .. }) {
            true => FIRST_REFUSED,
            false => FIRST,
        };
        let wait = self.backoff.wait(first, kernel::now());
        self.wait = Some(wait.max(trouble.pause().unwrap_or_default()));
        let known = self.version.is_some();
        if matches!(trouble, ApiError::Gone { .. } | ApiError::Nonsense { .. }) {
            self.version = None;
        }
        known && matches!(trouble, ApiError::Gone { .. })
    }

    async fn list(&mut self) -> Result<ObjectEvent<K>, ApiError> {
        let parameters = ListParams {
            field_selector: self.selection.fields.clone(),
            label_selector: self.selection.labels.clone(),
            ..ListParams::default()
        };
        let list = self.api.list(&parameters).await?;
        // Items of a list have no kind of their own, and an empty one would take everything away.
        let kind = format!("{}List", K::kind(&K::DynamicType::default()));
        if list.types.kind != kind && list.types.kind != ANY_LIST {
            return Err(ApiError::nonsense("the list is one of another kind"));
        }
        let version = list.metadata.resource_version.unwrap_or_default();
        if version.is_empty() {
            return Err(ApiError::nonsense("the list has no resourceVersion"));
        }
        if list.metadata.continue_.is_some_and(|rest| !rest.is_empty()) {
            return Err(ApiError::nonsense(
                "the list was asked for whole and came in part",
            ));
        }
        self.version = Some(version);
        Ok(ObjectEvent::Listed(
            list.items.into_iter().map(without_fields).collect(),
        ))
    }

    async fn open(&mut self, version: &str) -> Result<(), ApiError> {
        let more = f64::from(LEAST) * kernel::chance();
        let lasts = Duration::from_secs(LEAST.into()) + Duration::from_secs_f64(more);
        let parameters = WatchParams {
            field_selector: self.selection.fields.clone(),
            label_selector: self.selection.labels.clone(),
            timeout: u32::try_from(lasts.as_secs()).ok(),
            bookmarks: true,
            send_initial_events: false,
        };
        let events = self.api.watch(&parameters, version).await?.boxed();
        self.events = Some(OpenWatch {
            events,
            began: kernel::now(),
            heard: false,
            until: tokio::time::Instant::now() + lasts + GRACE,
        });
        Ok(())
    }

    async fn next(&mut self) -> Result<Option<ObjectEvent<K>>, ApiError> {
        let Some(open) = &mut self.events else {
            return Ok(None);
        };
        let Ok(event) = tokio::time::timeout_at(open.until, open.events.next()).await else {
            return Err(ApiError::unreachable("the watch was silent for too long"));
        };
        let Some(event) = event.transpose()? else {
            return self.ended();
        };
        open.heard = true;
        let event = match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                ObjectEvent::Applied(without_fields(object))
            }
            WatchEvent::Deleted(object) => ObjectEvent::Deleted(without_fields(object)),
            WatchEvent::Bookmark(bookmark) => {
                self.resume_at(bookmark.metadata.resource_version)?;
                return Ok(None);
            }
            WatchEvent::Error(status) => return Err(ApiError::from(*status)),
        };
        let (ObjectEvent::Applied(object) | ObjectEvent::Deleted(object)) = &event else {
            return Ok(Some(event));
        };
        self.resume_at(object.resource_version().unwrap_or_default())?;
        self.backoff.reset();
        Ok(Some(event))
    }

    fn resume_at(&mut self, version: String) -> Result<(), ApiError> {
        if version.is_empty() {
            return Err(ApiError::nonsense("an event has no resourceVersion"));
        }
        self.version = Some(version);
        Ok(())
    }

    /// The server ended the watch, as it must from time to time.
    fn ended(&mut self) -> Result<Option<ObjectEvent<K>>, ApiError> {
        let Some(open) = self.events.take() else {
            return Ok(None);
        };
        if kernel::now().duration_since(open.began) >= SHORT {
            return Ok(None);
        }
        if !open.heard {
            return Err(ApiError::unreachable("the watch ended at once"));
        }
        self.wait = Some(self.backoff.wait(FIRST, kernel::now()));
        Ok(None)
    }
}

/// managedFields are of no use to a node, and most of an object's size.
fn without_fields<K: Resource>(ByValue(mut object): ByValue<K>) -> K {
    object.meta_mut().managed_fields = None;
    object
}
