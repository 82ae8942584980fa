//! The end of a generation, and what follows from it; and the moment at which one takes over from
//! another.

use super::super::channel::State;
use super::super::generation::{End, Order};
use super::errand::Errand;
use super::{Host, Msg};
use crate::context::Context;

impl Host {
    /// The generation that callers reach has ended.
    pub(super) fn current_ended(&mut self, end: End, ctx: &mut Context<Msg>) {
        let Some(ended) = self.current.take() else {
            return;
        };
        let ordered = *ended.orders.borrow() == Order::Finish;
        let (why, exit) = match end {
            End::Finished { exit } => (String::new(), exit),
            End::Failed { why, exit } => (why, exit),
        };
        self.note_exit(exit);
        if let Some(Errand::Stop(_)) = self.errand {
            return self.stopped(ctx);
        }
        if self.next.is_some() {
            // A swap is under way: its new generation will serve, or the old declaration starts again.
            return self.show(State::Starting, why, ctx);
        }
        match self.errand.take() {
            Some(errand) if ordered => {
                self.errand = Some(errand);
                self.launch(None, ctx);
            }
            Some(Errand::SwapAlone { asker, way_back }) => {
                asker.send(Err(self.not_ready(&why)));
                self.declaration = way_back;
                self.launch(None, ctx);
            }
            Some(Errand::Restart(asker) | Errand::Swap(asker)) => {
                asker.send(Err(self.not_ready(&why)));
                self.failed(&ended, why, ctx);
            }
            // Stop was seen to above; a replacement lasts until the old generation has ended.
            errand @ (Some(Errand::Stop(_) | Errand::Replace) | None) => {
                self.errand = errand;
                self.failed(&ended, why, ctx);
            }
            Some(Errand::ReplaceAlone) => self.failed(&ended, why, ctx),
        }
    }

    /// The new generation of a swap was of no use: the old one stays.
    pub(super) fn next_ended(&mut self, end: End, ctx: &mut Context<Msg>) {
        self.next = None;
        let why = match end {
            End::Failed { why, .. } => why,
            End::Finished { .. } => "it was ended".to_owned(),
        };
        match self.errand.take() {
            Some(Errand::Stop(asker)) => {
                self.errand = Some(Errand::Stop(asker));
                return self.stopped(ctx);
            }
            Some(Errand::Swap(asker)) => {
                tracing::warn!(plugin = self.declaration.name, why, "swap came to nothing");
                asker.send(Err(self.not_ready(&why)));
            }
            Some(Errand::Replace) => {
                tracing::warn!(
                    plugin = self.declaration.name,
                    why,
                    "replacement came to nothing"
                );
                // Tried again when it is told again.
                self.stuck = None;
            }
            other => self.errand = other,
        }
        if self.current.is_none() && self.due.is_none() {
            self.launch(None, ctx);
        }
    }

    /// The old generation of a swap is dead: the swap is done.
    pub(super) fn retired_ended(&mut self, end: End, ctx: &mut Context<Msg>) {
        let (End::Finished { exit } | End::Failed { exit, .. }) = end;
        self.note_exit(exit);
        self.retired = None;
        match self.errand {
            Some(Errand::Stop(_)) => self.stopped(ctx),
            Some(
                Errand::Restart(_)
                | Errand::Swap(_)
                | Errand::SwapAlone { .. }
                | Errand::Replace
                | Errand::ReplaceAlone,
            )
            | None => self.swapped(ctx),
        }
    }

    /// The new generation of a swap has spoken: if it is ready, callers are led to it.
    pub(super) fn take_over(&mut self, ctx: &mut Context<Msg>) {
        let Some(next) = &self.next else { return };
        let refused = if next.ready() {
            self.adopt_name(next).err()
        } else {
            Some(next.unreachable.clone()).filter(|why| !why.is_empty())
        };
        if let Some(why) = refused {
            next.orders.send_replace(Order::Finish);
            return self.next_ended(End::Failed { why, exit: None }, ctx);
        }
        let Some(next) = self.next.take_if(|next| next.ready()) else {
            return;
        };
        let retired = self.current.replace(next);
        self.retired = retired;
        self.settle_in();
        self.show_current(ctx);
        match &self.retired {
            Some(retired) => {
                retired.orders.send_replace(Order::Finish);
            }
            None => self.swapped(ctx),
        }
    }
}
