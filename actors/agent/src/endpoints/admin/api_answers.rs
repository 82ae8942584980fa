//! `GET /config` and `GET /metrics/...`: the HTTPS API's answers for who has the admin socket, where that API is not
//! served or needs credentials.

use std::rc::Rc;

use hyper::StatusCode;
use serde_json::{Value, json};
use serving::http::{HandlerResponse, text};
use serving::node::{KubeletHost, Metrics, NodeError};

use super::route::AdminError;
use crate::endpoints::node_api::NodeApi;

/// `/configz`, where headers and queries of URLs are masked, and the flags of `/flagz`, which hold paths and no secrets.
pub(super) async fn config(api: &Rc<NodeApi>) -> Result<Value, AdminError> {
    let config = api.configz().await.map_err(untold)?;
    let mut config: Value = serde_json::from_slice(&config).unwrap_or_default();
    config["flags"] = json!(api.flags());
    config["version"] = json!(api.about().version);
    Ok(config)
}

/// In the text format of Prometheus.
pub(super) async fn metrics(
    api: &Rc<NodeApi>,
    which: Metrics,
) -> Result<HandlerResponse, AdminError> {
    let metrics = api.metrics(which).await.map_err(untold)?;
    Ok(text(StatusCode::OK, metrics))
}

fn untold(error: NodeError) -> AdminError {
    let why = match error {
        NodeError::NotFound(why) | NodeError::Exhausted(why) | NodeError::Failed(why) => why,
    };
    AdminError::Untold { why }
}
