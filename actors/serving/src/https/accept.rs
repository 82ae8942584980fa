//! The headers Accept and Accept-Encoding, parsed as upstream's libraries parse them.

use hyper::HeaderMap;
use hyper::header::{ACCEPT, ACCEPT_ENCODING};

/// One media range or encoding that a caller accepts.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Clause<'a> {
    pub(super) kind: &'a str,
    pub(super) inner: &'a str,
    weight: f32,
    params: Vec<(&'a str, &'a str)>,
}

impl<'a> Clause<'a> {
    fn read(text: &'a str) -> Option<Clause<'a>> {
        let mut parts = text.split(';');
        let name = parts.next()?.trim();
        let (kind, inner) = match name.split_once('/') {
            Some((kind, inner)) if !inner.contains('/') => (kind.trim(), inner.trim()),
            None if name == "*" => ("*", "*"),
            Some(_) | None => return None,
        };
        let mut clause = Clause {
            kind,
            inner,
            weight: 1.0,
            params: Vec::new(),
        };
        let params = parts.filter_map(|part| part.split_once('='));
        for (name, value) in params.filter(|(_, value)| !value.contains('=')) {
            match name.trim() {
                "q" => clause.weight = value.trim().parse().unwrap_or(0.0),
                name => clause.params.push((name, value.trim_matches([' ', '"']))),
            }
        }
        Some(clause)
    }

    /// Returns a parameter's value; the last one counts.
    pub(super) fn param(&self, name: &str) -> Option<&'a str> {
        let mut params = self.params.iter().rev();
        params
            .find(|(one, _)| *one == name)
            .map(|(_, value)| *value)
    }

    /// Whether it covers this media type, also by a wildcard.
    pub(super) fn covers(&self, kind: &str, inner: &str) -> bool {
        match self.kind {
            "*" => self.inner == "*",
            own => own == kind && (self.inner == inner || self.inner == "*"),
        }
    }
}

/// Returns the header as text; none if it is absent or empty.
pub(super) fn header(headers: &HeaderMap) -> Option<&str> {
    let text = headers.get(ACCEPT)?.to_str().ok()?;
    Some(text).filter(|text| !text.trim().is_empty())
}

/// Returns what a caller accepts, the most preferred first.
pub(super) fn clauses(text: &str) -> Vec<Clause<'_>> {
    let mut clauses: Vec<Clause<'_>> = text.split(',').filter_map(Clause::read).collect();
    let any = |clause: &Clause<'_>| (clause.kind == "*", clause.inner == "*");
    clauses.sort_by(|a, b| b.weight.total_cmp(&a.weight).then(any(a).cmp(&any(b))));
    clauses
}

/// Whether a caller accepts JSON, by the rules of routes that produce nothing else: weights do not count, and no
/// pattern but `*/*`.
pub(super) fn takes_json(headers: &HeaderMap) -> bool {
    let Some(text) = header(headers) else {
        return true;
    };
    let mut kinds = text.split(',').filter_map(|kind| kind.split(';').next());
    kinds.any(|kind| matches!(kind.trim_matches(' '), "*/*" | "application/json"))
}

/// Whether a caller prefers gzip. With equal weights the answer is not compressed.
pub(super) fn likes_gzip(headers: &HeaderMap) -> bool {
    let values = headers.get_all(ACCEPT_ENCODING).into_iter();
    let texts = values.filter_map(|value| value.to_str().ok());
    let weights = texts.flat_map(|text| text.split(',')).map(|offer| {
        let mut parts = offer.split(';');
        let name = parts.next().unwrap_or_default().trim();
        let weight = parts.find_map(|part| part.trim().strip_prefix("q="));
        (
            name,
            weight.map_or(1.0, |weight| weight.parse().unwrap_or(0.0)),
        )
    });
    let weights: Vec<(&str, f32)> = weights.collect();
    let best = |of: &str| {
        let own = weights.iter().filter(|(name, _)| [of, "*"].contains(name));
        own.map(|(_, weight)| *weight).fold(-1.0_f32, f32::max)
    };
    best("gzip") > best("identity").max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_liked_best_comes_first() {
        let text = "*/*;q=0.1, text/*, a/b/c, nothing, application/json;v=v1;as=\"T\";as=T2 , text/plain;q=0.4;q=x=y";
        let found = clauses(text);
        let names: Vec<String> = found
            .iter()
            .map(|c| format!("{}/{}", c.kind, c.inner))
            .collect();
        assert_eq!(names, ["application/json", "text/*", "text/plain", "*/*"]);
        assert_eq!(found[0].param("as"), Some("T2"));
        assert!(found[1].covers("text", "plain") && !found[1].covers("application", "json"));
        assert!(found[3].covers("application", "json"));
        assert!(clauses("").is_empty());
    }

    /// Upstream's promhttp, TestNegotiateEncodingWriter.
    #[test]
    fn answers_are_packed_for_those_who_would_rather_have_them_so() {
        let cases = [
            ("gzip", true),
            ("gzip, deflate", true),
            ("deflate, gzip;q=1.0, *;q=0.5", true),
            ("identity;q=0.5, gzip", true),
            ("gzip;q=0.1, identity;q=0", true),
            ("", false),
            ("*", false),
            ("gzip, identity", false),
            ("gzip;q=0", false),
            ("gzip;q=0.5, identity;q=0.7", false),
            ("zstd", false),
            ("x-gzip", false),
        ];
        for (text, expected) in cases {
            let headers = [(ACCEPT_ENCODING, text.parse().unwrap())];
            assert_eq!(
                likes_gzip(&headers.into_iter().collect()),
                expected,
                "{text}"
            );
        }
        assert!(!likes_gzip(&HeaderMap::new()));
    }

    #[test]
    fn routes_of_json_take_whoever_takes_json() {
        let cases = [
            ("application/json", true),
            ("text/html, */*;q=0.1", true),
            ("text/html,application/json;q=0", true),
            (" ", true),
            ("application/*", false),
            ("text/html", false),
        ];
        for (text, expected) in cases {
            let headers = [(ACCEPT, text.parse().unwrap())];
            assert_eq!(
                takes_json(&headers.into_iter().collect()),
                expected,
                "{text}"
            );
        }
        assert!(takes_json(&HeaderMap::new()));
    }
}
