//! Ids as runtimes write them, 64 hexadecimal digits, made from a sequence number.
//!
//! The first 16 digits are the number behind an invertible mix, so that an id leads to its sandbox
//! or container without an index. The rest makes it an id of this folder and of no other.

const FIRST: u64 = 0xbf58_476d_1ce4_e5b9;
const SECOND: u64 = 0x94d0_49bb_1331_11eb;
const FIRST_INVERSE: u64 = 0x96de_1b17_3f11_9089;
const SECOND_INVERSE: u64 = 0x3196_42b2_d24d_8ec3;
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(FIRST);
    z = (z ^ (z >> 27)).wrapping_mul(SECOND);
    z ^ (z >> 31)
}

fn unmix(mut z: u64) -> u64 {
    z = (z ^ (z >> 31) ^ (z >> 62)).wrapping_mul(SECOND_INVERSE);
    z = (z ^ (z >> 27) ^ (z >> 54)).wrapping_mul(FIRST_INVERSE);
    z ^ (z >> 30) ^ (z >> 60)
}

/// The sequence number of a sandbox or container: its key everywhere in this plugin.
pub(crate) type Seq = u64;

/// Returns the id of a sequence number under the folder's own salt.
pub(crate) fn id(salt: u64, seq: Seq) -> String {
    let head = mix(seq ^ salt);
    let tail = |n: u64| mix(head.wrapping_add(salt).wrapping_add(STEP.wrapping_mul(n)));
    format!(
        "{head:016x}{:016x}{:016x}{:016x}",
        tail(1),
        tail(2),
        tail(3)
    )
}

/// Returns the sequence number that `text` is the id of, if it is one of this folder.
pub(crate) fn seq(salt: u64, text: &str) -> Option<Seq> {
    let head = u64::from_str_radix(text.get(..16)?, 16).ok()?;
    let seq = unmix(head) ^ salt;
    (text.len() == 64 && id(salt, seq) == text).then_some(seq)
}

/// Returns 64 hexadecimal digits that stand for a text: stable, and as good as unique.
pub(crate) fn digest(text: &str) -> String {
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    id(0, hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_leads_back_to_its_number() {
        for salt in [0, 1, u64::MAX, 1_781_234_567_890_123_456] {
            for number in [0, 1, 2, 1_000, u64::MAX] {
                let id = id(salt, number);
                assert_eq!(id.len(), 64);
                assert_eq!(seq(salt, &id), Some(number));
            }
        }
    }

    #[test]
    fn nothing_else_is_an_id() {
        let good = id(7, 1);
        for bad in [
            "",
            "x",
            &good[..63],
            &good.to_uppercase(),
            &format!("{}0", &good[..63]),
            "ééééééééé",
        ] {
            if bad != good {
                assert_eq!(seq(7, bad), None, "{bad}");
            }
        }
        assert_eq!(seq(8, &good), None);
    }
}
