//! Numbers that look random and are the same in every run with the same seed (splitmix64).

/// The source of all choices of one seed.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Begins with this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Begins with one of several seeds, of which neighbours begin far apart.
    #[must_use]
    pub fn far_apart(seed: u64) -> Self {
        Self(seed.wrapping_mul(0xd134_2543_de82_ef95))
    }

    /// Returns any number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below the bound; 0 for the bound 0.
    pub fn below(&mut self, bound: usize) -> usize {
        let bound = u64::try_from(bound.max(1)).unwrap_or(u64::MAX);
        usize::try_from(self.number() % bound).unwrap_or_default()
    }

    /// Whether one of so many chances has come.
    pub fn one_in(&mut self, chances: usize) -> bool {
        self.below(chances) == 0
    }

    /// Returns one of these; `None` if there are none.
    pub fn choose<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        let at = self.below(from.len());
        from.get(at)
    }

    /// Returns one of these, of which there is at least one.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        self.choose(from).expect("one at least")
    }

    /// Returns one of the words, as text.
    pub fn word(&mut self, from: &[&str]) -> String {
        (*self.pick(from)).to_owned()
    }

    /// Returns up to `most` different ones, in their order.
    pub fn some<T: Clone>(&mut self, from: &[T], most: usize) -> Vec<T> {
        let mut left = self.below(most + 1);
        let mut chosen = Vec::new();
        for (at, item) in from.iter().enumerate() {
            if left > 0 && self.below(from.len() - at) < left {
                left -= 1;
                chosen.push(item.clone());
            }
        }
        chosen
    }
}
