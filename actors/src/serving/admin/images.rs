//! Pulls, as the operator is shown them.

use std::time::Duration;

use kernel::Addr;

use super::route::Refusal;
use crate::images::{Msg, Snapshot};

/// The image keeper answers from memory.
const ASK_WITHIN: Duration = Duration::from_secs(5);

pub(super) async fn list(images: &Addr<Msg>) -> Result<Snapshot, Refusal> {
    let silent = |source| Refusal::Silent {
        who: "the image keeper",
        source,
    };
    images
        .ask(ASK_WITHIN, |reply| Msg::List { reply })
        .await
        .map_err(silent)
}
