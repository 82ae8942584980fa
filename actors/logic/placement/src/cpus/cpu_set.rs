//! A set of logical CPUs, and the kernel's text form of it: `0-3,8`.
//!
//! Mirrors upstream's k8s.io/utils/cpuset at v1.36, which keeps a map; here a CPU is a bit.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// How many CPUs a machine may have: as many as the kernel can be built for. Their numbers are less.
pub const MAX_CPUS: u32 = 8192;

/// Logical CPUs by the kernel's numbers, below [`MAX_CPUS`].
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CpuSet {
    /// The lowest CPU is the lowest bit of the first; the last one is never empty.
    words: Vec<u64>,
}

/// A text that lists no CPUs.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CpuListError {
    #[error("strconv.Atoi: parsing {0:?}: invalid syntax")]
    NotANumber(String),
    #[error("invalid range {range:?} ({first} > {last})")]
    Backwards {
        range: String,
        first: u32,
        last: u32,
    },
    #[error("CPU {0} is not in the range 0-8191")]
    OutOfRange(String),
}

impl CpuSet {
    /// The set of these CPUs; a number that no CPU can have is left out.
    pub fn from_numbers(cpus: impl IntoIterator<Item = u32>) -> Self {
        let mut set = Self::default();
        cpus.into_iter().for_each(|cpu| set.insert(cpu));
        set
    }

    fn insert(&mut self, cpu: u32) {
        if cpu >= MAX_CPUS {
            return;
        }
        let (word, bit) = place(cpu);
        if self.words.len() <= word {
            self.words.resize(word + 1, 0);
        }
        self.words[word] |= bit;
    }

    /// Whether a CPU is in it.
    pub fn contains(&self, cpu: u32) -> bool {
        let (word, bit) = place(cpu);
        self.words.get(word).is_some_and(|word| word & bit != 0)
    }

    /// Whether no CPU is in it.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// How many CPUs are in it.
    pub fn len(&self) -> u32 {
        self.words.iter().map(|word| word.count_ones()).sum()
    }

    /// The CPUs in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        (0..).zip(&self.words).flat_map(|(index, word)| {
            let set = (0..u64::BITS).filter(move |bit| word >> bit & 1 != 0);
            set.map(move |bit| index * u64::BITS + bit)
        })
    }

    /// What is in either one.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        let (long, short) = match self.words.len() < other.words.len() {
            true => (other, self),
            false => (self, other),
        };
        let mut words = long.words.clone();
        let both = words.iter_mut().zip(&short.words);
        both.for_each(|(word, more)| *word |= more);
        Self { words }
    }

    /// What is in both.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let both = self.words.iter().zip(&other.words);
        Self::of_words(both.map(|(left, right)| left & right).collect())
    }

    /// What is in this one and not in the other.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        let mut words = self.words.clone();
        let both = words.iter_mut().zip(&other.words);
        both.for_each(|(word, less)| *word &= !less);
        Self::of_words(words)
    }

    /// How many CPUs are in both.
    pub fn common(&self, other: &Self) -> u32 {
        let both = self.words.iter().zip(&other.words);
        both.map(|(left, right)| (left & right).count_ones()).sum()
    }

    /// Whether all that is in it is in the other as well.
    pub fn is_subset(&self, other: &Self) -> bool {
        self.common(other) == self.len()
    }

    /// Its lowest CPUs, at most so many.
    pub(super) fn lowest(&self, count: u32) -> Self {
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        Self::from_numbers(self.iter().take(count))
    }

    /// The numbers, as [assignments](crate::topology::AssignedResources) hold them.
    pub fn numbers(&self) -> BTreeSet<u32> {
        self.iter().collect()
    }

    fn of_words(mut words: Vec<u64>) -> Self {
        while words.last() == Some(&0) {
            words.pop();
        }
        Self { words }
    }
}

/// The word of a CPU, and its bit there.
fn place(cpu: u32) -> (usize, u64) {
    let word = usize::try_from(cpu / u64::BITS).unwrap_or(usize::MAX);
    (word, 1 << (cpu % u64::BITS))
}

impl FromStr for CpuSet {
    type Err = CpuListError;

    fn from_str(text: &str) -> Result<Self, CpuListError> {
        let mut set = Self::default();
        if text.is_empty() {
            return Ok(set);
        }
        for range in text.split(',') {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let (first, last) = (number(first)?, number(last)?);
            if first > last {
                return Err(CpuListError::Backwards {
                    range: range.to_owned(),
                    first,
                    last,
                });
            }
            (first..=last).for_each(|cpu| set.insert(cpu));
        }
        Ok(set)
    }
}

fn number(text: &str) -> Result<u32, CpuListError> {
    let digits = text.strip_prefix('+').unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(CpuListError::NotANumber(text.to_owned()));
    }
    let cpu = digits.parse().ok().filter(|cpu| *cpu < MAX_CPUS);
    cpu.ok_or_else(|| CpuListError::OutOfRange(text.to_owned()))
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut cpus = self.iter().peekable();
        let mut comma = "";
        while let Some(first) = cpus.next() {
            let mut last = first;
            while let Some(next) = cpus.next_if_eq(&(last + 1)) {
                last = next;
            }
            match first == last {
                true => write!(f, "{comma}{first}")?,
                false => write!(f, "{comma}{first}-{last}")?,
            }
            comma = ",";
        }
        Ok(())
    }
}

impl fmt::Debug for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{self}}}")
    }
}
