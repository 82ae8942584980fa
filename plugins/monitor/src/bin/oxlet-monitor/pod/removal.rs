//! Containers removed: the ones that are over, and what a failed creation has left. What cannot be removed stays and
//! is told.

use monitor::{Fact, Phase, Refusal, RefusalKind, Reply};

use super::Pod;
use super::calls::Purpose;
use super::lifecycle::{refusal, system};
use crate::cgroup;
use crate::container::Part;

impl Pod {
    /// Removes what a create has left; the client hears `owed` after it.
    pub(super) fn discard(&mut self, number: u64, owed: Option<(u64, Refusal)>) {
        let Some(container) = self.containers.get_mut(&number) else {
            return;
        };
        container.busy = true;
        let id = container.id().to_owned();
        let purpose = Purpose::Discard {
            container: number,
            owed: owed.clone(),
        };
        if let Err(error) = self.call(number, &["delete", "--force", &id], None, purpose) {
            self.discarded(number, owed, Err(system(&error)));
        }
    }

    pub(super) fn discarded(
        &mut self,
        number: u64,
        owed: Option<(u64, Refusal)>,
        outcome: Result<String, Refusal>,
    ) {
        let removed = self.removed(number, outcome);
        let Some((client, mut refusal)) = owed else {
            return;
        };
        if let Err(rest) = removed {
            refusal.message = format!(
                "{}; and what is left of it stays: {}",
                refusal.message, rest.message
            );
        }
        self.answer(client, &Reply::Refused(refusal));
    }

    pub(super) fn delete(&mut self, client: u64, number: u64) {
        let Some(container) = self.containers.get_mut(&number) else {
            return;
        };
        let removable = match container.phase() {
            Phase::Creating | Phase::Created | Phase::Exited | Phase::Deleting => true,
            Phase::Starting | Phase::Running => false,
        };
        if container.busy || !removable {
            return self.wrong_phase(client, number, "removed");
        }
        // What its last writers leave in the pipes belongs to the log.
        self.take_last_output(number);
        let Some(container) = self.containers.get_mut(&number) else {
            return;
        };
        let log_trouble = container.flush_log();
        if let Err(error) = container.intend(Phase::Deleting) {
            // It is removed all the same: a full disk must not keep what frees it. A successor finds it as it was.
            let trouble =
                container.trouble(Part::Record, &format!("record cannot be written: {error}"));
            container.record.phase = Phase::Deleting;
            self.tell_trouble(number, trouble);
        }
        self.tell_trouble(number, log_trouble);
        self.remove(number, Some(client));
    }

    /// Lets the runtime remove a container.
    pub(super) fn remove(&mut self, number: u64, client: Option<u64>) {
        let Some(container) = self.containers.get_mut(&number) else {
            return;
        };
        container.busy = true;
        let id = container.id().to_owned();
        let purpose = Purpose::Delete {
            container: number,
            client,
        };
        if let Err(error) = self.call(number, &["delete", "--force", &id], None, purpose) {
            self.deleted(number, client, Err(system(&error)));
        }
    }

    pub(super) fn deleted(
        &mut self,
        number: u64,
        client: Option<u64>,
        outcome: Result<String, Refusal>,
    ) {
        let id = self
            .containers
            .get(&number)
            .map(|container| container.id().to_owned());
        let removed = self.removed(number, outcome);
        if let (Ok(()), Some(id)) = (&removed, id) {
            self.tell(&id, Fact::Deleted);
        }
        if let Some(client) = client {
            self.answer(
                client,
                &removed.map_or_else(Reply::Refused, |()| Reply::Done),
            );
        }
    }

    /// The runtime has removed a container, or says that it has none: its folder goes. Otherwise both stay, and
    /// the trouble is told.
    fn removed(&mut self, number: u64, outcome: Result<String, Refusal>) -> Result<(), Refusal> {
        let Some(container) = self.containers.get_mut(&number) else {
            return Ok(());
        };
        let gone = match outcome {
            Err(refusal) if !refusal.message.contains("does not exist") => Err(refusal),
            Ok(_) | Err(_) => files::remove_tree(&container.folder).map_err(|error| {
                refusal(
                    RefusalKind::System,
                    format!("cannot remove {}: {error}", container.folder.display()),
                )
            }),
        };
        match gone {
            Ok(()) => {
                let counter = container.record.oom_counter.as_ref();
                let groups = counter.map(|counter| cgroup::groups_of(counter, container.id()));
                self.tell_end(number);
                self.containers.remove(&number);
                // Those that its runtime has left, if there are any.
                self.remove_groups(&groups.unwrap_or_default());
                Ok(())
            }
            Err(refusal) => {
                container.busy = false;
                container.early = None;
                let trouble = container.trouble(
                    Part::Removal,
                    &format!("cannot be removed: {}", refusal.message),
                );
                self.tell_trouble(number, trouble);
                Err(refusal)
            }
        }
    }
}
