//! The filters of CRI's lists, and lists that are sent in pages.

use std::collections::HashMap;
use std::pin::Pin;

use futures_util::Stream;
use proto::cri::{ContainerFilter, ContainerState, PodSandboxFilter, PodSandboxState};
use tonic::Status;

/// Items in one message of a streamed list.
const PAGE_ITEMS: usize = 100;

/// The messages of a streamed call.
pub type ResponseStream<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// Reports whether `labels` hold every pair of the selector; an empty selector selects everything.
pub fn labels_match(selector: &HashMap<String, String>, labels: &HashMap<String, String>) -> bool {
    selector
        .iter()
        .all(|(key, value)| labels.get(key) == Some(value))
}

/// Reports whether a container in this state passes the filter's state.
pub fn container_state_matches(filter: &ContainerFilter, state: ContainerState) -> bool {
    filter
        .state
        .is_none_or(|wanted| wanted.state == i32::from(state))
}

/// Reports whether a sandbox in this state passes the filter's state.
pub fn sandbox_state_matches(filter: &PodSandboxFilter, state: PodSandboxState) -> bool {
    filter
        .state
        .is_none_or(|wanted| wanted.state == i32::from(state))
}

/// The id of a filter, looked up: what the runtime keys its objects by is `K`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdFilter<K> {
    /// The filter names no id.
    All,
    /// The id, or the prefix of one, is this object's.
    One(K),
    /// The id is no object's.
    None,
}

impl<K: PartialEq> IdFilter<K> {
    /// Looks up the id of a filter; CRI's empty id means every object.
    pub fn find(id: &str, find: impl FnOnce(&str) -> Option<K>) -> IdFilter<K> {
        if id.is_empty() {
            IdFilter::All
        } else {
            find(id).map_or(IdFilter::None, IdFilter::One)
        }
    }

    /// Reports whether the object passes.
    pub fn matches(&self, key: &K) -> bool {
        match self {
            IdFilter::All => true,
            IdFilter::One(one) => one == key,
            IdFilter::None => false,
        }
    }
}

/// Returns a list as a stream of messages with up to 100 items each; an empty list is an empty stream.
pub fn pages<T: Send + 'static, R: Send + 'static>(
    items: Vec<T>,
    wrap: fn(Vec<T>) -> R,
) -> ResponseStream<R> {
    let mut items = items.into_iter().peekable();
    let next = move || {
        items
            .peek()
            .is_some()
            .then(|| Ok(wrap(items.by_ref().take(PAGE_ITEMS).collect())))
    };
    Box::pin(futures_util::stream::iter(std::iter::from_fn(next)))
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt;
    use proto::cri::{ContainerStateValue, PodSandboxStateValue};

    use super::*;

    #[test]
    fn a_selector_needs_each_of_its_labels() {
        let labels = |pairs: &[(&str, &str)]| {
            let pairs = pairs.iter();
            pairs
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                .collect::<HashMap<_, _>>()
        };
        let all = labels(&[("a", "1"), ("b", "2")]);
        assert!(labels_match(&labels(&[]), &all));
        assert!(labels_match(&labels(&[("b", "2")]), &all));
        assert!(!labels_match(&labels(&[("a", "1"), ("b", "1")]), &all));
        assert!(!labels_match(&labels(&[("c", "")]), &all));
    }

    #[test]
    fn an_id_that_is_not_found_selects_nothing() {
        let find = |id: &str| id.parse::<u64>().ok();
        let passes = |id: &str| IdFilter::find(id, find).matches(&7);
        assert_eq!(
            [passes(""), passes("7"), passes("8"), passes("x")],
            [true, true, false, false]
        );
    }

    #[test]
    fn a_filter_without_a_state_passes_every_state() {
        let running = ContainerState::ContainerRunning;
        let mut filter = ContainerFilter::default();
        assert!(container_state_matches(&filter, running));
        let state = ContainerState::ContainerExited.into();
        filter.state = Some(ContainerStateValue { state });
        assert!(!container_state_matches(&filter, running));

        let ready = PodSandboxState::SandboxReady;
        let mut filter = PodSandboxFilter::default();
        assert!(sandbox_state_matches(&filter, ready));
        let state = ready.into();
        filter.state = Some(PodSandboxStateValue { state });
        assert!(sandbox_state_matches(&filter, ready));
    }

    #[tokio::test]
    async fn a_list_comes_in_pages_of_a_hundred() {
        let sizes = async |items: usize| {
            let pages = pages(vec![(); items], |page| page.len());
            pages
                .map(|page| page.unwrap_or_default())
                .collect::<Vec<_>>()
                .await
        };
        assert_eq!(sizes(0).await, Vec::<usize>::new());
        assert_eq!(sizes(100).await, [100]);
        assert_eq!(sizes(201).await, [100, 100, 1]);
    }
}
