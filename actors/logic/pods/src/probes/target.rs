//! Where a probe or a hook reaches to: host, port, path, headers, command.
//!
//! Mirrors upstream's pkg/probe/{util.go,http/request.go} at v1.36, and what Go's net/url and net/http make
//! of it on the wire.

use k8s_openapi::api::core::v1::{Container, HTTPGetAction, HTTPHeader};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use thiserror::Error;

use crate::container::environment::{Expander, ProgramStrings, TooLong};

/// Why there is no port to reach; in upstream's words.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum PortError {
    #[error("strconv.Atoi: parsing {name:?}: invalid syntax")]
    Name { name: String },
    #[error("invalid port number: {port}")]
    Number { port: i64 },
}

/// What a request is for; a part of the user agent's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestPurpose {
    Probe,
    Lifecycle,
}

impl RequestPurpose {
    pub fn user_agent(self) -> &'static str {
        match self {
            Self::Probe => "kube-probe/1.36",
            Self::Lifecycle => "kube-lifecycle/1.36",
        }
    }
}

/// The HTTP request of a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpTarget {
    /// In lower case; only `http` and `https` lead anywhere.
    pub scheme: String,
    pub host: String,
    pub port: u16,
    /// Path and query as they are asked for.
    pub path: String,
    /// The whole URL, for messages.
    pub url: String,
    /// The `Host` header, if another one than the host.
    pub host_header: Option<String>,
    /// The other headers, in the order of the definition.
    pub headers: Vec<(String, String)>,
}

impl HttpTarget {
    /// The target of an `httpGet`; `address` is the pod's, for want of a host.
    pub fn of(
        get: &HTTPGetAction,
        container: &Container,
        address: &str,
        purpose: RequestPurpose,
    ) -> Result<Self, PortError> {
        let scheme = get.scheme.as_deref().filter(|scheme| !scheme.is_empty());
        let scheme = scheme.unwrap_or("http").to_ascii_lowercase();
        let host = host(get.host.as_deref(), address);
        let port = port(&get.port, container)?;
        let shown = shown_path(get.path.as_deref().unwrap_or_default());
        let listed = get.http_headers.as_deref().unwrap_or_default();
        Ok(HttpTarget {
            url: format!("{scheme}://{}{shown}", authority(host, port)),
            scheme,
            host: host.to_owned(),
            port,
            path: match shown.starts_with('/') {
                true => shown,
                false => format!("/{shown}"),
            },
            host_header: first(listed, "host").map(str::to_owned),
            headers: headers(listed, purpose),
        })
    }

    /// Host and port as a URL has them.
    pub fn authority(&self) -> String {
        authority(&self.host, self.port)
    }

    /// The same by plain HTTP, without what authorizes: that was meant for HTTPS.
    pub fn in_plain_http(&self) -> Self {
        let mut plain = self.clone();
        plain.scheme = "http".to_owned();
        let (_, rest) = self.url.split_once("://").unwrap_or_default();
        plain.url = format!("http://{rest}");
        let secret = |name: &str| name.eq_ignore_ascii_case("authorization");
        plain.headers.retain(|(name, _)| !secret(name));
        plain
    }
}

/// The host that is meant, or the pod's address.
pub fn host<'a>(host: Option<&'a str>, address: &'a str) -> &'a str {
    host.filter(|host| !host.is_empty()).unwrap_or(address)
}

/// Host and port in one, with brackets around what has colons.
pub fn authority(host: &str, port: u16) -> String {
    match host.contains(':') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    }
}

/// The number of a port: as it stands there, or of the container's port of that name.
pub fn port(port: &IntOrString, container: &Container) -> Result<u16, PortError> {
    let number = match port {
        IntOrString::Int(number) => i64::from(*number),
        IntOrString::String(name) => named_port(name, container)?,
    };
    let valid = u16::try_from(number).ok().filter(|port| *port > 0);
    valid.ok_or(PortError::Number { port: number })
}

fn named_port(name: &str, container: &Container) -> Result<i64, PortError> {
    let mut ports = container.ports.iter().flatten();
    match ports.find(|port| port.name.as_deref() == Some(name)) {
        Some(port) => Ok(port.container_port.into()),
        None => name
            .parse()
            .map_err(|_| PortError::Name { name: name.into() }),
    }
}

/// The command of an exec probe: `$(NAME)` is replaced by a value that the spec holds literally, and by nothing where
/// the value comes from elsewhere.
///
/// # Errors
/// [`TooLong`] for a command that no program can be started with.
pub fn command(command: &[String], container: &Container) -> Result<Vec<String>, TooLong> {
    let literal = container.env.iter().flatten();
    let expander = Expander::new(
        literal.map(|env| (env.name.as_str(), env.value.as_deref().unwrap_or_default())),
    );
    let mut strings = ProgramStrings::default();
    let mut words = Vec::with_capacity(command.len());
    for (index, word) in command.iter().enumerate() {
        let what = || format!("exec.command[{index}]");
        let word = expander.expand(word, what)?;
        strings.add_argument(&word, what)?;
        words.push(word);
    }
    Ok(words)
}

/// Headers of HTTP's framing can't be set by the spec; the host has a field of its own.
const OURS: [&str; 5] = [
    "host",
    "connection",
    "content-length",
    "transfer-encoding",
    "trailer",
];

fn headers(listed: &[HTTPHeader], purpose: RequestPurpose) -> Vec<(String, String)> {
    let has = |name| listed.iter().any(|h| h.name.eq_ignore_ascii_case(name));
    // Set to empty values, these two are not sent at all; and there is only one user agent.
    let agent = match has("user-agent") {
        true => first(listed, "user-agent"),
        false => Some(purpose.user_agent()),
    };
    let accept = match has("accept") {
        true => first(listed, "accept").is_none().then_some(""),
        false => Some("*/*"),
    };
    let sent = |name: &str| {
        let is = |other: &str| name.eq_ignore_ascii_case(other);
        let silent = is("user-agent") || (is("accept") && accept == Some(""));
        !silent && !OURS.into_iter().any(is)
    };
    let own = [("User-Agent", agent), ("Accept", accept)];
    let own = own.into_iter().filter_map(|(name, value)| {
        let value = value.filter(|value| !value.is_empty())?;
        Some((name.to_owned(), value.to_owned()))
    });
    let listed = listed.iter().filter(|header| sent(&header.name));
    own.chain(listed.map(|header| (header.name.clone(), header.value.clone())))
        .collect()
}

/// The first value of a header, unless it is empty.
fn first<'a>(listed: &'a [HTTPHeader], name: &str) -> Option<&'a str> {
    let found = listed.iter().find(|h| h.name.eq_ignore_ascii_case(name))?;
    Some(found.value.as_str()).filter(|value| !value.is_empty())
}

/// Path and query as Go writes them behind the host: nothing for nothing, else with a slash before a path.
pub(super) fn shown_path(path: &str) -> String {
    let (path, query) = taken_apart(path).unwrap_or((path.to_owned(), None));
    let mut shown = String::new();
    if !path.is_empty() && !path.starts_with('/') {
        shown.push('/');
    }
    shown.push_str(&escaped_path(&path));
    if let Some(query) = query {
        shown.push('?');
        shown.push_str(&query);
    }
    shown
}

/// Takes path and query out of a reference; none if it is no reference, and is a path as it stands.
fn taken_apart(reference: &str) -> Option<(String, Option<String>)> {
    if reference.bytes().any(|byte| byte.is_ascii_control()) {
        return None;
    }
    let reference = reference.split('#').next().unwrap_or_default();
    let (rest, query) = match reference.split_once('?') {
        Some((rest, query)) => (rest, Some(query)),
        None => (reference, None),
    };
    let rest = without_origin(rest)?;
    if !escapes_are_whole(rest) {
        return None;
    }
    // A query is sent as it is, as far as a request line can carry it.
    let query = query.map(|query| utf8_percent_encode(query, IN_QUERIES).to_string());
    Some((rest.to_owned(), query))
}

/// Drops scheme and host: they have fields of their own.
fn without_origin(reference: &str) -> Option<&str> {
    let segment = reference.split('/').next().unwrap_or_default();
    let rest = match segment.split_once(':') {
        Some((scheme, _)) => {
            let after = &reference[scheme.len() + 1..];
            let named = scheme.starts_with(|c: char| c.is_ascii_alphabetic());
            // `name:path` without a slash has no place behind a host.
            (named && after.starts_with('/')).then_some(after)?
        }
        None => reference,
    };
    match rest.strip_prefix("//") {
        Some(host) if !rest.starts_with("///") => {
            Some(host.find('/').map_or("", |slash| &host[slash..]))
        }
        Some(_) | None => Some(rest),
    }
}

fn escapes_are_whole(path: &str) -> bool {
    let hex = |at: usize| path.as_bytes().get(at).is_some_and(u8::is_ascii_hexdigit);
    path.bytes()
        .enumerate()
        .all(|(at, byte)| byte != b'%' || (hex(at + 1) && hex(at + 2)))
}

/// Writes a path so that it fits into a request line: what is escaped already stays so.
fn escaped_path(path: &str) -> String {
    let set = if escapes_are_whole(path) {
        IN_ESCAPED_PATHS
    } else {
        IN_PATHS
    };
    utf8_percent_encode(path, set).to_string()
}

/// What is escaped in a path.
const IN_PATHS: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'\\')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');
const IN_ESCAPED_PATHS: &AsciiSet = &IN_PATHS.remove(b'%');
/// What a request line cannot carry in a query.
const IN_QUERIES: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b'<').add(b'>');

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{ContainerPort, EnvVar};
    use proptest::prelude::*;

    use super::*;

    fn container(ports: &[(&str, i32)]) -> Container {
        let port = |(name, number): &(&str, i32)| ContainerPort {
            name: Some((*name).into()),
            container_port: *number,
            ..ContainerPort::default()
        };
        Container {
            ports: Some(ports.iter().map(port).collect()),
            ..Container::default()
        }
    }

    fn number(number: i32) -> IntOrString {
        IntOrString::Int(number)
    }

    fn name(name: &str) -> IntOrString {
        IntOrString::String(name.into())
    }

    /// Upstream's TestResolveContainerPort and TestFindPortByName.
    #[test]
    fn ports_are_numbers_names_or_numbers_in_quotes() {
        let container = container(&[("foo", 8080), ("bar", 9000), ("93", 94)]);
        let cases = [
            (number(93), Ok(93)),
            (name("foo"), Ok(8080)),
            (name("bar"), Ok(9000)),
            (name("118"), Ok(118)),
            (name("93"), Ok(94)),
            (number(0), Err("invalid port number: 0")),
            (number(-1), Err("invalid port number: -1")),
            (number(65536), Err("invalid port number: 65536")),
            (name("-2"), Err("invalid port number: -2")),
            (
                name("baz"),
                Err("strconv.Atoi: parsing \"baz\": invalid syntax"),
            ),
            (name(""), Err("strconv.Atoi: parsing \"\": invalid syntax")),
        ];
        for (given, expected) in cases {
            let found = port(&given, &container).map_err(|error| error.to_string());
            assert_eq!(found, expected.map_err(str::to_owned), "{given:?}");
        }
    }

    fn get(scheme: &str, host: &str, path: &str) -> HTTPGetAction {
        HTTPGetAction {
            scheme: Some(scheme.into()),
            host: Some(host.into()),
            path: Some(path.into()),
            port: number(93),
            http_headers: None,
        }
    }

    fn target(get: &HTTPGetAction) -> HttpTarget {
        HttpTarget::of(
            get,
            &Container::default(),
            "10.0.0.9",
            RequestPurpose::Probe,
        )
        .unwrap()
    }

    /// Upstream's TestFormatURL, and the paths of TestRunHTTPHandler.
    #[test]
    fn urls_are_put_together_as_upstream_does() {
        let cases = [
            ("http", "localhost", "", "http://localhost:93", "/"),
            (
                "HTTPS",
                "localhost",
                "/path",
                "https://localhost:93/path",
                "/path",
            ),
            (
                "http",
                "localhost",
                "?foo",
                "http://localhost:93?foo",
                "/?foo",
            ),
            (
                "https",
                "localhost",
                "/path?bar",
                "https://localhost:93/path?bar",
                "/path?bar",
            ),
            ("", "", "foo", "http://10.0.0.9:93/foo", "/foo"),
            ("http", "::1", "/foo#frag", "http://[::1]:93/foo", "/foo"),
            ("baz", "a", "/a%20b", "baz://a:93/a%20b", "/a%20b"),
            ("http", "a", "/a b", "http://a:93/a%20b", "/a%20b"),
            ("http", "a", "/100%", "http://a:93/100%25", "/100%25"),
            ("http", "a", "/é", "http://a:93/%C3%A9", "/%C3%A9"),
            ("http", "a", "//b/c?d", "http://a:93/c?d", "/c?d"),
            ("http", "a", "https://b:1/c", "http://a:93/c", "/c"),
            ("http", "a", "b:c", "http://a:93/b:c", "/b:c"),
            (
                "http",
                "a",
                "/x\r\nHost: b",
                "http://a:93/x%0D%0AHost:%20b",
                "/x%0D%0AHost:%20b",
            ),
        ];
        for (scheme, host, path, url, sent) in cases {
            let target = target(&get(scheme, host, path));
            assert_eq!((target.url.as_str(), target.path.as_str()), (url, sent));
        }
    }

    fn headers_of(listed: &[(&str, &str)], purpose: RequestPurpose) -> Vec<(String, String)> {
        let header = |(name, value): &(&str, &str)| HTTPHeader {
            name: (*name).into(),
            value: (*value).into(),
        };
        let listed: Vec<HTTPHeader> = listed.iter().map(header).collect();
        headers(&listed, purpose)
    }

    /// Upstream's TestHeaderConversion, Test_v1HeaderToHTTPHeader and the headers of TestHTTPProbeChecker.
    #[test]
    fn headers_are_the_definitions_own_and_two_that_it_may_replace() {
        let probe = RequestPurpose::Probe.user_agent();
        type HeaderPairs<'a> = &'a [(&'a str, &'a str)];
        let cases: [(HeaderPairs<'_>, HeaderPairs<'_>); 7] = [
            (&[], &[("User-Agent", probe), ("Accept", "*/*")]),
            (
                &[("X-Muffins", "a"), ("x-muffins", "b")],
                &[
                    ("User-Agent", probe),
                    ("Accept", "*/*"),
                    ("X-Muffins", "a"),
                    ("x-muffins", "b"),
                ],
            ),
            (
                &[("user-agent", "foo/1.0")],
                &[("User-Agent", "foo/1.0"), ("Accept", "*/*")],
            ),
            (&[("User-Agent", "")], &[("Accept", "*/*")]),
            (
                &[("accept", "application/json"), ("Accept", "*/*")],
                &[
                    ("User-Agent", probe),
                    ("accept", "application/json"),
                    ("Accept", "*/*"),
                ],
            ),
            (&[("Accept", "")], &[("User-Agent", probe)]),
            (
                &[("Host", "a"), ("Content-Length", "5"), ("Connection", "x")],
                &[("User-Agent", probe), ("Accept", "*/*")],
            ),
        ];
        for (listed, expected) in cases {
            let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
            let expected: Vec<_> = expected.iter().map(owned).collect();
            assert_eq!(
                headers_of(listed, RequestPurpose::Probe),
                expected,
                "{listed:?}"
            );
        }
        let hook = headers_of(&[], RequestPurpose::Lifecycle);
        assert_eq!(hook[0].1, "kube-lifecycle/1.36");
    }

    #[test]
    fn the_host_header_replaces_the_host_in_the_request_alone() {
        let header = |value: &str| HTTPHeader {
            name: "hOST".into(),
            value: value.into(),
        };
        let mut get = get("http", "localhost", "/");
        get.http_headers = Some(vec![header("from.header")]);
        let target = target(&get);
        assert_eq!(target.host_header.as_deref(), Some("from.header"));
        assert_eq!(target.authority(), "localhost:93");
        get.http_headers = Some(vec![header("")]);
        let target =
            HttpTarget::of(&get, &Container::default(), "", RequestPurpose::Probe).unwrap();
        assert_eq!(target.host_header, None);
    }

    /// Upstream's TestRunHandlerHttpsFailureFallback.
    #[test]
    fn by_plain_http_nothing_is_said_that_was_meant_for_https() {
        let mut get = get("HTTPS", "a", "/bar");
        get.http_headers = Some(vec![HTTPHeader {
            name: "AUTHORIZATION".into(),
            value: "secret".into(),
        }]);
        let plain = target(&get).in_plain_http();
        assert_eq!(plain.url, "http://a:93/bar");
        let has = |name: &str| plain.headers.iter().any(|(n, _)| n == name);
        assert!(has("Accept") && !has("AUTHORIZATION"));
    }

    /// Upstream's ExpandContainerCommandOnlyStatic.
    #[test]
    fn a_command_knows_the_variables_that_are_written_out() {
        let variable = |name: &str, value: Option<&str>| EnvVar {
            name: name.into(),
            value: value.map(str::to_owned),
            value_from: None,
        };
        let container = Container {
            env: Some(vec![variable("A", Some("1")), variable("B", None)]),
            ..Container::default()
        };
        let given = ["$(A)$(B)$(C)".to_owned(), "$$(A)".to_owned()];
        assert_eq!(command(&given, &container).unwrap(), ["1$(C)", "$(A)"]);
    }

    #[test]
    fn a_command_is_no_longer_than_a_program_takes() {
        let container = Container {
            env: Some(vec![EnvVar {
                name: "B".into(),
                value: Some("b".repeat(100_000)),
                value_from: None,
            }]),
            ..Container::default()
        };
        let cases = [
            (
                vec!["true".to_owned(), "$(B)".repeat(1_000)],
                "exec.command[1] is too long: reached 200001 bytes, at most 131072 can be passed to a program",
            ),
            (
                vec!["$(B)".to_owned(); 50],
                "environment and arguments up to exec.command[20] are too long: reached 2100189 bytes, at most 2097152 can be passed to a program",
            ),
        ];
        for (words, expected) in cases {
            let refused = command(&words, &container).unwrap_err();
            assert_eq!(refused.to_string(), expected);
        }
    }

    proptest! {
        #[test]
        fn whatever_the_path_the_request_line_stays_one_line_of_plain_text(path in ".{0,40}") {
            let target = target(&get("http", "a", &path));
            prop_assert!(target.path.starts_with('/'));
            let plain = target.path.bytes().all(|byte| byte.is_ascii_graphic());
            prop_assert!(plain, "{}", target.path);
        }
    }
}
