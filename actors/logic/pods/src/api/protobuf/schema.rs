//! The messages that a pod consists of, from the table.

use std::collections::BTreeMap;
use std::sync::OnceLock;

static TABLE: &str = include_str!("core_messages.txt");

/// One field of a message.
#[derive(Debug, Clone, Copy)]
pub(super) struct MessageField {
    pub(super) number: u64,
    /// Its name in JSON.
    pub(super) name: &'static str,
    pub(super) shape: FieldShape,
    pub(super) kind: FieldType,
}

/// How a field's value stands in the JSON object.
#[derive(Debug, Clone, Copy)]
pub(super) enum FieldShape {
    One,
    List,
    /// By strings.
    Map,
    /// Not under a name: its fields stand among those of the message around it.
    Embedded,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum FieldType {
    Text,
    Truth,
    Number,
    Time,
    Quantity,
    IntOrString,
    FieldsV1,
    /// The message of this name.
    Message(&'static str),
}

/// Returns the fields of a message in the order of their numbers; none of one that a pod has not.
pub(super) fn fields(message: &str) -> &'static [MessageField] {
    messages().get(message).map_or(&[], Vec::as_slice)
}

/// Every message by its name: read when the first pod is written, and kept.
pub(super) fn messages() -> &'static BTreeMap<&'static str, Vec<MessageField>> {
    static SCHEMA: OnceLock<BTreeMap<&'static str, Vec<MessageField>>> = OnceLock::new();
    SCHEMA.get_or_init(|| TABLE.lines().filter_map(message).collect())
}

fn message(line: &'static str) -> Option<(&'static str, Vec<MessageField>)> {
    if line.starts_with('#') {
        return None;
    }
    let (name, fields) = line.split_once(": ")?;
    Some((name, fields.split(", ").filter_map(field).collect()))
}

fn field(text: &'static str) -> Option<MessageField> {
    let mut words = text.split(' ');
    let (number, name, kind) = (words.next()?, words.next()?, words.next()?);
    let shapes = [
        ("[]", FieldShape::List),
        ("{}", FieldShape::Map),
        ("~", FieldShape::Embedded),
    ];
    let shaped = shapes
        .into_iter()
        .find_map(|(mark, shape)| Some((shape, kind.strip_prefix(mark)?)));
    let (shape, kind) = shaped.unwrap_or((FieldShape::One, kind));
    Some(MessageField {
        number: number.parse().ok()?,
        name,
        shape,
        kind: field_type(kind),
    })
}

fn field_type(name: &'static str) -> FieldType {
    match name {
        "string" => FieldType::Text,
        "bool" => FieldType::Truth,
        "int" => FieldType::Number,
        "Time" => FieldType::Time,
        "Quantity" => FieldType::Quantity,
        "IntOrString" => FieldType::IntOrString,
        "FieldsV1" => FieldType::FieldsV1,
        message => FieldType::Message(message),
    }
}
