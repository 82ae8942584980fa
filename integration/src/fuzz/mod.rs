//! Fuzz targets: whatever bytes stand in a manifest, a configuration, a plugin file, on the command line or in a
//! checkpoint, the answer is a value or an error, soon, and never a panic.
//!
//! libFuzzer runs them (`make fuzz`), each in a process of its own, so that a stack overflow, an abort, a hang or a
//! hunger for memory is found as well as a panic. It keeps the inputs that reach new code of our crates and goes on
//! from them, by its own mutations and by [`mutate`]'s, which know the shape of YAML, flags and manifests.

mod corpus;
mod mutate;
mod targets;

use std::path::{Path, PathBuf};
use std::{env, fs};

use anyhow::{Context, Result, bail};

use self::corpus::SeedCorpus;
pub use self::targets::{FuzzTarget, all};
use rig::random::Random;

/// One target in libFuzzer's process.
#[derive(Debug)]
pub struct FuzzSession {
    target: FuzzTarget,
    corpus: SeedCorpus,
    folder: PathBuf,
}

impl FuzzSession {
    /// Takes the target's name from `FUZZ_TARGET`, and from `FUZZ_FOLDER` a folder for the files that it reads; the
    /// valid inputs are written into `seeds` in there, for libFuzzer to begin with.
    pub fn from_environment() -> Result<Self> {
        let variable = |name: &str| env::var(name).with_context(|| format!("{name} is not set"));
        Self::new(
            &variable("FUZZ_TARGET")?,
            Path::new(&variable("FUZZ_FOLDER")?),
        )
    }

    fn new(name: &str, folder: &Path) -> Result<Self> {
        let Some(target) = all().into_iter().find(|target| target.name == name) else {
            let names: Vec<_> = all().iter().map(|target| target.name).collect();
            bail!("no target {name:?}; there are {names:?}");
        };
        let corpus = target.corpus(folder)?;
        let seeds = folder.join("seeds");
        fs::create_dir_all(&seeds)?;
        for (number, seed) in corpus.seeds().enumerate() {
            fs::write(seeds.join(number.to_string()), seed)?;
        }
        Ok(Self {
            target,
            corpus,
            folder: folder.to_owned(),
        })
    }

    /// Feeds one input to the target; a finding panics.
    pub fn read(&self, input: &[u8]) {
        self.target.read(&self.folder, input);
    }

    /// Changes the `size` bytes at the buffer's start and returns how many they are then: in every second case by
    /// libFuzzer's own `mutation`, which takes what the program compares its input with from the running program.
    pub fn mutate(
        &self,
        buffer: &mut [u8],
        size: usize,
        seed: u32,
        mutation: fn(&mut [u8], usize, usize) -> usize,
    ) -> usize {
        let mut random = Random::new(seed.into());
        let longest = buffer.len();
        // libFuzzer asks for less than there is when it makes inputs shorter.
        let size = size.min(longest);
        if random.below(2) == 0 {
            return mutation(buffer, size, longest);
        }
        let input = mutate::mutated(&mut random, &buffer[..size], &self.corpus);
        let size = input.len().min(longest);
        buffer[..size].copy_from_slice(&input[..size]);
        size
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_has_seeds_and_mutations_fit_into_the_buffer() {
        for target in all() {
            let folder = tempfile::tempdir().unwrap();
            let session = FuzzSession::new(target.name, folder.path()).unwrap();
            for seed in fs::read_dir(folder.path().join("seeds")).unwrap() {
                let seed = fs::read(seed.unwrap().path()).unwrap();
                let mut buffer = seed.clone();
                for number in 0..20 {
                    let size = session.mutate(&mut buffer, seed.len(), number, |_, size, _| size);
                    session.read(&buffer[..size]);
                }
            }
        }
        assert!(FuzzSession::new("none", Path::new("/")).is_err());
    }
}
