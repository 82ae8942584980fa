//! Addresses with a prefix length, and arithmetic of addresses.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An address with a prefix length: `10.1.0.5/16`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Prefixed {
    pub(crate) address: IpAddr,
    pub(crate) length: u8,
}

impl Prefixed {
    /// Reads CIDR notation; none if it is not of that form.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (address, length) = text.split_once('/')?;
        let address = parse(address)?;
        let length = length.parse().ok()?;
        (length <= bits(address)).then_some(Self { address, length })
    }

    /// Returns one address alone.
    pub(crate) fn host(address: IpAddr) -> Self {
        let length = bits(address);
        Self { address, length }
    }

    /// Returns the network of the address.
    pub(crate) fn network(self) -> Self {
        let address = from(number(self.address) & self.mask(), self.address);
        Self { address, ..self }
    }

    /// Tells whether the network has the address.
    pub(crate) fn contains(self, address: IpAddr) -> bool {
        self.address.is_ipv4() == address.is_ipv4()
            && number(address) & self.mask() == number(self.address) & self.mask()
    }

    /// The bits of the network, at the low end of the number.
    pub(crate) fn mask(self) -> u128 {
        let all = match self.address {
            IpAddr::V4(_) => u128::from(u32::MAX),
            IpAddr::V6(_) => u128::MAX,
        };
        let host = u32::from(bits(self.address) - self.length);
        all & all.checked_shl(host).unwrap_or(0)
    }

    pub(crate) fn mask_bytes(self) -> Vec<u8> {
        bytes(from(self.mask(), self.address))
    }
}

impl fmt::Display for Prefixed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

/// Reads an address; one of version 4 in the form of version 6 is of version 4.
pub(crate) fn parse(text: &str) -> Option<IpAddr> {
    Some(text.parse::<IpAddr>().ok()?.to_canonical())
}

/// Returns the bits of an address of the version.
pub(crate) fn bits(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

pub(crate) fn bytes(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

/// Reads an address of four or sixteen bytes.
pub(crate) fn from_bytes(bytes: &[u8]) -> Option<IpAddr> {
    if let Ok(four) = <[u8; 4]>::try_from(bytes) {
        return Some(Ipv4Addr::from(four).into());
    }
    let sixteen = <[u8; 16]>::try_from(bytes).ok()?;
    Some(Ipv6Addr::from(sixteen).into())
}

pub(crate) fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u32::from(address).into(),
        IpAddr::V6(address) => address.into(),
    }
}

/// Returns the address of a number, in the version of `like`.
pub(crate) fn from(number: u128, like: IpAddr) -> IpAddr {
    match like {
        IpAddr::V4(_) => {
            Ipv4Addr::from(u32::try_from(number & u128::from(u32::MAX)).unwrap_or(0)).into()
        }
        IpAddr::V6(_) => Ipv6Addr::from(number).into(),
    }
}

/// Returns the next address.
pub(crate) fn next(address: IpAddr) -> IpAddr {
    from(number(address).wrapping_add(1), address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_have_their_addresses_and_no_others() {
        let net = Prefixed::parse("10.1.2.3/16").unwrap();
        assert_eq!(net.network().to_string(), "10.1.0.0/16");
        assert!(net.contains(parse("10.1.255.255").unwrap()));
        assert!(!net.contains(parse("10.2.0.0").unwrap()));
        assert!(!net.contains(parse("::1").unwrap()));
        let all = Prefixed::parse("::/0").unwrap();
        assert!(all.contains(parse("ff02::1").unwrap()));
        assert_eq!(net.mask_bytes(), [255, 255, 0, 0]);
        assert_eq!(
            next(parse("10.0.0.255").unwrap()),
            parse("10.0.1.0").unwrap()
        );
        for wrong in ["10.0.0.1", "10.0.0.1/33", "::/129", "a/1", "10.0.0.1/-1"] {
            assert_eq!(Prefixed::parse(wrong), None, "{wrong}");
        }
    }
}
