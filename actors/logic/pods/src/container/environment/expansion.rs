//! `$(NAME)` in commands, arguments and values.
//!
//! Mirrors upstream's third_party/forked/golang/expansion at v1.36.

use std::collections::BTreeSet;

/// Replaces `$(NAME)` by its value; `$$` is a dollar, and an unknown name stays as it is written.
///
/// Where a name is listed twice, the later value counts.
pub fn expand(text: &str, variables: &[(String, String)]) -> String {
    expand_by(text, |name| find(variables, name))
}

/// As [`expand`], but every name must have a value. The error lists the names without one.
pub fn expand_fully(
    text: &str,
    variables: &[(String, String)],
) -> Result<String, BTreeSet<String>> {
    let mut missing = BTreeSet::new();
    let expanded = expand_by(text, |name| {
        let value = find(variables, name).filter(|value| !value.is_empty());
        if value.is_none() {
            missing.insert(name.to_owned());
        }
        value
    });
    match missing.is_empty() {
        true => Ok(expanded),
        false => Err(missing),
    }
}

fn find<'a>(variables: &'a [(String, String)], name: &str) -> Option<&'a str> {
    let found = variables.iter().rev().find(|(known, _)| known == name);
    found.map(|(_, value)| value.as_str())
}

/// As [`expand`], with the values from wherever they are known.
pub(super) fn expand_by<'a>(text: &str, mut known: impl FnMut(&str) -> Option<&'a str>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            out.push('$');
            rest = after;
        } else if let Some((name, after)) = rest.strip_prefix('(').and_then(|r| r.split_once(')')) {
            match known(name) {
                Some(value) => out.push_str(value),
                None => out.extend(["$(", name, ")"]),
            }
            rest = after;
        } else {
            out.push('$');
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Upstream's expansion TestMapping and TestMappingDual.
    #[test]
    fn references_expand_as_upstream() {
        let known = [
            ("VAR_A", "A"),
            ("VAR_B", "B"),
            ("VAR_C", "C"),
            ("VAR_REF", "$(VAR_A)"),
            ("VAR_EMPTY", ""),
        ];
        let variables: Vec<_> = known.map(|(k, v)| (k.to_owned(), v.to_owned())).to_vec();
        let cases = [
            ("$(VAR_A)", "A"),
            ("___$(VAR_B)___", "___B___"),
            ("$(VAR_A)$(VAR_B)", "AB"),
            ("$(VAR_REF)", "$(VAR_A)"),
            ("$$(VAR_A)", "$(VAR_A)"),
            ("$$$(VAR_A)", "$A"),
            ("$$$$(VAR_A)", "$$(VAR_A)"),
            ("$(UNKNOWN)", "$(UNKNOWN)"),
            ("foo$(VAR_EMPTY)bar", "foobar"),
            ("\n", "\n"),
            ("$", "$"),
            ("a$", "a$"),
            ("$VAR_A", "$VAR_A"),
            ("$(VAR_A", "$(VAR_A"),
            ("$((VAR_A)", "$((VAR_A)"),
            ("$()", "$()"),
            ("$(VAR_A$$", "$(VAR_A$"),
            ("$$(VAR_A)$$(VAR_B)", "$(VAR_A)$(VAR_B)"),
            ("foo$(VAR_C)$$bar", "fooC$bar"),
            ("$$(", "$("),
            ("$$(VAR_B)", "$(VAR_B)"),
            ("f000-$$VAR_A", "f000-$VAR_A"),
            ("foo\\$(VAR_C)bar", "foo\\Cbar"),
            ("$$$$$$$(VAR_A)", "$$$A"),
            ("$(VAR_A),$(VAR_B),é", "A,B,é"),
        ];
        for (text, expected) in cases {
            assert_eq!(expand(text, &variables), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn text_without_dollars_stays_and_none_panics(text in any::<String>()) {
            let expanded = expand(&text, &[("A".to_owned(), "1".to_owned())]);
            prop_assert!(text.contains('$') || expanded == text);
        }
    }
}
