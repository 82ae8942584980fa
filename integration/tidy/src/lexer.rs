//! Rust source as words and signs: comments, strings, characters, numbers and lifetimes are left out.

/// The kinds of tokens that paths, items and blocks are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenKind<'a> {
    /// An identifier or keyword; a raw one without its `r#`.
    Word(&'a str),
    /// `::`
    Separator,
    /// Any other single character of punctuation.
    Sign(u8),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LexToken<'a> {
    pub(crate) kind: TokenKind<'a>,
    /// The line number, from 1.
    pub(crate) line: usize,
}

/// Returns the tokens of a file.
pub(crate) fn lex(text: &str) -> Vec<LexToken<'_>> {
    let mut lexer = Lexer {
        text,
        at: 0,
        line: 1,
        tokens: Vec::new(),
    };
    while lexer.step() {}
    lexer.tokens
}

struct Lexer<'a> {
    text: &'a str,
    /// In bytes; always on a character's boundary when a step begins.
    at: usize,
    line: usize,
    tokens: Vec<LexToken<'a>>,
}

impl<'a> Lexer<'a> {
    /// Takes what begins here; false at the end.
    fn step(&mut self) -> bool {
        let Some(byte) = self.peek(0) else {
            return false;
        };
        match (byte, self.peek(1)) {
            (b'/', Some(b'/')) => self.skip_while(|byte| byte != b'\n'),
            (b'/', Some(b'*')) => self.block_comment(),
            (b'"', _) => self.string(0),
            (b'\'', _) => self.quote(),
            (b':', Some(b':')) => {
                self.push(TokenKind::Separator);
                self.advance(2);
            }
            (b'0'..=b'9', _) => self.skip_while(is_word),
            (byte, _) if is_word(byte) => self.word(),
            (byte, _) => {
                if byte.is_ascii_punctuation() {
                    self.push(TokenKind::Sign(byte));
                }
                self.advance(1);
            }
        }
        true
    }

    fn peek(&self, ahead: usize) -> Option<u8> {
        self.text.as_bytes().get(self.at + ahead).copied()
    }

    fn push(&mut self, kind: TokenKind<'a>) {
        let line = self.line;
        self.tokens.push(LexToken { kind, line });
    }

    fn advance(&mut self, bytes: usize) {
        for _ in 0..bytes {
            if self.peek(0) == Some(b'\n') {
                self.line += 1;
            }
            self.at += 1;
        }
    }

    fn skip_while(&mut self, goes_on: fn(u8) -> bool) {
        while self.peek(0).is_some_and(goes_on) {
            self.advance(1);
        }
    }

    /// Comments of this kind nest.
    fn block_comment(&mut self) {
        let mut depth = 0;
        while let Some(byte) = self.peek(0) {
            match (byte, self.peek(1)) {
                (b'/', Some(b'*')) => (depth, _) = (depth + 1, self.advance(2)),
                (b'*', Some(b'/')) => (depth, _) = (depth - 1, self.advance(2)),
                _ => self.advance(1),
            }
            if depth == 0 {
                return;
            }
        }
    }

    /// A string with escapes, from its quote on.
    fn string(&mut self, prefix: usize) {
        self.advance(prefix + 1);
        while let Some(byte) = self.peek(0) {
            self.advance(if byte == b'\\' { 2 } else { 1 });
            if byte == b'"' {
                return;
            }
        }
    }

    /// A string without escapes, which ends with a quote and as many hashes as it began with.
    fn raw_string(&mut self, prefix: usize, hashes: usize) {
        self.advance(prefix + hashes + 1);
        let end = format!("\"{}", "#".repeat(hashes));
        let bytes = self.text.as_bytes();
        while self.at < bytes.len() && !bytes[self.at..].starts_with(end.as_bytes()) {
            self.advance(1);
        }
        self.advance(end.len());
    }

    /// A character, or a lifetime: that has no second quote.
    fn quote(&mut self) {
        let rest = &self.text[self.at + 1..];
        if rest.starts_with('\\') {
            self.advance(3);
            self.skip_while(|byte| byte != b'\'');
            self.advance(1);
            return;
        }
        let first = rest.chars().next().map_or(0, char::len_utf8);
        if rest.as_bytes().get(first) == Some(&b'\'') {
            self.advance(first + 2);
        } else {
            self.advance(1);
            self.skip_while(is_word);
        }
    }

    /// A word, or a string or character that a prefix begins.
    fn word(&mut self) {
        let start = self.at;
        let mut end = start;
        while self.text.as_bytes().get(end).copied().is_some_and(is_word) {
            end += 1;
        }
        let word = &self.text[start..end];
        let hashes = self.text[end..].bytes().take_while(|b| *b == b'#').count();
        let follows = self.text.as_bytes().get(end + hashes).copied();
        match (word, follows) {
            ("r" | "br" | "cr", Some(b'"')) => self.raw_string(word.len(), hashes),
            ("b" | "c", Some(b'"')) if hashes == 0 => self.string(1),
            ("b", Some(b'\'')) if hashes == 0 => {
                self.advance(1);
                self.quote();
            }
            ("r", Some(byte)) if hashes == 1 && is_word(byte) => self.advance(2),
            _ => {
                self.push(TokenKind::Word(word));
                self.at = end;
            }
        }
    }
}

/// Letters beyond ASCII stand in names as well.
fn is_word(byte: u8) -> bool {
    byte == b'_' || byte.is_ascii_alphanumeric() || !byte.is_ascii()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<&str> {
        let kinds = lex(text).into_iter().map(|token| token.kind);
        kinds
            .filter_map(|kind| match kind {
                TokenKind::Word(word) => Some(word),
                TokenKind::Separator | TokenKind::Sign(_) => None,
            })
            .collect()
    }

    #[test]
    fn comments_and_literals_hold_no_words() {
        for (text, expected) in [
            ("a // b\nc", vec!["a", "c"]),
            ("a /* b /* c */ d */ e", vec!["a", "e"]),
            (r#"a "b \" c" d"#, vec!["a", "d"]),
            ("a r\"b\\\" c", vec!["a", "c"]),
            ("a r#\"b \" c\"# d", vec!["a", "d"]),
            ("a b\"c\" b'd' br#\"e\"# c\"f\" g", vec!["a", "g"]),
            ("a '\"' b '\\'' c '\\u{1f}' d", vec!["a", "b", "c", "d"]),
            ("a 'µ' b", vec!["a", "b"]),
            ("f<'a, T>(x: &'a T)", vec!["f", "T", "x", "T"]),
            ("1_000u64 0xff b", vec!["b"]),
            ("r#type r#mod", vec!["type", "mod"]),
        ] {
            assert_eq!(words(text), expected, "{text}");
        }
    }

    #[test]
    fn tokens_know_their_lines() {
        let text = "a\n/* \n */ b \"\n\"\nc::d";
        let lines: Vec<usize> = lex(text).iter().map(|token| token.line).collect();
        assert_eq!(lines, [1, 3, 5, 5, 5]);
    }
}
