//! `docs/operate.md` has every event reason and condition of ours, and every sentence with which the agent refuses to start.
//!
//! Reasons are found by where they stand: a capitalized word as a string, on the line of a word that tells of an event or
//! reason, or up to two lines after it, or anywhere in a file that is named for them. What Kubernetes names so is listed in `integration/tidy/upstream-reasons`; all others
//! are ours. Refusals are the texts of errors in the files through which a start can fail.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::tree::Tree;

/// What tells of an event, a condition or a reason, or gives a name to one.
const TELLING: [&str; 8] = [
    "reason",
    "REASON",
    "EventType::",
    "EventLevel::",
    "event",
    "tell(",
    "why(",
    "const ",
];
/// The files that are named for reasons, events and conditions.
const TELLING_FILES: [&str; 3] = ["conditions.rs", "event.rs", "event_reasons.rs"];
/// Shorter words are units, kinds and yes or no.
const MIN_REASON_LEN: usize = 5;
/// How many lines such a word may stand before the string.
const REACH: usize = 2;

/// Where a start can fail with a sentence of ours, by the beginnings of paths.
const STARTS: [&str; 11] = [
    "actors/agent/src/main.rs",
    "actors/agent/src/own_process/lock_file.rs",
    "actors/agent/src/own_process/root_dir.rs",
    "actors/agent/src/settings/containers.rs",
    "actors/agent/src/settings/programs.rs",
    "actors/agent/src/standalone.rs",
    "actors/agent/src/tree/",
    "actors/cluster/src/certificates/bootstrap.rs",
    "actors/cluster/src/certificates/self_signed.rs",
    "config/src/alone/mod.rs",
    "config/src/error.rs",
];
/// What the text of an error follows.
const TEXTS: [&str; 6] = [
    "#[error(",
    ".context(",
    "bail!(",
    "format_args!(",
    "Err(format!(",
    "std::io::stderr(),",
];
/// A sentence's only fixed words: shorter ones are found on any page.
const MIN_WORDS_LEN: usize = 6;

const PAGE: &str = "docs/operate.md";
const LIST: &str = "integration/tidy/upstream-reasons";

/// Returns what the page lacks, and what page and list of upstream's reasons have in vain.
pub(crate) fn check(tree: &Tree, page: &str, upstream: &str) -> Vec<String> {
    let upstream: BTreeSet<&str> = upstream
        .lines()
        .filter(|line| !line.starts_with('#'))
        .flat_map(str::split_whitespace)
        .collect();
    let reasons = reasons(tree);
    let mut errors = Vec::new();
    for (reason, place) in &reasons {
        if !upstream.contains(reason) && !page.contains(&format!("`{reason}`")) {
            errors.push(format!(
                "{place}: `{reason}` is a reason that {PAGE} does not have; a word of Kubernetes', or one that is no reason, stands in {LIST}"
            ));
        }
    }
    let vain = upstream.iter().filter(|word| !reasons.contains_key(*word));
    errors.extend(vain.map(|word| format!("{LIST}: nothing bears the name {word}")));
    let gone = named(page).filter(|word| !reasons.contains_key(word));
    errors.extend(gone.map(|word| format!("{PAGE}: nothing bears the name {word}")));
    let refusals = refusals(tree).into_iter();
    let missing = refusals.filter(|(words, _)| !page.contains(words.as_str()));
    errors.extend(missing.map(|(words, place)| {
        format!("{place}: {PAGE} does not say what to do when a start ends with \"{words}\"")
    }));
    errors
}

/// Words that stand where reasons do, each with the first place of it.
fn reasons(tree: &Tree) -> BTreeMap<&str, String> {
    let mut found = BTreeMap::new();
    for (path, text) in tree.without_tests(|path| path.starts_with("actors")) {
        let lines: Vec<&str> = text.lines().collect();
        let is_named_so = TELLING_FILES.iter().any(|name| path.ends_with(name));
        for (at, line) in lines.iter().enumerate() {
            let near = &lines[at.saturating_sub(REACH)..=at];
            let tells =
                |line: &&str| !is_comment(line) && TELLING.iter().any(|word| line.contains(word));
            if is_comment(line) || !(is_named_so || near.iter().any(tells)) {
                continue;
            }
            for word in line
                .split('"')
                .skip(1)
                .step_by(2)
                .filter(|word| is_reason(word))
            {
                found
                    .entry(word)
                    .or_insert_with(|| format!("{}:{}", path.display(), at + 1));
            }
        }
    }
    found
}

/// The reasons and conditions in the first columns of the page's tables.
fn named(page: &str) -> impl Iterator<Item = &str> {
    let rows = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split(" |").next());
    let words = rows.flat_map(|cell| cell.split('`').step_by(2));
    words.filter(|word| is_reason(word))
}

/// The fixed words of each refusal, the longest that stand together, with its place.
fn refusals(tree: &Tree) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let is_start = |path: &Path| {
        STARTS
            .iter()
            .any(|start| path.to_string_lossy().starts_with(start))
    };
    for (path, text) in tree.without_tests(is_start) {
        for (at, marker) in TEXTS.iter().flat_map(|marker| text.match_indices(marker)) {
            let Some(literal) = literal(&text[at + marker.len()..]) else {
                continue;
            };
            let words = fixed_words(&literal);
            if words.len() >= MIN_WORDS_LEN {
                let line = text[..at].matches('\n').count() + 1;
                found.push((words, format!("{}:{line}", path.display())));
            }
        }
    }
    found
}

fn is_comment(line: &str) -> bool {
    line.trim_start().starts_with("//")
}

/// Whether a string is one capitalized word of letters, as Kubernetes writes reasons and conditions.
fn is_reason(word: &str) -> bool {
    word.len() >= MIN_REASON_LEN
        && word.starts_with(|first: char| first.is_ascii_uppercase())
        && word.contains(|letter: char| letter.is_ascii_lowercase())
        && word.bytes().all(|byte| byte.is_ascii_alphabetic())
}

/// The string that a text begins with, if it begins with one.
fn literal(text: &str) -> Option<String> {
    let mut rest = text.trim_start().strip_prefix('"')?.chars();
    let mut literal = String::new();
    loop {
        match rest.next()? {
            '"' => return Some(literal),
            '\\' => match rest.next()? {
                '\n' => rest = rest.as_str().trim_start().chars(),
                escaped => literal.push(escaped),
            },
            other => literal.push(other),
        }
    }
}

/// The longest part of a format that is the same in every text.
fn fixed_words(format: &str) -> String {
    let parts = format.split('{').enumerate().map(|(at, part)| match at {
        0 => part,
        _ => part.split_once('}').map_or("", |(_, fixed)| fixed),
    });
    let parts = parts.map(|part| part.trim_matches(|edge: char| " :;,\"'".contains(edge)));
    parts
        .max_by_key(|part| part.len())
        .unwrap_or_default()
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVENT: &str = "self.tell(\n    EventType::Warning,\n    \"DiskHaunted\",\n    why,\n);\n";

    fn errors(path: &str, text: &str, page: &str, upstream: &str) -> Vec<String> {
        let mut tree = Tree::default();
        tree.sources.insert(path.into(), text.to_owned());
        check(&tree, page, upstream)
    }

    #[test]
    fn a_reason_of_ours_stands_on_the_page() {
        let found = errors("actors/a.rs", EVENT, "no word", "");
        assert_eq!(found.len(), 1);
        assert!(
            found[0].starts_with("actors/a.rs:3: `DiskHaunted` is a reason"),
            "{found:?}"
        );
        assert_eq!(
            errors(
                "actors/a.rs",
                EVENT,
                "| `DiskHaunted` | call a priest |",
                ""
            ),
            [""; 0]
        );
        assert_eq!(
            errors("actors/a.rs", EVENT, "", "# Kubernetes'\nDiskHaunted\n"),
            [""; 0]
        );
    }

    #[test]
    fn reasons_are_found_wherever_they_are_declared() {
        for text in [
            "reason: \"DiskHaunted\".to_owned(),",
            "const HAUNTED: &str = \"DiskHaunted\";",
            "self.event(EventType::Normal, \"DiskHaunted\", text);",
            "let event = (\"DiskHaunted\", text);",
            "fn reason_of(text: &str) -> &str {\n    match text {\n        _ => \"DiskHaunted\",",
        ] {
            assert_eq!(errors("actors/a.rs", text, "", "").len(), 1, "{text}");
        }
        let conditions = "[(\"DiskHaunted\", &haunted)]";
        assert_eq!(errors("actors/conditions.rs", conditions, "", "").len(), 1);
        for (path, text) in [
            ("actors/a.rs", "// reason: \"DiskHaunted\""),
            ("actors/a.rs", "reason: \"disk haunted\".to_owned(),"),
            (
                "actors/a.rs",
                "#[cfg(test)]\nmod tests {\n    reason: \"DiskHaunted\"",
            ),
            ("actors/a/tests/mod.rs", "reason: \"DiskHaunted\""),
            ("plugins/a.rs", "reason: \"DiskHaunted\""),
        ] {
            assert_eq!(errors(path, text, "", ""), [""; 0], "{text}");
        }
    }

    #[test]
    fn a_name_that_nothing_bears_leaves_page_and_list() {
        let errors = errors(
            "actors/a.rs",
            "",
            "| `DiskHaunted` (`GhostsSeen`) | `Ghost` |\n",
            "Rebooted",
        );
        let expected = [
            "integration/tidy/upstream-reasons: nothing bears the name Rebooted",
            "docs/operate.md: nothing bears the name DiskHaunted",
            "docs/operate.md: nothing bears the name GhostsSeen",
        ];
        assert_eq!(errors, expected);
    }

    #[test]
    fn a_refusal_to_start_stands_on_the_page() {
        let text = "#[error(\"cannot haunt {}\", .path.display())]\n";
        let found = errors("config/src/error.rs", text, "no word", "");
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("config/src/error.rs:1: "), "{found:?}");
        assert_eq!(
            errors("config/src/error.rs", text, "`cannot haunt HOUSE`", ""),
            [""; 0]
        );
        assert_eq!(errors("config/src/other.rs", text, "", ""), [""; 0]);
        for text in [
            "let ghost = summon().context(\"no ghost\")?;",
            "anyhow::bail!(\n    \"no ghost\"\n)",
            "Err(format!(\"{house} has no ghost\"))",
            "#[error(\n    \"no \\\n     ghost, not even {name:?}\"\n)]",
        ] {
            let found = errors("actors/agent/src/tree/mod.rs", text, "", "");
            assert_eq!(found.len(), 1, "{text}: {found:?}");
            assert!(found[0].contains("no ghost"), "{found:?}");
        }
    }
}
