//! Whole numbers of YAML that are written as fractions or powers: `1.1e+02`, `30.0`.
//!
//! Templates render large numbers so. Upstream's sigs.k8s.io/yaml turns each into its shortest JSON form, which is an
//! integer where the value is whole, before anything reads it.

use serde_json::{Number, Value};

/// Makes integers of the whole numbers in a value that was read from YAML, as far as they fit 64 bits with a sign.
/// Other fractions stay: a quantity may be one, and for an integer the decoder names the field.
pub fn normalize(value: &mut Value) {
    let mut pending = vec![value];
    while let Some(value) = pending.pop() {
        match value {
            Value::Number(number) => {
                if let Some(whole) = whole(number) {
                    *number = whole.into();
                }
            }
            Value::Array(items) => pending.extend(items),
            Value::Object(fields) => pending.extend(fields.values_mut()),
            Value::Null | Value::Bool(_) | Value::String(_) => {}
        }
    }
}

fn whole(number: &Number) -> Option<i64> {
    let value = number
        .as_f64()
        .filter(|value| number.is_f64() && value.fract() == 0.0)?;
    // The shortest digits, filled up with zeros: those of the binary value differ beyond 2^53.
    value.to_string().parse().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// What upstream's yaml.YAMLToJSON makes of the same texts.
    #[test]
    fn a_whole_number_is_an_integer_however_it_is_written() {
        let cases = [
            ("1.00064e+09", json!(1_000_640_000)),
            ("1.1e+02", json!(110)),
            ("1e3", json!(1_000)),
            ("30.0", json!(30)),
            ("-2.0", json!(-2)),
            ("-0.0", json!(0)),
            ("1.5", json!(1.5)),
            ("1e-1", json!(0.1)),
            (
                "1.2345678901234567e+18",
                json!(1_234_567_890_123_456_800_i64),
            ),
            ("9.2e+18", json!(9_200_000_000_000_000_000_i64)),
            ("1e19", json!(1e19)),
            ("-1e300", json!(-1e300)),
            ("18446744073709551615", json!(u64::MAX)),
            ("7", json!(7)),
            ("\"30.0\"", json!("30.0")),
            ("[1.0, {a: 2.0}]", json!([1, {"a": 2}])),
        ];
        for (text, expected) in cases {
            let mut value: Value = serde_saphyr::from_str(text).unwrap();
            normalize(&mut value);
            assert_eq!(value, expected, "{text}");
        }
    }
}
