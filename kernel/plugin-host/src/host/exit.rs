//! The end of a generation, and what follows from it; and the moment at which one takes over from
//! another.

use kernel::Context;

use super::PluginHost;
use super::admin_request::AdminRequest;
use crate::client::PluginState;
use crate::generation::update::{GenerationCommand, GenerationExit};
use crate::message::Msg;

impl PluginHost {
    /// The generation that callers reach has ended.
    pub(super) fn current_ended(&mut self, end: GenerationExit, ctx: &mut Context<Msg>) {
        let Some(ended) = self.current.take() else {
            return;
        };
        let ordered = *ended.orders.borrow() == GenerationCommand::Finish;
        let (why, exit) = match end {
            GenerationExit::Finished { exit } => (String::new(), exit),
            GenerationExit::Failed { why, exit } => (why, exit),
        };
        self.note_exit(exit);
        if let Some(AdminRequest::Stop(_)) = self.admin_request {
            return self.stopped(ctx);
        }
        if self.next.is_some() {
            // A swap is under way: its new generation will serve, or the old declaration starts again.
            return self.show(PluginState::Starting, why, ctx);
        }
        match self.admin_request.take() {
            Some(admin_request) if ordered => {
                self.admin_request = Some(admin_request);
                self.launch(None, ctx);
            }
            Some(AdminRequest::SwapAlone { reply, previous }) => {
                reply.send(Err(self.not_ready(&why)));
                self.declaration = previous;
                self.launch(None, ctx);
            }
            Some(AdminRequest::Restart(reply) | AdminRequest::Swap(reply)) => {
                reply.send(Err(self.not_ready(&why)));
                self.failed(&ended, why, ctx);
            }
            // Stop was seen to above; a replacement lasts until the old generation has ended.
            admin_request @ (Some(
                AdminRequest::Stop(_) | AdminRequest::Try(_) | AdminRequest::Replace,
            )
            | None) => {
                self.admin_request = admin_request;
                self.failed(&ended, why, ctx);
            }
            Some(AdminRequest::ReplaceAlone) => self.failed(&ended, why, ctx),
        }
    }

    /// The new generation of a swap was of no use: the old one stays.
    pub(super) fn next_ended(&mut self, end: GenerationExit, ctx: &mut Context<Msg>) {
        self.next = None;
        let why = match end {
            GenerationExit::Failed { why, .. } => why,
            GenerationExit::Finished { .. } => "it was ended".to_owned(),
        };
        match self.admin_request.take() {
            Some(AdminRequest::Stop(reply)) => {
                self.admin_request = Some(AdminRequest::Stop(reply));
                return self.stopped(ctx);
            }
            Some(AdminRequest::Swap(reply)) => {
                tracing::warn!(plugin = self.declaration.name, why, "swap came to nothing");
                reply.send(Err(self.not_ready(&why)));
            }
            Some(AdminRequest::Try(reply)) => reply.send(Err(self.not_ready(&why))),
            Some(AdminRequest::Replace) => {
                tracing::warn!(
                    plugin = self.declaration.name,
                    why,
                    "replacement came to nothing"
                );
                // Tried again at the next Replace.
                self.stuck = None;
            }
            other => self.admin_request = other,
        }
        if self.current.is_none() && self.due.is_none() {
            self.launch(None, ctx);
        }
    }

    /// The generation on trial has reported its health, or that it cannot be reached: it is ended, whatever it said.
    fn tried(&mut self, ctx: &mut Context<Msg>) {
        let Some(next) = &self.next else { return };
        let outcome = match &next.report {
            Some(report) if report.healthy => Ok(()),
            Some(report) => Err(report.reason.clone()),
            None if next.unreachable.is_empty() => return,
            None => Err(next.unreachable.clone()),
        };
        next.orders.send_replace(GenerationCommand::Finish);
        if let Err(why) = outcome {
            return self.next_ended(GenerationExit::Failed { why, exit: None }, ctx);
        }
        if let Some(AdminRequest::Try(reply)) = self.admin_request.take() {
            reply.send(Ok(()));
        }
        self.next_ended(GenerationExit::Finished { exit: None }, ctx);
    }

    /// The old generation of a swap is dead: the swap is done.
    pub(super) fn retired_ended(&mut self, end: GenerationExit, ctx: &mut Context<Msg>) {
        let (GenerationExit::Finished { exit } | GenerationExit::Failed { exit, .. }) = end;
        self.note_exit(exit);
        self.retired = None;
        match self.admin_request {
            Some(AdminRequest::Stop(_)) => self.stopped(ctx),
            Some(
                AdminRequest::Restart(_)
                | AdminRequest::Swap(_)
                | AdminRequest::SwapAlone { .. }
                | AdminRequest::Try(_)
                | AdminRequest::Replace
                | AdminRequest::ReplaceAlone,
            )
            | None => self.swapped(ctx),
        }
    }

    /// The new generation of a swap has reported its health: if it is ready, callers are led to it.
    pub(super) fn take_over(&mut self, ctx: &mut Context<Msg>) {
        let Some(next) = &self.next else { return };
        if let Some(AdminRequest::Try(_)) = self.admin_request {
            return self.tried(ctx);
        }
        let refused = if next.ready() {
            self.adopt_name(next).err()
        } else {
            Some(next.unreachable.clone()).filter(|why| !why.is_empty())
        };
        if let Some(why) = refused {
            next.orders.send_replace(GenerationCommand::Finish);
            return self.next_ended(GenerationExit::Failed { why, exit: None }, ctx);
        }
        let Some(next) = self.next.take_if(|next| next.ready()) else {
            return;
        };
        let retired = self.current.replace(next);
        self.retired = retired;
        self.publish_current();
        self.show_current(ctx);
        match &self.retired {
            Some(retired) => {
                retired.orders.send_replace(GenerationCommand::Finish);
            }
            None => self.swapped(ctx),
        }
    }
}
