//! Patterns of `logging.vmodule`: the names of source files, with the wildcards of Go's `filepath.Match`.

use config::VModule;

/// Characters that make a pattern of a name.
const WILDCARDS: [char; 5] = ['*', '?', '[', ']', '\\'];

/// A verbosity for the modules that match.
#[derive(Debug, Clone)]
pub(super) struct ModulePattern {
    pattern: Vec<char>,
    verbosity: u32,
}

impl ModulePattern {
    /// Returns the pattern of a setting. An ending `.rs` or `.go` is not part of a module's name.
    pub(super) fn new(setting: &VModule) -> ModulePattern {
        let pattern = &setting.file_pattern;
        let pattern = pattern.strip_suffix(".go").unwrap_or(pattern);
        ModulePattern {
            pattern: pattern
                .strip_suffix(".rs")
                .unwrap_or(pattern)
                .chars()
                .collect(),
            verbosity: setting.verbosity,
        }
    }

    /// Returns the verbosity of the first pattern that matches the module; 0 where none does.
    pub(super) fn verbosity(patterns: &[ModulePattern], module: &str) -> u32 {
        let name: Vec<char> = module.chars().collect();
        let first = patterns.iter().find(|setting| setting.matches(&name));
        first.map_or(0, |setting| setting.verbosity)
    }

    /// The verbosity of the modules that match.
    pub(super) fn own_verbosity(&self) -> u32 {
        self.verbosity
    }

    fn matches(&self, name: &[char]) -> bool {
        match self.pattern.iter().any(|c| WILDCARDS.contains(c)) {
            true => matches(&self.pattern, name),
            false => self.pattern == name,
        }
    }
}

/// Whether the whole name matches. A malformed pattern matches nothing that reaches its fault.
fn matches(pattern: &[char], name: &[char]) -> bool {
    match (pattern, name) {
        ([], _) => name.is_empty(),
        (['*', rest @ ..], _) => (0..=name.len()).any(|taken| matches(rest, &name[taken..])),
        (_, []) => false,
        (['?', rest @ ..], [_, left @ ..]) => matches(rest, left),
        (['[', class @ ..], [first, left @ ..]) => match in_class(class, *first) {
            Some((true, rest)) => matches(rest, left),
            Some((false, _)) | None => false,
        },
        (['\\', wanted, rest @ ..], [first, left @ ..]) => wanted == first && matches(rest, left),
        (['\\'], _) => false,
        ([wanted, rest @ ..], [first, left @ ..]) => wanted == first && matches(rest, left),
    }
}

/// Whether the character is in the class that begins here, and what follows it; none if it has no end or no members.
fn in_class(class: &[char], wanted: char) -> Option<(bool, &[char])> {
    let (is_negated, mut class) = match class {
        ['^', rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    let (mut is_member, mut members) = (false, 0);
    loop {
        if let ([']', rest @ ..], 1..) = (class, members) {
            return Some((is_member != is_negated, rest));
        }
        let (low, rest) = member(class)?;
        let (high, rest) = match rest {
            ['-', rest @ ..] => member(rest)?,
            rest => (low, rest),
        };
        is_member |= (low..=high).contains(&wanted);
        members += 1;
        class = rest;
    }
}

/// One character of a class, which `\` takes its meaning from.
fn member(class: &[char]) -> Option<(char, &[char])> {
    match class {
        [] | ['\\'] | ['-' | ']', ..] => None,
        ['\\', member, rest @ ..] | [member, rest @ ..] => Some((*member, rest)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verbosity(settings: &[(&str, u32)], module: &str) -> u32 {
        let pattern = |(pattern, verbosity): &(&str, u32)| {
            ModulePattern::new(&VModule {
                file_pattern: (*pattern).to_owned(),
                verbosity: *verbosity,
            })
        };
        let patterns: Vec<_> = settings.iter().map(pattern).collect();
        ModulePattern::verbosity(&patterns, module)
    }

    /// The patterns of klog's TestVmoduleGlob and of Go's TestMatch.
    #[test]
    fn a_pattern_matches_the_names_that_gos_would() {
        let rows = [
            ("klog_test", "klog_test", true),
            ("klog_test.go", "klog_test", true),
            ("klog_test.rs", "klog_test", true),
            ("klog_*", "klog_test", true),
            ("?log_*", "klog_test", true),
            ("??log_*", "klog_test", false),
            ("[a-k]log_*", "klog_test", true),
            ("[l-z]log_*", "klog_test", false),
            ("[^l-z]log_*", "klog_test", true),
            ("x*", "klog_test", false),
            ("*", "klog_test", true),
            ("a*b*c", "axbxxc", true),
            ("a*b*c", "axbxx", false),
            ("a\\*", "a*", true),
            ("a\\*", "ab", false),
            ("[\\]a]", "]", true),
            ("[\\-x]", "-", true),
            ("[]a]", "]", false),
            ("[", "a", false),
            ("[^", "a", false),
            ("[a-", "a", false),
            ("a[", "a", false),
            ("a\\", "a\\", false),
        ];
        for (pattern, module, expected) in rows {
            let found = verbosity(&[(pattern, 2)], module);
            assert_eq!(found, if expected { 2 } else { 0 }, "{pattern} {module}");
        }
    }

    #[test]
    fn the_first_pattern_that_matches_decides() {
        let settings = [("pleg", 1), ("p*", 5), ("pleg", 9)];
        assert_eq!(verbosity(&settings, "pleg"), 1);
        assert_eq!(verbosity(&settings, "prober"), 5);
        assert_eq!(verbosity(&settings, "images"), 0);
    }
}
