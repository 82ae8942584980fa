//! Volumes, as the operator is shown them.

use std::time::Duration;

use kernel::Addr;

use super::route::Refusal;
use crate::volumes::{Msg, View};

/// The keeper of volumes answers from memory.
const ASK_WITHIN: Duration = Duration::from_secs(5);

pub(super) async fn view(volumes: &Addr<Msg>) -> Result<View, Refusal> {
    let silent = |source| Refusal::Silent {
        who: "the keeper of volumes",
        source,
    };
    volumes
        .ask(ASK_WITHIN, |reply| Msg::View { reply })
        .await
        .map_err(silent)
}
