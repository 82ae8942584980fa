//! The fields of protobuf's wire format that pods consist of.

const VARINT: u64 = 0;
const LENGTH_DELIMITED: u64 = 2;

/// Writes a field that is a number, a negative one in two's complement.
pub(super) fn number(field: u64, value: i64, out: &mut Vec<u8>) {
    varint((field << 3) | VARINT, out);
    varint(value.cast_unsigned(), out);
}

/// Writes a field that is a text or a message.
pub(super) fn bytes(field: u64, value: &[u8], out: &mut Vec<u8>) {
    varint((field << 3) | LENGTH_DELIMITED, out);
    varint(value.len() as u64, out);
    out.extend_from_slice(value);
}

/// Seven bits a byte, the lowest first; all but the last byte have the highest bit set.
fn varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(lowest_byte(value) | 0x80);
        value >>= 7;
    }
    out.push(lowest_byte(value));
}

fn lowest_byte(value: u64) -> u8 {
    value.to_le_bytes()[0]
}
