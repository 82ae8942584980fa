//! A parsed request: the parts of its path and query, and its body as it came.

use http::{HeaderMap, Method, header};
use hyper::body::Bytes;
use percent_encoding::percent_decode_str;

use crate::kinds::{self, Resource};

/// One request to the API.
#[derive(Debug, Clone)]
pub(crate) struct RequestInfo {
    pub(crate) verb: RequestVerb,
    pub(crate) resource: &'static Resource,
    pub(crate) namespace: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) subresource: Option<String>,
    /// What stands after the subresource, without its slash: the path of a proxy.
    pub(crate) rest: String,
    pub(crate) query: QueryParameters,
    pub(crate) accept: String,
    pub(crate) content_type: String,
    /// The user; anonymous until `auth` has authenticated the request.
    pub(crate) user: UserInfo,
    /// Empty for what is carried on to a kubelet.
    pub(crate) body: Bytes,
}

/// An authenticated user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct UserInfo {
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) groups: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestVerb {
    Get,
    List,
    Watch,
    Create,
    Update,
    Patch,
    Delete,
    DeleteCollection,
}

impl RequestVerb {
    /// Returns the word that authorization uses.
    pub(crate) fn word(self) -> &'static str {
        match self {
            RequestVerb::Get => "get",
            RequestVerb::List => "list",
            RequestVerb::Watch => "watch",
            RequestVerb::Create => "create",
            RequestVerb::Update => "update",
            RequestVerb::Patch => "patch",
            RequestVerb::Delete => "delete",
            RequestVerb::DeleteCollection => "deletecollection",
        }
    }
}

impl RequestInfo {
    /// Returns the call that a path under /api or /apis asks for; none if there is no such resource.
    pub(crate) fn parse(
        method: &Method,
        uri: &http::Uri,
        headers: &HeaderMap,
    ) -> Option<RequestInfo> {
        let query = QueryParameters::parse(uri.query().unwrap_or_default());
        let target = ResourcePath::parse(uri.path())?;
        let verb = verb_of(method, &target, &query)?;
        let text = |name: header::HeaderName| {
            headers
                .get(name)
                .and_then(|value| value.to_str().ok())
                .unwrap_or_default()
                .to_string()
        };
        Some(RequestInfo {
            verb,
            resource: target.resource,
            namespace: target.namespace,
            name: target.name,
            subresource: target.subresource,
            rest: target.rest,
            query,
            accept: text(header::ACCEPT),
            content_type: text(header::CONTENT_TYPE),
            user: UserInfo::default(),
            body: Bytes::new(),
        })
    }

    pub(crate) fn subresource(&self) -> Option<&str> {
        self.subresource.as_deref()
    }

    pub(crate) fn name(&self) -> &str {
        self.name.as_deref().unwrap_or_default()
    }

    /// Returns the namespace; empty for objects of the cluster and for all namespaces.
    pub(crate) fn namespace(&self) -> &str {
        self.namespace.as_deref().unwrap_or_default()
    }

    pub(crate) fn dry_run(&self) -> bool {
        self.query.get("dryRun").is_some_and(|value| value == "All")
    }

    /// Whether it is carried to a kubelet instead of being answered from the store.
    pub(crate) fn for_a_kubelet(&self) -> bool {
        match (
            self.resource.group,
            self.resource.plural,
            self.subresource(),
        ) {
            ("", "pods", Some("log" | "exec" | "attach" | "portforward" | "proxy"))
            | ("", "nodes", Some("proxy")) => true,
            _ => self.resource.handling == kinds::Handling::Measured,
        }
    }
}

/// The query of a URL, decoded, in its order.
#[derive(Clone, Debug, Default)]
pub(crate) struct QueryParameters(Vec<(String, String)>);

impl QueryParameters {
    pub(crate) fn parse(text: &str) -> QueryParameters {
        QueryParameters(
            form_urlencoded::parse(text.as_bytes())
                .into_owned()
                .collect(),
        )
    }

    /// Returns the first value of a name that is not empty.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(key, value)| key == name && !value.is_empty())
            .map(|(_, value)| value.as_str())
    }

    /// Returns all values of a name.
    pub(crate) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0
            .iter()
            .filter(move |(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    }

    pub(crate) fn is_true(&self, name: &str) -> bool {
        self.get(name)
            .is_some_and(|value| value == "true" || value == "1")
    }

    pub(crate) fn number(&self, name: &str) -> Option<i64> {
        self.get(name)?.parse().ok()
    }
}

struct ResourcePath {
    resource: &'static Resource,
    namespace: Option<String>,
    name: Option<String>,
    subresource: Option<String>,
    rest: String,
    /// The old form, `/api/v1/watch/…`.
    watch: Option<()>,
}

impl ResourcePath {
    fn parse(path: &str) -> Option<ResourcePath> {
        let path = path.strip_prefix('/')?;
        let mut parts = path
            .split('/')
            .map(|part| percent_decode_str(part).decode_utf8_lossy().into_owned());
        let group = match parts.next()?.as_str() {
            "api" => String::new(),
            "apis" => parts.next().filter(|group| !group.is_empty())?,
            _ => return None,
        };
        let version = parts.next()?;
        let mut word = parts.next()?;
        let watch = (word == "watch").then_some(());
        if watch.is_some() {
            word = parts.next()?;
        }
        let mut rest: Vec<String> = parts.collect();
        let mut namespace = None;
        // `namespaces/x/status` is of the namespace itself; `namespaces/x/pods` is of what it holds.
        if word == "namespaces"
            && rest.len() > 1
            && !(group.is_empty() && matches!(rest[1].as_str(), "status" | "finalize"))
        {
            namespace = Some(rest.remove(0));
            word = rest.remove(0);
        }
        let resource = kinds::find(&group, &version, &word)?;
        if namespace.is_some() && !resource.namespaced {
            return None;
        }
        let mut rest = rest.into_iter();
        let name = rest.next().filter(|name| !name.is_empty());
        let subresource = rest.next().filter(|name| !name.is_empty());
        if let Some(subresource) = &subresource
            && !resource.subresources.contains(&subresource.as_str())
        {
            return None;
        }
        let rest: Vec<String> = rest.collect();
        Some(ResourcePath {
            resource,
            namespace,
            name,
            subresource,
            rest: rest.join("/"),
            watch,
        })
    }
}

fn verb_of(method: &Method, target: &ResourcePath, query: &QueryParameters) -> Option<RequestVerb> {
    let one = target.name.is_some();
    let watched = target.watch.is_some() || query.is_true("watch");
    Some(match method.as_str() {
        "GET" | "HEAD" if target.subresource.is_some() => RequestVerb::Get,
        "GET" | "HEAD" if watched => RequestVerb::Watch,
        "GET" | "HEAD" if one => RequestVerb::Get,
        "GET" | "HEAD" => RequestVerb::List,
        "POST" => RequestVerb::Create,
        "PUT" if one => RequestVerb::Update,
        "PATCH" if one => RequestVerb::Patch,
        "DELETE" if one => RequestVerb::Delete,
        "DELETE" => RequestVerb::DeleteCollection,
        _ => return None,
    })
}
