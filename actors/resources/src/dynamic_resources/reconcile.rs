//! What is made good: the state of before a restart, and pods that went without having their claims undone.

use std::collections::BTreeSet;

use kernel::{Context, Exit};
use logic_api::types::PodUid;
use logic_placement::claims::decode_claims;

use super::{DynamicResources, Msg, RECONCILE_PERIOD};

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
        ctx.after(RECONCILE_PERIOD, Msg::Tick);
        let pods = self.peers.pods.clone();
        ctx.run(async move { Msg::Pods(pods.ask(()).await) });
    }

    pub(super) fn reconcile(
        &mut self,
        pods: Result<Option<BTreeSet<PodUid>>, String>,
        ctx: &mut Context<Msg>,
    ) {
        match pods {
            Ok(Some(active)) => {
                for gone in self.cache.inactive(&active) {
                    // One that hangs is not asked for once more.
                    if !self.is_busy_with(&gone.pod) {
                        self.undo(gone.pod, gone.claims, None, ctx);
                    }
                }
            }
            // Before every source has told its pods none is gone.
            Ok(None) => {}
            Err(error) => tracing::debug!("the pods are not known now: {error}"),
        }
    }
}
