//! Containers whose end was sent before CRI shows it.
//!
//! An agent may act on the telling at once. containerd's CRI part is still cleaning up then, and to stop or remove
//! the container or its sandbox would make it kill a process that is gone, which fails: such calls wait here.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::sync::watch;

/// Many times what containerd takes; then the call goes through and containerd says what it thinks of it.
const PENDING_EXIT_TIMEOUT: Duration = Duration::from_secs(2);

/// The containers, shared by the event translator and the CRI calls.
#[derive(Clone, Debug, Default)]
pub(crate) struct PendingExits {
    holds: watch::Sender<Holds>,
}

#[derive(Debug, Default)]
struct Holds {
    turn: u64,
    /// Container and sandbox.
    ids: BTreeMap<u64, [String; 2]>,
}

/// One container, until this is dropped.
#[derive(Debug)]
pub(crate) struct PendingExit {
    holds: watch::Sender<Holds>,
    turn: u64,
}

impl PendingExits {
    pub(crate) fn hold(&self, container: &str, sandbox: &str) -> PendingExit {
        let mut turn = 0;
        self.holds.send_modify(|holds| {
            holds.turn += 1;
            turn = holds.turn;
            let ids = [container.to_owned(), sandbox.to_owned()];
            holds.ids.insert(turn, ids);
        });
        PendingExit {
            holds: self.holds.clone(),
            turn,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.holds.borrow().ids.is_empty()
    }

    /// Waits until CRI shows the end of this container, or of all in this sandbox; but not for long.
    pub(crate) async fn settled(&self, id: &str) {
        let mut holds = self.holds.subscribe();
        let free = holds.wait_for(|holds| !holds.ids.values().flatten().any(|held| held == id));
        if tokio::time::timeout(PENDING_EXIT_TIMEOUT, free)
            .await
            .is_err()
        {
            tracing::warn!(
                id,
                "CRI does not show an end that was told {PENDING_EXIT_TIMEOUT:?} ago: the call goes on"
            );
        }
    }
}

impl Drop for PendingExit {
    fn drop(&mut self) {
        self.holds
            .send_modify(|holds| drop(holds.ids.remove(&self.turn)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_call_waits_for_its_own_container_or_sandbox_and_not_for_ever() {
        let unsettled = PendingExits::default();
        let hold = unsettled.hold("c", "s");
        let again = unsettled.hold("c", "s");
        unsettled.settled("other").await;
        let waiting = |id: &'static str| {
            let unsettled = unsettled.clone();
            tokio::spawn(async move { unsettled.settled(id).await })
        };
        let calls = [waiting("c"), waiting("s")];
        tokio::time::sleep(Duration::from_secs(1)).await;
        drop(hold);
        tokio::task::yield_now().await;
        assert!(calls.iter().all(|call| !call.is_finished()));
        drop(again);
        for call in calls {
            call.await.unwrap();
        }
        assert!(unsettled.is_empty());

        let _hold = unsettled.hold("c", "s");
        let begun = tokio::time::Instant::now();
        unsettled.settled("s").await;
        assert_eq!(begun.elapsed(), PENDING_EXIT_TIMEOUT);
    }
}
