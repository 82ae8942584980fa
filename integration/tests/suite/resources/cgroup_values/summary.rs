//! Which fields a summary has of what: their values change from one second to the next.

use integration::http;
use serde_json::Value;

use super::SUMMARY;
use super::table::Values;

/// Asks the agent, or the kubelet, for its summary: `summary:node`, `summary:POD`, `summary:POD/CONTAINER`.
pub(super) async fn read(port: u16) -> Values {
    let mut values = Values::new();
    let Ok(answer) = http::get(port, "/stats/summary").await else {
        return values;
    };
    let summary: Value = serde_json::from_str(&answer.text()).unwrap_or_default();
    let node = &summary["node"];
    add(&mut values, "node", node);
    for container in list(node, "systemContainers") {
        add(&mut values, &format!("node/{}", name(container)), container);
    }
    for pod in list(&summary, "pods") {
        let pod_name = name(&pod["podRef"]).trim_end_matches("-node");
        add(&mut values, pod_name, pod);
        for container in list(pod, "containers") {
            let name = format!("{pod_name}/{}", name(container));
            add(&mut values, &name, container);
        }
    }
    values
}

fn list<'a>(of: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> {
    of[field].as_array().into_iter().flatten()
}

fn name(of: &Value) -> &str {
    of["name"].as_str().unwrap_or_default()
}

/// Lists are left out, which have rows of their own, and the network, which is the machine's.
fn add(values: &mut Values, what: &str, of: &Value) {
    let mut left: Vec<(String, &Value)> = vec![(String::new(), of)];
    while let Some((path, value)) = left.pop() {
        match value {
            Value::Object(fields) => {
                let fields = fields.iter().filter(|(name, _)| *name != "network");
                left.extend(fields.map(|(name, value)| (format!("{path}.{name}"), value)));
            }
            Value::Array(_) | Value::Null => {}
            Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                let kind = if value.is_number() { "number" } else { "text" };
                let field = path.trim_start_matches('.').to_owned();
                values.insert((format!("{SUMMARY}{what}"), field), kind.to_owned());
            }
        }
    }
}
