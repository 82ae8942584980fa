//! FUSE's messages, as far as an empty file system needs them: numbers in the machine's own order, one request a
//! read, one answer a write. The layout is the kernel's `include/uapi/linux/fuse.h`, protocol 7.31.

use nix::errno::Errno;

/// The root, by the protocol; it holds one folder.
const ROOT: u64 = 1;
const FOLDER: u64 = 2;
/// The name of that folder.
pub(super) const FOLDER_NAME: &str = "data";

const LOOKUP: u32 = 1;
const FORGET: u32 = 2;
const GETATTR: u32 = 3;
const STATFS: u32 = 17;
const RELEASE: u32 = 18;
const INIT: u32 = 26;
const OPENDIR: u32 = 27;
const READDIR: u32 = 28;
const RELEASEDIR: u32 = 29;
const INTERRUPT: u32 = 36;
const DESTROY: u32 = 38;
const BATCH_FORGET: u32 = 42;

const HEADER: usize = 40;
const MODE_FOLDER: u32 = 0o040_755;
const ENTRY_FOLDER: u32 = 4;
const BLOCK: u32 = 4096;

/// A request that was read.
#[derive(Debug)]
pub(super) struct Request {
    opcode: u32,
    unique: u64,
    node: u64,
    body: Vec<u8>,
}

impl Request {
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let (header, body) = bytes.split_at_checked(HEADER)?;
        Some(Self {
            opcode: u32_at(header, 4)?,
            unique: u64_at(header, 8)?,
            node: u64_at(header, 16)?,
            body: body.to_vec(),
        })
    }

    /// Whether somebody waits for the answer who may be made to wait on.
    pub(super) fn may_be_held(&self) -> bool {
        !self.has_no_answer() && !matches!(self.opcode, INIT | DESTROY)
    }

    fn has_no_answer(&self) -> bool {
        matches!(self.opcode, FORGET | BATCH_FORGET | INTERRUPT)
    }

    /// Returns what is to be written; none for what is only told.
    pub(super) fn answer(&self) -> Option<Vec<u8>> {
        if self.has_no_answer() {
            return None;
        }
        let (error, body) = match self.result() {
            Ok(body) => (0, body.0),
            Err(error) => (-(error as i32), Vec::new()),
        };
        let length = u32::try_from(16 + body.len()).expect("answers are small");
        let mut answer = Bytes::default();
        answer.u32s(&[length]);
        answer.0.extend(error.to_ne_bytes());
        answer.u64s(&[self.unique]);
        answer.0.extend(body);
        Some(answer.0)
    }

    fn result(&self) -> Result<Bytes, Errno> {
        match self.opcode {
            INIT => Ok(init()),
            LOOKUP => self.lookup(),
            GETATTR => {
                let mut out = Bytes::default();
                // No attribute is valid for any time: each look is a request of its own.
                out.u64s(&[0]);
                out.u32s(&[0, 0]);
                out.attributes(self.node);
                Ok(out)
            }
            STATFS => {
                let mut out = Bytes::default();
                out.u64s(&[0; 5]);
                out.u32s(&[BLOCK, 255, BLOCK, 0, 0, 0, 0, 0, 0, 0]);
                Ok(out)
            }
            OPENDIR => {
                let mut out = Bytes::default();
                out.u64s(&[0]);
                out.u32s(&[0, 0]);
                Ok(out)
            }
            READDIR => Ok(self.entries()),
            RELEASE | RELEASEDIR | DESTROY => Ok(Bytes::default()),
            _ => Err(Errno::ENOSYS),
        }
    }

    fn lookup(&self) -> Result<Bytes, Errno> {
        let name = self.body.strip_suffix(b"\0").unwrap_or(&self.body);
        if (self.node, name) != (ROOT, FOLDER_NAME.as_bytes()) {
            return Err(Errno::ENOENT);
        }
        let mut out = Bytes::default();
        out.u64s(&[FOLDER, 0, 0, 0]);
        out.u32s(&[0, 0]);
        out.attributes(FOLDER);
        Ok(out)
    }

    fn entries(&self) -> Bytes {
        let mut out = Bytes::default();
        let begun = u64_at(&self.body, 8) != Some(0);
        let names = [(".", self.node), ("..", ROOT), (FOLDER_NAME, FOLDER)];
        let many = if self.node == ROOT { 3 } else { 2 };
        for (at, (name, node)) in (1_u64..).zip(names).take(many).filter(|_| !begun) {
            out.u64s(&[node, at]);
            let length = u32::try_from(name.len()).expect("names are short");
            out.u32s(&[length, ENTRY_FOLDER]);
            out.0.extend(name.as_bytes());
            out.0.resize(out.0.len().next_multiple_of(8), 0);
        }
        out
    }
}

fn init() -> Bytes {
    let mut out = Bytes::default();
    // Version; read-ahead; no abilities beyond the least.
    out.u32s(&[7, 31, 0, 0]);
    // Requests in the background, and when there are many: the kernel's own bounds.
    out.0.extend([0; 4]);
    // The longest write; the granularity of times; the rest is of no interest here.
    out.u32s(&[BLOCK, 1]);
    out.u32s(&[0; 9]);
    out
}

#[derive(Default)]
struct Bytes(Vec<u8>);

impl Bytes {
    fn u32s(&mut self, numbers: &[u32]) {
        self.0
            .extend(numbers.iter().flat_map(|number| number.to_ne_bytes()));
    }

    fn u64s(&mut self, numbers: &[u64]) {
        self.0
            .extend(numbers.iter().flat_map(|number| number.to_ne_bytes()));
    }

    /// Of a folder: there is nothing else.
    fn attributes(&mut self, node: u64) {
        // Its number; size, blocks and times are 0.
        self.u64s(&[node, 0, 0, 0, 0, 0]);
        self.u32s(&[0, 0, 0, MODE_FOLDER, 2, 0, 0, 0, BLOCK, 0]);
    }
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let number = bytes.get(at..at + 4)?.try_into().ok()?;
    Some(u32::from_ne_bytes(number))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    let number = bytes.get(at..at + 8)?.try_into().ok()?;
    Some(u64::from_ne_bytes(number))
}
