//! Which socket stands for which driver: what a look and an introduction change, as data.
//!
//! A name belongs to the socket that registered it until that socket is gone, or until another one offers a
//! higher version of the interface (upstream's csi_plugin.go, 1.36). What a socket says counts only if it is still
//! the same socket when it has said it.

mod socket;
#[cfg(test)]
pub(super) mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use proto::storage::event::Event as Told;
use proto::storage::{Backend, BackendGone, Event, Refused, Synced};
use tokio::time::Instant;

use self::socket::{Phase, Refusal, Socket, pause};
use super::sockets::{Identity, Looked};
use super::version::Version;
use crate::driver::Driver;

const REPLACED: &str =
    "Another driver with the same name registered with a higher supported version";
const NOT_A_SOCKET: &str = "Ignoring non socket file";

/// All that is known.
#[derive(Debug, Default)]
pub(super) struct Table {
    sockets: BTreeMap<PathBuf, Socket>,
    files: BTreeMap<PathBuf, Identity>,
    drivers: BTreeMap<String, Held>,
    tickets: u64,
    /// Those found first that have not said who they are yet; `None` before the first look.
    unsettled: Option<BTreeSet<PathBuf>>,
    settled: bool,
}

/// A driver that has registered.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) socket: PathBuf,
    pub(super) version: Version,
    pub(super) driver: Arc<Driver>,
    pub(super) backend: Backend,
}

/// A socket that is to be asked who it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ask {
    pub(super) socket: PathBuf,
    pub(super) ticket: u64,
}

impl Table {
    /// Takes what a look found: who is to be asked, and what is to be told.
    pub(super) fn found(&mut self, now: Instant, looked: Looked) -> (Vec<Ask>, Vec<Event>) {
        let mut events = self.forget(now, &looked);
        let mut asks = Vec::new();
        for (path, identity) in looked.sockets {
            if self.to_ask(now, &path, identity) {
                asks.push(self.ask(path, identity));
            }
        }
        for (path, identity) in looked.files {
            if self.files.get(&path) != Some(&identity) {
                events.push(refused(&path, "", NOT_A_SOCKET));
                self.files.insert(path, identity);
            }
        }
        if self.unsettled.is_none() {
            self.unsettled = Some(asks.iter().map(|ask| ask.socket.clone()).collect());
        }
        events.extend(self.settle_if_told());
        (asks, events)
    }

    /// Whether that name may be taken by that socket, as upstream words it.
    pub(super) fn may_register(
        &self,
        socket: &Path,
        name: &str,
        version: &Version,
    ) -> Result<(), String> {
        match self.drivers.get(name) {
            Some(held) if held.socket != socket && held.version >= *version => Err(format!(
                "Another driver with the same name is already registered with a higher supported version: {:?}",
                held.version.to_string()
            )),
            Some(_) | None => Ok(()),
        }
    }

    /// Takes an introduction; refused is whose name has been taken meanwhile. `None`: nobody waits for it any more.
    pub(super) fn registered(
        &mut self,
        now: Instant,
        ask: &Ask,
        held: Held,
    ) -> Option<Result<Vec<Event>, String>> {
        if !self.current(ask) {
            return None;
        }
        let name = held.driver.name.clone();
        if let Err(why) = self.may_register(&ask.socket, &name, &held.version) {
            return Some(Err(why));
        }
        let mut events = self.release(&ask.socket, Some(&name));
        events.push(told(Told::Backend(held.backend.clone())));
        if let Some(before) = self.drivers.insert(name.clone(), held) {
            self.stand_by(&before.socket, &ask.socket, &name);
        }
        self.wake(now, &events);
        self.conclude(&ask.socket, Phase::Registered);
        events.extend(self.settle_if_told());
        Some(Ok(events))
    }

    /// Takes a refusal.
    pub(super) fn refused(&mut self, now: Instant, ask: &Ask, name: &str, why: &str) -> Vec<Event> {
        if !self.current(ask) {
            return Vec::new();
        }
        // It stood for a driver as the socket that it was before.
        let mut events = self.release(&ask.socket, None);
        self.wake(now, &events);
        if let Some(socket) = self.sockets.get_mut(&ask.socket) {
            let refusal = Some(Refusal {
                name: name.to_owned(),
                why: why.to_owned(),
            });
            if socket.refusal != refusal {
                events.push(refused(&ask.socket, name, why));
            }
            socket.failures = socket.failures.saturating_add(1);
            socket.phase = Phase::Refused(Some(now + pause(socket.failures)));
            socket.refusal = refusal;
        }
        self.answered(&ask.socket);
        events.extend(self.settle_if_told());
        events
    }

    /// Takes it that a socket is not ours.
    pub(super) fn foreign(&mut self, now: Instant, ask: &Ask) -> Vec<Event> {
        if !self.current(ask) {
            return Vec::new();
        }
        let mut events = self.release(&ask.socket, None);
        self.wake(now, &events);
        self.conclude(&ask.socket, Phase::Foreign);
        events.extend(self.settle_if_told());
        events
    }

    /// Waits no longer for those found first.
    pub(super) fn settle(&mut self) -> Vec<Event> {
        if self.settled {
            return Vec::new();
        }
        self.settled = true;
        vec![told(Told::Synced(Synced {}))]
    }

    pub(super) fn is_settled(&self) -> bool {
        self.settled
    }

    pub(super) fn driver(&self, name: &str) -> Option<Arc<Driver>> {
        self.drivers.get(name).map(|held| held.driver.clone())
    }

    /// A driver that registered takes so many volumes now. What else it said of the node when it registered stays: the
    /// API server bears no other change either.
    pub(super) fn takes(&mut self, driver: &Arc<Driver>, most: i64) -> Vec<Event> {
        let held = self.drivers.get_mut(&driver.name);
        let held = held.filter(|held| Arc::ptr_eq(&held.driver, driver));
        match held {
            Some(held) if held.backend.max_volumes != most => {
                held.backend.max_volumes = most;
                vec![told(Told::Backend(held.backend.clone()))]
            }
            Some(_) | None => Vec::new(),
        }
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.drivers.keys().map(String::as_str)
    }

    /// When somebody is to be asked again.
    pub(super) fn next(&self) -> Option<Instant> {
        let again = self
            .sockets
            .values()
            .filter_map(|socket| match socket.phase {
                Phase::Refused(again) => again,
                Phase::Asked | Phase::Registered | Phase::Foreign => None,
            });
        again.min()
    }

    /// Everything as it is.
    pub(super) fn snapshot(&self) -> Vec<Event> {
        let backends = self.drivers.values();
        let backends = backends.map(|held| told(Told::Backend(held.backend.clone())));
        let refusals = self.sockets.iter().filter_map(|(path, socket)| {
            let refusal = socket.refusal.as_ref()?;
            Some(refused(path, &refusal.name, &refusal.why))
        });
        let files = self
            .files
            .keys()
            .map(|path| refused(path, "", NOT_A_SOCKET));
        let synced = self.settled.then(|| told(Told::Synced(Synced {})));
        backends
            .chain(refusals)
            .chain(files)
            .chain(synced)
            .collect()
    }

    fn forget(&mut self, now: Instant, looked: &Looked) -> Vec<Event> {
        self.files.retain(|path, _| looked.files.contains_key(path));
        let known = self.sockets.keys();
        let gone: Vec<_> = known
            .filter(|path| !looked.sockets.contains_key(*path))
            .cloned()
            .collect();
        let mut events = Vec::new();
        for path in gone {
            events.extend(self.release(&path, None));
            self.sockets.remove(&path);
            self.answered(&path);
        }
        self.wake(now, &events);
        events
    }

    fn to_ask(&self, now: Instant, path: &Path, identity: Identity) -> bool {
        let Some(socket) = self.sockets.get(path) else {
            return true;
        };
        let due = match &socket.phase {
            Phase::Refused(again) => again.is_some_and(|again| again <= now),
            Phase::Asked | Phase::Registered | Phase::Foreign => false,
        };
        due || socket.identity != identity
    }

    fn ask(&mut self, path: PathBuf, identity: Identity) -> Ask {
        self.tickets += 1;
        let before = self
            .sockets
            .get(&path)
            .filter(|socket| socket.identity == identity);
        let socket = Socket {
            identity,
            ticket: self.tickets,
            phase: Phase::Asked,
            refusal: before.and_then(|socket| socket.refusal.clone()),
            failures: before.map_or(0, |socket| socket.failures),
        };
        self.sockets.insert(path.clone(), socket);
        Ask {
            socket: path,
            ticket: self.tickets,
        }
    }

    fn current(&self, ask: &Ask) -> bool {
        let socket = self.sockets.get(&ask.socket);
        socket.is_some_and(|socket| socket.ticket == ask.ticket)
    }

    fn conclude(&mut self, path: &Path, phase: Phase) {
        if let Some(socket) = self.sockets.get_mut(path) {
            socket.phase = phase;
            socket.refusal = None;
            socket.failures = 0;
        }
        self.answered(path);
    }

    fn answered(&mut self, path: &Path) {
        if let Some(unsettled) = &mut self.unsettled {
            unsettled.remove(path);
        }
    }

    /// Ends what a socket stands for, but for the name that it is to keep.
    fn release(&mut self, socket: &Path, keep: Option<&str>) -> Vec<Event> {
        let names = self.drivers.iter();
        let names = names.filter(|(name, held)| held.socket == socket && keep != Some(name));
        let names: Vec<String> = names.map(|(name, _)| name.clone()).collect();
        let gone = names.into_iter().map(|name| {
            self.drivers.remove(&name);
            told(Told::Gone(BackendGone { name }))
        });
        gone.collect()
    }

    /// A higher version took the name of `loser`'s driver: it is asked again when the name is free.
    fn stand_by(&mut self, loser: &Path, winner: &Path, name: &str) {
        if loser == winner {
            return;
        }
        if let Some(socket) = self.sockets.get_mut(loser) {
            socket.phase = Phase::Refused(None);
            socket.refusal = Some(Refusal {
                name: name.to_owned(),
                why: REPLACED.to_owned(),
            });
        }
    }

    /// Those who want a name that has become free are asked at once.
    fn wake(&mut self, now: Instant, events: &[Event]) {
        for event in events {
            let Some(Told::Gone(gone)) = &event.event else {
                continue;
            };
            for socket in self.sockets.values_mut() {
                let wants = socket
                    .refusal
                    .as_ref()
                    .is_some_and(|refusal| refusal.name == gone.name);
                if let Phase::Refused(again) = &mut socket.phase
                    && wants
                {
                    *again = Some(now);
                }
            }
        }
    }

    fn settle_if_told(&mut self) -> Vec<Event> {
        match &self.unsettled {
            Some(unsettled) if unsettled.is_empty() => self.settle(),
            Some(_) | None => Vec::new(),
        }
    }
}

fn told(event: Told) -> Event {
    Event { event: Some(event) }
}

fn refused(socket: &Path, name: &str, why: &str) -> Event {
    told(Told::Refused(Refused {
        endpoint: socket.display().to_string(),
        name: name.to_owned(),
        why: why.to_owned(),
    }))
}
