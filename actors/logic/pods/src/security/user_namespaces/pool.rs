//! The node's pool of ids, and which pod has which range of it.

use std::collections::BTreeMap;

use logic_api::linux::IdRange;
use logic_api::types::PodUid;
use serde::Serialize;
use thiserror::Error;

/// Ranges are multiples of this.
const UNIT: u32 = 65_536;

/// Why there is no pool, or no range of it for a pod.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum PoolError {
    #[error("kubelet user namespace length {length} is not a multiple of {UNIT}")]
    Unit { length: u32 },
    #[error("kubelet user assigned ID {first} is not a multiple of {length}")]
    First { first: u32, length: u32 },
    #[error("kubelet user assigned ID {first} must be greater or equal to {length}")]
    Root { first: u32, length: u32 },
    #[error("kubelet user assigned IDs length {total} is not a multiple of {length}")]
    Length { total: u32, length: u32 },
    #[error("kubelet user assigned IDs are not enough to support {pods} pods")]
    Few { pods: u32 },
    #[error("could not find an empty slot to allocate a user namespace")]
    Full,
    #[error("wrong user namespace length {length}")]
    WrongLength { length: u32 },
    #[error("wrong user namespace offset specified {first}")]
    WrongFirst { first: u32 },
    #[error("different user namespace range already used by pod {pod:?}")]
    Other { pod: String },
    #[error("id {first} is out of range")]
    Outside { first: u32 },
    #[error("range picked for pod {pod:?} already taken")]
    Taken { pod: String },
}

/// The pool and its ranges in use.
#[derive(Clone, Debug, Serialize)]
pub struct IdPool {
    ids: IdRange,
    /// Ids of one range.
    length: u32,
    used: BTreeMap<PodUid, u32>,
    /// The pod of each range in use, by the range's first id.
    owners: BTreeMap<u32, PodUid>,
    /// Ranges of pods that an earlier configuration gave: they stay until their pods are gone.
    foreign: BTreeMap<PodUid, IdRange>,
    /// Where the next search begins: a range that was given back rests before it is given again.
    next: u32,
}

impl IdPool {
    /// The ids that the node's operator assigned, or by default all beyond the first range.
    pub fn new(ids: Option<IdRange>, length: u32, max_pods: u32) -> Result<Self, PoolError> {
        if length == 0 || !length.is_multiple_of(UNIT) {
            return Err(PoolError::Unit { length });
        }
        let ids = ids.unwrap_or(IdRange {
            first: length,
            length: 0_u32.wrapping_sub(length),
        });
        let (first, total) = (ids.first, ids.length);
        if !first.is_multiple_of(length) {
            return Err(PoolError::First { first, length });
        }
        // Root of a pod must not be root of the node.
        if first < length {
            return Err(PoolError::Root { first, length });
        }
        if !total.is_multiple_of(length) {
            return Err(PoolError::Length { total, length });
        }
        if total / length < max_pods {
            return Err(PoolError::Few { pods: max_pods });
        }
        Ok(Self {
            ids,
            length,
            used: BTreeMap::new(),
            owners: BTreeMap::new(),
            foreign: BTreeMap::new(),
            next: 0,
        })
    }

    /// The pod's range of ids; none if it has none.
    pub fn of(&self, pod: &PodUid) -> Option<IdRange> {
        let own = self.used.get(pod).map(|first| self.range(*first));
        own.or_else(|| self.foreign.get(pod).copied())
    }

    /// The pods that have a range.
    pub fn pods(&self) -> impl Iterator<Item = &PodUid> {
        self.used.keys().chain(self.foreign.keys())
    }

    /// Gives the pod its range: the one it has, or a free one.
    pub fn allocate(&mut self, pod: &PodUid) -> Result<IdRange, PoolError> {
        if let Some(range) = self.of(pod) {
            return Ok(range);
        }
        let slots = self.ids.length / self.length;
        let mut tried = (self.next..slots).chain(0..self.next.min(slots));
        let free = tried.find(|slot| self.is_free(self.first_of(*slot)));
        let slot = free.ok_or(PoolError::Full)?;
        self.next = slot + 1;
        Ok(self.take(pod, self.first_of(slot)))
    }

    /// Takes note of a range that was given in an earlier life.
    pub fn record(&mut self, pod: &PodUid, range: IdRange) -> Result<(), PoolError> {
        let IdRange { first, length } = range;
        let name = || pod.to_string();
        if length != self.length {
            return Err(PoolError::WrongLength { length });
        }
        if !first.is_multiple_of(length) {
            return Err(PoolError::WrongFirst { first });
        }
        match self.used.get(pod) {
            Some(known) if *known == first => return Ok(()),
            Some(_) => return Err(PoolError::Other { pod: name() }),
            None => {}
        }
        if first < self.ids.first || (first - self.ids.first) / length >= self.ids.length / length {
            return Err(PoolError::Outside { first });
        }
        if self.owners.contains_key(&first) {
            return Err(PoolError::Taken { pod: name() });
        }
        self.take(pod, first);
        Ok(())
    }

    /// Takes note of a range that this pool would not give, of a pod that has it all the same.
    pub fn adopt(&mut self, pod: &PodUid, range: IdRange) {
        self.foreign.insert(pod.clone(), range);
    }

    /// Takes the pod's range back.
    pub fn release(&mut self, pod: &PodUid) {
        self.foreign.remove(pod);
        if let Some(first) = self.used.remove(pod) {
            self.owners.remove(&first);
        }
    }

    fn take(&mut self, pod: &PodUid, first: u32) -> IdRange {
        self.used.insert(pod.clone(), first);
        self.owners.insert(first, pod.clone());
        debug_assert_eq!(self.used.len(), self.owners.len());
        self.range(first)
    }

    fn is_free(&self, first: u32) -> bool {
        let meets = |other: &IdRange| {
            first < other.first.saturating_add(other.length)
                && other.first < first.saturating_add(self.length)
        };
        !self.owners.contains_key(&first) && !self.foreign.values().any(meets)
    }

    fn first_of(&self, slot: u32) -> u32 {
        self.ids
            .first
            .saturating_add(slot.saturating_mul(self.length))
    }

    fn range(&self, first: u32) -> IdRange {
        IdRange {
            first,
            length: self.length,
        }
    }
}

/// Why what `getsubids` printed is of no use.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum SubIdsError {
    #[error("error parsing line {text:?}: it must contain only one line")]
    Lines { text: String },
    #[error("invalid line {text:?}")]
    Words { text: String },
    #[error("error parsing line {text:?}: {word:?} is no number of 32 bits")]
    Number { text: String, word: String },
}

/// Reads what `getsubids kubelet` prints: `0: kubelet 65536 2147483648`.
pub fn sub_ids(text: &str) -> Result<IdRange, SubIdsError> {
    let given = || text.to_owned();
    let line = text.trim_matches('\n');
    if line.contains('\n') {
        return Err(SubIdsError::Lines { text: given() });
    }
    let words: Vec<&str> = line.split_whitespace().collect();
    let [_, _, first, length] = words[..] else {
        return Err(SubIdsError::Words { text: given() });
    };
    let number = |word: &str| {
        word.parse().map_err(|_| SubIdsError::Number {
            text: given(),
            word: word.to_owned(),
        })
    };
    Ok(IdRange {
        first: number(first)?,
        length: number(length)?,
    })
}
