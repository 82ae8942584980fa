//! The journal: an append-only file of records, each behind its length and checksum.
//!
//! A record is written with one `write` before the call that made it is answered, so a kill -9
//! loses nothing that was answered: the page cache outlives the process. It is not synced to disk;
//! a simulated node need not outlive its machine. A torn or damaged tail is cut off and reported,
//! and what was cut is kept beside the journal. A lock keeps a second process out.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::state::{FakeState, JournalRecord};

const MAGIC: [u8; 8] = *b"OXFAKE\0\x01";
const HEAD: usize = 8;
/// No record is longer: CRI's messages are limited to 64 MiB.
const LONGEST: usize = 80 << 20;
/// Below this size a journal is not worth compacting.
const SMALLEST_COMPACTED: u64 = 4 << 20;

/// The folder's state cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// Another process holds its lock.
    #[error("state in {} is in use by another process", .0.display())]
    Busy(PathBuf),
    /// It is no journal, or one of a version that this program does not know.
    #[error("{} is not a journal of runtime-fake version 1", .0.display())]
    Foreign(PathBuf),
    /// A file system operation failed.
    #[error("cannot {doing} {}", path.display())]
    Io {
        /// What was being done.
        doing: &'static str,
        /// To which file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A record cannot be written because it is too long, or not encodable.
    #[error("a record cannot be encoded")]
    Encode(#[from] bincode::error::EncodeError),
}

/// What opening the journal has recovered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// How many records were read.
    pub records: usize,
    /// How many bytes at the end were no whole record.
    pub cut_bytes: usize,
    /// The file that keeps those bytes; none if there were none.
    pub cut_to: Option<PathBuf>,
}

/// An open journal.
#[derive(Debug)]
pub(crate) struct StateJournal {
    path: PathBuf,
    file: File,
    length: u64,
    /// Its length when it held the state and nothing else.
    compact: u64,
    /// Whether bytes of a failed write may stand behind `length`.
    torn: bool,
    buffer: Vec<u8>,
    /// Held as long as the journal is open.
    _lock: File,
}

fn io_error(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> JournalError {
    let path = path.to_owned();
    move |source| JournalError::Io {
        doing,
        path,
        source,
    }
}

impl StateJournal {
    /// Opens the journal of a folder and returns the state that it tells of.
    pub(crate) fn open(dir: &Path) -> Result<(StateJournal, FakeState, Recovery), JournalError> {
        fs::create_dir_all(dir).map_err(io_error("create folder", dir))?;
        let lock = lock(dir)?;
        let path = dir.join("state.journal");
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(io_error("read", &path)(error)),
        };
        if bytes.len() >= MAGIC.len() && !bytes.starts_with(&MAGIC) {
            return Err(JournalError::Foreign(path));
        }
        let mut state = FakeState::default();
        let (good, records) = replay(&bytes, &mut state);
        let cut_bytes = bytes.len() - good;
        let mut recovery = Recovery {
            records,
            cut_bytes,
            cut_to: None,
        };
        if recovery.cut_bytes > 0 {
            recovery.cut_to = Some(keep_tail(dir, &bytes[good..])?);
        }
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&path)
            .map_err(io_error("open", &path))?;
        let length = good as u64;
        file.set_len(length).map_err(io_error("shorten", &path))?;
        let mut journal = StateJournal {
            path,
            file,
            length,
            compact: length,
            torn: false,
            buffer: Vec::new(),
            _lock: lock,
        };
        if good == 0 {
            journal.write(&MAGIC)?;
        }
        Ok((journal, state, recovery))
    }

    /// Appends a record. On an error the journal is as it was.
    pub(crate) fn append(&mut self, record: &JournalRecord) -> Result<(), JournalError> {
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.clear();
        let written = encode(record, &mut buffer).and_then(|()| self.write(&buffer));
        if buffer.capacity() <= 64 << 10 {
            self.buffer = buffer;
        }
        written
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), JournalError> {
        if self.torn {
            // What is left of a failed write must not stand between good records.
            self.file
                .set_len(self.length)
                .map_err(io_error("shorten", &self.path))?;
            self.torn = false;
        }
        if let Err(error) = self.file.write_all(bytes) {
            self.torn = true;
            return Err(io_error("append to", &self.path)(error));
        }
        self.length += bytes.len() as u64;
        Ok(())
    }

    /// Tells whether most of the journal is history.
    pub(crate) fn is_mostly_history(&self) -> bool {
        self.length > SMALLEST_COMPACTED.max(self.compact.saturating_mul(3))
    }

    /// Replaces the journal by one that holds this state and nothing else. If that cannot be done it stays, and grows
    /// a while before it is tried again.
    pub(crate) fn compact(&mut self, state: &FakeState) -> Result<(), JournalError> {
        self.compact = self.length;
        self.replace(state)
    }

    fn replace(&mut self, state: &FakeState) -> Result<(), JournalError> {
        let fresh = self.path.with_extension("journal.new");
        let file = File::create(&fresh).map_err(io_error("create", &fresh))?;
        let mut length = MAGIC.len() as u64;
        let mut writer = BufWriter::new(file);
        writer
            .write_all(&MAGIC)
            .map_err(io_error("write", &fresh))?;
        let mut buffer = Vec::new();
        for record in state.records() {
            buffer.clear();
            encode(&record, &mut buffer)?;
            writer
                .write_all(&buffer)
                .map_err(io_error("write", &fresh))?;
            length += buffer.len() as u64;
        }
        writer.flush().map_err(io_error("write", &fresh))?;
        let file = OpenOptions::new()
            .append(true)
            .open(&fresh)
            .map_err(io_error("open", &fresh))?;
        fs::rename(&fresh, &self.path).map_err(io_error("rename", &fresh))?;
        (self.file, self.length, self.compact, self.torn) = (file, length, length, false);
        Ok(())
    }
}

fn lock(dir: &Path) -> Result<File, JournalError> {
    let path = dir.join("lock");
    let file = OpenOptions::new()
        .create(true)
        .append(true)
        .open(&path)
        .map_err(io_error("open", &path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(JournalError::Busy(dir.to_owned())),
        Err(TryLockError::Error(source)) => Err(io_error("lock", &path)(source)),
    }
}

fn keep_tail(dir: &Path, tail: &[u8]) -> Result<PathBuf, JournalError> {
    // One is enough: it is for the inspection of a recent failure.
    let path = dir.join("state.journal.cut");
    fs::write(&path, tail).map_err(io_error("write", &path))?;
    Ok(path)
}

fn encode(record: &JournalRecord, buffer: &mut Vec<u8>) -> Result<(), JournalError> {
    buffer.extend([0; HEAD]);
    let length =
        bincode::serde::encode_into_std_write(record, buffer, bincode::config::standard())?;
    let length = u32::try_from(length)
        .ok()
        .filter(|length| *length as usize <= LONGEST);
    let length = length.ok_or(bincode::error::EncodeError::Other("the record is too long"))?;
    let sum = crc32c::crc32c(&buffer[HEAD..]);
    buffer[..4].copy_from_slice(&length.to_le_bytes());
    buffer[4..HEAD].copy_from_slice(&sum.to_le_bytes());
    Ok(())
}

/// Applies whole records; returns where they end, and how many there were.
fn replay(bytes: &[u8], state: &mut FakeState) -> (usize, usize) {
    let mut at = if bytes.starts_with(&MAGIC) {
        MAGIC.len()
    } else {
        0
    };
    let mut records = 0;
    while at > 0 {
        let Some((record, length)) = decode(&bytes[at..]) else {
            break;
        };
        state.apply(record);
        at += length;
        records += 1;
    }
    (at, records)
}

fn decode(bytes: &[u8]) -> Option<(JournalRecord, usize)> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    let (sum, rest) = rest.split_first_chunk::<4>()?;
    let length = u32::from_le_bytes(*length) as usize;
    let payload = rest
        .get(..length)
        .filter(|_| length > 0 && length <= LONGEST)?;
    if crc32c::crc32c(payload) != u32::from_le_bytes(*sum) {
        return None;
    }
    let limits = bincode::config::standard().with_limit::<LONGEST>();
    let (record, used) = bincode::serde::decode_from_slice(payload, limits).ok()?;
    (used == length).then_some((record, HEAD + length))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reached(next: u64) -> JournalRecord {
        JournalRecord::Reached { next, latest: 0 }
    }

    fn filled(dir: &Path, records: u64) -> Vec<u8> {
        let (mut journal, ..) = StateJournal::open(dir).unwrap();
        (1..=records).for_each(|next| journal.append(&reached(next)).unwrap());
        fs::read(dir.join("state.journal")).unwrap()
    }

    #[test]
    fn a_tail_torn_anywhere_is_cut_off_and_reported() {
        let dir = tempfile::tempdir().unwrap();
        let whole = filled(dir.path(), 3);
        let record = (whole.len() - MAGIC.len()) / 3;
        for length in 0..whole.len() {
            fs::write(dir.path().join("state.journal"), &whole[..length]).unwrap();
            let (_, state, recovery) = StateJournal::open(dir.path()).unwrap();
            let records = length.saturating_sub(MAGIC.len()) / record;
            assert_eq!(
                (recovery.records, state.next),
                (records, records as u64),
                "{length}"
            );
            let cut = if length < MAGIC.len() {
                length
            } else {
                (length - MAGIC.len()) % record
            };
            assert_eq!(recovery.cut_bytes, cut);
            let (_, _, again) = StateJournal::open(dir.path()).unwrap();
            assert_eq!(again.cut_bytes, 0);
        }
    }

    #[test]
    fn no_flipped_bit_is_believed() {
        let dir = tempfile::tempdir().unwrap();
        let whole = filled(dir.path(), 2);
        for bit in MAGIC.len() * 8..whole.len() * 8 {
            let mut damaged = whole.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let mut state = FakeState::default();
            let (good, _) = replay(&damaged, &mut state);
            assert!(good <= bit / 8, "bit {bit}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_at_all_make_it_panic(bytes: Vec<u8>, honest: bool) {
            let mut file = MAGIC.to_vec();
            if honest {
                // A good checksum over anything: what a program of another version may have written.
                file.extend(u32::try_from(bytes.len()).unwrap().to_le_bytes());
                file.extend(crc32c::crc32c(&bytes).to_le_bytes());
            }
            file.extend(bytes);
            replay(&file, &mut FakeState::default());
        }
    }

    #[test]
    fn a_compacted_journal_tells_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let (mut journal, mut state, _) = StateJournal::open(dir.path()).unwrap();
        for record in (1..=1_000)
            .map(reached)
            .chain([JournalRecord::Born { salt: 5 }])
        {
            journal.append(&record).unwrap();
            state.apply(record);
        }
        let before = journal.length;
        journal.compact(&state).unwrap();
        assert!(journal.length < before / 10);
        journal.append(&reached(2_000)).unwrap();
        drop(journal);
        let (_, state, recovery) = StateJournal::open(dir.path()).unwrap();
        assert_eq!((state.next, state.salt, recovery.cut_bytes), (2_000, 5, 0));
    }

    #[test]
    fn a_folder_has_one_user_and_one_format() {
        let dir = tempfile::tempdir().unwrap();
        let journal = StateJournal::open(dir.path()).unwrap();
        assert!(matches!(
            StateJournal::open(dir.path()),
            Err(JournalError::Busy(_))
        ));
        drop(journal);
        fs::write(dir.path().join("state.journal"), b"something else").unwrap();
        assert!(matches!(
            StateJournal::open(dir.path()),
            Err(JournalError::Foreign(_))
        ));
    }
}
