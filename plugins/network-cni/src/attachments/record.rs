//! The record of an attachment: libcni's cache file (`libcni/api.go`, `cachedInfo`), with a section of our own that
//! libcni passes over.

use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Attachment, AttachmentId};
use crate::clock::Moment;
use crate::conflist::{ConfError, Form, parse};
use crate::result::{CniResult, ResultError};

const KIND: &str = "cniCacheV1";

/// Why a file is no record.
#[derive(Debug, thiserror::Error)]
pub(super) enum RecordError {
    #[error("not a record: {0}")]
    Json(#[from] serde_json::Error),
    #[error("kind {0:?}, expected \"{KIND}\"")]
    Kind(String),
    #[error("config is not base64: {0}")]
    Base64(#[from] base64::DecodeError),
    #[error("config: {0}")]
    Conf(#[from] ConfError),
    #[error("result: {0}")]
    Result(#[from] ResultError),
    #[error("{0}")]
    Name(String),
    #[error("it is the record of {0}")]
    Other(AttachmentId),
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Record {
    kind: String,
    container_id: String,
    config: String,
    if_name: String,
    network_name: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    netns: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cni_args: Option<Vec<(String, String)>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    capability_args: Option<Map<String, Value>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    result: Option<Value>,
    #[serde(default)]
    oxlet: Own,
}

/// What libcni does not have.
#[derive(Default, Serialize, Deserialize)]
struct Own {
    owner: String,
    began: Moment,
}

/// Writes a record.
pub(super) fn write(of: &Attachment) -> Vec<u8> {
    let version = of.network.version;
    let record = Record {
        kind: KIND.to_owned(),
        container_id: of.id.sandbox.clone(),
        config: BASE64_STANDARD.encode(of.network.to_json()),
        if_name: of.id.interface.clone(),
        network_name: of.id.network.clone(),
        netns: of.netns.clone(),
        cni_args: Some(of.arguments.clone()),
        capability_args: Some(of.capabilities.clone()),
        result: of.result.as_ref().map(|result| result.to_value(version)),
        oxlet: Own {
            owner: of.owner.clone(),
            began: of.began.clone(),
        },
    };
    serde_json::to_vec(&record).expect("strings and JSON values are JSON")
}

/// Reads the record in a file of this name.
pub(super) fn read(text: &[u8], file_name: &str) -> Result<Attachment, RecordError> {
    let record: Record = serde_json::from_slice(text)?;
    if record.kind != KIND {
        return Err(RecordError::Kind(record.kind));
    }
    let id = AttachmentId {
        network: record.network_name,
        sandbox: record.container_id,
        interface: record.if_name,
    };
    id.check().map_err(RecordError::Name)?;
    if id.file_name() != file_name {
        return Err(RecordError::Other(id));
    }
    let network = parse(&BASE64_STANDARD.decode(record.config)?, Form::List)?;
    let result = record.result.map(|result| {
        let text = result.to_string();
        CniResult::parse(text.as_bytes(), network.version)
    });
    Ok(Attachment {
        id,
        result: result.transpose()?,
        network: Arc::new(network),
        netns: record.netns,
        arguments: record.cni_args.unwrap_or_default(),
        capabilities: record.capability_args.unwrap_or_default(),
        owner: record.oxlet.owner,
        began: record.oxlet.began,
    })
}
