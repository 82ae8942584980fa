//! `GET /variables`: what pods' manifests set in their containers' environments, for who takes it out of texts that
//! are given away. The socket's owner could read each of them in `/proc`.

use std::time::Duration;

use k8s_openapi::api::core::v1::{EnvVar, Pod};
use kernel::Addr;
use pods::pod_manager;
use serde::{Deserialize, Serialize};

use super::route::AdminError;

/// The pod manager answers from memory.
const ASK_TIMEOUT: Duration = Duration::from_secs(5);

/// A variable with its literal value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Variable {
    pub name: String,
    pub value: String,
}

pub(super) async fn list(
    pod_manager: &Addr<pod_manager::Msg>,
) -> Result<Vec<Variable>, AdminError> {
    let silent = |source| AdminError::Silent {
        who: "the pod manager",
        source,
    };
    let pods = pod_manager.ask(ASK_TIMEOUT, pod_manager::Msg::all).await;
    let pods = pods.map_err(silent)?;
    Ok(pods.iter().flat_map(|pod| of(pod)).collect())
}

fn of(pod: &Pod) -> Vec<Variable> {
    let spec = pod.spec.iter();
    let variables = spec.flat_map(|spec| {
        let inits = spec.init_containers.iter().flatten();
        let apps = inits.chain(&spec.containers);
        let ephemeral = spec.ephemeral_containers.iter().flatten();
        let envs = apps.map(|container| &container.env);
        envs.chain(ephemeral.map(|container| &container.env))
    });
    let literal = |variable: &EnvVar| {
        let value = variable.value.clone().filter(|value| !value.is_empty())?;
        Some(Variable {
            name: variable.name.clone(),
            value,
        })
    };
    variables.flatten().flatten().filter_map(literal).collect()
}

#[cfg(test)]
mod tests {
    use logic_api::testing::yaml::pod;

    use super::*;

    #[test]
    fn the_literal_variables_of_all_containers_count() {
        let pod = pod("
metadata: {name: web}
spec:
  initContainers:
  - {name: i, image: x, env: [{name: A, value: one}]}
  containers:
  - name: c
    image: x
    env:
    - {name: B, value: two}
    - {name: EMPTY, value: ''}
    - {name: C, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
  ephemeralContainers:
  - {name: e, image: x, env: [{name: D, value: three}]}
");
        let found = of(&pod).into_iter().map(|one| one.name + "=" + &one.value);
        let found: Vec<String> = found.collect();
        assert_eq!(found, ["A=one", "B=two", "D=three"]);
    }
}
