//! User and group ids, as numbers that are checked once.

use std::fmt;
use std::num::IntErrorKind;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The largest user or group id. The next number means "unchanged" to the kernel (chown(2), setresuid(2)).
pub(crate) const MAX_ID: u32 = u32::MAX - 1;

/// A number that is not a user or group id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} is not a user or group id, expected 0 to {MAX_ID}")]
pub(crate) struct IdError(String);

/// A user of a container.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(into = "u32", try_from = "i64")]
pub(crate) struct Uid(u32);

/// A group of a container.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(into = "u32", try_from = "i64")]
pub(crate) struct Gid(u32);

macro_rules! id {
    ($name:ident) => {
        impl TryFrom<i64> for $name {
            type Error = IdError;

            fn try_from(number: i64) -> Result<$name, IdError> {
                checked(number).map($name)
            }
        }

        impl FromStr for $name {
            type Err = IdError;

            /// Reads decimal digits. Leading zeros and one sign are allowed, as Go's `strconv.Atoi` allows them.
            fn from_str(text: &str) -> Result<$name, IdError> {
                let number = text.parse::<i64>();
                let number = number.map_err(|_| IdError(text.to_owned()))?;
                checked(number).map($name)
            }
        }

        impl From<$name> for u32 {
            fn from(id: $name) -> u32 {
                id.0
            }
        }

        impl From<$name> for i64 {
            fn from(id: $name) -> i64 {
                id.0.into()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id!(Uid);
id!(Gid);

fn checked(number: i64) -> Result<u32, IdError> {
    u32::try_from(number)
        .ok()
        .filter(|id| *id <= MAX_ID)
        .ok_or_else(|| IdError(number.to_string()))
}

/// A user or a group as an image's `USER` writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Named<'a, Id> {
    Number(Id),
    Name(&'a str),
}

impl<'a, Id: FromStr<Err = IdError>> Named<'a, Id> {
    /// Reads a number or a name. What Go's `strconv.Atoi` takes for a number is one, whatever names a passwd file has;
    /// one that is not an id is refused and never looked up as a name.
    pub(crate) fn read(text: &'a str) -> Result<Named<'a, Id>, IdError> {
        match text.parse::<i64>().map_err(|error| *error.kind()) {
            Err(IntErrorKind::InvalidDigit | IntErrorKind::Empty) => Ok(Named::Name(text)),
            Ok(_) | Err(_) => text.parse().map(Named::Number),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_ids_up_to_the_last_one_from_every_source() {
        for (number, id) in [
            (0, Some(0)),
            (1000, Some(1000)),
            (4_294_967_294, Some(MAX_ID)),
        ] {
            assert_eq!(Uid::try_from(number).ok().map(u32::from), id, "{number}");
            let text = number.to_string();
            assert_eq!(text.parse::<Gid>().ok().map(u32::from), id, "{number}");
            let read: Result<Uid, _> = serde_json::from_str(&text);
            assert_eq!(read.ok().map(u32::from), id, "{number}");
        }
        for number in [-1, 4_294_967_295, 4_294_967_296, i64::MAX, i64::MIN] {
            let refusal = Uid::try_from(number).unwrap_err().to_string();
            assert_eq!(
                refusal,
                format!("{number} is not a user or group id, expected 0 to 4294967294")
            );
            let text = number.to_string();
            assert!(text.parse::<Gid>().is_err(), "{number}");
            assert!(serde_json::from_str::<Uid>(&text).is_err(), "{number}");
        }
    }

    #[test]
    fn digits_are_a_number_and_anything_else_is_a_name() {
        for (text, id) in [("1000", 1000), ("0001000", 1000), ("+5", 5), ("0", 0)] {
            let id = Uid::try_from(id).unwrap();
            assert_eq!(Named::read(text), Ok(Named::Number(id)), "{text}");
        }
        for text in ["web", "10x", "0x10", "1e3", "1.0", " 1", "1_000", "-", ""] {
            assert_eq!(Named::<Uid>::read(text), Ok(Named::Name(text)), "{text:?}");
        }
        for text in ["4294967295", "99999999999999999999", "-1"] {
            assert!(Named::<Uid>::read(text).is_err(), "{text}");
        }
    }
}
