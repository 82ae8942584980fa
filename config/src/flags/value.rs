//! The kinds of value that a flag takes, read as pflag and component-base read them, into JSON: the
//! one language in which flags, files and drop-ins are merged.

use std::net::IpAddr;

use serde_json::{Map, Value, json};

use crate::kubelet_configuration::{GoDuration, Quantity};
use crate::names;

/// How a flag's text is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FlagType {
    /// Needs no value: `--flag` is `--flag=true`.
    Bool,
    Int32,
    Int64,
    Uint32,
    Duration,
    Text,
    /// An IP address; an empty one leaves the setting alone.
    Ip,
    Amount,
    /// Comma-separated; repeated flags add up.
    Texts,
    Ints,
    /// `key=value,...`; repeated flags add up.
    Pairs,
    /// One `key=value` a flag: the value may hold commas.
    Pair,
    /// Eviction thresholds: `signal<amount,...`.
    Thresholds,
    /// Feature gates: `gate=bool,...`.
    Gates,
    /// `name:value,...`, several values a name.
    Headers,
    /// `key=value,...`, where `key` alone has an empty value.
    Labels,
    /// Log levels by file: `pattern=level,...`.
    VModule,
    /// Taints of the node: `key=value:effect,...`.
    Taints,
    /// Reserved memory of NUMA nodes: `node:type=quantity,...;node:...`.
    ReservedMemory,
    /// `true`, `false`, `raw` or a version; needs no value.
    Version,
}

impl FlagType {
    /// Returns what `--flag` alone means, for the kinds that may stand alone.
    pub(crate) fn alone(self) -> Option<&'static str> {
        matches!(self, FlagType::Bool | FlagType::Version).then_some("true")
    }

    /// Reads one occurrence of a flag; `so_far` is what earlier ones gave. `None` leaves it unset.
    pub(crate) fn read(self, text: &str, so_far: Option<Value>) -> Result<Option<Value>, String> {
        let value = match self {
            FlagType::Bool => json!(boolean(text)?),
            FlagType::Int32 => json!(whole::<i32>(text)?),
            FlagType::Int64 => json!(whole::<i64>(text)?),
            FlagType::Uint32 => json!(whole::<u32>(text)?),
            FlagType::Duration => {
                json!(
                    text.parse::<GoDuration>()
                        .map_err(|error| error.to_string())?
                )
            }
            FlagType::Text => json!(text),
            FlagType::Ip if text.is_empty() => return Ok(None),
            FlagType::Ip => json!(address(text)?),
            FlagType::Amount => json!(
                text.parse::<Quantity>()
                    .map_err(|error| error.to_string())?
            ),
            FlagType::Texts => append(so_far, csv(text)?.into_iter().map(Value::from)),
            FlagType::Ints => append(so_far, ints(text)?.into_iter().map(Value::from)),
            FlagType::Pairs => pairs(so_far, parts(text), '=')?,
            FlagType::Pair => pairs(so_far, std::iter::once(text), '=')?,
            FlagType::Thresholds => pairs(so_far, parts(text), '<')?,
            FlagType::Gates => gates(so_far, text)?,
            FlagType::Headers => headers(so_far, text)?,
            FlagType::Labels => labels(so_far, text),
            FlagType::VModule => vmodule(text)?,
            FlagType::Taints => taints(text)?,
            FlagType::ReservedMemory if text.is_empty() => return Ok(None),
            FlagType::ReservedMemory => reserved_memory(so_far, text)?,
            FlagType::Version => json!(version(text)?),
        };
        Ok(Some(value))
    }
}

fn boolean(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err("expected true or false".to_owned()),
    }
}

/// Go's `ParseInt` with base 0: decimal, or `0x`, `0o`, `0b` and a leading zero for other bases.
fn whole<T: TryFrom<i128>>(text: &str) -> Result<T, String> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (base, digits) = match digits.get(..2).map(str::to_ascii_lowercase).as_deref() {
        Some("0x") => (16, &digits[2..]),
        Some("0o") => (8, &digits[2..]),
        Some("0b") => (2, &digits[2..]),
        Some(two) if two.starts_with('0') => (8, &digits[1..]),
        _ => (10, digits),
    };
    let signed = |number: i128| if negative { -number } else { number };
    digits
        .bytes()
        .all(|digit| digit.is_ascii_alphanumeric())
        .then(|| i128::from_str_radix(digits, base).ok())
        .flatten()
        .and_then(|number| T::try_from(signed(number)).ok())
        .ok_or_else(|| {
            format!(
                "expected a whole number that fits {} bits",
                size_of::<T>() * 8
            )
        })
}

fn address(text: &str) -> Result<String, String> {
    match text.parse::<IpAddr>() {
        Ok(_) => Ok(text.to_owned()),
        Err(_) => Err("expected an IP address".to_owned()),
    }
}

fn version(text: &str) -> Result<String, String> {
    match text {
        "raw" => Ok("raw".to_owned()),
        _ if text.starts_with('v') => Ok(text.to_owned()),
        _ => boolean(text)
            .map(|requested| requested.to_string())
            .map_err(|_| "expected true, false, raw or a version such as v1.36.0".to_owned()),
    }
}

fn parts(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').filter(|part| !part.is_empty())
}

fn append(so_far: Option<Value>, more: impl Iterator<Item = Value>) -> Value {
    let mut list = match so_far {
        Some(Value::Array(list)) => list,
        _ => Vec::new(),
    };
    list.extend(more);
    Value::Array(list)
}

fn into_map(so_far: Option<Value>) -> Map<String, Value> {
    match so_far {
        Some(Value::Object(map)) => map,
        _ => Map::new(),
    }
}

/// One line of CSV: a field in double quotes may hold commas, and `""` is a quote inside it.
fn csv(text: &str) -> Result<Vec<String>, String> {
    let mut fields = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (field, tail) = match rest.strip_prefix('"') {
            Some(quoted) => quoted_field(quoted)?,
            None => match rest.split_once(',') {
                Some((field, tail)) => (field.to_owned(), Some(tail)),
                None => (rest.to_owned(), None),
            },
        };
        fields.push(field);
        match tail {
            Some("") => {
                fields.push(String::new());
                break;
            }
            Some(tail) => rest = tail,
            None => break,
        }
    }
    Ok(fields)
}

fn quoted_field(text: &str) -> Result<(String, Option<&str>), String> {
    let mut field = String::new();
    let mut rest = text;
    loop {
        let Some((before, after)) = rest.split_once('"') else {
            return Err("expected a closing quote".to_owned());
        };
        field.push_str(before);
        rest = match after.chars().next() {
            None => return Ok((field, None)),
            Some(',') => return Ok((field, Some(&after[1..]))),
            Some('"') => {
                field.push('"');
                &after[1..]
            }
            Some(_) => return Err("expected a comma after a closing quote".to_owned()),
        };
    }
}

fn ints(text: &str) -> Result<Vec<i32>, String> {
    text.split(',')
        .filter(|_| !text.is_empty())
        .map(|part| whole(part.trim()))
        .collect()
}

fn pairs<'a>(
    so_far: Option<Value>,
    parts: impl Iterator<Item = &'a str>,
    by: char,
) -> Result<Value, String> {
    let mut map = into_map(so_far);
    for part in parts {
        let Some((key, value)) = part.split_once(by) else {
            return Err(format!(
                "expected pairs of the form name{by}value, found {part:?}"
            ));
        };
        map.insert(key.trim().to_owned(), Value::from(value.trim()));
    }
    Ok(Value::Object(map))
}

fn gates(so_far: Option<Value>, text: &str) -> Result<Value, String> {
    let mut map = into_map(so_far);
    for part in parts(text) {
        let Some((name, value)) = part.split_once('=') else {
            return Err(format!(
                "expected pairs of the form Gate=true, found {part:?}"
            ));
        };
        let value = boolean(value.trim()).map_err(|error| format!("{part:?}: {error}"))?;
        map.insert(name.trim().to_owned(), Value::from(value));
    }
    Ok(Value::Object(map))
}

fn headers(so_far: Option<Value>, text: &str) -> Result<Value, String> {
    let mut map = into_map(so_far);
    for part in parts(text) {
        let Some((name, value)) = part.split_once(':') else {
            return Err("expected pairs of the form name:value".to_owned());
        };
        let values = map
            .entry(name.trim())
            .or_insert_with(|| Value::Array(Vec::new()));
        if let Value::Array(values) = values {
            values.push(Value::from(value.trim()));
        }
    }
    Ok(Value::Object(map))
}

fn labels(so_far: Option<Value>, text: &str) -> Value {
    let mut map = into_map(so_far);
    for part in parts(text) {
        let (key, value) = part.split_once('=').unwrap_or((part, ""));
        map.insert(key.trim().to_owned(), Value::from(value.trim()));
    }
    Value::Object(map)
}

fn vmodule(text: &str) -> Result<Value, String> {
    let mut items = Vec::new();
    for part in parts(text) {
        let Some((pattern, level)) = part
            .split_once('=')
            .filter(|(pattern, _)| !pattern.is_empty())
        else {
            return Err(format!(
                "expected pairs of the form pattern=level, found {part:?}"
            ));
        };
        let level = whole::<i32>(level)
            .ok()
            .and_then(|level| u32::try_from(level).ok());
        let level = level.ok_or_else(|| format!("{part:?}: expected a level of 0 or more"))?;
        items.push(json!({ "filePattern": pattern, "verbosity": level }));
    }
    Ok(Value::Array(items))
}

fn taints(text: &str) -> Result<Value, String> {
    let mut taints: Vec<Value> = Vec::new();
    for part in text.split(',').filter(|_| !text.is_empty()) {
        // Upstream parses "key:effect-" as a taint to remove, then forgets it.
        if part.ends_with('-') {
            continue;
        }
        let (key, value, effect) = taint(part)
            .ok_or_else(|| format!("{part:?} is not a taint; expected key=value:effect"))?;
        if taints
            .iter()
            .any(|taint| taint["key"] == key && taint["effect"] == effect)
        {
            return Err(format!(
                "two taints have the key {key:?} and the effect {effect}"
            ));
        }
        taints.push(json!({ "key": key, "value": value, "effect": effect }));
    }
    Ok(Value::Array(taints))
}

fn taint(text: &str) -> Option<(&str, &str, &str)> {
    let (name, effect) = text.split_once(':')?;
    let (key, value) = name.split_once('=').unwrap_or((name, ""));
    let sound = names::TAINT_EFFECTS.contains(&effect)
        && names::qualified_name(key).is_ok()
        && names::label_value(value).is_ok();
    sound.then_some((key, value, effect))
}

fn reserved_memory(so_far: Option<Value>, text: &str) -> Result<Value, String> {
    let mut reservations = Vec::new();
    for part in text.split(';') {
        let reservation = one_reservation(part).map_err(|error| {
            format!("{part:?}: {error}; expected node:type=quantity[,type=quantity...]")
        })?;
        reservations.push(reservation);
    }
    Ok(append(so_far, reservations.into_iter()))
}

fn one_reservation(text: &str) -> Result<Value, String> {
    let (node, limits) = text.split_once(':').ok_or("it has no colon")?;
    let node: i32 = whole(node).map_err(|_| "the NUMA node is not a number")?;
    let mut map = Map::new();
    for limit in limits.split(',') {
        let (kind, amount) = limit.split_once('=').ok_or("a limit has no equals sign")?;
        if !names::is_memory_resource(kind) {
            return Err(format!("{kind:?} is not a type of memory"));
        }
        let amount: Quantity = amount.parse().map_err(|error| format!("{error}"))?;
        map.insert(kind.to_owned(), json!(amount));
    }
    Ok(json!({ "numaNode": node, "limits": map }))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(kind: FlagType, text: &str) -> Result<Value, String> {
        kind.read(text, None).map(Option::unwrap_or_default)
    }

    #[test]
    fn values_are_read_as_pflag_reads_them() {
        for (kind, text, value) in [
            (FlagType::Bool, "T", json!(true)),
            (FlagType::Int32, "-999", json!(-999)),
            (FlagType::Int32, "0x10", json!(16)),
            (FlagType::Int64, "010", json!(8)),
            (FlagType::Int64, "0", json!(0)),
            (FlagType::Duration, "90s", json!("1m30s")),
            (FlagType::Ip, "::", json!("::")),
            (FlagType::Ip, "", json!(null)),
            (FlagType::Amount, "512", json!("512")),
            (FlagType::Texts, "a,\"b,c\",d", json!(["a", "b,c", "d"])),
            (FlagType::Texts, "", json!([])),
            (FlagType::Ints, "29,23", json!([29, 23])),
            (
                FlagType::Pairs,
                "cpu=200m, memory=1Gi",
                json!({"cpu": "200m", "memory": "1Gi"}),
            ),
            (FlagType::Pair, "full=a,b", json!({"full": "a,b"})),
            (
                FlagType::Thresholds,
                "memory.available<1Gi",
                json!({"memory.available": "1Gi"}),
            ),
            (
                FlagType::Gates,
                "A=true,B=0",
                json!({"A": true, "B": false}),
            ),
            (
                FlagType::Headers,
                "a:1,b:2,a:3",
                json!({"a": ["1", "3"], "b": ["2"]}),
            ),
            (FlagType::Labels, "a=b,c", json!({"a": "b", "c": ""})),
            (
                FlagType::VModule,
                "pod*=4",
                json!([{"filePattern": "pod*", "verbosity": 4}]),
            ),
            (
                FlagType::Taints,
                "a=b:NoSchedule",
                json!([{"key": "a", "value": "b", "effect": "NoSchedule"}]),
            ),
            (FlagType::Taints, "", json!([])),
            (
                FlagType::ReservedMemory,
                "0:memory=1Gi,hugepages-1M=2Gi;1:memory=2Gi",
                json!([
                    {"numaNode": 0, "limits": {"memory": "1Gi", "hugepages-1M": "2Gi"}},
                    {"numaNode": 1, "limits": {"memory": "2Gi"}}
                ]),
            ),
            (FlagType::Version, "raw", json!("raw")),
        ] {
            assert_eq!(read(kind, text), Ok(value), "{kind:?} {text:?}");
        }
    }

    #[test]
    fn what_does_not_fit_is_refused_with_what_was_expected() {
        for (kind, text) in [
            (FlagType::Bool, "yes"),
            (FlagType::Int32, "2147483648"),
            (FlagType::Int32, "1e3"),
            (FlagType::Int32, ""),
            (FlagType::Int32, "--1"),
            (FlagType::Uint32, "-1"),
            (FlagType::Duration, "10"),
            (FlagType::Ip, "localhost"),
            (FlagType::Amount, "lots"),
            (FlagType::Texts, "\"open"),
            (FlagType::Texts, "\"a\"b"),
            (FlagType::Ints, "29,x"),
            (FlagType::Pairs, "cpu"),
            (FlagType::Thresholds, "memory.available=1Gi"),
            (FlagType::Gates, "A"),
            (FlagType::Gates, "A=maybe"),
            (FlagType::Headers, "a"),
            (FlagType::VModule, "=4"),
            (FlagType::VModule, "a=-1"),
            (FlagType::Taints, "a:Sometimes"),
            (FlagType::Taints, "a"),
            (FlagType::Taints, "a=1:NoSchedule,a=2:NoSchedule"),
            (FlagType::ReservedMemory, "0:cpu=1"),
            (FlagType::ReservedMemory, "memory=1Gi"),
            (FlagType::Version, "latest"),
        ] {
            assert!(read(kind, text).is_err(), "{kind:?} {text:?}");
        }
    }

    #[test]
    fn repeated_lists_and_maps_add_up() {
        let first = FlagType::Texts.read("a", None).unwrap();
        assert_eq!(
            FlagType::Texts.read("b", first).unwrap(),
            Some(json!(["a", "b"]))
        );
        let first = FlagType::Gates.read("A=true", None).unwrap();
        assert_eq!(
            FlagType::Gates.read("B=true", first).unwrap(),
            Some(json!({"A": true, "B": true}))
        );
    }

    proptest! {
        #[test]
        fn no_text_panics(text in ".{0,40}", near in "[a=:;,<\"0-9.-]{0,24}") {
            const ALL: [FlagType; 20] = [
                FlagType::Bool, FlagType::Int32, FlagType::Int64, FlagType::Uint32, FlagType::Duration, FlagType::Text, FlagType::Ip,
                FlagType::Amount, FlagType::Texts, FlagType::Ints, FlagType::Pairs, FlagType::Pair, FlagType::Thresholds,
                FlagType::Gates, FlagType::Headers, FlagType::Labels, FlagType::VModule, FlagType::Taints,
                FlagType::ReservedMemory, FlagType::Version,
            ];
            for kind in ALL {
                for text in [&text, &near] {
                    if let Err(message) = kind.read(text, None) {
                        prop_assert!(!message.is_empty());
                    }
                }
            }
        }
    }
}
