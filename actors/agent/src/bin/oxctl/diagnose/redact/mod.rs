//! What has to leave a text before others read it: passwords, tokens, private keys.
//!
//! Two ways. What looks like a secret by its form or by the name before it goes ([`Redactor::clean`] knows the forms),
//! and so does each value that is known to be one: the files of secrets on this node, and variables of containers whose
//! names speak of secrets. No form is complete; where in doubt the text loses.

mod forms;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use self::forms::is_secret_name;

/// In the place of what was taken out.
pub(super) const REMOVED: &str = "<removed>";
/// Shorter values are words of the language.
const MIN_VALUE_BYTES: usize = 8;
/// Values that are known at most; a node with more of them has long ones, which their form gives away.
const MAX_VALUES: usize = 20_000;

/// Takes secrets out of texts.
#[derive(Debug, Default)]
pub(super) struct Redactor {
    /// Known values by their first bytes, the longest first.
    values: BTreeMap<[u8; MIN_VALUE_BYTES], Vec<String>>,
    count: usize,
    /// Names that anybody may know: they stay although a secret has the same text.
    public: BTreeSet<String>,
}

impl Redactor {
    /// Adds names of pods, namespaces and nodes, which stay whatever values are known.
    pub(super) fn keep(&mut self, names: impl IntoIterator<Item = String>) {
        self.public.extend(names);
    }

    /// Adds what is known to be a secret: each of its lines, which logs may have alone. Short ones and public names
    /// are not added.
    pub(super) fn learn(&mut self, secret: &str) {
        for line in secret.lines().map(str::trim) {
            let prefix = line.as_bytes().first_chunk::<MIN_VALUE_BYTES>();
            let Some(prefix) = prefix.filter(|_| self.count < MAX_VALUES) else {
                continue;
            };
            if self.public.contains(line) {
                continue;
            }
            let known = self.values.entry(*prefix).or_default();
            if !known.iter().any(|value| value == line) {
                known.push(line.to_owned());
                known.sort_by_key(|value| std::cmp::Reverse(value.len()));
                self.count += 1;
            }
        }
    }

    /// Adds a variable's value where its name is a secret's, or the value looks made by a machine.
    pub(super) fn learn_variable(&mut self, name: &str, value: &str) {
        let has = |kind: fn(&char) -> bool| value.chars().any(|letter| kind(&letter));
        let made = has(char::is_ascii_digit)
            && has(char::is_ascii_alphabetic)
            && !has(|letter| letter.is_whitespace() || *letter == '/');
        if made || is_secret_name(name) {
            self.learn(value);
        }
    }

    /// The text without secrets.
    pub(super) fn clean(&self, text: &str) -> String {
        forms::without(&self.without_values(text))
    }

    /// Takes secrets out of each text in a value, the names of fields among them. It stays what it is otherwise.
    pub(super) fn clean_json(&self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.clean(text),
            Value::Array(items) => items.iter_mut().for_each(|item| self.clean_json(item)),
            Value::Object(fields) => {
                let cleaned = std::mem::take(fields).into_iter().map(|(name, mut value)| {
                    match is_secret_name(&name) {
                        true => self.clean_secret(&mut value),
                        false => self.clean_json(&mut value),
                    }
                    (self.clean(&name), value)
                });
                *fields = cleaned.collect();
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// The value of a secret's name: its texts are secrets, but for those that have names of their own.
    fn clean_secret(&self, value: &mut Value) {
        match value {
            Value::String(text) if !text.is_empty() => REMOVED.clone_into(text),
            Value::Array(items) => items.iter_mut().for_each(|item| self.clean_secret(item)),
            Value::Object(_) => self.clean_json(value),
            Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn without_values(&self, text: &str) -> String {
        if self.values.is_empty() {
            return text.to_owned();
        }
        let (mut clean, mut rest) = (String::with_capacity(text.len()), text);
        // All before is copied when something is found.
        let mut at = 0;
        while let Some(prefix) = rest.as_bytes()[at..].first_chunk::<MIN_VALUE_BYTES>() {
            let known = self.values.get(prefix).into_iter().flatten();
            let mut known =
                known.filter(|value| rest.as_bytes()[at..].starts_with(value.as_bytes()));
            match known.next() {
                // A value begins and ends with a character, so the text is cut between two.
                Some(value) => {
                    clean.push_str(&rest[..at]);
                    clean.push_str(REMOVED);
                    rest = &rest[at + value.len()..];
                    at = 0;
                }
                None => at += 1,
            }
        }
        clean.push_str(rest);
        clean
    }
}

#[cfg(test)]
mod tests;
