//! Trees of files are removed, copied and walked by the crate `files` alone, outside of tests: `std`'s `remove_dir_all` recurses into
//! whatever depth a pod has made, `fs::copy` fills holes, and both follow what is exchanged under them.

use crate::lexer::{LexToken, TokenKind, lex};
use crate::tree::Tree;

/// Where they are made of the kernel's calls.
const HOME: &str = "kernel/files";
/// What recurses within a bound of depth, into folders of the operator's and into the node's `/dev`.
const BOUNDED: [&str; 2] = [
    "config/src/load/drop_in.rs",
    "plugins/runtime-native/src/container/devices.rs",
];
/// Calls that list a folder.
const LISTS: [&str; 3] = ["read_dir", "RawDir", "read_from"];

/// Returns each place that removes or copies otherwise, and each function that lists a folder and calls itself.
pub(crate) fn check(tree: &Tree) -> Vec<String> {
    let mut errors = Vec::new();
    for (path, text) in tree.without_tests(|path| Tree::ships(path) && !path.starts_with(HOME)) {
        let tokens = lex(text);
        let is_bounded = BOUNDED.iter().any(|bounded| path.ends_with(bounded));
        let mut report = |line: usize, what: &str| {
            errors.push(format!("{}:{line}: {what}", path.display()));
        };
        for (at, token) in tokens.iter().enumerate() {
            match token.kind {
                TokenKind::Word("remove_dir_all") => report(token.line, "use files::remove_tree"),
                TokenKind::Word("copy") if follows_fs(&tokens[..at]) => {
                    report(token.line, "use files::copy_sparse");
                }
                TokenKind::Word("fn") if !is_bounded && lists_and_recurses(&tokens[at..]) => {
                    report(
                        token.line,
                        "lists a folder and calls itself: use files::walk",
                    );
                }
                TokenKind::Word(_) | TokenKind::Separator | TokenKind::Sign(_) => {}
            }
        }
    }
    errors
}

fn follows_fs(before: &[LexToken<'_>]) -> bool {
    let kinds = before.iter().rev().map(|token| token.kind);
    kinds
        .take(2)
        .eq([TokenKind::Separator, TokenKind::Word("fs")])
}

/// Whether the function that begins here does both in its body.
fn lists_and_recurses(tokens: &[LexToken<'_>]) -> bool {
    let Some(TokenKind::Word(name)) = tokens.get(1).map(|token| token.kind) else {
        return false;
    };
    let body = body(tokens);
    let lists = body
        .iter()
        .any(|token| LISTS.iter().any(|list| token.kind == TokenKind::Word(list)));
    let mut pairs = body.windows(2).map(|pair| (pair[0].kind, pair[1].kind));
    lists && pairs.any(|pair| pair == (TokenKind::Word(name), TokenKind::Sign(b'(')))
}

/// The tokens from the first brace to the one that closes it; none of a function without a body.
fn body<'t, 'a>(tokens: &'t [LexToken<'a>]) -> &'t [LexToken<'a>] {
    let is = |sign: u8| move |token: &LexToken<'_>| token.kind == TokenKind::Sign(sign);
    let Some(start) = tokens.iter().position(is(b'{')) else {
        return &[];
    };
    if tokens[..start].iter().any(is(b';')) {
        return &[];
    }
    let mut depth = 0_usize;
    let end = tokens[start..].iter().position(|token| {
        match token.kind {
            TokenKind::Sign(b'{') => depth += 1,
            TokenKind::Sign(b'}') => depth -= 1,
            TokenKind::Word(_) | TokenKind::Separator | TokenKind::Sign(_) => {}
        }
        depth == 0
    });
    &tokens[start..end.map_or(tokens.len(), |end| start + end)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors(path: &str, text: &str) -> Vec<String> {
        let mut tree = Tree::default();
        tree.sources.insert(path.into(), text.to_owned());
        check(&tree)
    }

    #[test]
    fn trees_are_removed_copied_and_walked_by_one_crate() {
        for (text, what) in [
            ("fs::remove_dir_all(path)?;", "use files::remove_tree"),
            ("use std::fs::remove_dir_all;", "use files::remove_tree"),
            ("std::fs::copy(from, to)?;", "use files::copy_sparse"),
            (
                "tokio::fs::copy(from, to).await?;",
                "use files::copy_sparse",
            ),
            (
                "fn walk(&self, path: &Path) {\n for entry in fs::read_dir(path) { self.walk(entry); }\n}",
                "lists a folder and calls itself: use files::walk",
            ),
        ] {
            let expected = format!("plugins/a/src/b.rs:1: {what}");
            assert_eq!(errors("plugins/a/src/b.rs", text), [expected], "{text}");
        }
    }

    #[test]
    fn other_calls_tests_and_what_does_not_ship_may() {
        for (path, text) in [
            ("plugins/a/src/b.rs", "// fs::remove_dir_all(path)"),
            (
                "plugins/a/src/b.rs",
                "io::copy(&mut from, &mut to)?; set.copy();",
            ),
            (
                "plugins/a/src/b.rs",
                "fn walk(node: &Node) { for child in node { walk(child); } }",
            ),
            (
                "plugins/a/src/b.rs",
                "fn list(path: &Path) { fs::read_dir(path); }\nfn more() { list(path); }",
            ),
            (
                "plugins/a/src/b.rs",
                "trait A { fn list(&self); }\nimpl A for B { fn other() { fs::read_dir(p); list(p); } }",
            ),
            ("plugins/a/src/tests.rs", "fs::remove_dir_all(path)?;"),
            ("plugins/a/tests/b.rs", "fs::remove_dir_all(path)?;"),
            ("plugins/conformance/src/b.rs", "fs::remove_dir_all(path)?;"),
            ("integration/rig/src/b.rs", "fs::remove_dir_all(path)?;"),
            ("kernel/files/src/remove.rs", "fn remove_dir_all() {}"),
        ] {
            assert_eq!(errors(path, text), [""; 0], "{text}");
        }
    }
}
