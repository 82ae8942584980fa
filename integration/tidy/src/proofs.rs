//! Each test that `docs/conformance/security.md` names as a proof is declared somewhere.

use std::collections::BTreeSet;

use crate::lexer::{TokenKind, lex};
use crate::tree::Tree;

pub(crate) const PAGE: &str = "docs/conformance/security.md";
/// Names of tests are sentences; fields and calls have fewer words.
const MIN_WORDS: usize = 5;

/// Returns the names on the page that no function bears.
pub(crate) fn check(tree: &Tree, page: &str) -> Vec<String> {
    let functions: BTreeSet<&str> = tree
        .sources
        .values()
        .flat_map(|text| functions(text))
        .collect();
    let named = page.split('`').skip(1).step_by(2);
    let missing = named.filter(|name| is_test(name) && !functions.contains(name));
    missing
        .map(|name| format!("{PAGE}: no test is called {name}"))
        .collect()
}

fn functions(text: &str) -> Vec<&str> {
    let tokens = lex(text);
    let pairs = tokens.windows(2).map(|pair| (pair[0].kind, pair[1].kind));
    let names = pairs.filter_map(|pair| match pair {
        (TokenKind::Word("fn"), TokenKind::Word(name)) => Some(name),
        (TokenKind::Word(_) | TokenKind::Separator | TokenKind::Sign(_), _) => None,
    });
    names.collect()
}

fn is_test(name: &str) -> bool {
    let letters =
        |letter: char| letter == '_' || letter.is_ascii_lowercase() || letter.is_ascii_digit();
    name.chars().all(letters) && name.split('_').count() >= MIN_WORDS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_that_is_not_there_is_an_error() {
        let mut tree = Tree::default();
        let source =
            "#[test]\nfn a_link_leads_nowhere_else() {}\n// fn a_proof_in_a_comment_alone() {}";
        tree.sources.insert("a.rs".into(), source.to_owned());
        let page = "`a_link_leads_nowhere_else` (`a.rs`), `remove_dir_all`, `RESOLVE_IN_ROOT_AND_SO_ON`, a_b_c_d_e";
        assert_eq!(check(&tree, page), [""; 0]);
        let page = "`a_proof_in_a_comment_alone`";
        assert_eq!(
            check(&tree, page),
            ["docs/conformance/security.md: no test is called a_proof_in_a_comment_alone"]
        );
    }
}
