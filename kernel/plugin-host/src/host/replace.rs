//! A generation with a thread that is stuck in the kernel makes room for one without.

use kernel::Context;

use super::PluginHost;
use super::admin_request::AdminRequest;
use crate::declaration::LaunchMethod;
use crate::message::Msg;
use crate::process::termination::MAX_ABANDONED;

impl PluginHost {
    /// Notes that a generation has reported a stuck thread to one of its callers.
    pub(super) fn note_stuck(&mut self, generation: u64, ctx: &mut Context<Msg>) {
        if self.serves(generation) && matches!(self.declaration.start, LaunchMethod::Managed { .. })
        {
            self.stuck = Some(generation);
            self.replace_stuck(ctx);
        }
    }

    /// Replaces the current generation if it has a stuck thread, now or when that can be.
    pub(super) fn replace_stuck(&mut self, ctx: &mut Context<Msg>) {
        let Some(generation) = self.stuck.filter(|stuck| self.serves(*stuck)) else {
            return;
        };
        if self.admin_request.is_some() || self.next.is_some() || self.retired.is_some() {
            return;
        }
        if let Some(waiting) = self.room.take() {
            ctx.abort(waiting);
        }
        let plugin = &self.declaration.name;
        if self.crowded() {
            tracing::error!(
                plugin,
                generation,
                "a thread is stuck in the kernel, but {MAX_ABANDONED} processes are abandoned already: not replaced"
            );
            let line = self.line.clone();
            let room = async move {
                line.room().await;
                Msg::Replace { generation }
            };
            return self.room = Some(ctx.run(room));
        }
        tracing::warn!(
            plugin,
            generation,
            "a thread is stuck in the kernel; replacing the process"
        );
        if self.is_alone() {
            self.admin_request = Some(AdminRequest::ReplaceAlone);
            return self.end_current_or(ctx, |host, ctx| host.launch(None, ctx));
        }
        self.admin_request = Some(AdminRequest::Replace);
        self.begin_beside(self.declaration.clone(), ctx);
    }

    /// A warning for the operator although the plugin is ready; empty when there is none.
    pub(super) fn warning(&self) -> String {
        match self.stuck.filter(|stuck| self.serves(*stuck)) {
            Some(generation) if self.crowded() => format!(
                "generation {generation} has a thread that is stuck in the kernel and is not replaced, \
                 because {MAX_ABANDONED} processes are abandoned already"
            ),
            Some(_) | None => String::new(),
        }
    }

    fn serves(&self, generation: u64) -> bool {
        self.current
            .as_ref()
            .is_some_and(|alive| alive.generation == generation)
    }

    fn crowded(&self) -> bool {
        self.line.abandonments().borrow().len() >= MAX_ABANDONED
    }
}
