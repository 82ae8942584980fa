//! What is made good: the state of before a restart, and pods that went without having their claims undone.

use std::collections::BTreeSet;

use kernel::{Context, Exit, Recipient};
use logic_api::types::PodUid;
use logic_placement::claims::decode_claims;

use super::{DynamicResources, Msg, PodsQuery, RECONCILE_PERIOD, UNKNOWN_PERIOD};

impl DynamicResources {
    /// Reads the state file, or sets a damaged one aside: the claims of pods that are there are prepared again, those of
    /// pods that are gone stay with the drivers.
    pub(super) async fn read_claims(&mut self) -> Result<(), Exit> {
        if let Some(content) = self.file.read().await? {
            match decode_claims(&content) {
                Ok(cache) => self.cache = cache,
                Err(flaw) => {
                    let why = kernel::error_chain(&flaw).to_string();
                    let path = self.file.path().display();
                    tracing::error!(
                        "{path} is set aside, drivers may keep claims of pods that are gone: {why}"
                    );
                    self.damaged = Some(why);
                    self.file.set_aside().await?;
                }
            }
        }
        self.show_claims_in_use();
        Ok(())
    }

    pub(super) fn tick(&mut self, ctx: &mut Context<Msg>) {
        let period = match self.pods_unknown {
            true => UNKNOWN_PERIOD,
            false => RECONCILE_PERIOD,
        };
        ctx.after(period, Msg::Tick);
        let answer = Recipient::new(ctx.addr().clone(), Msg::Pods);
        if let Err(full) = self.peers.pods.tell(PodsQuery(answer)) {
            tracing::debug!("the pods are not known now: {full}");
        }
    }

    pub(super) fn reconcile(&mut self, pods: Option<BTreeSet<PodUid>>, ctx: &mut Context<Msg>) {
        // Before every source has told its pods none is gone.
        let Some(active) = pods else { return };
        self.pods_unknown = false;
        for gone in self.cache.inactive(&active) {
            // One that hangs is not asked for once more.
            if !self.is_busy_with(&gone.pod) {
                self.undo(gone.pod, gone.claims, None, ctx);
            }
        }
    }
}
