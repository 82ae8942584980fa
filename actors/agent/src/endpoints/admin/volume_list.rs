//! Volumes, for `GET /volumes`.

use std::time::Duration;

use kernel::Addr;
use volumes::{Msg, VolumesView};

use super::route::AdminError;

/// The volume manager answers from memory.
const ASK_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) async fn view(volumes: &Addr<Msg>) -> Result<VolumesView, AdminError> {
    let silent = |source| AdminError::Silent {
        who: "the volume manager",
        source,
    };
    volumes.ask(ASK_TIMEOUT, Msg::view).await.map_err(silent)
}
