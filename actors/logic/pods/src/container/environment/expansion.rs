//! `$(NAME)` in commands, arguments and values.
//!
//! Mirrors upstream's third_party/forked/golang/expansion at v1.36, except that an expansion ends at a bound: a
//! variable that names another one a thousand times makes kilobytes of a definition into gigabytes.

use std::collections::{BTreeMap, BTreeSet};

use super::program_strings::{MAX_ARG_STRLEN, TooLong};

/// The values that `$(NAME)` stands for; where a name is listed twice, the later value counts.
#[derive(Debug)]
pub struct Expander<'a> {
    values: BTreeMap<&'a str, &'a str>,
}

impl<'a> Expander<'a> {
    pub fn new(variables: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        Self {
            values: variables.into_iter().collect(),
        }
    }

    /// Of a container's list of variables.
    pub fn of(variables: &'a [(String, String)]) -> Self {
        Self::new(
            variables
                .iter()
                .map(|(name, value)| (name.as_str(), value.as_str())),
        )
    }

    /// Replaces `$(NAME)` by its value; `$$` is a dollar, and an unknown name stays as it is written.
    ///
    /// # Errors
    /// [`TooLong`] once the text would have more than [`MAX_ARG_STRLEN`] bytes with the NUL behind it; `what` names it.
    pub fn expand(&self, text: &str, what: impl FnOnce() -> String) -> Result<String, TooLong> {
        let known = |name: &str| self.values.get(name).copied();
        expand_by(text, MAX_ARG_STRLEN - 1, known).map_err(|reached| TooLong {
            what: format!("{} is", what()),
            reached: reached + 1,
            max: MAX_ARG_STRLEN,
        })
    }

    /// Expands a text of at most `max` bytes in which every name must have a value.
    pub fn expand_fully(&self, text: &str, max: usize) -> Result<String, NotExpanded> {
        let mut missing = BTreeSet::new();
        let expanded = expand_by(text, max, |name| {
            let value = self.values.get(name).filter(|value| !value.is_empty());
            if value.is_none() {
                missing.insert(name.to_owned());
            }
            value.copied()
        });
        if !missing.is_empty() {
            return Err(NotExpanded::Missing(missing));
        }
        expanded.map_err(NotExpanded::Length)
    }
}

/// Why a text could not be expanded fully.
#[derive(Debug, PartialEq, Eq)]
pub enum NotExpanded {
    /// The names without a value.
    Missing(BTreeSet<String>),
    /// The bytes that were reached.
    Length(usize),
}

/// Expands with the values from wherever they are known. The error is the length at which the text exceeded `max`
/// bytes: the length is checked before a value is copied, so that memory never grows beyond the bound.
pub(super) fn expand_by<'a>(
    text: &str,
    max: usize,
    mut known: impl FnMut(&str) -> Option<&'a str>,
) -> Result<String, usize> {
    let mut expanded = BoundedText {
        text: String::with_capacity(text.len().min(max)),
        max,
    };
    let mut rest = text;
    // Without a parenthesis that closes, each "$(" would search all of the rest for one.
    let mut may_close = true;
    while let Some(at) = rest.find('$') {
        expanded.push(&rest[..at])?;
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            expanded.push("$")?;
            rest = after;
            continue;
        }
        let reference = rest.strip_prefix('(').filter(|_| may_close);
        may_close &= reference.is_none_or(|inner| inner.contains(')'));
        let Some((name, after)) = reference.and_then(|inner| inner.split_once(')')) else {
            expanded.push("$")?;
            continue;
        };
        match known(name) {
            Some(value) => expanded.push(value)?,
            None => ["$(", name, ")"]
                .into_iter()
                .try_for_each(|part| expanded.push(part))?,
        }
        rest = after;
    }
    expanded.push(rest)?;
    Ok(expanded.text)
}

struct BoundedText {
    text: String,
    /// Bytes.
    max: usize,
}

impl BoundedText {
    fn push(&mut self, part: &str) -> Result<(), usize> {
        let reached = self.text.len().saturating_add(part.len());
        if reached > self.max {
            return Err(reached);
        }
        self.text.push_str(part);
        Ok(())
    }
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
        let expander = Expander::of(&variables);
        for (text, expected) in cases {
            let expanded = expander.expand(text, String::new);
            assert_eq!(expanded.as_deref(), Ok(expected), "{text}");
        }
    }

    /// Texts of one name repeated, and of what comes without a name: the length is known before a value is copied.
    #[test]
    fn an_expansion_ends_at_its_bound() {
        let longest = MAX_ARG_STRLEN - 1;
        let long = "b".repeat(longest);
        let half = "h".repeat(longest / 2);
        let values = [("LONG", long.as_str()), ("HALF", &half), ("NONE", "")];
        let expander = Expander::new(values);
        let cases = [
            ("$(LONG)".to_owned(), Ok(longest)),
            ("$(LONG)x".to_owned(), Err(MAX_ARG_STRLEN + 1)),
            ("$(LONG)$(NONE)".to_owned(), Ok(longest)),
            ("$(HALF)$(HALF)x".to_owned(), Ok(longest)),
            ("$(LONG)".repeat(1_000), Err(2 * longest + 1)),
            ("$(NONE)".repeat(200_000), Ok(0)),
            ("$(".repeat(400_000), Err(MAX_ARG_STRLEN + 1)),
            ("y".repeat(longest), Ok(longest)),
            ("y".repeat(longest + 7), Err(MAX_ARG_STRLEN + 7)),
            ("$$".repeat(longest), Ok(longest)),
        ];
        for (text, expected) in cases {
            let expanded = expander.expand(&text, || "argument 3".to_owned());
            let expanded = expanded.map(|text| text.len());
            let expected = expected.map_err(|reached| TooLong {
                what: "argument 3 is".to_owned(),
                reached,
                max: MAX_ARG_STRLEN,
            });
            assert_eq!(expanded, expected, "{}", &text[..20.min(text.len())]);
        }
    }

    #[test]
    fn a_full_expansion_says_what_is_missing_before_it_says_what_is_long() {
        let expander = Expander::new([("A", "aaaa"), ("EMPTY", "")]);
        let missing = |name: &str| NotExpanded::Missing([name.to_owned()].into());
        let cases = [
            ("$(A)/b", Ok("aaaa/b")),
            ("$(A)$(A)$(A)", Err(NotExpanded::Length(12))),
            ("$(EMPTY)", Err(missing("EMPTY"))),
            ("$(OTHER)", Err(missing("OTHER"))),
        ];
        for (text, expected) in cases {
            let expanded = expander.expand_fully(text, 10);
            assert_eq!(expanded, expected.map(str::to_owned), "{text}");
        }
    }

    proptest! {
        #[test]
        fn text_without_dollars_stays_and_none_panics(text in any::<String>()) {
            let expanded = Expander::new([("A", "1")]).expand(&text, String::new).unwrap();
            prop_assert!(text.contains('$') || expanded == text);
        }
    }
}
