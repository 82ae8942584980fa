//! From valid inputs to nearly valid ones.

use rig::random::Random;
use serde_json::{Number, Value};

use super::corpus::{SeedCorpus, WORDS};

/// What one input may grow to: larger ones are a matter of limits, which have tests of their own.
const LONGEST: usize = 64 << 10;

/// One of the words that inputs are broken with.
fn word(random: &mut Random) -> &'static str {
    random.choose(WORDS).copied().unwrap_or_default()
}

/// Changes an input: one that is a tree mostly without losing its shape.
pub(super) fn mutated(random: &mut Random, input: &[u8], corpus: &SeedCorpus) -> Vec<u8> {
    let tree = serde_json::from_slice(input).ok();
    let tree = tree.filter(|tree: &Value| tree.is_object() || tree.is_array());
    let is_tree = tree.is_some();
    let mut bytes = match tree {
        Some(mut tree) => {
            for _ in 0..=random.below(4) {
                break_tree(random, &mut tree);
            }
            tree.to_string().into_bytes()
        }
        None => input.to_vec(),
    };
    if !is_tree || random.one_in(4) {
        for _ in 0..=random.below(6) {
            break_text(random, &mut bytes, corpus);
        }
    }
    bytes.truncate(LONGEST);
    bytes
}

/// Follows a random way into the tree, and changes what stands at its end.
fn break_tree(random: &mut Random, tree: &mut Value) {
    let deeper = !random.one_in(4);
    match tree {
        Value::Object(fields) if !fields.is_empty() => {
            let at = random.below(fields.len());
            let Some(key) = fields.keys().nth(at).cloned() else {
                return;
            };
            if deeper {
                return fields
                    .get_mut(&key)
                    .into_iter()
                    .for_each(|field| break_tree(random, field));
            }
            match random.below(4) {
                0 => drop(fields.remove(&key)),
                1 => drop(fields.insert(word(random).to_owned(), scalar(random))),
                2 => {
                    let moved = fields.remove(&key).unwrap_or_default();
                    drop(fields.insert(word(random).to_owned(), moved));
                }
                _ => drop(fields.insert(key, scalar(random))),
            }
        }
        Value::Array(items) if !items.is_empty() => {
            let at = random.below(items.len());
            match (deeper, random.below(3)) {
                (true, _) => break_tree(random, &mut items[at]),
                (false, 0) => drop(items.remove(at)),
                (false, 1) => items.extend(vec![items[at].clone(); random.below(4)]),
                (false, _) => items[at] = scalar(random),
            }
        }
        Value::Null
        | Value::Bool(_)
        | Value::Number(_)
        | Value::String(_)
        | Value::Array(_)
        | Value::Object(_) => {
            *tree = scalar(random);
        }
    }
}

fn scalar(random: &mut Random) -> Value {
    match random.below(8) {
        0 => Value::Null,
        1 => Value::Bool(random.one_in(2)),
        2 => Value::Number(Number::from(i64::from_ne_bytes(
            random.number().to_ne_bytes(),
        ))),
        3 => Number::from_f64(f64::from_bits(random.number())).map_or(Value::Null, Value::Number),
        4 => Value::Array(vec![Value::from(word(random))]),
        5 => Value::Object(
            [(word(random).to_owned(), Value::from(word(random)))]
                .into_iter()
                .collect(),
        ),
        _ => Value::from(word(random)),
    }
}

fn break_text(random: &mut Random, bytes: &mut Vec<u8>, corpus: &SeedCorpus) {
    let (start, end) = range(random, bytes.len());
    match random.below(11) {
        0 => flip(random, bytes),
        1 => drop(bytes.drain(start..end)),
        2 => drop(bytes.splice(start..start, word(random).bytes())),
        3 => drop(bytes.splice(start..end, word(random).bytes())),
        4 => {
            let chunk = bytes[start..end].repeat(random.below(4));
            drop(bytes.splice(start..start, chunk));
        }
        5 => {
            let other = random.choose(&corpus.texts).cloned().unwrap_or_default();
            let (from, to) = range(random, other.len());
            drop(bytes.splice(start..end, other[from..to].iter().copied()));
        }
        6 | 7 => break_value(random, bytes),
        8 => break_lines(random, bytes),
        9 => drop(bytes.splice(start..end, random.number().to_le_bytes())),
        _ if random.one_in(8) => {
            // Depth: what a recursive reader dies of.
            let deep = ["[", "{\"a\":", "- ", "? ", "(", "{a: "][random.below(6)]
                .repeat(random.below(4_000));
            drop(bytes.splice(start..start, deep.into_bytes()));
        }
        _ => bytes.truncate(end),
    }
}

/// A range that is mostly short.
fn range(random: &mut Random, length: usize) -> (usize, usize) {
    let start = random.below(length + 1);
    let longest = [1, 4, 16, 64, 1_024][random.below(5)];
    (start, (start + random.below(longest)).min(length))
}

fn flip(random: &mut Random, bytes: &mut [u8]) {
    let (at, bit) = (random.below(bytes.len()), random.below(8));
    if let Some(byte) = bytes.get_mut(at) {
        *byte ^= 1 << bit;
    }
}

/// Replaces what stands behind a colon or an equals sign, up to where a scalar ends.
fn break_value(random: &mut Random, bytes: &mut Vec<u8>) {
    let from = random.below(bytes.len() + 1);
    let Some(sign) = bytes[from..].iter().position(|byte| b":=".contains(byte)) else {
        return;
    };
    let start = from + sign + 1;
    let rest = bytes.get(start..).unwrap_or_default();
    let length = rest
        .iter()
        .position(|byte| b",}]\n".contains(byte))
        .unwrap_or(rest.len());
    let value = format!(" {}", word(random));
    drop(bytes.splice(start..start + length, value.into_bytes()));
}

/// Removes, doubles, swaps or indents whole lines.
fn break_lines(random: &mut Random, bytes: &mut Vec<u8>) {
    let mut lines: Vec<Vec<u8>> = bytes
        .split(|byte| *byte == b'\n')
        .map(<[u8]>::to_vec)
        .collect();
    let (at, other) = (random.below(lines.len()), random.below(lines.len()));
    match random.below(4) {
        0 => drop(lines.remove(at)),
        1 => lines.insert(at, lines[other].clone()),
        2 => lines.swap(at, other),
        _ => drop(lines[at].splice(0..0, b"  ".repeat(random.below(4)))),
    }
    *bytes = lines.join(&b'\n');
}

/// Makes an input from one of the corpus.
#[cfg(test)]
pub(super) fn input(random: &mut Random, corpus: &SeedCorpus) -> Vec<u8> {
    let seeds: Vec<_> = corpus.seeds().collect();
    let seed = random.choose(&seeds).cloned().unwrap_or_default();
    mutated(random, &seed, corpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_make_equal_inputs() {
        let corpus = SeedCorpus {
            texts: vec![b"a: 1\nb: [2, 3]\n".to_vec()],
            trees: vec![serde_json::json!({"a": [1, {"b": null}]})],
        };
        let inputs = |seed| {
            let mut random = Random::new(seed);
            (0..200)
                .map(|_| input(&mut random, &corpus))
                .collect::<Vec<_>>()
        };
        assert_eq!(inputs(7), inputs(7));
        assert_ne!(inputs(7), inputs(8));
        assert!(inputs(7).iter().all(|input| input.len() <= LONGEST));
    }

    #[test]
    fn nothing_can_be_broken_too() {
        let mut random = Random::new(1);
        for _ in 0..2_000 {
            break_text(&mut random, &mut Vec::new(), &SeedCorpus::default());
            break_tree(&mut random, &mut Value::Null);
        }
    }
}
