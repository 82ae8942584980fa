//! The node's page, for a browser: what `oxctl console` shows.
//!
//! The page names everything relative to itself, so that it works at the admin socket, at the HTTPS API and behind
//! `kubectl proxy`. It only shows: no request of it changes anything. Beside the views here it asks for the kubelet's own
//! `../stats/summary` and `../containerLogs/`.

use hyper::StatusCode;
use hyper::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, HeaderValue, REFERRER_POLICY,
};
use serving::http::{HandlerResponse, text};

use super::route::{AdminError, View};
use super::{AdminPeers, views};

/// Names of pods and messages are anybody's text: nothing but the page's own script runs, and nothing is sent elsewhere.
const CONTENT_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                              img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Answers requests for paths beneath `/console/`.
#[derive(Debug, Clone)]
pub struct Console {
    peers: AdminPeers,
}

impl Console {
    pub fn new(peers: AdminPeers) -> Self {
        Console { peers }
    }

    /// Answers a request for a path beneath `/console/`, without escapes.
    pub async fn answer(&self, path: &str) -> HandlerResponse {
        match path {
            "" | "/" => file("text/html; charset=utf-8", include_str!("page.html")),
            "page.css" => file("text/css; charset=utf-8", include_str!("page.css")),
            "page.js" => file("text/javascript; charset=utf-8", include_str!("page.js")),
            _ => self.view(path).await.unwrap_or_else(Into::into),
        }
    }

    async fn view(&self, path: &str) -> Result<HandlerResponse, AdminError> {
        let segments: Vec<&str> = path.trim_matches('/').split('/').collect();
        let view = View::at(&segments).ok_or_else(|| AdminError::Path {
            path: format!("/console/{path}"),
        })?;
        views::answer(&self.peers, view).await
    }
}

fn file(content_type: &'static str, content: &'static str) -> HandlerResponse {
    let mut answer = text(StatusCode::OK, content);
    let headers: [(HeaderName, &'static str); 4] = [
        (CONTENT_TYPE, content_type),
        (CONTENT_SECURITY_POLICY, CONTENT_POLICY),
        (REFERRER_POLICY, "no-referrer"),
        (CACHE_CONTROL, "no-cache"),
    ];
    for (name, value) in headers {
        let value = HeaderValue::from_static(value);
        answer.headers_mut().insert(name, value);
    }
    answer
}
