//! Expressions of nf_tables rules, encoded as nft(8) does it, so that it prints them as rules.

use std::net::IpAddr;

use crate::address::{self, Prefixed};
use crate::netlink::attributes::Attributes;

const ELEMENT: u16 = 1;
const NAME: u16 = 1;
const DATA: u16 = 2;
const VALUE: u16 = 1;
const VERDICT: u16 = 2;

/// Registers of sixteen bytes.
const FIRST: u32 = 1;
const SECOND: u32 = 2;
const VERDICT_REGISTER: u32 = 0;

const META_IIF: u32 = 4;
const META_PROTOCOL_FAMILY: u32 = 15;
const META_TRANSPORT: u32 = 16;
const NETWORK_HEADER: u32 = 1;
const TRANSPORT_HEADER: u32 = 2;
const NOT_EQUAL: u32 = 1;
const DESTINATION_PORT: u32 = 2;
const DNAT: u32 = 1;
const ADDRESS_TYPE: u32 = 3;
const OF_DESTINATION: u32 = 2;
/// `RTN_LOCAL`.
const LOCAL: u32 = 2;

const COMMENT_INFO: usize = 256;
/// At a multiple of eight bytes.
const CONNTRACK_INFO: usize = 168;
const BY_STATE: u16 = 1;
const ESTABLISHED_OR_RELATED: u16 = 2 | 4;

/// The index of `lo` in every network namespace, `LOOPBACK_IFINDEX`.
const LOOPBACK_INDEX: u32 = 1;

const INET: u8 = 2;
const INET6: u8 = 10;

/// What becomes of a packet.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Target<'a> {
    Accept,
    Drop,
    Return,
    Jump(&'a str),
    Goto(&'a str),
}

/// The side of a packet's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Source,
    Destination,
}

/// The expressions of one rule, in their order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Expressions(pub(super) Attributes);

impl Expressions {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(super) fn with(self, name: &str, data: Attributes) -> Self {
        let element = Attributes::new().text(NAME, name).nested(DATA, data);
        Self(self.0.nested(ELEMENT, element))
    }

    fn meta(self, key: u32) -> Self {
        self.with("meta", Attributes::new().be32(1, FIRST).be32(2, key))
    }

    fn compare(self, operator: u32, value: &[u8]) -> Self {
        let data = Attributes::new().bytes(VALUE, value);
        let compare = Attributes::new().be32(1, FIRST).be32(2, operator);
        self.with("cmp", compare.nested(3, data))
    }

    fn load(self, header: u32, offset: u32, length: u32) -> Self {
        let load = Attributes::new().be32(1, FIRST).be32(2, header);
        self.with("payload", load.be32(3, offset).be32(4, length))
    }

    /// Packets of the address's version, in a table of both.
    pub(crate) fn version_of(self, address: IpAddr) -> Self {
        let family = if address.is_ipv4() { INET } else { INET6 };
        self.meta(META_PROTOCOL_FAMILY).compare(0, &[family])
    }

    /// Packets that came in by another link than the loopback.
    pub(crate) fn not_from_loopback(self) -> Self {
        self.meta(META_IIF)
            .compare(NOT_EQUAL, &LOOPBACK_INDEX.to_ne_bytes())
    }

    /// Packets whose address is in a network.
    pub(crate) fn within(self, side: Side, of: Prefixed) -> Self {
        self.address(side, of, 0)
    }

    /// Packets whose address is not in a network.
    pub(crate) fn not_within(self, side: Side, of: Prefixed) -> Self {
        self.address(side, of, NOT_EQUAL)
    }

    fn address(self, side: Side, of: Prefixed, operator: u32) -> Self {
        let (offset, length) = match (of.address, side) {
            (IpAddr::V4(_), Side::Source) => (12, 4),
            (IpAddr::V4(_), Side::Destination) => (16, 4),
            (IpAddr::V6(_), Side::Source) => (8, 16),
            (IpAddr::V6(_), Side::Destination) => (24, 16),
        };
        let loaded = self.load(NETWORK_HEADER, offset, length);
        let value = address::bytes(of.network().address);
        match of.length == address::bits(of.address) {
            true => loaded.compare(operator, &value),
            false => loaded.mask(&of.mask_bytes()).compare(operator, &value),
        }
    }

    fn mask(self, mask: &[u8]) -> Self {
        let length = u32::try_from(mask.len()).expect("an address is short");
        let value = |bytes: &[u8]| Attributes::new().bytes(VALUE, bytes);
        let mask_only = Attributes::new()
            .be32(1, FIRST)
            .be32(2, FIRST)
            .be32(3, length);
        let none = vec![0; mask.len()];
        self.with(
            "bitwise",
            mask_only.nested(4, value(mask)).nested(5, value(&none)),
        )
    }

    /// Packets to a port of a transport protocol, by its number.
    pub(crate) fn destined_to(self, protocol: u8, port: u16) -> Self {
        self.meta(META_TRANSPORT)
            .compare(0, &[protocol])
            .load(TRANSPORT_HEADER, DESTINATION_PORT, 2)
            .compare(0, &port.to_be_bytes())
    }

    /// Packets to an address of this node.
    pub(crate) fn destined_here(self) -> Self {
        let look = Attributes::new().be32(1, FIRST).be32(2, ADDRESS_TYPE);
        self.with("fib", look.be32(3, OF_DESTINATION))
            .compare(0, &LOCAL.to_ne_bytes())
    }

    fn immediate(self, register: u32, value: Attributes) -> Self {
        let data = Attributes::new().be32(1, register).nested(2, value);
        self.with("immediate", data)
    }

    pub(crate) fn verdict(self, verdict: Target<'_>) -> Self {
        let (code, chain) = match verdict {
            Target::Accept => (1, None),
            Target::Drop => (0, None),
            Target::Jump(chain) => (-3, Some(chain)),
            Target::Goto(chain) => (-4, Some(chain)),
            Target::Return => (-5_i32, None),
        };
        let mut inner = Attributes::new().be32(1, code.cast_unsigned());
        if let Some(chain) = chain {
            inner = inner.text(2, chain);
        }
        let data = Attributes::new().nested(VERDICT, inner);
        self.immediate(VERDICT_REGISTER, data)
    }

    pub(crate) fn masquerade(self) -> Self {
        self.with("masq", Attributes::new())
    }

    /// Sends packets to another address and port.
    pub(crate) fn destination(self, address: IpAddr, port: u16) -> Self {
        let value = |bytes: &[u8]| Attributes::new().bytes(VALUE, bytes);
        let family = if address.is_ipv4() { INET } else { INET6 };
        let nat = Attributes::new().be32(1, DNAT).be32(2, family.into());
        self.immediate(FIRST, value(&address::bytes(address)))
            .immediate(SECOND, value(&port.to_be_bytes()))
            .with("nat", nat.be32(3, FIRST).be32(5, SECOND))
    }

    /// An extension of iptables, with the structure that it reads.
    fn iptables_match(self, name: &str, revision: u32, info: &[u8]) -> Self {
        let extension = Attributes::new().text(1, name).be32(2, revision);
        self.with("match", extension.bytes(3, info))
    }

    /// A comment as iptables has it, `struct xt_comment_info`.
    pub(crate) fn iptables_comment(self, words: &str) -> Self {
        let mut info = words.as_bytes().to_vec();
        info.resize(COMMENT_INFO, 0);
        self.iptables_match("comment", 0, &info)
    }

    /// Packets of connections that are established, or related to one: `struct xt_conntrack_mtinfo3`.
    pub(crate) fn iptables_answers(self) -> Self {
        let mut info = vec![0; CONNTRACK_INFO];
        info[146..148].copy_from_slice(&BY_STATE.to_ne_bytes());
        info[150..152].copy_from_slice(&ESTABLISHED_OR_RELATED.to_ne_bytes());
        self.iptables_match("conntrack", 3, &info)
    }

    /// Counts packets, as each rule of iptables does.
    pub(crate) fn counter(self) -> Self {
        self.with("counter", Attributes::new().be64(1, 0).be64(2, 0))
    }
}
