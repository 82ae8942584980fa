//! How many clients there may be, each kind with a bound of its own: a call that controls a container never waits for,
//! and is never refused because of, those that stream.

use monitor::RefusalKind;

use super::Pod;
use crate::client::Role;

/// The most processes that are run in containers at a time.
pub(super) const MAX_EXECS: usize = 128;
/// The most clients that are attached at a time.
const MAX_ATTACHED: usize = 64;
/// The most clients that hear facts at a time: a runtime plugin, its successor, and some people's.
const MAX_SUBSCRIBERS: usize = 16;
/// The most clients that wait for the end of a container at a time.
const MAX_ENDS_WAITED: usize = 256;
/// The most clients at a time whose call is being read or carried out. Each that is carried out is a process.
const MAX_CALLS: usize = 64;
/// The most clients at a time that have yet to read their last word, before a call is read no more.
const MAX_LEAVING: usize = 256;

/// A kind of client that has a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Slot {
    Call,
    End,
    Subscriber,
    Attached,
    Exec,
    Leaving,
}

impl Slot {
    fn of(role: &Role) -> Slot {
        match role {
            Role::Fresh | Role::Asking => Slot::Call,
            Role::Waiting(_) => Slot::End,
            Role::Subscribed => Slot::Subscriber,
            Role::Attached(_) => Slot::Attached,
            Role::Running(_) => Slot::Exec,
            Role::Leaving => Slot::Leaving,
        }
    }

    fn max(self) -> usize {
        match self {
            Slot::Call => MAX_CALLS,
            Slot::End => MAX_ENDS_WAITED,
            Slot::Subscriber => MAX_SUBSCRIBERS,
            Slot::Attached => MAX_ATTACHED,
            Slot::Exec => MAX_EXECS,
            Slot::Leaving => MAX_LEAVING,
        }
    }

    /// What clients of this kind do, for one that is refused.
    fn doing(self) -> &'static str {
        match self {
            Slot::Call => "make a call",
            Slot::End => "wait for the end of a container",
            Slot::Subscriber => "hear facts",
            Slot::Attached => "are attached",
            Slot::Exec => "run a process",
            Slot::Leaving => "leave",
        }
    }
}

impl Pod {
    /// Whether another client is let in; otherwise it waits in the queue of the socket.
    pub(super) fn lets_in(&self) -> bool {
        self.has_room(Slot::Call) && self.has_room(Slot::Leaving)
    }

    /// Gives a client a place of its kind; one that finds none is refused, by the bound.
    pub(super) fn take_slot(&mut self, client: u64, role: Role) -> bool {
        let slot = Slot::of(&role);
        if !self.has_room(slot) {
            let message = format!("{} clients {} already", slot.max(), slot.doing());
            self.refuse(client, RefusalKind::Full, message);
            return false;
        }
        if let Some(client) = self.clients.get_mut(&client) {
            client.role = role;
        }
        true
    }

    fn has_room(&self, slot: Slot) -> bool {
        let taken = self.clients.values();
        taken.filter(|one| Slot::of(&one.role) == slot).count() < slot.max()
    }
}
