//! The references of a file: the modules that it declares, its `use` trees, and its paths; tests left out.

use crate::lexer::{LexToken, TokenKind, lex};

/// A path in the module (inside the file) in which it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reference {
    /// The modules that the file itself holds around it.
    pub(crate) scope: Vec<String>,
    pub(crate) path: Vec<String>,
}

/// A name that `use` brings into a scope; `*` for all of a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Import {
    pub(crate) name: String,
    pub(crate) reference: Reference,
}

/// The references of one file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct References {
    /// Modules in files of their own, as `mod name;` says.
    pub(crate) children: Vec<Reference>,
    pub(crate) imports: Vec<Import>,
    pub(crate) paths: Vec<Reference>,
}

/// Parses a file's references.
pub(crate) fn read(text: &str) -> References {
    let tokens = without_tests(&lex(text));
    let mut reader = Reader {
        tokens: &tokens,
        at: 0,
        depth: 0,
        scope: Vec::new(),
        references: References::default(),
    };
    while reader.at < tokens.len() {
        reader.step();
    }
    reader.references
}

struct Reader<'t, 'a> {
    tokens: &'t [LexToken<'a>],
    at: usize,
    /// Of braces.
    depth: usize,
    /// Modules whose braces are open, with the depth outside of them.
    scope: Vec<(String, usize)>,
    references: References,
}

impl<'a> Reader<'_, 'a> {
    fn kind(&self, ahead: usize) -> Option<TokenKind<'a>> {
        self.tokens.get(self.at + ahead).map(|token| token.kind)
    }

    fn before(&self, behind: usize) -> Option<TokenKind<'a>> {
        let at = self.at.checked_sub(behind)?;
        self.tokens.get(at).map(|token| token.kind)
    }

    fn reference(&self, path: Vec<String>) -> Reference {
        let scope = self.scope.iter().map(|(name, _)| name.clone()).collect();
        Reference { scope, path }
    }

    fn step(&mut self) {
        match (self.kind(0), self.kind(1), self.kind(2)) {
            (Some(TokenKind::Sign(b'{')), _, _) => self.depth += 1,
            (Some(TokenKind::Sign(b'}')), _, _) => {
                self.depth = self.depth.saturating_sub(1);
                self.scope.retain(|(_, outside)| *outside < self.depth);
            }
            (
                Some(TokenKind::Word("mod")),
                Some(TokenKind::Word(name)),
                Some(TokenKind::Sign(b';')),
            ) => {
                let child = self.reference(vec![name.to_owned()]);
                self.references.children.push(child);
            }
            (
                Some(TokenKind::Word("mod")),
                Some(TokenKind::Word(name)),
                Some(TokenKind::Sign(b'{')),
            ) => {
                self.scope.push((name.to_owned(), self.depth));
            }
            (Some(TokenKind::Word("use")), next, _) if next != Some(TokenKind::Sign(b'<')) => {
                self.at += 1;
                // From the crates' root on: not ours.
                let is_ours = self.kind(0) != Some(TokenKind::Separator);
                let count = self.references.imports.len();
                self.use_tree(&mut Vec::new());
                if !is_ours {
                    self.references.imports.truncate(count);
                }
                return;
            }
            (Some(TokenKind::Word(_)), Some(TokenKind::Separator), Some(TokenKind::Word(_))) => {
                self.path();
                return;
            }
            _ => {}
        }
        self.at += 1;
    }

    /// One branch of a `use` tree and all below it; stops before what follows it.
    fn use_tree(&mut self, prefix: &mut Vec<String>) {
        let length = prefix.len();
        loop {
            match self.kind(0) {
                Some(TokenKind::Separator) => {}
                Some(TokenKind::Word(word)) if word != "as" => prefix.push(word.to_owned()),
                Some(TokenKind::Sign(b'*')) => {
                    self.import("*".to_owned(), prefix.clone());
                    self.at += 1;
                    break;
                }
                Some(TokenKind::Sign(b'{')) => {
                    self.use_group(prefix);
                    break;
                }
                _ => {
                    self.use_leaf(prefix.clone());
                    break;
                }
            }
            self.at += 1;
        }
        prefix.truncate(length);
    }

    fn use_group(&mut self, prefix: &mut Vec<String>) {
        self.at += 1;
        while let Some(kind) = self.kind(0) {
            match kind {
                TokenKind::Sign(b'}') => {
                    self.at += 1;
                    return;
                }
                TokenKind::Sign(b',') => self.at += 1,
                TokenKind::Word(_) | TokenKind::Separator | TokenKind::Sign(b'{' | b'*') => {
                    self.use_tree(prefix)
                }
                TokenKind::Sign(_) => return,
            }
        }
    }

    fn use_leaf(&mut self, mut path: Vec<String>) {
        if path.len() > 1 && path.last().is_some_and(|last| last == "self") {
            path.pop();
        }
        let alias = match (self.kind(0), self.kind(1)) {
            (Some(TokenKind::Word("as")), Some(TokenKind::Word(alias))) => {
                self.at += 2;
                Some(alias.to_owned())
            }
            _ => path.last().cloned(),
        };
        if let Some(name) = alias {
            self.import(name, path);
        }
    }

    fn import(&mut self, name: String, path: Vec<String>) {
        let reference = self.reference(path);
        self.references.imports.push(Import { name, reference });
    }

    /// A path outside of `use`. What follows `::` or stands in `pub(in ...)` is none.
    fn path(&mut self) {
        let is_visibility = self.before(1) == Some(TokenKind::Word("in"))
            && self.before(2) == Some(TokenKind::Sign(b'('))
            && self.before(3) == Some(TokenKind::Word("pub"));
        let is_whole = self.before(1) != Some(TokenKind::Separator) && !is_visibility;
        let mut path = Vec::new();
        while let Some(TokenKind::Word(word)) = self.kind(0) {
            path.push(word.to_owned());
            self.at += 1;
            match (self.kind(0), self.kind(1)) {
                (Some(TokenKind::Separator), Some(TokenKind::Word(_))) => self.at += 1,
                _ => break,
            }
        }
        if is_whole {
            let reference = self.reference(path);
            self.references.paths.push(reference);
        }
    }
}

/// Leaves out what is compiled for tests only.
fn without_tests<'a>(tokens: &[LexToken<'a>]) -> Vec<LexToken<'a>> {
    let mut kept = Vec::with_capacity(tokens.len());
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        let Some(attribute) = Attribute::read(tokens, at) else {
            kept.push(*token);
            at += 1;
            continue;
        };
        at = attribute.end;
        if attribute.is_for_tests {
            if attribute.is_inner {
                return Vec::new();
            }
            at = item_end(tokens, at);
        }
    }
    kept
}

/// `#[...]` or `#![...]`.
struct Attribute {
    is_inner: bool,
    is_for_tests: bool,
    end: usize,
}

impl Attribute {
    fn read(tokens: &[LexToken<'_>], at: usize) -> Option<Self> {
        let sign = |at: usize, sign| tokens.get(at).map(|t| t.kind) == Some(TokenKind::Sign(sign));
        let is_inner = sign(at + 1, b'!');
        let open = at + 1 + usize::from(is_inner);
        if !(sign(at, b'#') && sign(open, b'[')) {
            return None;
        }
        let end = closing(tokens, open);
        let inside = &tokens[open..end];
        let has = |word| inside.iter().any(|t| t.kind == TokenKind::Word(word));
        let is_cfg = inside.get(1).map(|t| t.kind) == Some(TokenKind::Word("cfg"));
        Some(Self {
            is_inner,
            is_for_tests: is_cfg && has("test") && !has("not"),
            end,
        })
    }
}

/// Returns where what opens at `open` has been closed.
fn closing(tokens: &[LexToken<'_>], open: usize) -> usize {
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate().skip(open) {
        match token.kind {
            TokenKind::Sign(b'(' | b'[' | b'{') => depth += 1,
            TokenKind::Sign(b')' | b']' | b'}') => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return at + 1;
                }
            }
            TokenKind::Word(_) | TokenKind::Separator | TokenKind::Sign(_) => {}
        }
    }
    tokens.len()
}

/// Returns where the item, statement, field or arm that begins here is over.
fn item_end(tokens: &[LexToken<'_>], start: usize) -> usize {
    const ITEMS: [&str; 14] = [
        "async", "const", "enum", "extern", "fn", "impl", "let", "mod", "pub", "static", "struct",
        "trait", "type", "use",
    ];
    let mut at = start;
    while let Some(attribute) = Attribute::read(tokens, at) {
        at = attribute.end;
    }
    let is_item = |kind: TokenKind<'_>| matches!(kind, TokenKind::Word(word) if ITEMS.contains(&word) || word == "unsafe");
    let is_item = tokens.get(at).is_some_and(|token| is_item(token.kind));
    while let Some(token) = tokens.get(at) {
        match token.kind {
            TokenKind::Sign(b';') => return at + 1,
            TokenKind::Sign(b',') if !is_item => return at + 1,
            TokenKind::Sign(b'{') => {
                let end = closing(tokens, at);
                let follows = tokens.get(end).map(|token| token.kind);
                return match follows {
                    Some(TokenKind::Sign(b';' | b',')) => end + 1,
                    _ => end,
                };
            }
            TokenKind::Sign(b'(' | b'[') => at = closing(tokens, at),
            // The end of what it stands in.
            TokenKind::Sign(b')' | b']' | b'}') => return at,
            TokenKind::Word(_) | TokenKind::Separator | TokenKind::Sign(_) => at += 1,
        }
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    fn imports(text: &str) -> Vec<String> {
        let imports = read(text).imports.into_iter();
        imports
            .map(|import| format!("{}={}", import.name, import.reference.path.join("::")))
            .collect()
    }

    fn paths(text: &str) -> Vec<String> {
        let paths = read(text).paths.into_iter();
        paths
            .map(|path| [path.scope.join("/"), path.path.join("::")].join(":"))
            .collect()
    }

    #[test]
    fn use_trees_nest_rename_and_reexport() {
        for (text, expected) in [
            ("use a::b;", vec!["b=a::b"]),
            (
                "pub(crate) use super::x::{self, Y as Z, *};",
                vec!["x=super::x", "Z=super::x::Y", "*=super::x"],
            ),
            (
                "use crate::{a, b::{c, d::e},};",
                vec!["a=crate::a", "c=crate::b::c", "e=crate::b::d::e"],
            ),
            ("use {a::b, c};", vec!["b=a::b", "c=c"]),
            ("use ::serving::https;", vec![]),
            (
                "use super::super::Trait as _;",
                vec!["_=super::super::Trait"],
            ),
            ("fn f() -> impl A + use<'a> {} use b::c;", vec!["c=b::c"]),
        ] {
            assert_eq!(imports(text), expected, "{text}");
        }
    }

    #[test]
    fn paths_end_with_their_words_and_know_their_modules() {
        let text = "fn f(a: crate::b::C) { super::d::<E>(); } mod g { type H = self::i::J; } type K = l::M; <N as o::P>::q::r()";
        let expected = [
            ":crate::b::C",
            ":super::d",
            "g:self::i::J",
            ":l::M",
            ":o::P",
        ];
        assert_eq!(paths(text), expected);
        assert_eq!(paths("pub(in crate::a) fn f() {}"), [""; 0]);
    }

    #[test]
    fn what_is_for_tests_is_left_out() {
        for text in [
            "#[cfg(test)] mod tests { use super::*; }",
            "#[cfg(test)] #[expect(x, reason = \"y\")] pub(crate) mod testing;",
            "#[cfg(any(test, feature = \"testing\"))] pub mod testing;",
            "#[cfg(test)] use known::note;",
            "fn f() { #[cfg(test)] known::note(&metric); }",
            "struct S { #[cfg(test)] a: b::C<D, E> }",
            "#![cfg(test)] mod a; use b::c;",
            "#[cfg(test)] impl<A, B> C<A, B> for d::E { fn f() { g::h() } }",
        ] {
            assert_eq!(read(text), References::default(), "{text}");
        }
        let text = "#[cfg(not(test))] mod a; #[derive(Debug)] mod b; #[cfg(test)] const C: [u8; 2] = d::E; mod f;";
        let children = read(text).children.into_iter();
        let names: Vec<String> = children.flat_map(|child| child.path).collect();
        assert_eq!(names, ["a", "b", "f"]);
    }
}
