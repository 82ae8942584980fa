//! Patterns of annotations' names, as Go's `path.Match` reads them: `*` and `?` stand for anything but a slash,
//! `[a-c]` and `[^a-c]` for one of these or none of them, a backslash for the next letter as it is.

/// A pattern's element.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Element {
    Letter(char),
    One,
    Any,
    /// Ranges, and whether they are what it must not be.
    Class(Vec<(char, char)>, bool),
}

/// A pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pattern(Vec<Element>);

impl Pattern {
    /// Reads a pattern; none where it is malformed.
    pub(crate) fn read(text: &str) -> Option<Pattern> {
        let mut elements = Vec::new();
        let mut letters = text.chars().peekable();
        while let Some(letter) = letters.next() {
            elements.push(match letter {
                '*' => Element::Any,
                '?' => Element::One,
                '\\' => Element::Letter(letters.next()?),
                '[' => class(&mut letters)?,
                letter => Element::Letter(letter),
            });
        }
        Some(Pattern(elements))
    }

    /// Reads patterns; the error is the malformed one.
    pub(crate) fn read_all(texts: &[String]) -> Result<Vec<Pattern>, String> {
        let read = |text: &String| Pattern::read(text).ok_or_else(|| text.clone());
        texts.iter().map(read).collect()
    }

    /// Whether the pattern stands for the whole text.
    pub(crate) fn matches(&self, text: &str) -> bool {
        // The places of the text that the elements so far can reach: never more than it is long.
        let text: Vec<char> = text.chars().collect();
        let mut reached = vec![false; text.len() + 1];
        reached[0] = true;
        for element in &self.0 {
            reached = step(element, &text, &reached);
        }
        reached[text.len()]
    }
}

fn step(element: &Element, text: &[char], reached: &[bool]) -> Vec<bool> {
    let mut next = vec![false; reached.len()];
    for place in 0..reached.len() {
        if *element == Element::Any {
            let before = place > 0 && next[place - 1] && text[place - 1] != '/';
            next[place] = reached[place] || before;
        } else if place > 0 {
            next[place] = reached[place - 1] && is_one(element, text[place - 1]);
        }
    }
    next
}

fn is_one(element: &Element, letter: char) -> bool {
    match element {
        Element::Letter(own) => *own == letter,
        Element::One | Element::Any => letter != '/',
        Element::Class(ranges, negated) => {
            let within = ranges
                .iter()
                .any(|(low, high)| (*low..=*high).contains(&letter));
            within != *negated && letter != '/'
        }
    }
}

fn class(letters: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Option<Element> {
    let negated = letters.next_if_eq(&'^').is_some();
    let mut ranges = Vec::new();
    loop {
        if !ranges.is_empty() && letters.next_if_eq(&']').is_some() {
            return Some(Element::Class(ranges, negated));
        }
        let low = member(letters)?;
        let high = match letters.next_if_eq(&'-') {
            Some(_) => member(letters)?,
            None => low,
        };
        ranges.push((low, high));
    }
}

fn member(letters: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Option<char> {
    match letters.next()? {
        '-' | ']' => None,
        '\\' => letters.next(),
        letter => Some(letter),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows of Go's own TestMatch.
    #[test]
    fn patterns_are_read_as_go_reads_them() {
        for (pattern, text, expected) in [
            ("abc", "abc", true),
            ("*", "abc", true),
            ("*c", "abc", true),
            ("a*", "ab/c", false),
            ("a*/b", "abc/b", true),
            ("a*/b", "a/c/b", false),
            ("a*b*c*d*e*/f", "axbxcxdxe/f", true),
            ("a*b*c*d*e*/f", "axbxcxdxexxx/fff", false),
            ("a*b?c*x", "abxbbxdbxebxczzx", true),
            ("ab[c]", "abc", true),
            ("ab[^c]", "abc", false),
            ("ab[b-d]", "abc", true),
            ("ab[^e-g]", "abc", true),
            ("a\\*b", "a*b", true),
            ("a\\*b", "ab", false),
            ("a?b", "a/b", false),
            ("a[^a]b", "a/b", false),
            ("[\\]a]", "]", true),
            ("[x\\-]", "-", true),
            ("io.katacontainers.*", "io.katacontainers.config.x", true),
            (
                "io.katacontainers.*",
                "io.katacontainers.config/runtime",
                false,
            ),
            ("*x", "xxx", true),
        ] {
            let read = Pattern::read(pattern).unwrap();
            assert_eq!(read.matches(text), expected, "{pattern} {text}");
        }
        for malformed in [
            "[]a]", "[-]", "[x-]", "[-x]", "[", "[^", "a\\", "[a-", "[^bc",
        ] {
            assert_eq!(Pattern::read(malformed), None, "{malformed}");
        }
    }
}
