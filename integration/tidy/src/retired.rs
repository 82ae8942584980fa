//! Names that are retired: nothing is called so again, because another word stands in its place.

use std::collections::BTreeMap;
use std::path::Path;

use crate::lexer::{LexToken, TokenKind, lex};
use crate::tree::Tree;

/// What a name follows where it is declared, `as` in `use` among them.
const DECLARES: [&str; 10] = [
    "as", "const", "enum", "fn", "mod", "static", "struct", "trait", "type", "union",
];

/// Returns every file and every declared type, function, constant and module that bears a retired name.
pub(crate) fn check(tree: &Tree, words: &str) -> Vec<String> {
    let mut errors = Vec::new();
    let words = Words::read(words, &mut errors);
    for (path, text) in &tree.sources {
        if let Some((name, instead)) = file_name(path).and_then(|name| words.find(name)) {
            errors.push(format!(
                "{}: `{name}` is retired: {instead}",
                path.display()
            ));
        }
        for (name, line) in declared(&lex(text)) {
            if let Some((name, instead)) = words.find(name) {
                let path = path.display();
                errors.push(format!("{path}:{line}: `{name}` is retired: {instead}"));
            }
        }
    }
    errors
}

/// The retired names, each with what stands in its place.
struct Words<'a> {
    whole: BTreeMap<&'a str, &'a str>,
    /// Written `*_END`.
    ends: Vec<(&'a str, &'a str)>,
}

impl<'a> Words<'a> {
    fn read(text: &'a str, errors: &mut Vec<String>) -> Self {
        let mut words = Self {
            whole: BTreeMap::new(),
            ends: Vec::new(),
        };
        let lines = text.lines().map(str::trim);
        let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
        for line in lines {
            match line.split_once(' ') {
                Some((word, instead)) => words.insert(word, instead.trim()),
                None => errors.push(format!(
                    "integration/tidy/retired-names does not say what stands in place of {line}"
                )),
            }
        }
        words
    }

    fn insert(&mut self, word: &'a str, instead: &'a str) {
        match word.strip_prefix('*') {
            Some(end) => self.ends.push((end, instead)),
            None => {
                self.whole.insert(word, instead);
            }
        }
    }

    fn find<'n>(&self, name: &'n str) -> Option<(&'n str, &'a str)> {
        let end = || self.ends.iter().find(|(end, _)| name.ends_with(end));
        let whole = self.whole.get(name).copied();
        let instead = whole.or_else(|| end().map(|(_, instead)| *instead))?;
        Some((name, instead))
    }
}

/// The module that a file is.
fn file_name(path: &Path) -> Option<&str> {
    let stem = path.file_stem()?.to_str()?;
    match stem {
        "mod" => path.parent()?.file_name()?.to_str(),
        stem => Some(stem),
    }
}

fn declared<'a>(tokens: &[LexToken<'a>]) -> impl Iterator<Item = (&'a str, usize)> {
    tokens
        .windows(2)
        .filter_map(|pair| match (pair[0].kind, pair[1].kind) {
            (TokenKind::Word(before), TokenKind::Word(name)) if DECLARES.contains(&before) => {
                Some((name, pair[1].line))
            }
            (TokenKind::Word(_) | TokenKind::Separator | TokenKind::Sign(_), _) => None,
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::modules::tests::house;

    const WORDS: &str = "# of the node\nHerald NodeInformer\nherald node_informer\n*_WITHIN *_TIMEOUT\n#Shelf ObjectStore\n";

    fn errors(file: &str, text: &str) -> Vec<String> {
        check(&house(&[(file, text)]), WORDS)
    }

    #[test]
    fn a_retired_name_is_named_with_its_place_and_its_heir() {
        let text = "//! Herald\n\npub struct Herald;\n";
        let expected = "house/src/a.rs:3: `Herald` is retired: NodeInformer";
        assert_eq!(errors("a.rs", text), [expected]);
        let expected = "house/src/herald/mod.rs: `herald` is retired: node_informer";
        assert_eq!(errors("herald/mod.rs", ""), [expected]);
        assert_eq!(errors("herald.rs", "").len(), 1);
    }

    #[test]
    fn types_functions_constants_modules_and_aliases_are_names() {
        for text in [
            "enum Herald {}",
            "type Herald = u8;",
            "trait Herald {}",
            "fn herald() {}",
            "pub(super) mod herald;",
            "const START_WITHIN: u8 = 1;",
            "static END_WITHIN: u8 = 1;",
            "use a::B as Herald;",
        ] {
            assert_eq!(errors("a.rs", text).len(), 1, "{text}");
        }
    }

    #[test]
    fn text_other_names_and_words_not_yet_retired_stay() {
        for text in [
            "// struct Herald\n/* fn herald */",
            "const A: &str = \"struct Herald\";",
            "struct Heralds; fn heralded() {}",
            "fn f(herald: u8) { let herald = herald; }",
            "struct Shelf;",
        ] {
            assert_eq!(errors("a.rs", text), [""; 0], "{text}");
        }
    }

    #[test]
    fn a_word_without_an_heir_is_an_error() {
        let errors = check(&house(&[]), "Herald\n");
        assert_eq!(errors.len(), 1);
        assert!(errors[0].contains("in place of Herald"), "{errors:?}");
    }
}
