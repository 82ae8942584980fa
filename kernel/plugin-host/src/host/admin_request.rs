//! What an operator asks of a plugin: restart, swap, stop; one at a time, and none while a stuck
//! generation is replaced.

use std::sync::Arc;

use kernel::supervisor::restart::RestartHistory;
use kernel::{Context, Reply};

use super::{LiveGeneration, PluginHost};
use crate::client::PluginState;
use crate::declaration::Declaration;
use crate::generation::update::GenerationCommand;
use crate::message::{GenerationReply, HostError, Msg};

/// A plugin with this need must have its directory for itself: a swap ends the old generation before it starts the new
/// one, and calls wait meanwhile.
const ALONE: &str = "alone";

/// The request that is under way, and the reply that is due at its end.
#[derive(Debug)]
pub(super) enum AdminRequest {
    Restart(GenerationReply),
    /// The new generation gets ready beside the old one.
    Swap(GenerationReply),
    /// The old generation ends first; its declaration is the way back.
    SwapAlone {
        reply: GenerationReply,
        previous: Arc<Declaration>,
    },
    Stop(Reply<()>),
    /// A generation gets ready beside the current one, and is ended.
    Try(Reply<Result<(), HostError>>),
    /// As a swap, for a successor of the same declaration; no reply is due.
    Replace,
    /// As a restart; no reply is due.
    ReplaceAlone,
}

impl PluginHost {
    pub(super) fn restart(&mut self, reply: GenerationReply, ctx: &mut Context<Msg>) {
        if self.admin_request.is_some() {
            return reply.send(Err(self.busy()));
        }
        if let Err(error) = self.declaration.check() {
            return reply.send(Err(error.into()));
        }
        tracing::info!(plugin = self.declaration.name, "restart asked for");
        self.admin_request = Some(AdminRequest::Restart(reply));
        self.history = RestartHistory::default();
        self.end_current_or(ctx, |host, ctx| host.launch(None, ctx));
    }

    pub(super) fn swap(
        &mut self,
        declaration: Declaration,
        reply: GenerationReply,
        ctx: &mut Context<Msg>,
    ) {
        if let Err(error) = self.accepts(&declaration) {
            return reply.send(Err(error));
        }
        tracing::info!(plugin = declaration.name, "swap asked for");
        let declaration = Arc::new(declaration);
        self.cancel_due(ctx);
        if self.is_alone() {
            let previous = std::mem::replace(&mut self.declaration, declaration);
            self.admin_request = Some(AdminRequest::SwapAlone { reply, previous });
            return self.end_current_or(ctx, |host, ctx| host.launch(None, ctx));
        }
        self.admin_request = Some(AdminRequest::Swap(reply));
        self.begin_beside(declaration, ctx);
    }

    pub(super) fn try_out(
        &mut self,
        declaration: Declaration,
        reply: Reply<Result<(), HostError>>,
        ctx: &mut Context<Msg>,
    ) {
        let accepted = self.accepts(&declaration);
        if accepted.is_err() || self.is_alone() {
            return reply.send(accepted);
        }
        self.admin_request = Some(AdminRequest::Try(reply));
        self.begin_beside(Arc::new(declaration), ctx);
    }

    /// Whether a successor of this declaration may begin now.
    fn accepts(&self, declaration: &Declaration) -> Result<(), HostError> {
        if self.admin_request.is_some() {
            return Err(self.busy());
        }
        declaration.check()?;
        let own = &self.declaration;
        match (&declaration.name, declaration.kind) == (&own.name, own.kind) {
            true => Ok(()),
            false => Err(HostError::Other {
                plugin: own.name.clone(),
                other: declaration.name.clone(),
            }),
        }
    }

    /// Starts a generation on a socket of its own beside the current one.
    pub(super) fn begin_beside(&mut self, declaration: Arc<Declaration>, ctx: &mut Context<Msg>) {
        let path = self.folder.join(format!("{}.next.sock", declaration.name));
        let socket = self.bind(&declaration, &path);
        self.next = Some(self.begin(declaration, socket, None, ctx));
    }

    pub(super) fn stop_plugin(&mut self, reply: Reply<()>, ctx: &mut Context<Msg>) {
        self.cancel_due(ctx);
        match self.admin_request.replace(AdminRequest::Stop(reply)) {
            Some(
                AdminRequest::Restart(reply)
                | AdminRequest::Swap(reply)
                | AdminRequest::SwapAlone { reply, .. },
            ) => {
                reply.send(Err(self.not_ready("it was stopped meanwhile")));
            }
            Some(AdminRequest::Try(reply)) => {
                reply.send(Err(self.not_ready("it was stopped meanwhile")));
            }
            Some(AdminRequest::Stop(reply)) => reply.send(()),
            Some(AdminRequest::Replace | AdminRequest::ReplaceAlone) | None => {}
        }
        for alive in [&self.next, &self.retired].into_iter().flatten() {
            alive.orders.send_replace(GenerationCommand::Finish);
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
                alive.orders.send_replace(GenerationCommand::Finish);
                self.show(PluginState::Draining, String::new(), ctx);
            }
            None => otherwise(self, ctx),
        }
    }

    /// Answers the operator's stop, if nothing is left to end.
    pub(super) fn stopped(&mut self, ctx: &mut Context<Msg>) {
        if self.current.is_some() || self.next.is_some() || self.retired.is_some() {
            return;
        }
        self.show(PluginState::Stopped, String::new(), ctx);
        if let Some(AdminRequest::Stop(reply)) = self.admin_request.take() {
            reply.send(());
        }
    }

    /// The new generation serves and the old one has ended: answers the operator's request.
    pub(super) fn swapped(&mut self, ctx: &mut Context<Msg>) {
        let Some(generation) = self.current.as_ref().map(|alive| alive.generation) else {
            return;
        };
        match self.admin_request.take() {
            Some(AdminRequest::Swap(reply)) => reply.send(Ok(generation)),
            Some(AdminRequest::Replace) => {}
            other => return self.admin_request = other,
        }
        // A Replace of the new one may have come meanwhile.
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

    /// Whether the current generation must have its directory for itself.
    pub(super) fn is_alone(&self) -> bool {
        let needs = |alive: &LiveGeneration| {
            alive
                .introduction
                .capabilities
                .iter()
                .any(|need| need == ALONE)
        };
        self.current.as_ref().is_some_and(needs)
    }
}
