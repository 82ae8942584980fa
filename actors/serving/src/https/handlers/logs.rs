//! `/containerLogs/`: what a container wrote.

use std::rc::Rc;
use std::time::Duration;

use hyper::StatusCode;
use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use logic_pods::logs::container_logs::{
    ContainerLogOptions, LogOptionsError, LogQueryFields, find_instance,
};
use tokio::sync::mpsc;

use super::pods::has_container;
use super::{KubeletHandlers, as_it_comes, failed, no_stream};
use crate::http::{HandlerResponse, text};
use crate::https::query::QueryPairs;
use crate::https::route::ContainerTarget;
use crate::logs::{LogRequest, send};
use crate::node::{KubeletHost, NodeError};

/// Pieces buffered for one reader.
const PIECES: usize = 2;
/// The longest that one log is followed, as upstream's server limits a write.
const FOLLOWED: Duration = Duration::from_secs(4 * 60 * 60);

impl<N: KubeletHost> KubeletHandlers<N> {
    pub(super) async fn container_log(
        &self,
        target: ContainerTarget,
        query: &QueryPairs,
    ) -> Result<HandlerResponse, HandlerResponse> {
        let options = options(query, self.paths.split_streams).map_err(|wrong| {
            let status = match wrong {
                LogOptionsError::Unreadable | LogOptionsError::NoSplit(_) => {
                    StatusCode::BAD_REQUEST
                }
                LogOptionsError::Invalid => StatusCode::UNPROCESSABLE_ENTITY,
            };
            text(status, wrong.to_string())
        })?;
        let ContainerTarget {
            namespace,
            pod: name,
            container,
            ..
        } = target;
        let pods = self.node.pods().await.map_err(failed)?;
        let Some(pod) = pods.named(&namespace, &name) else {
            let why = format!("pod {name:?} does not exist");
            return Err(text(StatusCode::NOT_FOUND, why));
        };
        if !has_container(pod, &container) {
            let why = format!("container {container:?} not found in pod {name:?}");
            return Err(text(StatusCode::NOT_FOUND, why));
        }
        let found = find_instance(&name, pods.status(pod), &container, options.previous);
        let id = found.map_err(|why| text(StatusCode::BAD_REQUEST, why))?;
        drop(pods);
        let Ok(turn) = self.followed.clone().try_acquire_owned() else {
            let why = "maximum number of in-flight requests exceeded".to_owned();
            return Err(no_stream(&NodeError::Exhausted(why)));
        };
        let path = match self.node.log_path(&id).await {
            Ok(path) => path,
            // Upstream has begun its response by then.
            Err(_) => {
                let why = format!("unable to retrieve container logs for {id}");
                return Err(text(StatusCode::OK, why));
            }
        };
        let log = LogRequest {
            path,
            container: id,
            options,
        };
        Ok(self.sent(log, turn))
    }

    fn sent(&self, log: LogRequest, turn: tokio::sync::OwnedSemaphorePermit) -> HandlerResponse {
        let (to, from) = mpsc::channel::<Bytes>(PIECES);
        let sending = send(log, Rc::clone(&self.node), self.written.clone(), to);
        tokio::task::spawn_local(async move {
            // A client that still follows requests the log again.
            drop(tokio::time::timeout(FOLLOWED, sending).await);
        });
        let mut answer = as_it_comes(from, turn);
        let plain = HeaderValue::from_static("text/plain; charset=utf-8");
        answer.headers_mut().insert(CONTENT_TYPE, plain);
        answer
    }
}

fn options(query: &QueryPairs, split: bool) -> Result<ContainerLogOptions, LogOptionsError> {
    let asked = LogQueryFields {
        follow: query.is_set("follow"),
        previous: query.is_set("previous"),
        timestamps: query.is_set("timestamps"),
        tail: query.first("tail"),
        tail_lines: query.first("tailLines"),
        since_seconds: query.first("sinceSeconds"),
        since_time: query.first("sinceTime"),
        limit_bytes: query.first("limitBytes"),
        stream: query.first("stream"),
    };
    let now = kernel::timestamp();
    ContainerLogOptions::read(&asked, now, split)
}
