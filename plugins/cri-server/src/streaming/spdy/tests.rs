//! Frames, by tables: what Go's implementation sends, and what is refused.

use proptest::prelude::*;

use super::frames::{Decoder, Encoder, SpdyError, SpdyFrame};
use super::headers::SpdyHeaders;

/// The header blocks of two streams as zlib packs them with the protocol's dictionary, one after the other.
const FIRST: &str = "78f9e3c6a7c202253a703a2b294a4dcc851625aca9a0808614cb45e01c6061606100a4398b20d198094ade8c0600000000ffff";
const SECOND: &str = "c2aa19540e2512d60b000000ffff";

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex
        .chars()
        .filter_map(|c| c.to_digit(16))
        .map(|d| u8::try_from(d).unwrap())
        .collect();
    digits
        .chunks(2)
        .map(|pair| pair[0] << 4 | pair[1])
        .collect()
}

fn open(id: u32, block: &str) -> Vec<u8> {
    let block = bytes(block);
    let length = u32::try_from(10 + block.len()).unwrap().to_be_bytes();
    let head = [0x80, 3, 0, 1, 0, length[1], length[2], length[3]];
    [&head[..], &id.to_be_bytes(), &[0; 6], &block].concat()
}

fn headers(pairs: &[(&str, &str)]) -> SpdyHeaders {
    pairs
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

fn all(decoder: &mut Decoder) -> Vec<SpdyFrame> {
    std::iter::from_fn(|| decoder.next_frame().unwrap()).collect()
}

fn pair() -> Vec<SpdyFrame> {
    let stream = |id, kind| SpdyFrame::Open {
        id,
        last: false,
        headers: headers(&[("streamtype", kind), ("port", "8080"), ("requestid", "0")]),
    };
    vec![stream(1, "error"), stream(3, "data")]
}

#[test]
fn blocks_packed_with_the_dictionary_read_one_after_the_other() {
    let mut decoder = Decoder::new();
    decoder.take(&open(1, FIRST));
    decoder.take(&open(3, SECOND));
    assert_eq!(all(&mut decoder), pair());
}

#[test]
fn frames_may_come_byte_by_byte() {
    let mut decoder = Decoder::new();
    let mut frames = Vec::new();
    for byte in [open(1, FIRST), open(3, SECOND)].concat() {
        decoder.take(&[byte]);
        frames.extend(all(&mut decoder));
    }
    assert_eq!(frames, pair());
}

#[test]
fn what_is_encoded_reads_back() {
    let long = "x".repeat(40_000);
    let frames = [
        SpdyFrame::Open {
            id: 1,
            last: true,
            headers: headers(&[("streamtype", "stdin")]),
        },
        SpdyFrame::Reply {
            id: 1,
            last: false,
            headers: SpdyHeaders::new(),
        },
        SpdyFrame::Headers {
            id: 1,
            last: true,
            headers: headers(&[("long", &long)]),
        },
        SpdyFrame::Reset { id: 5, status: 3 },
        SpdyFrame::Ping(7),
        SpdyFrame::GoAway {
            last_id: 9,
            status: 0,
        },
        SpdyFrame::Data {
            id: 1,
            last: false,
            bytes: b"some".to_vec(),
        },
        SpdyFrame::Data {
            id: 1,
            last: true,
            bytes: Vec::new(),
        },
        SpdyFrame::Reply {
            id: 3,
            last: false,
            headers: headers(&[("after", "others")]),
        },
    ];
    let (mut encoder, mut sent) = (Encoder::default(), Vec::new());
    frames
        .iter()
        .for_each(|frame| encoder.encode(frame, &mut sent));
    let mut decoder = Decoder::new();
    decoder.take(&sent);
    assert_eq!(all(&mut decoder), frames);
}

#[test]
fn a_data_frame_is_given_out_before_it_is_whole() {
    let mut decoder = Decoder::new();
    decoder.take(&[0, 0, 0, 3, 1, 0, 0, 5, b'a', b'b']);
    let data = |text: &[u8], last| SpdyFrame::Data {
        id: 3,
        last,
        bytes: text.to_vec(),
    };
    assert_eq!(all(&mut decoder), [data(b"ab", false)]);
    decoder.take(b"cde");
    assert_eq!(all(&mut decoder), [data(b"cde", true)]);
}

#[test]
fn what_is_no_frame_is_refused() {
    let refused = |bytes: &[u8]| {
        let mut decoder = Decoder::new();
        decoder.take(bytes);
        decoder.next_frame().unwrap_err()
    };
    assert_eq!(refused(&[0x80, 2, 0, 1, 0, 0, 0, 0]), SpdyError::Version(2));
    assert_eq!(refused(&[0x80, 3, 0, 5, 0, 0, 0, 0]), SpdyError::Kind(5));
    assert_eq!(
        refused(&[0x80, 3, 0, 3, 0, 0, 0, 4, 0, 0, 0, 1]),
        SpdyError::Length(3)
    );
    assert_eq!(
        refused(&[0x80, 3, 0, 1, 0, 0xff, 0xff, 0xff]),
        SpdyError::TooLong
    );
    assert_eq!(refused(&[0, 0, 0, 0, 0, 0, 0, 1]), SpdyError::NoStream);
    assert_eq!(
        refused(&[0x80, 3, 0, 3, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 1]),
        SpdyError::NoStream
    );
    assert_eq!(refused(&open(1, "0000")), SpdyError::Headers);
    assert_eq!(refused(&open(1, "7801")), SpdyError::Headers);
    // A count of headers that are not there.
    assert_eq!(
        refused(&open(1, "7801 00 0400 fbff ffffffff")),
        SpdyError::Headers
    );
    assert_eq!(
        refused(&open(1, "78f9e3c6a7c2 ffffffffffff")),
        SpdyError::Headers
    );
}

#[test]
fn a_small_block_does_not_unpack_to_a_big_one() {
    let mut stored = vec![0x78, 0x01];
    for _ in 0..3 {
        stored.extend([0, 0xff, 0xff, 0, 0]);
        stored.extend(vec![0; 0xffff]);
    }
    let mut unpacker = super::headers::HeaderDecoder::new();
    assert_eq!(unpacker.block(&stored), Err(SpdyError::TooLong));
}

fn heard(bytes: &[u8], pieces: usize) -> (Vec<u8>, Option<SpdyError>) {
    let mut decoder = Decoder::new();
    let mut data = Vec::new();
    for piece in bytes.chunks(pieces) {
        decoder.take(piece);
        loop {
            match decoder.next_frame() {
                Ok(Some(SpdyFrame::Data { bytes, .. })) => data.extend(bytes),
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(malformed) => return (data, Some(malformed)),
            }
        }
    }
    (data, None)
}

proptest! {
    #[test]
    fn nonsense_is_refused_alike_however_it_is_cut(
        kind in 0_u8..10,
        body in prop::collection::vec(any::<u8>(), 0..200),
        pieces in 1_usize..50,
    ) {
        let length = u8::try_from(body.len()).unwrap();
        let control = [&[0x80, 3, 0, kind, 0, 0, 0, length][..], &body].concat();
        prop_assert_eq!(heard(&control, pieces), heard(&control, usize::MAX));
        prop_assert_eq!(heard(&body, pieces), heard(&body, usize::MAX));
    }
}
