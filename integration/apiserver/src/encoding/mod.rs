//! Objects in the forms that clients send and get: patches, protobuf, tables, the two forms of events.

pub(crate) mod empty_fields;
pub(crate) mod events;
pub(crate) mod patches;
pub(crate) mod protobuf;
pub(crate) mod tables;
