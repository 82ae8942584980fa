//! The pods that are measured with.

use crate::images::BUSYBOX_IMAGE;

/// A manifest of one pod with so many containers that run until they are stopped, and end when asked.
pub(super) fn manifest(name: &str, containers: usize) -> String {
    let mut text = format!(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}\nspec:\n  terminationGracePeriodSeconds: 1\n  containers:\n"
    );
    for nth in 0..containers {
        text.push_str(&format!(
            "  - name: c{nth}\n    image: {BUSYBOX_IMAGE}\n    imagePullPolicy: IfNotPresent\n    \
             command: [sh, -c, \"{SCRIPT}\"]\n"
        ));
    }
    text
}

/// What the containers run: simulated or real, it sleeps, and ends at once when it is told to.
pub(super) const SCRIPT: &str = "trap 'exit 0' TERM; while true; do sleep 3600 & wait; done";
