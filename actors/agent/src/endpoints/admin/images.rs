//! Pulls, for `GET /images`.

use std::time::Duration;

use kernel::Addr;
use pods::images::{Msg, Snapshot};

use super::route::AdminError;

/// The image manager answers from memory.
const ASK_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) async fn list(images: &Addr<Msg>) -> Result<Snapshot, AdminError> {
    let silent = |source| AdminError::Silent {
        who: "the image manager",
        source,
    };
    images
        .ask(ASK_TIMEOUT, |reply| Msg::List { reply })
        .await
        .map_err(silent)
}
