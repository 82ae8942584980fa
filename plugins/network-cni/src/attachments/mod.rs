//! Attachments: which interface of which sandbox is on which network, how it was made, and what is kept of it.

mod record;
mod store;

use std::fmt;
use std::sync::Arc;

use serde_json::{Map, Value};

pub(crate) use self::store::{Stage, Store};
use crate::clock::Moment;
use crate::conflist::{self, Network};
use crate::result::CniResult;

/// A file name has 255 bytes at most, and a name in a hidden file beside it some more.
const IDENTITY_MAX: usize = 240;
const INTERFACE_MAX: usize = 15;

/// The identity of an attachment.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct AttachmentId {
    pub(crate) network: String,
    pub(crate) sandbox: String,
    pub(crate) interface: String,
}

/// An attachment, made or to be made.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Attachment {
    pub(crate) id: AttachmentId,
    /// The network as it was when the attachment was begun.
    pub(crate) network: Arc<Network>,
    /// The path of the sandbox's namespace; empty when it is gone.
    pub(crate) netns: String,
    /// CNI_ARGS, in their order.
    pub(crate) arguments: Vec<(String, String)>,
    /// By the names of capabilities.
    pub(crate) capabilities: Map<String, Value>,
    /// The result of ADD.
    pub(crate) result: Option<CniResult>,
    /// The runtime that it belongs to; empty when that is not known.
    pub(crate) owner: String,
    /// The moment at which its ADD began.
    pub(crate) began: Moment,
}

impl Attachment {
    /// Returns the value of CNI_ARGS.
    pub(crate) fn arguments(&self) -> String {
        let pairs = self.arguments.iter();
        let pairs: Vec<_> = pairs.map(|(key, value)| format!("{key}={value}")).collect();
        pairs.join(";")
    }
}

impl AttachmentId {
    /// Returns the name of its file, as libcni names it.
    pub(crate) fn file_name(&self) -> String {
        format!("{}-{}-{}", self.network, self.sandbox, self.interface)
    }

    /// Checks the three names; an empty network is one that is not named.
    pub(crate) fn check(&self) -> Result<(), String> {
        let at = |field: &str, why: String| format!("{field}: {why}");
        if !self.network.is_empty() {
            conflist::check_name(&self.network).map_err(|why| at("attachment.network", why))?;
        }
        conflist::check_name(&self.sandbox).map_err(|why| at("attachment.sandbox_id", why))?;
        check_interface(&self.interface).map_err(|why| at("attachment.interface_name", why))?;
        let length = self.file_name().len();
        match length <= IDENTITY_MAX {
            true => Ok(()),
            false => Err(format!(
                "attachment: its names have {length} bytes together, expected at most {IDENTITY_MAX}"
            )),
        }
    }
}

fn check_interface(name: &str) -> Result<(), String> {
    let bad = |c: char| c == '/' || c == ':' || c.is_whitespace() || c.is_control();
    if (1..=INTERFACE_MAX).contains(&name.len())
        && !matches!(name, "." | "..")
        && !name.contains(bad)
    {
        return Ok(());
    }
    let shown: String = name.chars().take(40).collect();
    Err(format!(
        "{shown:?} is no interface name; expected at most {INTERFACE_MAX} bytes without '/', ':' and white space"
    ))
}

impl fmt::Display for AttachmentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            network,
            sandbox,
            interface,
        } = self;
        write!(f, "{interface} of sandbox {sandbox} on network {network:?}")
    }
}
