//! Query parameters, parsed as Go parses them.

use percent_encoding::percent_decode_str;

/// The pairs of a query, decoded as Go decodes them.
#[derive(Debug, Default)]
pub(super) struct QueryPairs(Vec<(String, String)>);

impl QueryPairs {
    pub(super) fn of(text: Option<&str>) -> QueryPairs {
        let pairs = text.unwrap_or_default().split('&');
        // Go gives up a pair that has a semicolon or a bad escape, and keeps the others.
        let pairs = pairs.filter(|pair| !pair.is_empty() && !pair.contains(';'));
        let decode = |pair: &str| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let plain = |text: &str| unescaped(&text.replace('+', " "));
            Some((plain(key)?, plain(value)?))
        };
        QueryPairs(pairs.filter_map(decode).collect())
    }

    /// Returns every pair, in their order.
    pub(super) fn pairs(&self) -> impl Iterator<Item = (&str, &str)> + Clone {
        let pairs = self.0.iter();
        pairs.map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Returns every value of a key, in their order.
    pub(super) fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        let pairs = self.0.iter().filter(move |(name, _)| name == key);
        pairs.map(|(_, value)| value.as_str())
    }

    /// Returns the first value of a key.
    pub(super) fn first(&self, key: &str) -> Option<&str> {
        let mut pairs = self.0.iter();
        let pair = pairs.find(|(name, _)| name == key);
        pair.map(|(_, value)| value.as_str())
    }

    /// Whether the first value of a key is `1`.
    pub(super) fn is_one(&self, key: &str) -> bool {
        self.first(key) == Some("1")
    }

    /// Whether a key is set: without a value, or with any but `0` and `false`.
    pub(super) fn is_set(&self, key: &str) -> bool {
        self.first(key)
            .is_some_and(|value| value != "0" && !value.eq_ignore_ascii_case("false"))
    }
}

/// Undoes percent-encoding; none if an escape is broken, or the result is not UTF-8.
pub(super) fn unescaped(text: &str) -> Option<String> {
    let is_escape = |after: &str| {
        let code = after.as_bytes().first_chunk::<2>();
        code.is_some_and(|code| code.iter().all(u8::is_ascii_hexdigit))
    };
    if !text.split('%').skip(1).all(is_escape) {
        return None;
    }
    let plain = percent_decode_str(text).decode_utf8().ok()?;
    Some(plain.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_decoded_as_go_decodes_them() {
        let query = QueryPairs::of(Some(
            "command=echo&command=a+b%20c&input=1&tty&x=%zz&y=1;2&=e",
        ));
        assert_eq!(query.all("command").collect::<Vec<_>>(), ["echo", "a b c"]);
        assert!(query.is_one("input") && !query.is_one("tty"));
        assert!(query.is_set("tty") && query.is_set("input") && !query.is_set("nope"));
        assert_eq!((query.first("x"), query.first("y")), (None, None));
        assert!(!QueryPairs::of(Some("follow=False")).is_set("follow"));
        assert!(!QueryPairs::of(Some("follow=0")).is_set("follow"));
        assert_eq!(unescaped("%2e%2E/%C3%A4").as_deref(), Some("../ä"));
        for bad in ["%", "%2", "%+1", "%ff", "%é"] {
            assert_eq!(unescaped(bad), None, "{bad}");
        }
    }
}
