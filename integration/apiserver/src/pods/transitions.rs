//! Which containers may leave their end: upstream's ValidateContainerStateTransition and its like for init and ephemeral
//! containers, of ValidatePodStatusUpdate.

use serde_json::Value;

const FORBIDDEN: &str = "Forbidden: may not be transitioned to non-terminated state";

/// The status lists, each with the list of the spec that it belongs to.
const LISTS: [(&str, &str); 3] = [
    ("containerStatuses", "containers"),
    ("initContainerStatuses", "initContainers"),
    ("ephemeralContainerStatuses", "ephemeralContainers"),
];

/// Returns the first field that breaks the rule, and why.
pub(crate) fn check(before: &Value, after: &Value) -> Result<(), (String, &'static str)> {
    let spec = &before["spec"];
    let restarts_all = ["containers", "initContainers"].iter().any(|list| {
        let mut rules =
            items(&spec[list]).flat_map(|container| items(&container["restartPolicyRules"]));
        rules.any(|rule| rule["action"] == "RestartAllContainers")
    });
    for (statuses, containers) in LISTS {
        if restarts_all && containers != "ephemeralContainers" {
            continue;
        }
        for (at, old) in items(&before["status"][statuses]).enumerate() {
            let Some(exit_code) = old["state"]["terminated"]["exitCode"].as_i64() else {
                continue;
            };
            let named = |list: &Value| items(list).find(|c| c["name"] == old["name"]).cloned();
            let leaves = named(&after["status"][statuses])
                .is_some_and(|new| new["state"]["terminated"].is_null());
            let container =
                named(&spec[containers]).filter(|_| containers != "ephemeralContainers");
            let restarts = container.is_some_and(|container| restarts(&container, spec, exit_code));
            if leaves && !restarts {
                return Err((format!("status.{statuses}[{at}].state"), FORBIDDEN));
            }
        }
    }
    Ok(())
}

/// Upstream's ContainerShouldRestart.
fn restarts(container: &Value, spec: &Value, exit_code: i64) -> bool {
    let own = container["restartPolicy"].as_str();
    let matches = |rule: &Value| {
        let values = &rule["exitCodes"]["values"];
        let is_in = items(values).any(|value| value.as_i64() == Some(exit_code));
        is_in == (rule["exitCodes"]["operator"] == "In")
    };
    if own.is_some() && items(&container["restartPolicyRules"]).any(matches) {
        return true;
    }
    match own.or(spec["restartPolicy"].as_str()) {
        Some("Never") => false,
        Some("OnFailure") => exit_code != 0,
        _ => true,
    }
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}
