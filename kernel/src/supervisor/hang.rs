//! Finds hung actors: one timer a tree checks every actor's pulse.
//!
//! Whatever an actor does moves its pulse. One whose pulse stands still for a quarter of its
//! deadline is pinged, and one whose pulse still stands when the deadline has passed after that is
//! hung. So an idle actor costs one ping every few seconds, and a busy one none at all.

use std::rc::Rc;
use std::time::Instant;

use crate::mailbox::mail::Control;
use crate::supervisor::cell::{ActorCell, Ping};
use crate::supervisor::exit::Exit;
use crate::supervisor::group::ChildGroup;
use crate::system::clock::now;

/// Checks every actor beneath `root` until the root is shut down.
pub(super) async fn sweep(root: Rc<ChildGroup>) {
    while !root.closed() {
        let (before, pace) = (now(), root.pace());
        tokio::time::sleep(pace).await;
        let now = now();
        // While the thread was blocked or the process suspended, no actor could answer.
        let stalled = now.saturating_duration_since(before + pace);
        root.each_actor(&mut |cell| {
            cell.forgive(stalled);
            check(cell, now);
        });
        root.recover(now);
    }
}

fn check(cell: &ActorCell, now: Instant) {
    if !cell.running() {
        return;
    }
    let (last, pulse) = (cell.ping.get(), cell.pulse());
    let still = now.saturating_duration_since(last.since);
    if pulse != last.pulse {
        cell.ping.set(Ping {
            pulse,
            since: now,
            sent: false,
        });
    } else if !last.sent && still >= cell.answer_within / 4 {
        cell.control(Control::Ping);
        cell.ping.set(Ping {
            pulse,
            since: now,
            sent: true,
        });
    } else if last.sent && still >= cell.answer_within {
        let message = cell.gauge.busy().unwrap_or("nothing");
        tracing::error!(actor = %cell.path, message, "actor hangs and is restarted");
        cell.end(Exit::Hung { message });
    }
}
