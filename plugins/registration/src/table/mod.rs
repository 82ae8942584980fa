//! The table of sockets and the plugins registered through them: changes by scans and registrations, as data.
//!
//! A name belongs to the socket that registered it until that socket is gone, or until another one offers a
//! higher version (upstream's csi_plugin.go, 1.36). What a socket says counts only if it is still
//! the same socket when it has said it.

mod socket;
#[cfg(test)]
pub(super) mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use tokio::time::Instant;

use self::socket::{Phase, Socket, SocketRefusal, pause};
use crate::sockets::{FileIdentity, SocketScan};
use crate::{Plugin, RegistrationEvent};

const NOT_A_SOCKET: &str = "Ignoring non socket file";

/// The state of the watcher: sockets, and registered plugins by name.
#[derive(Debug)]
pub(super) struct PluginTable<P> {
    sockets: BTreeMap<PathBuf, Socket>,
    files: BTreeMap<PathBuf, FileIdentity>,
    plugins: BTreeMap<String, RegisteredPlugin<P>>,
    tickets: u64,
    /// Sockets of the first scan that have not answered GetInfo yet; `None` before that scan.
    unsettled: Option<BTreeSet<PathBuf>>,
    settled: bool,
}

/// A plugin that has registered, and its socket.
#[derive(Clone, Debug)]
struct RegisteredPlugin<P> {
    socket: PathBuf,
    plugin: P,
}

/// A socket that GetInfo is to be called on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RegistrationRequest {
    pub(super) socket: PathBuf,
    pub(super) ticket: u64,
}

impl<P> Default for PluginTable<P> {
    fn default() -> Self {
        Self {
            sockets: BTreeMap::new(),
            files: BTreeMap::new(),
            plugins: BTreeMap::new(),
            tickets: 0,
            unsettled: None,
            settled: false,
        }
    }
}

impl<P: Plugin> PluginTable<P> {
    /// Takes a scan: returns the sockets to ask, and the events.
    pub(super) fn found(
        &mut self,
        now: Instant,
        looked: SocketScan,
    ) -> (Vec<RegistrationRequest>, Vec<RegistrationEvent<P>>) {
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
        version: &P::Version,
    ) -> Result<(), String> {
        match self.plugins.get(name) {
            Some(held) if held.socket != socket => held.plugin.yield_to(version),
            Some(_) | None => Ok(()),
        }
    }

    /// Registers a plugin; refused if its name has been taken meanwhile. `None`: the request is out of date.
    pub(super) fn registered(
        &mut self,
        now: Instant,
        ask: &RegistrationRequest,
        plugin: P,
    ) -> Option<Result<Vec<RegistrationEvent<P>>, String>> {
        if !self.current(ask) {
            return None;
        }
        let name = plugin.name().to_owned();
        if let Err(why) = self.may_register(&ask.socket, &name, plugin.version()) {
            return Some(Err(why));
        }
        let mut events = self.release(&ask.socket, Some(&name));
        events.push(RegistrationEvent::Registered(plugin.clone()));
        let held = RegisteredPlugin {
            socket: ask.socket.clone(),
            plugin,
        };
        if let Some(before) = self.plugins.insert(name.clone(), held) {
            self.stand_by(&before.socket, &ask.socket, &name);
        }
        self.wake(now, &events);
        self.conclude(&ask.socket, Phase::Registered);
        events.extend(self.settle_if_told());
        Some(Ok(events))
    }

    /// Records that a registration failed.
    pub(super) fn refused(
        &mut self,
        now: Instant,
        ask: &RegistrationRequest,
        name: &str,
        why: &str,
    ) -> Vec<RegistrationEvent<P>> {
        if !self.current(ask) {
            return Vec::new();
        }
        // It stood for a plugin as the socket that it was before.
        let mut events = self.release(&ask.socket, None);
        self.wake(now, &events);
        if let Some(socket) = self.sockets.get_mut(&ask.socket) {
            let refusal = Some(SocketRefusal {
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
    pub(super) fn foreign(
        &mut self,
        now: Instant,
        ask: &RegistrationRequest,
    ) -> Vec<RegistrationEvent<P>> {
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
    pub(super) fn settle(&mut self) -> Vec<RegistrationEvent<P>> {
        if self.settled {
            return Vec::new();
        }
        self.settled = true;
        vec![RegistrationEvent::Synced]
    }

    pub(super) fn is_settled(&self) -> bool {
        self.settled
    }

    pub(super) fn plugin(&self, name: &str) -> Option<&P> {
        self.plugins.get(name).map(|held| &held.plugin)
    }

    /// Changes what is kept of a plugin; subscribers get it if `change` returns that it did.
    pub(super) fn update(
        &mut self,
        name: &str,
        change: impl FnOnce(&mut P) -> bool,
    ) -> Vec<RegistrationEvent<P>> {
        match self.plugins.get_mut(name) {
            Some(held) => match change(&mut held.plugin) {
                true => vec![RegistrationEvent::Registered(held.plugin.clone())],
                false => Vec::new(),
            },
            None => Vec::new(),
        }
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.plugins.keys().map(String::as_str)
    }

    /// When the next socket is to be asked again.
    pub(super) fn next(&self) -> Option<Instant> {
        let again = self
            .sockets
            .values()
            .filter_map(|socket| match socket.phase {
                Phase::Refused(again) => again,
                Phase::Registering | Phase::Registered | Phase::Foreign => None,
            });
        again.min()
    }

    /// Returns the whole state as events.
    pub(super) fn snapshot(&self) -> Vec<RegistrationEvent<P>> {
        let plugins = self.plugins.values();
        let plugins = plugins.map(|held| RegistrationEvent::Registered(held.plugin.clone()));
        let refusals = self.sockets.iter().filter_map(|(path, socket)| {
            let refusal = socket.refusal.as_ref()?;
            Some(refused(path, &refusal.name, &refusal.why))
        });
        let files = self
            .files
            .keys()
            .map(|path| refused(path, "", NOT_A_SOCKET));
        let synced = self.settled.then_some(RegistrationEvent::Synced);
        plugins.chain(refusals).chain(files).chain(synced).collect()
    }

    fn forget(&mut self, now: Instant, looked: &SocketScan) -> Vec<RegistrationEvent<P>> {
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

    fn to_ask(&self, now: Instant, path: &Path, identity: FileIdentity) -> bool {
        let Some(socket) = self.sockets.get(path) else {
            return true;
        };
        let due = match &socket.phase {
            Phase::Refused(again) => again.is_some_and(|again| again <= now),
            Phase::Registering | Phase::Registered | Phase::Foreign => false,
        };
        due || socket.identity != identity
    }

    fn ask(&mut self, path: PathBuf, identity: FileIdentity) -> RegistrationRequest {
        self.tickets += 1;
        let before = self
            .sockets
            .get(&path)
            .filter(|socket| socket.identity == identity);
        let socket = Socket {
            identity,
            ticket: self.tickets,
            phase: Phase::Registering,
            refusal: before.and_then(|socket| socket.refusal.clone()),
            failures: before.map_or(0, |socket| socket.failures),
        };
        self.sockets.insert(path.clone(), socket);
        RegistrationRequest {
            socket: path,
            ticket: self.tickets,
        }
    }

    fn current(&self, ask: &RegistrationRequest) -> bool {
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
    fn release(&mut self, socket: &Path, keep: Option<&str>) -> Vec<RegistrationEvent<P>> {
        let names = self.plugins.iter();
        let names = names.filter(|(name, held)| held.socket == socket && keep != Some(name));
        let names: Vec<String> = names.map(|(name, _)| name.clone()).collect();
        let gone = names.into_iter().map(|name| {
            self.plugins.remove(&name);
            RegistrationEvent::Gone(name)
        });
        gone.collect()
    }

    /// A higher version took the name of `loser`'s plugin: it is asked again when the name is free.
    fn stand_by(&mut self, loser: &Path, winner: &Path, name: &str) {
        if loser == winner {
            return;
        }
        if let Some(socket) = self.sockets.get_mut(loser) {
            socket.phase = Phase::Refused(None);
            socket.refusal = Some(SocketRefusal {
                name: name.to_owned(),
                why: P::REPLACED.to_owned(),
            });
        }
    }

    /// Sockets that want a name that has become free are asked at once.
    fn wake(&mut self, now: Instant, events: &[RegistrationEvent<P>]) {
        for event in events {
            let RegistrationEvent::Gone(gone) = event else {
                continue;
            };
            for socket in self.sockets.values_mut() {
                let wants = socket
                    .refusal
                    .as_ref()
                    .is_some_and(|refusal| refusal.name == *gone);
                if let Phase::Refused(again) = &mut socket.phase
                    && wants
                {
                    *again = Some(now);
                }
            }
        }
    }

    fn settle_if_told(&mut self) -> Vec<RegistrationEvent<P>> {
        match &self.unsettled {
            Some(unsettled) if unsettled.is_empty() => self.settle(),
            Some(_) | None => Vec::new(),
        }
    }
}

fn refused<P>(socket: &Path, name: &str, why: &str) -> RegistrationEvent<P> {
    RegistrationEvent::Refused {
        socket: socket.display().to_string(),
        name: name.to_owned(),
        why: why.to_owned(),
    }
}
