//! Who does not answer: one timer a tree looks at every actor's pulse.
//!
//! Whatever an actor does moves its pulse. One whose pulse stands still for a quarter of its
//! deadline is pinged, and one whose pulse still stands when the deadline has passed after that is
//! hung. So an idle actor costs one ping every few seconds, and a busy one none at all.

use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::actor::Exit;
use crate::context::now;
use crate::shell::Control;
use crate::supervisor::group::Group;
use crate::supervisor::life::{Life, Ping};

/// The longest pause between two looks.
pub(super) const SLOWEST: Duration = Duration::from_secs(1);

/// The shortest, whatever deadline an actor has.
const FASTEST: Duration = Duration::from_millis(5);

/// Returns how often an actor with this deadline must be looked at.
pub(super) fn pace(answer_within: Duration) -> Duration {
    (answer_within / 4).clamp(FASTEST, SLOWEST)
}

/// Looks at every actor beneath `root` until the root is shut down.
pub(super) async fn sweep(root: Rc<Group>) {
    while !root.closed() {
        let (before, pace) = (now(), root.pace());
        tokio::time::sleep(pace).await;
        let now = now();
        // While the thread was blocked or the process suspended, nobody could answer.
        let stalled = now.saturating_duration_since(before + pace);
        root.each_actor(&mut |life| {
            life.forgive(stalled);
            look(life, now);
        });
        root.recover(now);
    }
}

fn look(life: &Life, now: Instant) {
    if !life.running() {
        return;
    }
    let (last, pulse) = (life.ping.get(), life.pulse());
    let still = now.saturating_duration_since(last.since);
    if pulse != last.pulse {
        life.ping.set(Ping {
            pulse,
            since: now,
            sent: false,
        });
    } else if !last.sent && still >= life.answer_within / 4 {
        life.control(Control::Ping);
        life.ping.set(Ping {
            pulse,
            since: now,
            sent: true,
        });
    } else if last.sent && still >= life.answer_within {
        let message = life.gauge.busy().unwrap_or("nothing");
        tracing::error!(actor = %life.path, message, "actor hangs and is restarted");
        life.end(Exit::Hung { message });
    }
}
