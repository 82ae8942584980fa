//! `docs/bounds.md` lists every bound: a constant whose name begins with `MAX_` or ends with `_TIMEOUT`, or with an older word for
//! one, and whose value is a number or a duration; and the fields of a constant or default of a type whose name ends with `Limits`.
//!
//! The page is made from the source, so that a bound cannot be added, changed or removed without its row.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;

use crate::tree::Tree;

pub(crate) const PAGE: &str = "docs/bounds.md";
const OPERATORS_PAGE: &str = "docs/operate.md";
const HEAD: &str = "# Bounds

Every bound that is built in, of what the programs that ship take, keep, start and wait for: bytes, counts and depths (`MAX_`...) and times
(...`_TIMEOUT`). `docs/operate.md` has those that an operator meets, with what happens beyond them. Made from the source by
`integration/tidy/src/bounds.rs`; `OXLET_GENERATE=1 cargo run -p tidy` writes it again.
";
/// How names of bounds begin and end: the newer words first.
const BEGINNINGS: [&str; 4] = ["MAX_", "LARGEST", "LONGEST", "MOST"];
const ENDS: [&str; 3] = ["_TIMEOUT", "_LIMIT", "_AT_MOST"];
/// Constants of other types are names.
const TYPES: [&str; 9] = [
    "u8",
    "u16",
    "u32",
    "u64",
    "usize",
    "i32",
    "i64",
    "Duration",
    "SignedDuration",
];

/// How the name of a type ends whose fields are bounds.
const LIMITS: &str = "Limits";

/// A constant of the source, or a field of one.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Bound<'a> {
    /// Below its crate's `src/`.
    file: &'a str,
    line: usize,
    name: String,
    value: String,
    /// The first paragraph of its documentation.
    about: String,
}

/// Returns the page as the source has it.
pub(crate) fn page(tree: &Tree) -> String {
    let mut text = HEAD.to_owned();
    for folder in tree.crates.keys().filter(|folder| Tree::ships(folder)) {
        let bounds = bounds_of(tree, folder);
        if bounds.is_empty() {
            continue;
        }
        let name = folder.display();
        write!(
            text,
            "\n## `{name}`\n\n| bound | value | of what |\n|---|---|---|\n"
        )
        .unwrap_or_default();
        for bound in bounds {
            let Bound {
                file,
                name,
                value,
                about,
                ..
            } = bound;
            writeln!(text, "| `{name}`, {file} | `{value}` | {about} |").unwrap_or_default();
        }
    }
    text
}

/// Returns what `page`, as the repository has it, differs from what the source makes of it.
pub(crate) fn check(tree: &Tree, page: &str) -> Vec<String> {
    let made = self::page(tree);
    let lacks = made
        .lines()
        .filter(|line| !page.lines().any(|other| other == *line));
    let has = page
        .lines()
        .filter(|line| !made.lines().any(|other| other == *line));
    let told = lacks
        .map(|line| format!("{PAGE} lacks: {line}"))
        .chain(has.map(|line| format!("{PAGE} has, but the source has not: {line}")));
    let mut errors: Vec<_> = told.collect();
    if errors.is_empty() && made != page {
        errors.push(format!("{PAGE} has its lines in another order"));
    }
    if !errors.is_empty() {
        errors.push(format!("OXLET_GENERATE=1 cargo run -p tidy writes {PAGE}"));
    }
    let silent = made.lines().filter_map(|line| line.strip_suffix("|  |"));
    errors.extend(silent.map(|row| format!("a doc comment is missing for the bound {row}")));
    errors
}

/// Returns the bounds that the operator's page names in its section of them and that the source has not.
pub(crate) fn check_operators_page(tree: &Tree, page: &str) -> Vec<String> {
    let folders = tree.crates.keys().filter(|folder| Tree::ships(folder));
    let names: BTreeSet<String> = folders
        .flat_map(|folder| bounds_of(tree, folder))
        .map(|bound| bound.name.replace("::default", ""))
        .collect();
    let section = page
        .split("\n## ")
        .find(|section| section.starts_with("Bounds\n"));
    let words = section.unwrap_or_default().split('`').skip(1).step_by(2);
    let named = words.filter(|word| is_bound(word) || word.starts_with("Limits."));
    let gone = named.filter(|word| !names.contains(*word));
    gone.map(|word| format!("{OPERATORS_PAGE}: no bound is called {word}"))
        .collect()
}

/// The bounds of the crate in this folder, by file and place.
fn bounds_of<'a>(tree: &'a Tree, folder: &Path) -> Vec<Bound<'a>> {
    let source = folder.join("src");
    let mut bounds = Vec::new();
    for (path, text) in tree.without_tests(|path| path.starts_with(&source)) {
        let file = path.strip_prefix(&source).ok().and_then(Path::to_str);
        bounds.extend(bounds_in(file.unwrap_or_default(), text));
        bounds.extend(limits_in(tree, file.unwrap_or_default(), text));
    }
    bounds.sort();
    bounds
}

fn bounds_in<'a>(file: &'a str, text: &'a str) -> Vec<Bound<'a>> {
    let mut about = String::new();
    let mut bounds = Vec::new();
    let mut is_over = false;
    for (at, line) in text.lines().enumerate() {
        let trimmed = line.trim_start();
        if let Some(comment) = trimmed.strip_prefix("///") {
            let comment = comment.trim();
            is_over |= comment.is_empty();
            if !is_over {
                about = format!("{about} {comment}").trim().to_owned();
            }
            continue;
        }
        if trimmed.starts_with("#[") {
            continue;
        }
        let start = line.as_ptr().addr() - text.as_ptr().addr();
        if let Some((name, type_name, value)) = constant(&text[start..])
            && is_bound(name)
            && TYPES.contains(&type_name)
        {
            bounds.push(Bound {
                file,
                line: at + 1,
                name: name.to_owned(),
                value,
                about: about.replace('|', "\\|"),
            });
        }
        about.clear();
        is_over = false;
    }
    bounds
}

/// The fields of constants and defaults of limits, with what the type says of each.
fn limits_in<'a>(tree: &Tree, file: &'a str, text: &'a str) -> Vec<Bound<'a>> {
    let mut bounds = Vec::new();
    let mut open: Option<(String, &str)> = None;
    let mut default_of = None;
    for (at, line) in text.lines().enumerate() {
        let trimmed = line.trim();
        if let Some(type_name) = trimmed.strip_prefix("impl Default for ") {
            default_of = type_name
                .strip_suffix(" {")
                .filter(|name| name.ends_with(LIMITS));
        } else if let Some(type_name) = default_of.filter(|_| trimmed == "Self {") {
            open = Some((format!("{type_name}::default"), type_name));
            default_of = None;
        } else if let Some((name, type_name)) = limits_constant(trimmed) {
            open = Some((name.to_owned(), type_name));
        } else if trimmed.starts_with('}') {
            open = None;
        } else if let (Some((owner, type_name)), Some((field, value))) =
            (&open, trimmed.split_once(": "))
            && !trimmed.starts_with("//")
        {
            bounds.push(Bound {
                file,
                line: at + 1,
                name: format!("{owner}.{field}"),
                value: value.trim_end_matches(',').to_owned(),
                about: about_field(tree, type_name, field),
            });
        }
    }
    bounds
}

/// Name and type of a constant of limits whose fields follow.
fn limits_constant(line: &str) -> Option<(&str, &str)> {
    let (_, declared) = line.split_once("const ")?;
    let (declared, value) = declared.split_once(" = ")?;
    let (name, type_name) = declared.split_once(": ")?;
    let is_open = value.strip_suffix(" {") == Some(type_name);
    (is_open && type_name.ends_with(LIMITS)).then_some((name, type_name))
}

/// What the declaration of a type says of its field.
fn about_field(tree: &Tree, type_name: &str, field: &str) -> String {
    let head = format!("struct {type_name} {{");
    let shipped = tree.without_tests(Tree::ships);
    let bodies = shipped.filter_map(|(_, text)| text.split_once(&head));
    let mut fields = bodies
        .filter_map(|(_, body)| body.split("\n}").next())
        .filter_map(|body| {
            let end = body
                .match_indices(&format!("{field}: "))
                .find(|(at, _)| body[..*at].ends_with([' ', '\n']))?
                .0;
            let before: Vec<_> = body[..end].lines().rev().skip(1).collect();
            let comments = before
                .iter()
                .map_while(|line| line.trim().strip_prefix("/// "));
            let lines: Vec<_> = comments.collect();
            Some(lines.into_iter().rev().collect::<Vec<_>>().join(" "))
        });
    fields.next().unwrap_or_default().replace('|', "\\|")
}

/// Name, type and value of a constant, if the text begins with one.
fn constant(text: &str) -> Option<(&str, &str, String)> {
    let (item, _) = text.split_once(';')?;
    let (declaration, value) = item.split_once('=')?;
    let (visibility, declared) = declaration.split_once("const ")?;
    let is_item = visibility.trim().is_empty() || visibility.trim().starts_with("pub");
    let (name, type_name) = declared.split_once(':')?;
    let value: Vec<_> = value.split_whitespace().collect();
    (is_item && !visibility.contains('\n'))
        .then(|| (name.trim(), type_name.trim(), value.join(" ")))
}

fn is_bound(name: &str) -> bool {
    BEGINNINGS.iter().any(|word| name.starts_with(word))
        || ENDS.iter().any(|word| name.ends_with(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(path: &str, text: &str) -> Tree {
        let mut tree = Tree::default();
        tree.crates.insert("plugins/a".into(), "a".to_owned());
        tree.crates
            .insert("plugins/runtime-fake".into(), "fake".to_owned());
        tree.sources.insert(path.into(), text.to_owned());
        tree
    }

    #[test]
    fn every_bound_is_a_row_with_its_value_and_the_first_paragraph_about_it() {
        let text = "/// Bytes of a record,\n/// as one | two.\n///\n/// More.\n#[rustfmt::skip]\npub(crate) const MAX_BYTES: u64 = 8 << 20;\n\
            const STOP_TIMEOUT: Duration =\n    Duration::from_secs(5);\n";
        let page = page(&tree("plugins/a/src/b/c.rs", text));
        let rows = "\n## `plugins/a`\n\n| bound | value | of what |\n|---|---|---|\n\
            | `MAX_BYTES`, b/c.rs | `8 << 20` | Bytes of a record, as one \\| two. |\n\
            | `STOP_TIMEOUT`, b/c.rs | `Duration::from_secs(5)` |  |\n";
        assert_eq!(page.strip_prefix(HEAD), Some(rows));
    }

    #[test]
    fn fields_of_limits_are_rows_by_what_their_type_says() {
        let text = "pub struct Limits {\n    /// Layers of\n    /// one image.\n    pub layers: usize,\n}\n\
            impl Default for Limits {\n    fn default() -> Self {\n        Self {\n            layers: 500,\n        }\n    }\n}\n\
            const LOW: Limits = Limits {\n    layers: 5,\n};\n";
        let page = page(&tree("plugins/a/src/b.rs", text));
        let rows = "| `Limits::default.layers`, b.rs | `500` | Layers of one image. |\n\
            | `LOW.layers`, b.rs | `5` | Layers of one image. |\n";
        assert!(page.ends_with(rows), "{page}");
    }

    #[test]
    fn a_bound_that_is_gone_leaves_the_operators_page() {
        let tree = tree("plugins/a/src/b.rs", "const MAX_ROWS: u8 = 1;");
        let page = "# Page\n\n## Other\n\n`OTEL_TIMEOUT`\n\n## Bounds\n\n`MAX_ROWS`, `MAX_COLUMNS`, `Limits.rows`\n\n## More\n\n`MAX_OTHER`\n";
        let expected = [
            "docs/operate.md: no bound is called MAX_COLUMNS",
            "docs/operate.md: no bound is called Limits.rows",
        ];
        assert_eq!(check_operators_page(&tree, page), expected);
    }

    #[test]
    fn names_of_tests_and_of_what_does_not_ship_are_no_bounds() {
        for (path, text) in [
            ("plugins/a/src/b.rs", "const MAX_NAME: &str = \"max\";"),
            (
                "plugins/a/src/b.rs",
                "const PAUSE: Duration = Duration::ZERO;",
            ),
            ("plugins/a/src/b.rs", "// const MAX_ROWS: u8 = 1;"),
            (
                "plugins/a/src/b.rs",
                "#[cfg(test)]\nmod tests {\nconst MAX_ROWS: u8 = 1;",
            ),
            ("plugins/a/src/tests.rs", "const MAX_ROWS: u8 = 1;"),
            ("plugins/a/tests/b.rs", "const MAX_ROWS: u8 = 1;"),
            ("plugins/runtime-fake/src/b.rs", "const MAX_ROWS: u8 = 1;"),
        ] {
            assert_eq!(page(&tree(path, text)), HEAD, "{text}");
        }
    }

    #[test]
    fn a_page_that_differs_from_the_source_is_told_by_the_row() {
        let tree = tree("plugins/a/src/b.rs", "/// Rows.\nconst MAX_ROWS: u8 = 1;\n");
        let made = page(&tree);
        assert_eq!(check(&tree, &made), [""; 0]);
        let old = made.replace("`1`", "`2`");
        let row = "| `MAX_ROWS`, b.rs |";
        let expected = [
            format!("docs/bounds.md lacks: {row} `1` | Rows. |"),
            format!("docs/bounds.md has, but the source has not: {row} `2` | Rows. |"),
            "OXLET_GENERATE=1 cargo run -p tidy writes docs/bounds.md".to_owned(),
        ];
        assert_eq!(check(&tree, &old), expected);
    }

    #[test]
    fn a_bound_without_a_sentence_about_it_is_an_error() {
        let tree = tree("plugins/a/src/b.rs", "const MAX_ROWS: u8 = 1;\n");
        let expected = "a doc comment is missing for the bound | `MAX_ROWS`, b.rs | `1` ";
        assert_eq!(check(&tree, &page(&tree)), [expected]);
    }
}
