//! What the node assigns to pods, and what each of them holds.
//!
//! The pod manager writes it; it outlives the pod manager. The workers and the pod resources server read it, and the
//! checkpoint manager keeps it on the disk in the kubelet's form.

use std::sync::Arc;

use kernel::watch;
use logic_placement::NodePlacement;
use logic_placement::devices::DeviceInventory;
use logic_placement::topology::HeldAssignments;

/// The managers of exclusive resources, and what each pod holds. Clones share it.
#[derive(Clone, Debug)]
pub struct Assignments {
    pub placement: Arc<NodePlacement>,
    held: watch::Sender<Arc<HeldAssignments>>,
    devices: watch::Sender<Arc<DeviceInventory>>,
}

impl Default for Assignments {
    /// Nothing is assigned.
    fn default() -> Self {
        Assignments::new(NodePlacement::default(), HeldAssignments::new())
    }
}

impl Assignments {
    /// `earlier` is what pods hold from an earlier life of the agent, or from a kubelet.
    pub fn new(placement: NodePlacement, earlier: HeldAssignments) -> Assignments {
        Assignments {
            placement: Arc::new(placement),
            held: watch::Sender::new(Arc::new(earlier)),
            devices: watch::Sender::new(Arc::default()),
        }
    }

    /// What each pod holds; those that hold nothing are absent.
    pub fn held(&self) -> Arc<HeldAssignments> {
        self.held.borrow().clone()
    }

    /// Follows what pods hold; what is held now is not new.
    pub fn follow(&self) -> watch::Receiver<Arc<HeldAssignments>> {
        self.held.subscribe()
    }

    /// The devices that device plugins have told.
    pub fn devices(&self) -> Arc<DeviceInventory> {
        self.devices.borrow().clone()
    }

    /// Takes in the devices that device plugins have told. Only the pod manager does this.
    pub fn set_devices(&self, inventory: Arc<DeviceInventory>) {
        self.devices.send_replace(inventory);
    }

    /// Changes what pods hold; returns whether it differs. Only the pod manager does this.
    pub fn update(&self, change: impl FnOnce(&mut HeldAssignments)) -> bool {
        self.held.send_if_modified(|held| {
            let mut changed = HeldAssignments::clone(held);
            change(&mut changed);
            let differs = **held != changed;
            if differs {
                *held = Arc::new(changed);
            }
            differs
        })
    }
}
