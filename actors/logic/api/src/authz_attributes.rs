//! What a request to the node is to the API server's rules: a verb on a subresource of the node.
//!
//! Upstream: pkg/kubelet/server/auth.go (1.36).

/// Returns the verb of a method; none of the others has one.
pub fn verb(method: &str) -> &'static str {
    match method {
        "POST" => "create",
        "GET" => "get",
        "PUT" => "update",
        "PATCH" => "patch",
        "DELETE" => "delete",
        _ => "",
    }
}

/// Returns the names under which a path may be permitted, the narrowest first.
pub fn subresources(path: &str, fine_grained: bool) -> Vec<&'static str> {
    let is = |root| is_beneath(path, root);
    let fine = match () {
        () if !fine_grained => None,
        () if is("/pods") || is("/runningpods/") => Some("pods"),
        () if is("/healthz") => Some("healthz"),
        () if is("/configz") => Some("configz"),
        () => None,
    };
    let coarse = match () {
        () if is("/stats/") => "stats",
        () if is("/metrics") => "metrics",
        () if is("/logs/") => "log",
        () if is("/checkpoint/") => "checkpoint",
        () if is("/statusz") => "statusz",
        () if is("/flagz") => "configz",
        () => "proxy",
    };
    fine.into_iter().chain([coarse]).collect()
}

fn is_beneath(path: &str, root: &str) -> bool {
    let rest = path.strip_prefix(root.strip_suffix('/').unwrap_or(root));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Upstream's TestIsSubPath.
    #[test]
    fn paths_lie_beneath_their_roots_only() {
        let cases = [
            ("", "", true),
            ("foo", "foo", true),
            ("/foo", "/foo", true),
            ("/foo/", "/foo/", true),
            ("/foo/bar", "/foo/bar", true),
            ("/foo", "/", true),
            ("/foo/", "/", true),
            ("/foo/bar", "/", true),
            ("/foo/", "/foo", true),
            ("/foo/bar", "/foo", true),
            ("/foo", "/bar", false),
            ("/foo", "/foobar", false),
            ("/foobar", "/foo", false),
        ];
        for (path, root, expected) in cases {
            assert_eq!(is_beneath(path, root), expected, "{path} beneath {root}");
        }
    }

    /// Upstream's TestGetRequestAttributes.
    #[test]
    fn every_path_has_its_subresources() {
        let cases: [(&str, &[&str], &str); 28] = [
            ("/attach/ns/pod/c", &[], "proxy"),
            ("/attach/ns/pod/uid/c", &[], "proxy"),
            ("/checkpoint/ns/pod/c", &[], "checkpoint"),
            ("/configz", &["configz"], "proxy"),
            ("/statusz", &[], "statusz"),
            ("/flagz", &[], "configz"),
            ("/containerLogs/ns/pod/c", &[], "proxy"),
            ("/debug/flags/v", &[], "proxy"),
            ("/debug/pprof/heap", &[], "proxy"),
            ("/exec/ns/pod/c", &[], "proxy"),
            ("/exec/ns/pod/uid/c", &[], "proxy"),
            ("/healthz", &["healthz"], "proxy"),
            ("/healthz/log", &["healthz"], "proxy"),
            ("/healthz/ping", &["healthz"], "proxy"),
            ("/healthz/syncloop", &["healthz"], "proxy"),
            ("/logs/", &[], "log"),
            ("/logs/some/file", &[], "log"),
            ("/metrics", &[], "metrics"),
            ("/metrics/slis", &[], "metrics"),
            ("/metrics/cadvisor", &[], "metrics"),
            ("/metrics/probes", &[], "metrics"),
            ("/metrics/resource", &[], "metrics"),
            ("/pods/", &["pods"], "proxy"),
            ("/portForward/ns/pod/uid", &[], "proxy"),
            ("/run/ns/pod/c", &[], "proxy"),
            ("/runningpods/", &["pods"], "proxy"),
            ("/stats/", &[], "stats"),
            ("/stats/summary", &[], "stats"),
        ];
        for (path, fine, coarse) in cases {
            assert_eq!(subresources(path, false), [coarse], "{path}");
            assert_eq!(
                subresources(path, true),
                [fine, &[coarse]].concat(),
                "{path}"
            );
        }
        let verbs = ["POST", "GET", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"];
        let verbs = verbs.map(verb);
        assert_eq!(
            verbs,
            ["create", "get", "update", "patch", "delete", "", ""]
        );
    }
}
