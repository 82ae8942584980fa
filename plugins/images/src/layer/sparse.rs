//! Files with holes: GNU's old header, and the PAX forms 0.0, 0.1 and 1.0 (GNU tar's manual, "Storing Sparse Files").
//!
//! What counts and how is Go's `archive/tar`, as for all headers. A form of an unknown version, which Go's reader takes
//! for a plain file, is refused: its content would be a map and pieces.

use tar::GnuSparseHeader;

/// One stretch of content in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) offset: u64,
    pub(crate) length: u64,
}

/// Where the content of a file with holes lies: in order, apart from each other, and within its size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SparseMap {
    size: u64,
    parts: Vec<Part>,
}

impl SparseMap {
    /// Checks a map of offsets and lengths in turn, for a file of `size` bytes of which `stored` are in the tar.
    pub(super) fn new(size: u64, numbers: &[u64], stored: u64) -> Result<Self, &'static str> {
        let mut parts = Vec::with_capacity(numbers.len() / 2);
        let (mut end, mut sum) = (0_u64, 0_u64);
        for pair in numbers.chunks(2) {
            let &[offset, length] = pair else {
                return Err("its sparse map has an offset without a length");
            };
            if offset < end {
                return Err("the parts of its sparse map overlap, or are out of order");
            }
            let within = offset.checked_add(length).filter(|end| *end <= size);
            end = within.ok_or("a part of its sparse map ends beyond the file's size")?;
            sum += length;
            if length > 0 {
                parts.push(Part { offset, length });
            }
        }
        match sum == stored {
            true => Ok(Self { size, parts }),
            false => Err("its sparse map tells another size than its content has"),
        }
    }

    /// Returns the size of the file with its holes.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    pub(super) fn parts(&self) -> &[Part] {
        &self.parts
    }
}

/// Adds the entries of an old GNU header; the first empty one ends them.
pub(super) fn add_old(
    entries: &[GnuSparseHeader],
    numbers: &mut Vec<u64>,
) -> Result<(), &'static str> {
    const WRONG: &str = "its sparse map has something that is no number";
    for entry in entries {
        if entry.offset[0] == 0 {
            break;
        }
        numbers.push(entry.offset().map_err(|_| WRONG)?);
        numbers.push(entry.length().map_err(|_| WRONG)?);
    }
    Ok(())
}

/// What PAX records say of holes.
#[derive(Debug, Default)]
pub(super) struct PaxSparse {
    major: Vec<u8>,
    minor: Vec<u8>,
    pub(super) name: Vec<u8>,
    real_size: Option<u64>,
    count: Option<u64>,
    /// The map, as 0.1 has it in one record and 0.0 in one a number.
    numbers: Option<Vec<u64>>,
}

/// Where the map of a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// It has no holes.
    Plain,
    /// In the header: 0.0 and 0.1.
    Header,
    /// Before its content: 1.0.
    Content,
}

impl PaxSparse {
    /// Takes the record `GNU.sparse.KEY`.
    pub(super) fn set(&mut self, key: &[u8], value: &[u8]) -> Result<(), &'static str> {
        const SIZE: &str = "a sparse file's size is no number";
        match key {
            b"major" => self.major = value.to_vec(),
            b"minor" => self.minor = value.to_vec(),
            b"name" if value.contains(&0) => return Err("a PAX path has a NUL"),
            b"name" => self.name = value.to_vec(),
            b"size" | b"realsize" => self.real_size = Some(number(value).ok_or(SIZE)?),
            b"numblocks" => {
                self.count = Some(number(value).ok_or("a sparse map's length is no number")?);
            }
            b"map" => self.numbers = Some(list(value)?),
            b"offset" => self.single(value, 0)?,
            b"numbytes" => self.single(value, 1)?,
            _ => {}
        }
        Ok(())
    }

    fn single(&mut self, value: &[u8], place: usize) -> Result<(), &'static str> {
        let numbers = self.numbers.get_or_insert_default();
        if numbers.len() % 2 != place {
            return Err("the offsets and lengths of a sparse map don't take turns");
        }
        numbers.push(number(value).ok_or(NO_NUMBER)?);
        Ok(())
    }

    pub(super) fn form(&self) -> Result<Form, &'static str> {
        match (self.major.as_slice(), self.minor.as_slice()) {
            (b"0", b"0" | b"1") => Ok(Form::Header),
            (b"1", b"0") => Ok(Form::Content),
            (b"", b"") if self.numbers.is_some() => Ok(Form::Header),
            (b"", b"") => Ok(Form::Plain),
            _ => Err("a sparse file of an unknown version"),
        }
    }

    /// Returns the size of the file with its holes; that of its content where no record tells it.
    pub(super) fn size(&self, stored: u64) -> u64 {
        self.real_size.unwrap_or(stored)
    }

    /// Returns the map of the header.
    pub(super) fn in_header(&self) -> Result<&[u64], &'static str> {
        let numbers = self.numbers.as_deref().unwrap_or_default();
        let told = self.count.and_then(|count| count.checked_mul(2));
        match told == u64::try_from(numbers.len()).ok() {
            true => Ok(numbers),
            false => Err("a sparse map has another length than is told"),
        }
    }
}

const NO_NUMBER: &str = "a sparse map has something that is no number";

fn list(value: &[u8]) -> Result<Vec<u64>, &'static str> {
    if value.is_empty() {
        return Ok(Vec::new());
    }
    let numbers = value.split(|byte| *byte == b',');
    numbers.map(|one| number(one).ok_or(NO_NUMBER)).collect()
}

/// Reads the numbers of a map that stands before the content: how many pairs there are, and the pairs, a line each.
#[derive(Debug, Default)]
pub(super) struct ContentMap {
    count: Option<u64>,
    numbers: Vec<u64>,
    line: Vec<u8>,
}

impl ContentMap {
    /// Takes the next block; true when the map is whole, and the rest of the block is padding.
    pub(super) fn add(&mut self, block: &[u8]) -> Result<bool, &'static str> {
        for byte in block {
            if *byte != b'\n' {
                self.line.push(*byte);
                if self.line.len() > DIGITS_MAX {
                    return Err(NO_NUMBER);
                }
                continue;
            }
            let found = number(&self.line).ok_or(NO_NUMBER)?;
            self.line.clear();
            match self.count {
                None => self.count = Some(found),
                Some(_) => self.numbers.push(found),
            }
            if self.is_whole()? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn is_whole(&self) -> Result<bool, &'static str> {
        let wanted = self
            .count
            .map(|count| count.checked_mul(2).ok_or(NO_NUMBER));
        let have = u64::try_from(self.numbers.len()).expect("a length fits");
        Ok(wanted.transpose()? == Some(have))
    }

    pub(super) fn numbers(&self) -> &[u64] {
        &self.numbers
    }
}

/// Digits of the largest number.
const DIGITS_MAX: usize = 20;

fn number(digits: &[u8]) -> Option<u64> {
    let all = digits.iter().all(u8::is_ascii_digit);
    str::from_utf8(digits).ok().filter(|_| all)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_is_in_order_within_the_file_and_as_long_as_its_content() {
        let map = SparseMap::new(10, &[1, 2, 5, 0, 5, 1, 10, 0], 3).unwrap();
        let parts = [(1, 2), (5, 1)].map(|(offset, length)| Part { offset, length });
        assert_eq!((map.size(), map.parts()), (10, parts.as_slice()));
        for (numbers, stored, words) in [
            (&[0, 4, 3, 1][..], 5, "overlap"),
            (&[5, 1, 0, 1], 2, "out of order"),
            (&[9, 2], 2, "beyond"),
            (&[u64::MAX, 2], 2, "beyond"),
            (&[0, 2], 3, "another size"),
            (&[0, 2, 3], 2, "without a length"),
        ] {
            let refused = SparseMap::new(10, numbers, stored).unwrap_err();
            assert!(refused.contains(words), "{numbers:?}: {refused}");
        }
    }

    #[test]
    fn a_map_before_the_content_may_end_in_any_block() {
        let text = b"2\n1\n2\n34\n5\n";
        for at in 0..text.len() - 1 {
            let mut map = ContentMap::default();
            assert!(!map.add(&text[..at]).unwrap());
            assert!(map.add(&text[at..]).unwrap());
            assert_eq!(map.numbers(), [1, 2, 34, 5]);
        }
        assert!(ContentMap::default().add(b"0\n\0\0\0").unwrap());
        for wrong in [
            &b"-1\n"[..],
            b"\n",
            b"9223372036854775808\n1\n",
            b"111111111111111111111",
            b"x\n",
        ] {
            assert!(ContentMap::default().add(wrong).is_err(), "{wrong:?}");
        }
    }
}
