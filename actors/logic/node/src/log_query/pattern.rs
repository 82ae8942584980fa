//! Whether a text is a regular expression, as upstream judges it before journalctl does: the syntax of Go's
//! regexp, read and thrown away.

/// The most that a repetition may count.
const MAX_REPETITIONS: u32 = 1000;

/// Checks a pattern; the error says why it is invalid.
pub(super) fn validate_pattern(pattern: &str) -> Result<(), String> {
    let mut reading = PatternParser {
        whole: pattern,
        rest: pattern,
        open: 0,
        before: RepetitionOperand::Nothing,
    };
    let read = reading.read();
    read.map_err(|(what, where_)| format!("error parsing regexp: {what}: `{where_}`"))
}

/// What is wrong, and with what.
type PatternProblem<'a> = (&'static str, &'a str);

/// What a repetition would repeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RepetitionOperand<'a> {
    Nothing,
    Something,
    /// Another repetition, which begins here.
    Repetition(&'a str),
}

struct PatternParser<'a> {
    whole: &'a str,
    rest: &'a str,
    open: usize,
    before: RepetitionOperand<'a>,
}

impl<'a> PatternParser<'a> {
    fn read(&mut self) -> Result<(), PatternProblem<'a>> {
        while let Some(c) = self.rest.chars().next() {
            match c {
                '\\' => self.escape()?,
                '[' => self.class()?,
                '(' => self.group()?,
                ')' if self.open == 0 => return Err(("unexpected )", self.whole)),
                ')' => {
                    self.open -= 1;
                    self.pass(1, RepetitionOperand::Something);
                }
                '|' => self.pass(1, RepetitionOperand::Nothing),
                '*' | '+' | '?' => self.repeat(1)?,
                '{' => self.count()?,
                c => self.pass(c.len_utf8(), RepetitionOperand::Something),
            }
        }
        match self.open {
            0 => Ok(()),
            _ => Err(("missing closing )", self.whole)),
        }
    }

    fn pass(&mut self, bytes: usize, before: RepetitionOperand<'a>) {
        self.rest = &self.rest[bytes..];
        self.before = before;
    }

    fn escape(&mut self) -> Result<(), PatternProblem<'a>> {
        let after = &self.rest[1..];
        let Some(c) = after.chars().next() else {
            return Err(("trailing backslash at end of expression", ""));
        };
        if c == 'Q' {
            let literal = &after[1..];
            let end = literal.find("\\E").map_or(literal.len(), |end| end + 2);
            self.pass(2 + end, RepetitionOperand::Something);
            return Ok(());
        }
        let next = after.chars().nth(1);
        let octal = next.is_some_and(|next| ('0'..='7').contains(&next));
        let is_known = match c {
            '1'..='7' => octal,
            '8' | '9' => false,
            c if c.is_ascii_alphabetic() => "AabBCdDfnpPrsStvwWxz".contains(c),
            c => c.is_ascii(),
        };
        match is_known {
            true => {
                self.pass(1 + c.len_utf8(), RepetitionOperand::Something);
                Ok(())
            }
            false => Err(("invalid escape sequence", &self.rest[..1 + c.len_utf8()])),
        }
    }

    fn class(&mut self) -> Result<(), PatternProblem<'a>> {
        let mut chars = self.rest.char_indices().skip(1).peekable();
        let mut is_first = true;
        if chars.peek().is_some_and(|(_, c)| *c == '^') {
            chars.next();
        }
        while let Some((at, c)) = chars.next() {
            let rest = &self.rest[at..];
            match c {
                ']' if !is_first => {
                    self.pass(at + 1, RepetitionOperand::Something);
                    return Ok(());
                }
                '\\' if chars.next().is_none() => {
                    return Err(("trailing backslash at end of expression", ""));
                }
                '[' if rest.starts_with("[:") => {
                    let Some(end) = rest.find(":]") else {
                        continue;
                    };
                    while chars.next_if(|(next, _)| *next < at + end + 2).is_some() {}
                }
                _ => {}
            }
            is_first = false;
        }
        Err(("missing closing ]", self.rest))
    }

    fn group(&mut self) -> Result<(), PatternProblem<'a>> {
        self.open += 1;
        let Some(inner) = self.rest.strip_prefix("(?") else {
            self.pass(1, RepetitionOperand::Nothing);
            return Ok(());
        };
        let name = inner.strip_prefix("P<").or(inner.strip_prefix('<'));
        if let Some(name) = name {
            let begins = self.rest.len() - name.len();
            let Some(end) = name.find('>') else {
                return Err(("invalid named capture", self.rest));
            };
            let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
            if end == 0 || !name[..end].chars().all(is_word) {
                return Err(("invalid named capture", &self.rest[..=begins + end]));
            }
            self.pass(begins + end + 1, RepetitionOperand::Nothing);
            return Ok(());
        }
        let flags = inner.trim_start_matches(['i', 'm', 's', 'U', '-']);
        let taken = self.rest.len() - flags.len();
        match flags.chars().next() {
            Some(':') => self.pass(taken + 1, RepetitionOperand::Nothing),
            Some(')') if taken > 2 => {
                self.open -= 1;
                self.pass(taken + 1, RepetitionOperand::Nothing);
            }
            Some(c) => {
                let wrong = &self.rest[..taken + c.len_utf8()];
                return Err(("invalid or unsupported Perl syntax", wrong));
            }
            None => return Err(("missing closing )", self.whole)),
        }
        Ok(())
    }

    fn repeat(&mut self, bytes: usize) -> Result<(), PatternProblem<'a>> {
        let begin = self.rest;
        let after = &begin[bytes..];
        // The other way of a repetition, which takes as little as it can.
        let bytes = bytes + usize::from(after.starts_with('?'));
        match self.before {
            RepetitionOperand::Nothing => {
                Err(("missing argument to repetition operator", &begin[..bytes]))
            }
            RepetitionOperand::Repetition(first) => {
                let both = first.len() - begin.len() + bytes;
                Err(("invalid nested repetition operator", &first[..both]))
            }
            RepetitionOperand::Something => {
                self.pass(bytes, RepetitionOperand::Repetition(begin));
                Ok(())
            }
        }
    }

    /// `{2}`, `{2,}`, `{2,3}`; anything else is what it is.
    fn count(&mut self) -> Result<(), PatternProblem<'a>> {
        let inner = self.rest[1..].split_once('}').map(|(inner, _)| inner);
        let number = |text: &str| {
            let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            is_number.then(|| text.parse().unwrap_or(u32::MAX))
        };
        let read = inner.and_then(|inner| {
            let (least, most) = match inner.split_once(',') {
                None => (number(inner)?, Some(number(inner)?)),
                Some((least, "")) => (number(least)?, None),
                Some((least, most)) => (number(least)?, Some(number(most)?)),
            };
            Some((inner.len() + 2, least, most))
        });
        let Some((bytes, least, most)) = read else {
            self.pass(1, RepetitionOperand::Something);
            return Ok(());
        };
        let is_wrong = least > MAX_REPETITIONS
            || most.is_some_and(|most| most > MAX_REPETITIONS || most < least);
        match is_wrong {
            true => Err(("invalid repeat count", &self.rest[..bytes])),
            false => self.repeat(bytes),
        }
    }
}
