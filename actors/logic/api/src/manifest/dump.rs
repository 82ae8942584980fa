//! Upstream's debug dump of a pod, byte for byte: the text that a static pod's UID is the hash of.
//!
//! Upstream hashes what the Go library spew prints (`%#v`, sorted keys) for its internal Pod, so the names, types and
//! order of all Go fields count, even of empty ones, and a [`KubeletRelease`] that adds a field gives every static pod
//! another UID. [`core_types.txt`](core_types.txt) lists them; a walk over the pod's JSON prints them. Three things
//! can't be derived from the JSON and are printed in a form of our own, so a manifest that holds them gets a UID that
//! is stable but not upstream's: a timestamp that is not null (upstream prints the machine's time zone table),
//! `metadata.managedFields[].fieldsV1`, and a number too large for [`Quantity`].

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::OnceLock;

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Map, Value};

use super::KubeletRelease;
use crate::quantity::{Quantity, QuantityFormat, QuantityValue};

static TABLE: &str = include_str!("core_types.txt");
const ROOT: &str = "core.Pod";
/// A quantity of a resource list: the API's defaults round those.
const ROUNDED: &str = "rounded quantity";
/// Fields that the internal pod has in its security context and the API in the spec itself.
const HOST_FIELDS: [&str; 5] = [
    "hostNetwork",
    "hostPID",
    "hostIPC",
    "shareProcessNamespace",
    "hostUsers",
];

/// Prints the pod, defaults applied, as the hash of this release sees it.
pub(super) fn pod(pod: &Pod, release: KubeletRelease) -> String {
    let mut value = serde_json::to_value(pod).unwrap_or_default();
    to_internal(&mut value);
    let mut page = DumpWriter {
        text: String::from("(*core.Pod)"),
        release,
    };
    body(Some(&value), ROOT, &mut page);
    page.text
}

/// Prints a pod's JSON by the types of one release.
struct DumpWriter {
    text: String,
    release: KubeletRelease,
}

impl DumpWriter {
    fn push_str(&mut self, text: &str) {
        self.text.push_str(text);
    }

    fn push(&mut self, c: char) {
        self.text.push(c);
    }
}

/// Names the type that a field's path ends in: `spec.containers[0].x` is a field of `v1 Container`.
pub(super) fn owner(path: &str) -> String {
    let mut name = ROOT;
    let steps = path.rsplit_once('.').map_or("", |(parents, _)| parents);
    for step in steps.split('.').filter(|step| !step.is_empty()) {
        let key = step.split('[').next().unwrap_or(step);
        let Some(field) = field_named(name, key) else {
            break;
        };
        name = field.trim_start_matches(['*', '[', ']']);
    }
    format!("v1 {}", name.split_once('.').map_or(name, |(_, name)| name))
}

fn field_named(owner: &str, key: &str) -> Option<&'static str> {
    let DumpType::Struct(fields) = schema().get(owner)? else {
        return None;
    };
    fields.iter().find_map(|field| match field.key {
        DumpKey::Embedded => field_named(field.kind, key),
        DumpKey::At(at) => (field.json(at) == key).then_some(field.kind),
        DumpKey::None => None,
    })
}

enum DumpType {
    Struct(Vec<DumpField>),
    Named(&'static str),
}

struct DumpField {
    name: &'static str,
    kind: &'static str,
    key: DumpKey,
    /// Minor versions: the first that has it, and the last.
    since: u32,
    until: u32,
}

enum DumpKey {
    /// The given key, or where it is empty the name with a small first letter.
    At(&'static str),
    Embedded,
    None,
}

impl DumpField {
    fn is_of(&self, release: KubeletRelease) -> bool {
        (self.since..=self.until).contains(&release.minor())
    }

    fn json(&self, at: &'static str) -> String {
        if !at.is_empty() {
            return at.to_owned();
        }
        let (first, rest) = self.name.split_at(1);
        first.to_ascii_lowercase() + rest
    }
}

fn schema() -> &'static BTreeMap<&'static str, DumpType> {
    static SCHEMA: OnceLock<BTreeMap<&'static str, DumpType>> = OnceLock::new();
    SCHEMA.get_or_init(|| TABLE.lines().filter_map(entry).collect())
}

fn entry(line: &'static str) -> Option<(&'static str, DumpType)> {
    if line.starts_with('#') {
        return None;
    }
    if let Some((name, kind)) = line.split_once(" = ") {
        return Some((name, DumpType::Named(kind)));
    }
    let (name, fields) = line.split_once(": ")?;
    Some((
        name,
        DumpType::Struct(fields.split(", ").filter_map(field).collect()),
    ))
}

fn field(text: &'static str) -> Option<DumpField> {
    let (text, span) = text.split_once(" @").unwrap_or((text, ""));
    let (since, until) = span.split_once('-').unwrap_or((span, ""));
    let mut words = text.split(' ');
    let (name, kind) = (words.next()?, words.next()?);
    let key = match words.next().unwrap_or_default() {
        "~" => DumpKey::Embedded,
        "-" => DumpKey::None,
        at => DumpKey::At(at),
    };
    Some(DumpField {
        name,
        kind,
        key,
        since: since.parse().unwrap_or(0),
        until: until.parse().unwrap_or(u32::MAX),
    })
}

/// Upstream's conversion to its internal type, as far as it moves fields.
fn to_internal(pod: &mut Value) {
    let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) else {
        return;
    };
    let moved: Vec<(String, Value)> = HOST_FIELDS
        .iter()
        .filter_map(|key| spec.remove(*key).map(|value| ((*key).to_owned(), value)))
        .collect();
    let security = spec
        .entry("securityContext")
        .or_insert_with(|| Value::Object(Map::new()));
    if let Some(security) = security.as_object_mut() {
        security.extend(moved);
    }
    let Some(status) = pod.get_mut("status").and_then(Value::as_object_mut) else {
        return;
    };
    let Some(ip) = status
        .get("podIP")
        .filter(|ip| ip.as_str().is_some_and(|ip| !ip.is_empty()))
        .cloned()
    else {
        return;
    };
    if status.get("podIPs").and_then(|ips| ips.get(0)?.get("ip")) != Some(&ip) {
        status.insert("podIPs".to_owned(), serde_json::json!([{ "ip": ip }]));
    }
}

/// Prints the type in brackets and the value.
fn typed(value: Option<&Value>, kind: &str, out: &mut DumpWriter) {
    out.push('(');
    out.push_str(kind);
    out.push(')');
    body(value, kind, out);
}

fn body(value: Option<&Value>, kind: &str, out: &mut DumpWriter) {
    let value = value.filter(|value| !value.is_null());
    if let Some(target) = kind.strip_prefix('*') {
        return match value {
            Some(value) => body(Some(value), target, out),
            None => out.push_str("<nil>"),
        };
    }
    if let Some(element) = kind.strip_prefix("[]") {
        return list(value, element, out);
    }
    if let Some((_, element)) = kind
        .strip_prefix("map[")
        .and_then(|rest| rest.split_once(']'))
    {
        return map(value, element, out);
    }
    match (kind, schema().get(kind)) {
        (_, Some(DumpType::Struct(fields))) => structure(value, fields, out),
        ("core.ResourceList", _) => map(value, ROUNDED, out),
        (_, Some(DumpType::Named(underlying))) => body(value, underlying, out),
        ("resource.Quantity", _) => quantity(value, |quantity| quantity, out),
        (ROUNDED, _) => quantity(value, Quantity::rounded_to_milli, out),
        ("intstr.IntOrString", _) => int_or_string(value, out),
        ("v1.Time", _) => time(value, out),
        ("string", _) => out.push_str(value.and_then(Value::as_str).unwrap_or_default()),
        ("bool", _) => out.push_str(if value.and_then(Value::as_bool) == Some(true) {
            "true"
        } else {
            "false"
        }),
        (_, None) => match value {
            Some(value) => out.push_str(&value.to_string()),
            None => out.push('0'),
        },
    }
}

fn structure(value: Option<&Value>, fields: &[DumpField], out: &mut DumpWriter) {
    out.push('{');
    let release = out.release;
    let fields = fields.iter().filter(|field| field.is_of(release));
    for (index, field) in fields.enumerate() {
        if index > 0 {
            out.push(' ');
        }
        out.push_str(field.name);
        out.push(':');
        let inner = match field.key {
            DumpKey::Embedded => value,
            DumpKey::None => None,
            DumpKey::At(at) => value.and_then(|value| value.get(field.json(at))),
        };
        typed(inner, field.kind, out);
    }
    out.push('}');
}

fn list(value: Option<&Value>, element: &str, out: &mut DumpWriter) {
    let Some(items) = value.and_then(Value::as_array) else {
        return out.push_str("<nil>");
    };
    out.push('[');
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            out.push(' ');
        }
        body(Some(item), element, out);
    }
    out.push(']');
}

fn map(value: Option<&Value>, element: &str, out: &mut DumpWriter) {
    let Some(entries) = value.and_then(Value::as_object) else {
        return out.push_str("<nil>");
    };
    let sorted: BTreeMap<&String, &Value> = entries.iter().collect();
    out.push_str("map[");
    for (index, (key, item)) in sorted.into_iter().enumerate() {
        if index > 0 {
            out.push(' ');
        }
        out.push_str(key);
        out.push(':');
        body(Some(item), element, out);
    }
    out.push(']');
}

fn int_or_string(value: Option<&Value>, out: &mut DumpWriter) {
    let text = value.and_then(Value::as_str);
    let number = value.and_then(Value::as_i64).unwrap_or(0);
    let kind = u8::from(text.is_some());
    let text = text.unwrap_or_default();
    push(
        out,
        format_args!("{{Type:(intstr.Type){kind} IntVal:(int32){number} StrVal:(string){text}}}"),
    );
}

fn time(value: Option<&Value>, out: &mut DumpWriter) {
    match value.and_then(Value::as_str) {
        None => out
            .push_str("{Time:(time.Time){wall:(uint64)0 ext:(int64)0 loc:(*time.Location)<nil>}}"),
        Some(text) => push(out, format_args!("{{Time:(time.Time){text}}}")),
    }
}

fn quantity(value: Option<&Value>, rounded: impl Fn(Quantity) -> Quantity, out: &mut DumpWriter) {
    const EMPTY: &str = "{i:(resource.int64Amount){value:(int64)0 scale:(resource.Scale)0} \
                         d:(resource.infDecAmount){Dec:(*inf.Dec)<nil>} s:(string) Format:(resource.Format)}";
    let Some(text) = value.and_then(Value::as_str) else {
        return out.push_str(EMPTY);
    };
    let Ok(quantity) = Quantity::parse(text) else {
        return out.push_str(text);
    };
    go_quantity(&rounded(quantity), out);
}

fn go_quantity(quantity: &Quantity, out: &mut DumpWriter) {
    let (value, scale) = match quantity.amount {
        QuantityValue::Small { value, scale } => (value, scale),
        QuantityValue::Big { .. } => (0, 0),
    };
    push(
        out,
        format_args!(
            "{{i:(resource.int64Amount){{value:(int64){value} scale:(resource.Scale){scale}}} "
        ),
    );
    match quantity.amount {
        QuantityValue::Small { .. } => {
            out.push_str("d:(resource.infDecAmount){Dec:(*inf.Dec)<nil>}")
        }
        QuantityValue::Big { unscaled, scale } => {
            let negative = unscaled < 0;
            let words = words(unscaled.unsigned_abs());
            push(
                out,
                format_args!(
                    "d:(resource.infDecAmount){{Dec:(*inf.Dec){{unscaled:(big.Int){{neg:(bool){negative} "
                ),
            );
            push(
                out,
                format_args!("abs:(big.nat){words}}} scale:(inf.Scale){scale}}}}}"),
            );
        }
    }
    let text = quantity.text.as_deref().unwrap_or_default();
    let format: &str = match quantity.format {
        QuantityFormat::DecimalExponent => "DecimalExponent",
        QuantityFormat::BinarySI => "BinarySI",
        QuantityFormat::DecimalSI => "DecimalSI",
    };
    push(
        out,
        format_args!(" s:(string){text} Format:(resource.Format){format}}}"),
    );
}

/// A big number as Go keeps it: words of 64 bits, the smallest first, none for zero.
fn words(number: u128) -> String {
    let mask = u128::from(u64::MAX);
    match (number & mask, number >> 64) {
        (0, 0) => "<nil>".to_owned(),
        (low, 0) => format!("[{low}]"),
        (low, high) => format!("[{low} {high}]"),
    }
}

fn push(out: &mut DumpWriter, text: std::fmt::Arguments<'_>) {
    out.text
        .write_fmt(text)
        .expect("writing to a String cannot fail");
}
