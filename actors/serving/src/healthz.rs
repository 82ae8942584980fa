//! `/healthz` and what is beneath it: the texts of upstream's checks.
//!
//! Upstream: staging/src/k8s.io/apiserver/pkg/server/healthz/healthz.go (1.36).

use std::collections::BTreeSet;

use hyper::body::Incoming;
use hyper::{Request, StatusCode};
use metrics::runtime::CallResult;
use metrics::slis::checked;

use crate::http::{HandlerResponse, not_found, query, text};

/// The health checks of the node.
#[allow(
    async_fn_in_trait,
    reason = "servers stay on their thread, so the futures need no Send"
)]
pub trait HealthChecks: 'static {
    /// Returns the names of the checks that `/healthz` itself makes, in their order.
    fn names(&self) -> &'static [&'static str];

    /// Runs one check, also one that `/healthz` itself leaves out; none if there is no check of this name.
    async fn check(&self, name: &str) -> Option<Result<(), String>>;
}

/// Answers a request for `/healthz` or beneath; none if the path is another one.
pub async fn answer(
    checks: &impl HealthChecks,
    request: &Request<Incoming>,
) -> Option<HandlerResponse> {
    let beneath = request.uri().path().strip_prefix("/healthz")?;
    let answer = match beneath.strip_prefix('/') {
        None if beneath.is_empty() => all(checks, request).await,
        Some(name) => match checks.check(name).await {
            Some(found) => one(found),
            None => not_found(),
        },
        None => return None,
    };
    Some(answer)
}

async fn all(checks: &impl HealthChecks, request: &Request<Incoming>) -> HandlerResponse {
    let mut excluded: BTreeSet<String> = query(request, "exclude").collect();
    let (mut said, mut failed) = (String::new(), Vec::new());
    for name in checks.names() {
        let line = if excluded.remove(*name) {
            format!("[+]{name} excluded: ok")
        } else if let Some(Err(why)) = counted(name, checks.check(name).await) {
            failed.push(format!("{name}: {why}"));
            format!("[-]{name} failed: reason withheld")
        } else {
            format!("[+]{name} ok")
        };
        said.push_str(&line);
        said.push('\n');
    }
    if !excluded.is_empty() {
        let quoted: Vec<_> = excluded.iter().map(|name| format!("{name:?}")).collect();
        said.push_str(&format!(
            "warn: some health checks cannot be excluded: no matches for {}\n",
            quoted.join(",")
        ));
    }
    if !failed.is_empty() {
        tracing::warn!("not healthy: {}", failed.join("; "));
        return text(
            StatusCode::INTERNAL_SERVER_ERROR,
            format!("{said}healthz check failed\n"),
        );
    }
    match query(request, "verbose").next() {
        Some(_) => text(StatusCode::OK, format!("{said}healthz check passed\n")),
        None => text(StatusCode::OK, "ok"),
    }
}

/// Counts the result of a check.
fn counted(name: &str, found: Option<Result<(), String>>) -> Option<Result<(), String>> {
    let end = match &found {
        Some(Err(_)) => CallResult::InError,
        Some(Ok(())) | None => CallResult::Well,
    };
    checked(name, end);
    found
}

fn one(found: Result<(), String>) -> HandlerResponse {
    match found {
        Ok(()) => text(StatusCode::OK, "ok"),
        Err(why) => text(
            StatusCode::INTERNAL_SERVER_ERROR,
            format!("internal server error: {why}\n"),
        ),
    }
}
