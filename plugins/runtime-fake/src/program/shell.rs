//! Cuts a shell script into words and connectors. What it does not know it refuses as a whole.

/// A piece of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ShellToken {
    Word(String),
    /// `;` or the end of a line.
    Then,
    And,
    Or,
    /// `>`, `>>` or `>&`: of which descriptor, and how.
    Redirect {
        from: u8,
        how: Redirect,
    },
}

/// How output is redirected. The word that follows names the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Redirect {
    Write,
    Append,
    To(u8),
}

/// The script uses something beyond this small shell.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct UnsupportedSyntax;

/// Returns the tokens of a script; `variable` gives the value of `$NAME`.
pub(crate) fn tokens(
    script: &str,
    variable: &dyn Fn(&str) -> String,
) -> Result<Vec<ShellToken>, UnsupportedSyntax> {
    let mut lexer = ShellLexer {
        rest: script.chars().peekable(),
        variable,
        found: Vec::new(),
        word: None,
    };
    lexer.run()?;
    Ok(lexer.found)
}

struct ShellLexer<'a> {
    rest: std::iter::Peekable<std::str::Chars<'a>>,
    variable: &'a dyn Fn(&str) -> String,
    found: Vec<ShellToken>,
    word: Option<String>,
}

impl ShellLexer<'_> {
    fn run(&mut self) -> Result<(), UnsupportedSyntax> {
        while let Some(c) = self.rest.next() {
            match c {
                ' ' | '\t' | '\r' => self.end_word(),
                '\n' | ';' => self.connector(ShellToken::Then),
                '&' if self.rest.next_if_eq(&'&').is_some() => self.connector(ShellToken::And),
                '|' if self.rest.next_if_eq(&'|').is_some() => self.connector(ShellToken::Or),
                // Nothing runs beside a script here: what should is waited for at once.
                '&' => self.connector(ShellToken::Then),
                '|' | '(' | ')' | '<' | '`' => return Err(UnsupportedSyntax),
                '#' if self.word.is_none() => while self.rest.next_if(|c| *c != '\n').is_some() {},
                '>' => self.redirect()?,
                '\'' => self.single_quoted()?,
                '"' => self.double_quoted()?,
                '\\' => match self.rest.next() {
                    Some('\n') | None => {}
                    Some(escaped) => self.push(escaped),
                },
                '$' => self.variable()?,
                plain => self.push(plain),
            }
        }
        self.end_word();
        Ok(())
    }

    fn push(&mut self, c: char) {
        self.word.get_or_insert_default().push(c);
    }

    fn end_word(&mut self) {
        self.found.extend(self.word.take().map(ShellToken::Word));
    }

    fn connector(&mut self, token: ShellToken) {
        self.end_word();
        self.found.push(token);
    }

    fn single_quoted(&mut self) -> Result<(), UnsupportedSyntax> {
        self.word.get_or_insert_default();
        loop {
            match self.rest.next().ok_or(UnsupportedSyntax)? {
                '\'' => return Ok(()),
                c => self.push(c),
            }
        }
    }

    fn double_quoted(&mut self) -> Result<(), UnsupportedSyntax> {
        self.word.get_or_insert_default();
        loop {
            match self.rest.next().ok_or(UnsupportedSyntax)? {
                '"' => return Ok(()),
                '`' => return Err(UnsupportedSyntax),
                '$' => self.variable()?,
                '\\' => match self.rest.next().ok_or(UnsupportedSyntax)? {
                    c @ ('"' | '\\' | '$' | '`') => self.push(c),
                    c => {
                        self.push('\\');
                        self.push(c);
                    }
                },
                c => self.push(c),
            }
        }
    }

    fn variable(&mut self) -> Result<(), UnsupportedSyntax> {
        let braced = self.rest.next_if_eq(&'{').is_some();
        let mut name = String::new();
        while let Some(c) = self
            .rest
            .next_if(|c| c.is_ascii_alphanumeric() || *c == '_')
        {
            name.push(c);
        }
        if (braced && self.rest.next() != Some('}'))
            || name.is_empty()
            || name.starts_with(|c: char| c.is_ascii_digit())
        {
            return Err(UnsupportedSyntax);
        }
        let value = (self.variable)(&name);
        self.word.get_or_insert_default().push_str(&value);
        Ok(())
    }

    fn redirect(&mut self) -> Result<(), UnsupportedSyntax> {
        let from = match self.word.as_deref() {
            Some("1") => 1,
            Some("2") => 2,
            _ => 0,
        };
        if from == 0 {
            self.end_word();
        } else {
            self.word = None;
        }
        let how = if self.rest.next_if_eq(&'>').is_some() {
            Redirect::Append
        } else if self.rest.next_if_eq(&'&').is_some() {
            let to = self
                .rest
                .next()
                .and_then(|c| c.to_digit(10))
                .ok_or(UnsupportedSyntax)?;
            Redirect::To(u8::try_from(to).map_err(|_| UnsupportedSyntax)?)
        } else {
            Redirect::Write
        };
        self.found.push(ShellToken::Redirect {
            from: from.max(1),
            how,
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(script: &str) -> Result<Vec<ShellToken>, UnsupportedSyntax> {
        tokens(script, &|name| format!("<{name}>"))
    }

    #[test]
    fn quotes_variables_and_redirections_read() {
        let word = |text: &str| ShellToken::Word(text.into());
        assert_eq!(
            words("echo 'a b' \"c $X\" ${Y}d"),
            Ok(vec![word("echo"), word("a b"), word("c <X>"), word("<Y>d")])
        );
        let to_file = ShellToken::Redirect {
            from: 1,
            how: Redirect::Append,
        };
        let to_out = ShellToken::Redirect {
            from: 2,
            how: Redirect::To(1),
        };
        assert_eq!(
            words("a>>f 2>&1"),
            Ok(vec![word("a"), to_file, word("f"), to_out])
        );
        assert_eq!(
            words("a&&b||c;''"),
            Ok(vec![
                word("a"),
                ShellToken::And,
                word("b"),
                ShellToken::Or,
                word("c"),
                ShellToken::Then,
                word("")
            ])
        );
        assert_eq!(words("# only a remark"), Ok(vec![]));
    }

    #[test]
    fn what_is_beyond_it_is_refused_whole() {
        for script in [
            "a | b", "$(a)", "`a`", "echo 'x", "echo \"x", "$?", "(a)", "${a", "a <b", "a >&x",
        ] {
            assert_eq!(words(script), Err(UnsupportedSyntax), "{script}");
        }
    }
}
