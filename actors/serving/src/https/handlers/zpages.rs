//! `/statusz` and `/flagz`: text for people, and objects of `config.k8s.io` for clients that ask for one by its name.
//!
//! Upstream: staging/src/k8s.io/apiserver/pkg/server/statusz, flagz (1.36).

use std::fmt::Write;

use hyper::body::Incoming;
use hyper::header::{HeaderValue, WARNING};
use hyper::{HeaderMap, Request, StatusCode};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::{Value, json};

use super::KubeletHandlers;
use crate::http::{HandlerResponse, text, whole};
use crate::https::accept::{Clause, clauses, header};
use crate::node::{ComponentInfo, KubeletHost};
use crate::policy::EndpointPolicy;

const CAUTION: &str = "Warning: This endpoint is not meant to be machine parseable, has no formatting \
                       compatibility guarantees and is for debugging purposes only.";
const COMPONENT: &str = "kubelet";
const GROUP: &str = "config.k8s.io";
/// The `goVersion` of the answer: this agent is no Go program.
const GO: &str = "none";

/// The form of the response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ZpageFormat {
    Text,
    Json(ZpageVersion),
    Yaml(ZpageVersion),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ZpageVersion {
    /// The object of version `v1alpha1`; deprecated.
    V1Alpha1,
    V1Beta1,
}

impl<N: KubeletHost> KubeletHandlers<N> {
    pub(super) fn statusz(&self, request: &Request<Incoming>) -> HandlerResponse {
        let about = self.node.about();
        let up = kernel::wall().duration_since(about.started);
        let up = up.unwrap_or_default().as_secs();
        let started = kernel::timestamp_of(about.started);
        let second = Timestamp::from_second(started.as_second()).unwrap_or(started);
        let paths = listed(&self.paths);
        let fields = json!({
            "startTime": second.to_string(),
            "uptimeSeconds": up,
            "goVersion": GO,
            "binaryVersion": about.version,
            "emulationVersion": about.emulates,
            "paths": paths,
        });
        let people = status(&about, second, up, &paths);
        answer(request.headers(), "Statusz", people, fields)
    }

    pub(super) fn flagz(&self, request: &Request<Incoming>) -> HandlerResponse {
        let flags = self.node.flags();
        let mut people = format!("\n{COMPONENT} flagz\n{CAUTION}\n");
        for (name, value) in &flags {
            writeln!(people, "{name}={value}").expect("a string takes everything");
        }
        let fields = match flags.is_empty() {
            true => json!({}),
            false => json!({ "flags": flags }),
        };
        answer(request.headers(), "Flagz", people, fields)
    }
}

fn status(about: &ComponentInfo, started: Timestamp, up: u64, paths: &[&str]) -> String {
    format!(
        "\n{COMPONENT} statusz\n{CAUTION}\n\nStarted: {}\nUp: {} hr {:02} min {:02} sec\n\
         Go version: {GO}\nBinary version: {}\nEmulation version: {}\nPaths: {}\n",
        started
            .to_zoned(TimeZone::UTC)
            .strftime("%a %b %e %H:%M:%S UTC %Y"),
        up / 3600,
        up / 60 % 60,
        up % 60,
        about.version,
        about.emulates,
        paths.join(" "),
    )
}

/// The roots that the server serves, pods' own routes excluded.
fn listed(paths: &EndpointPolicy) -> Vec<&'static str> {
    let roots = [
        ("/configz", true),
        ("/debug", true),
        ("/flagz", paths.flagz),
        ("/healthz", true),
        ("/logs", !paths.system_logs),
        ("/metrics", true),
    ];
    let shown = roots.into_iter().filter(|(_, is_there)| *is_there);
    shown.map(|(root, _)| root).collect()
}

fn answer(headers: &HeaderMap, kind: &str, people: String, fields: Value) -> HandlerResponse {
    let (content, version) = match form(headers, kind) {
        Some(ZpageFormat::Text) => return text(StatusCode::OK, people),
        Some(ZpageFormat::Json(version)) => ("application/json", version),
        Some(ZpageFormat::Yaml(version)) => ("application/yaml", version),
        None => return unacceptable(),
    };
    let (name, warning) = match version {
        ZpageVersion::V1Beta1 => ("v1beta1", None),
        ZpageVersion::V1Alpha1 => ("v1alpha1", Some(kind.to_ascii_lowercase())),
    };
    let mut object = json!({
        "kind": kind,
        "apiVersion": format!("{GROUP}/{name}"),
        "metadata": { "name": COMPONENT },
    });
    if let (Value::Object(object), Value::Object(fields)) = (&mut object, fields) {
        object.extend(fields);
    }
    // JSON is YAML too.
    let mut answer = whole(StatusCode::OK, content, format!("{object}\n").into());
    if let Some(kind) = warning {
        let why = format!(
            "299 - \"This version of the {kind} endpoint is deprecated. Please use a newer version.\""
        );
        let why = HeaderValue::try_from(why).expect("names of kinds are text");
        answer.headers_mut().insert(WARNING, why);
    }
    answer
}

/// Returns the form that a caller prefers; none if it accepts none.
fn form(headers: &HeaderMap, kind: &str) -> Option<ZpageFormat> {
    let Some(accept) = header(headers) else {
        return Some(ZpageFormat::Text);
    };
    let clauses = clauses(accept);
    clauses.iter().find_map(|clause| {
        let given = |name| clause.param(name).is_some_and(|value| !value.is_empty());
        if given("stream") || given("sv") {
            return None;
        }
        match version(clause, kind) {
            Some(version) if clause.covers("application", "json") => {
                Some(ZpageFormat::Json(version))
            }
            Some(version) if clause.covers("application", "yaml") => {
                Some(ZpageFormat::Yaml(version))
            }
            None if clause.covers("text", "plain") && !is_named(clause) => Some(ZpageFormat::Text),
            Some(_) | None => None,
        }
    })
}

fn version(clause: &Clause<'_>, kind: &str) -> Option<ZpageVersion> {
    let is_it = clause.param("g") == Some(GROUP) && clause.param("as") == Some(kind);
    match clause.param("v").filter(|_| is_it) {
        Some("v1beta1") => Some(ZpageVersion::V1Beta1),
        Some("v1alpha1") => Some(ZpageVersion::V1Alpha1),
        Some(_) | None => None,
    }
}

/// Whether the clause names an object, whichever.
fn is_named(clause: &Clause<'_>) -> bool {
    let mut names = ["as", "g", "v"].into_iter();
    names.any(|name| clause.param(name).is_some())
}

fn unacceptable() -> HandlerResponse {
    let status = json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": "only the following media types are accepted: application/json, application/yaml, text/plain",
        "reason": "NotAcceptable",
        "code": 406,
    });
    let status = status.to_string().into();
    whole(StatusCode::NOT_ACCEPTABLE, "application/json", status)
}

#[cfg(test)]
mod tests {
    use hyper::header::ACCEPT;

    use super::*;

    /// Upstream's TestHandleStatusz and TestHandleFlagz (statusz_test.go, flagz_test.go).
    #[test]
    fn an_object_is_for_those_who_name_it_and_text_for_everybody() {
        use ZpageFormat::{Json, Text, Yaml};
        let cases = [
            ("", Some(Text)),
            ("text/plain", Some(Text)),
            ("*/*", Some(Text)),
            ("text/*;q=0.2, application/xml", Some(Text)),
            (
                "application/json;v=v1beta1;g=config.k8s.io;as=Flagz",
                Some(Json(ZpageVersion::V1Beta1)),
            ),
            (
                "application/json;v=v1alpha1;g=config.k8s.io;as=Flagz",
                Some(Json(ZpageVersion::V1Alpha1)),
            ),
            (
                "application/yaml;v=v1beta1;g=config.k8s.io;as=Flagz",
                Some(Yaml(ZpageVersion::V1Beta1)),
            ),
            (
                "*/*;v=v1beta1;g=config.k8s.io;as=Flagz",
                Some(Json(ZpageVersion::V1Beta1)),
            ),
            (
                "application/json;v=foo;g=config.k8s.io;as=Flagz,*/*",
                Some(Text),
            ),
            (
                "text/plain;q=0.5, application/json;v=v1beta1;g=config.k8s.io;as=Flagz;q=0.4",
                Some(Text),
            ),
            ("application/json", None),
            ("application/xml", None),
            ("application/json;v=v1beta1;g=config.k8s.io", None),
            (
                "application/json;v=v1beta1;g=config.k8s.io;as=Statusz",
                None,
            ),
            ("application/cbor;v=v1beta1;g=config.k8s.io;as=Flagz", None),
            ("text/plain;as=Flagz", None),
            ("text/plain;stream=watch", None),
        ];
        for (accept, expected) in cases {
            let headers = [(ACCEPT, HeaderValue::from_static(accept))];
            let form = form(&headers.into_iter().collect(), "Flagz");
            assert_eq!(form, expected, "{accept}");
        }
    }

    /// Upstream's TestStatusz.
    #[test]
    fn roots_are_listed_that_are_served() {
        let all = listed(&EndpointPolicy::default());
        assert_eq!(
            all,
            ["/configz", "/debug", "/flagz", "/healthz", "/metrics"]
        );
        let some = EndpointPolicy {
            flagz: false,
            system_logs: false,
            ..EndpointPolicy::default()
        };
        assert_eq!(
            listed(&some),
            ["/configz", "/debug", "/healthz", "/logs", "/metrics"]
        );
    }
}
