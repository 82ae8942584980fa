//! What an operator asks of a plugin: restart, swap, stop; one at a time, and none while a stuck
//! generation is replaced.

use std::sync::Arc;

use super::super::channel::State;
use super::super::declaration::{Declaration, DeclarationError};
use super::super::generation::Order;
use super::{Alive, Host, Msg};
use crate::context::Context;
use crate::mailbox::Reply;
use crate::restart::History;

/// Waits for the new generation, or for why there is none.
pub(super) type Asker = Reply<Result<u64, HostError>>;

/// Why a restart or a swap came to nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// One at a time.
    #[error("another restart, swap or stop of plugin {plugin} is under way")]
    Busy {
        /// The plugin's name.
        plugin: String,
    },
    /// The new generation was of no use.
    #[error("the new generation of plugin {plugin} did not get ready: {why}")]
    NotReady {
        /// The plugin's name.
        plugin: String,
        /// In words.
        why: String,
    },
    /// A plugin cannot become another one's.
    #[error("plugin {plugin} cannot be swapped for {other}, which has another name or kind")]
    Other {
        /// The plugin's name.
        plugin: String,
        /// The name that was declared.
        other: String,
    },
    /// The declaration is of no use.
    #[error("the declaration is refused")]
    Declaration(#[from] DeclarationError),
}

/// A plugin with this need must have its folder for itself: a swap ends the old generation before
/// it starts the new one, and calls wait meanwhile.
const ALONE: &str = "alone";

/// What is under way, and who waits for it.
#[derive(Debug)]
pub(super) enum Errand {
    Restart(Asker),
    /// The new generation gets ready beside the old one.
    Swap(Asker),
    /// The old generation ends first; its declaration is the way back.
    SwapAlone {
        asker: Asker,
        way_back: Arc<Declaration>,
    },
    Stop(Reply<()>),
    /// As a swap, for a successor of the same declaration; nobody waits.
    Replace,
    /// As a restart; nobody waits.
    ReplaceAlone,
}

impl Host {
    pub(super) fn restart(&mut self, asker: Asker, ctx: &mut Context<Msg>) {
        if self.errand.is_some() {
            return asker.send(Err(self.busy()));
        }
        if let Err(error) = self.declaration.check() {
            return asker.send(Err(error.into()));
        }
        tracing::info!(plugin = self.declaration.name, "restart asked for");
        self.errand = Some(Errand::Restart(asker));
        self.history = History::default();
        self.end_current_or(ctx, |host, ctx| host.launch(None, ctx));
    }

    pub(super) fn swap(&mut self, declaration: Declaration, asker: Asker, ctx: &mut Context<Msg>) {
        if self.errand.is_some() {
            return asker.send(Err(self.busy()));
        }
        if let Err(error) = declaration.check() {
            return asker.send(Err(error.into()));
        }
        if (&declaration.name, declaration.kind) != (&self.declaration.name, self.declaration.kind)
        {
            let plugin = self.declaration.name.clone();
            return asker.send(Err(HostError::Other {
                plugin,
                other: declaration.name,
            }));
        }
        tracing::info!(plugin = declaration.name, "swap asked for");
        let declaration = Arc::new(declaration);
        self.cancel_due(ctx);
        if self.is_alone() {
            let way_back = std::mem::replace(&mut self.declaration, declaration);
            self.errand = Some(Errand::SwapAlone { asker, way_back });
            return self.end_current_or(ctx, |host, ctx| host.launch(None, ctx));
        }
        self.errand = Some(Errand::Swap(asker));
        self.begin_beside(declaration, ctx);
    }

    /// Starts a generation on a socket of its own beside the current one.
    pub(super) fn begin_beside(&mut self, declaration: Arc<Declaration>, ctx: &mut Context<Msg>) {
        let path = self.folder.join(format!("{}.next.sock", declaration.name));
        let socket = self.bind(&declaration, &path);
        self.next = Some(self.begin(declaration, socket, None, ctx));
    }

    pub(super) fn stop_plugin(&mut self, reply: Reply<()>, ctx: &mut Context<Msg>) {
        self.cancel_due(ctx);
        match self.errand.replace(Errand::Stop(reply)) {
            Some(
                Errand::Restart(asker) | Errand::Swap(asker) | Errand::SwapAlone { asker, .. },
            ) => {
                asker.send(Err(self.not_ready("it was stopped meanwhile")));
            }
            Some(Errand::Stop(asker)) => asker.send(()),
            Some(Errand::Replace | Errand::ReplaceAlone) | None => {}
        }
        for alive in [&self.next, &self.retired].into_iter().flatten() {
            alive.orders.send_replace(Order::Finish);
        }
        self.end_current_or(ctx, |host, ctx| host.stopped(ctx));
    }

    /// Orders the current generation to end; what follows comes with its end, or at once.
    pub(super) fn end_current_or(
        &mut self,
        ctx: &mut Context<Msg>,
        otherwise: fn(&mut Self, &mut Context<Msg>),
    ) {
        match &self.current {
            Some(alive) => {
                alive.orders.send_replace(Order::Finish);
                self.show(State::Draining, String::new(), ctx);
            }
            None => otherwise(self, ctx),
        }
    }

    /// Answers the operator who wanted it stopped, if nothing is left to end.
    pub(super) fn stopped(&mut self, ctx: &mut Context<Msg>) {
        if self.current.is_some() || self.next.is_some() || self.retired.is_some() {
            return;
        }
        self.show(State::Stopped, String::new(), ctx);
        if let Some(Errand::Stop(reply)) = self.errand.take() {
            reply.send(());
        }
    }

    /// The new generation serves and the old one is no more: answers the operator who wanted that.
    pub(super) fn swapped(&mut self, ctx: &mut Context<Msg>) {
        let Some(generation) = self.current.as_ref().map(|alive| alive.generation) else {
            return;
        };
        match self.errand.take() {
            Some(Errand::Swap(asker)) => asker.send(Ok(generation)),
            Some(Errand::Replace) => {}
            other => return self.errand = other,
        }
        // What was told of the new one meanwhile.
        self.replace_stuck(ctx);
    }

    fn busy(&self) -> HostError {
        HostError::Busy {
            plugin: self.declaration.name.clone(),
        }
    }

    pub(super) fn not_ready(&self, why: &str) -> HostError {
        HostError::NotReady {
            plugin: self.declaration.name.clone(),
            why: why.to_owned(),
        }
    }

    /// Whether the current generation must have its folder for itself.
    pub(super) fn is_alone(&self) -> bool {
        let needs = |alive: &Alive| {
            alive
                .introduction
                .capabilities
                .iter()
                .any(|need| need == ALONE)
        };
        self.current.as_ref().is_some_and(needs)
    }
}
