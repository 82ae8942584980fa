//! Which fields say nothing: the API server's types drop null and empty fields (Go's `omitempty`), so that an absent
//! field, null and an empty value are equal wherever a status is compared with what the server keeps.

use serde::Serialize;
use serde_json::Value;

/// Fields where zero, or false, equals absent: the API does not keep it.
const OMITTED: [&str; 3] = ["readOnly", "signal", "observedGeneration"];

/// Whether a field of a status with this value says the same as an absent one.
pub fn is_absent(field: &str, value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value && OMITTED.contains(&field),
        Value::Number(value) => value.as_i64() == Some(0) && OMITTED.contains(&field),
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.iter().all(|(key, value)| is_absent(key, value)),
    }
}

/// Drops the fields that say nothing, at any depth. The elements of a list stay: their number counts.
pub fn drop_absent(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.values_mut().for_each(drop_absent);
            fields.retain(|field, value| !is_absent(field, value));
        }
        Value::Array(elements) => elements.iter_mut().for_each(drop_absent),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Whether two values are the same for the API server.
pub fn says_same<T: Serialize>(one: &T, other: &T) -> bool {
    kept(one) == kept(other)
}

fn kept(value: &impl Serialize) -> Value {
    let mut value = serde_json::to_value(value).unwrap_or_default();
    drop_absent(&mut value);
    value
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn absent_null_and_empty_are_equal_at_any_depth() {
        let full = json!({"images": [{"names": ["a"], "sizeBytes": 1}]});
        let cases = [
            (json!({"images": [{"sizeBytes": 1}]}), true),
            (json!({"images": [{"names": [], "sizeBytes": 1}]}), true),
            (json!({"images": [{"names": null, "sizeBytes": 1}]}), true),
            (
                json!({"images": [{"sizeBytes": 1}], "phase": "", "more": {"deep": {}}}),
                true,
            ),
            (json!({"images": [{"sizeBytes": 1}, {}]}), false),
            (json!({"images": [{"sizeBytes": 0}]}), false),
            (full, false),
        ];
        for (other, expected) in cases {
            let ours = json!({"images": [{"names": [], "sizeBytes": 1}], "gone": null});
            assert_eq!(says_same(&ours, &other), expected, "{other}");
        }
    }

    #[test]
    fn zero_and_false_are_absent_only_where_the_api_drops_them() {
        assert!(says_same(
            &json!({"signal": 0, "readOnly": false}),
            &json!({})
        ));
        assert!(!says_same(&json!({"exitCode": 0}), &json!({})));
        assert!(!says_same(&json!({"started": false}), &json!({})));
    }
}
