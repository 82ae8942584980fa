//! bandwidth: a token bucket at the node's end of the pod's interface; and for what the pod sends, one at a link of kind
//! ifb to which the kernel turns it.

use std::fs;
use std::io;

use network_cni::{Call, CniError, CniResult, Interface, Work};
use serde::Deserialize;

use crate::conf::{self, NotBuiltIn};
use crate::failure::{OrFail, fail};
use crate::inside;
use crate::links::{CREATE, EXCLUSIVE, Link, Links, mtu};
use crate::names::hashed;
use crate::netlink::Message;
use crate::netlink::attributes::{Attributes, find, text};

const NEW_QDISC: u16 = 36;
const GET_QDISC: u16 = 38;
const NEW_FILTER: u16 = 44;
const KIND: u16 = 1;
const OPTIONS: u16 = 2;
const BUCKET_PARAMETERS: u16 = 1;
const BUCKET_RATE: u16 = 4;
const ROOT: u32 = 0xffff_ffff;
const INGRESS: u32 = 0xffff_fff1;
const INGRESS_HANDLE: u32 = 0xffff_0000;
const BUCKET_HANDLE: u32 = 0x1_0000;
const CLASS: u32 = 0x1_0001;
/// Priority 1, and every protocol in the network's order.
const FIRST_OF_ALL: u32 = (1 << 16) | 0x0300;
const QUEUE: u16 = 13;

const PREFIX: &str = "bwp";
const NAME: usize = 15;
const MICROS: f64 = 1e6;
/// How long a packet may wait in a bucket.
const LATENCY_MICROS: f64 = 25_000.0;

/// Bits a second, and bits.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct Limits {
    ingress_rate: u64,
    ingress_burst: u64,
    egress_rate: u64,
    egress_burst: u64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct Conf {
    ingress_rate: Option<u64>,
    ingress_burst: Option<u64>,
    egress_rate: Option<u64>,
    egress_burst: Option<u64>,
    runtime_config: Runtime,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Runtime {
    bandwidth: Option<Limits>,
}

/// A token bucket, as the kernel has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bucket {
    /// Bytes a second.
    rate: u64,
    /// Bytes that may wait.
    limit: u32,
    /// The burst, as the time in the kernel's ticks that it takes.
    buffer: u32,
}

pub(crate) fn plan(call: &Call) -> Result<Work, NotBuiltIn> {
    let conf: Conf = conf::read(call)?;
    let limits = conf.limits();
    let call = call.clone();
    Ok(Box::new(move || match call.verb {
        "ADD" => add(limits, &call),
        "DEL" => delete(&call),
        "CHECK" => check(limits, &call),
        _ => Ok(CniResult::default()),
    }))
}

impl Conf {
    /// Those of the configuration itself count before those of the pod.
    fn limits(&self) -> Limits {
        let own = [
            self.ingress_rate,
            self.ingress_burst,
            self.egress_rate,
            self.egress_burst,
        ];
        match own.iter().any(Option::is_some) {
            false => self.runtime_config.bandwidth.unwrap_or_default(),
            true => Limits {
                ingress_rate: self.ingress_rate.unwrap_or_default(),
                ingress_burst: self.ingress_burst.unwrap_or_default(),
                egress_rate: self.egress_rate.unwrap_or_default(),
                egress_burst: self.egress_burst.unwrap_or_default(),
            },
        }
    }
}

impl Limits {
    /// The buckets for what the pod receives and for what it sends.
    fn buckets(self) -> Result<[Option<Bucket>; 2], CniError> {
        let ticks = ticks_of_micro().or_fail("the kernel's ticks")?;
        Ok([
            Bucket::of(self.ingress_rate, self.ingress_burst, ticks)?,
            Bucket::of(self.egress_rate, self.egress_burst, ticks)?,
        ])
    }
}

impl Bucket {
    fn of(rate: u64, burst: u64, ticks_of_micro: f64) -> Result<Option<Self>, CniError> {
        match (rate, burst) {
            (0, 0) => return Ok(None),
            (_, 0) => return Err(fail("if rate is set, burst must also be set")),
            (0, _) => return Err(fail("if burst is set, rate must also be set")),
            _ => {}
        }
        let burst = u32::try_from(burst / 8)
            .ok()
            .filter(|burst| *burst < u32::MAX);
        let burst = burst.ok_or_else(|| fail("burst cannot be more than 4GB"))?;
        let rate = rate / 8;
        if rate == 0 {
            return Err(fail("invalid rate: expected at least 8 bits a second"));
        }
        let span = whole(f64::from(burst) * MICROS / float(rate));
        let waiting = whole(float(rate) * LATENCY_MICROS / MICROS);
        Ok(Some(Self {
            rate,
            limit: waiting.saturating_add(burst),
            buffer: whole(f64::from(span) * ticks_of_micro),
        }))
    }

    /// `struct tc_tbf_qopt` of linux/pkt_sched.h.
    fn parameters(&self) -> Vec<u8> {
        let rate = u32::try_from(self.rate).unwrap_or(u32::MAX);
        let mut bytes = vec![0; 8];
        bytes.extend(rate.to_ne_bytes());
        bytes.extend([0; 12]);
        for number in [self.limit, self.buffer, 0] {
            bytes.extend(number.to_ne_bytes());
        }
        bytes
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a rate of more than 2^53 bytes a second"
)]
fn float(number: u64) -> f64 {
    number as f64
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the fraction is cut off as the program does it; what is too large is the largest"
)]
fn whole(number: f64) -> u32 {
    number as u32
}

/// The kernel's clock of traffic control: psched of proc(5).
fn ticks_of_micro() -> io::Result<f64> {
    let text = fs::read_to_string("/proc/net/psched")?;
    let numbers = text
        .split_whitespace()
        .map(|word| u32::from_str_radix(word, 16));
    let numbers: Vec<_> = numbers
        .collect::<Result<_, _>>()
        .map_err(io::Error::other)?;
    match numbers[..] {
        [nanos, ticks, resolution, ..] if ticks > 0 => {
            Ok(f64::from(nanos) / f64::from(ticks) * (f64::from(resolution) / MICROS))
        }
        _ => Err(io::Error::other("/proc/net/psched has not four numbers")),
    }
}

fn ifb(call: &Call) -> String {
    hashed(
        PREFIX,
        &format!("{}{}", call.network, call.container_id),
        NAME,
    )
}

fn add(limits: Limits, call: &Call) -> Result<CniResult, CniError> {
    let previous = call.previous.as_ref();
    let [receives, sends] = limits.buckets()?;
    if receives.is_none() && sends.is_none() {
        return Ok(previous.cloned().unwrap_or_default());
    }
    let previous = previous.ok_or_else(|| fail("must be called as chained plugin"))?;
    let mut result = previous.clone();
    let links = &mut Links::open().or_fail("failed to open a netlink socket")?;
    let outside = node_end(links, call, previous)?;
    if let Some(bucket) = receives {
        put(links, outside.index, bucket).or_fail("create qdisc")?;
    }
    if let Some(bucket) = sends {
        let name = ifb(call);
        let with = mtu(outside.mtu).u32(QUEUE, 0);
        links.make("ifb", &name, &with).or_fail("adding link")?;
        let link = links
            .named(&name)
            .or_fail(format!("get ifb device {name:?}"))?;
        links
            .set_up(link.index)
            .or_fail(format!("failed to set {name:?} up"))?;
        turn(links, outside.index, link.index).or_fail("add filter")?;
        put(links, link.index, bucket).or_fail("create ifb qdisc")?;
        result.interfaces.push(Interface {
            mac: link.mac_text(),
            name,
            ..Interface::default()
        });
    }
    Ok(result)
}

fn delete(call: &Call) -> Result<CniResult, CniError> {
    let links = &mut Links::open().or_fail("failed to open a netlink socket")?;
    let name = ifb(call);
    let found = links
        .find(&name)
        .or_fail(format!("failed to lookup {name:?}"))?;
    if let Some(link) = found {
        links
            .delete(link.index)
            .or_fail(format!("failed to delete {name:?}"))?;
    }
    Ok(CniResult::default())
}

fn check(limits: Limits, call: &Call) -> Result<CniResult, CniError> {
    let previous = call.previous.as_ref();
    let previous = previous.ok_or_else(|| fail("must be called as a chained plugin"))?;
    let links = &mut Links::open().or_fail("failed to open a netlink socket")?;
    let [receives, sends] = limits.buckets()?;
    if let Some(bucket) = receives {
        let outside = node_end(links, call, previous)?;
        check_bucket(links, &outside, bucket)?;
    }
    if let Some(bucket) = sends {
        let link = links.named(&ifb(call)).or_fail("get ifb device")?;
        check_bucket(links, &link, bucket)?;
    }
    Ok(CniResult::default())
}

/// The other end of the sandbox's interface, which a plugin before this one has told.
fn node_end(links: &mut Links, call: &Call, result: &CniResult) -> Result<Link, CniError> {
    let interface = &call.interface;
    let sandbox = inside::open(&call.netns)?;
    let inside = inside::within(&sandbox, |links| {
        links
            .named(interface)
            .or_fail(format!("failed to lookup {interface:?}"))
    })?;
    let no_peer = || fail(format!("container interface {interface} has no veth peer"));
    let index = inside
        .peer
        .filter(|_| inside.kind == "veth")
        .ok_or_else(no_peer)?;
    let link = links.at(index).or_fail("failed to look at links")?;
    let link =
        link.ok_or_else(|| fail(format!("veth peer with index {index} is not in host ns")))?;
    let mut told = result.interfaces.iter();
    match told.any(|told| told.sandbox.is_empty() && told.name == link.name) {
        true => Ok(link),
        false => Err(fail("no veth peer of container interface found in host ns")),
    }
}

/// `struct tcmsg` of linux/rtnetlink.h.
fn head(link: u32, handle: u32, parent: u32, info: u32) -> Vec<u8> {
    let numbers = [0, link, handle, parent, info];
    numbers.into_iter().flat_map(u32::to_ne_bytes).collect()
}

fn put(links: &mut Links, link: u32, bucket: Bucket) -> io::Result<()> {
    let mut options = Attributes::new().bytes(BUCKET_PARAMETERS, &bucket.parameters());
    if bucket.rate > u64::from(u32::MAX) {
        options = options.bytes(BUCKET_RATE, &bucket.rate.to_ne_bytes());
    }
    links.socket().change(&Message {
        kind: NEW_QDISC,
        flags: CREATE | EXCLUSIVE,
        head: head(link, BUCKET_HANDLE, ROOT, 0),
        attributes: Attributes::new().text(KIND, "tbf").nested(OPTIONS, options),
    })
}

/// Has all packets that come in by one link go out by another one.
fn turn(links: &mut Links, from: u32, to: u32) -> io::Result<()> {
    links.socket().change(&Message {
        kind: NEW_QDISC,
        flags: CREATE | EXCLUSIVE,
        head: head(from, INGRESS_HANDLE, INGRESS, 0),
        attributes: Attributes::new().text(KIND, "ingress"),
    })?;
    // `struct tc_u32_sel`: terminal, with one key that every packet has.
    let mut selector = vec![1, 0, 1, 0];
    selector.resize(32, 0);
    // `struct tc_mirred`: stolen from its way (4), and sent by the other link (1).
    let mirred = [0, 0, 4, 0, 0, 1, to];
    let mirred: Vec<_> = mirred.into_iter().flat_map(u32::to_ne_bytes).collect();
    let action = Attributes::new()
        .text(1, "mirred")
        .nested(2, Attributes::new().bytes(2, &mirred));
    let options = Attributes::new()
        .bytes(5, &selector)
        .u32(1, CLASS)
        .nested(7, Attributes::new().nested(1, action));
    links.socket().change(&Message {
        kind: NEW_FILTER,
        flags: CREATE | EXCLUSIVE,
        head: head(from, 0, INGRESS_HANDLE, FIRST_OF_ALL),
        attributes: Attributes::new().text(KIND, "u32").nested(OPTIONS, options),
    })
}

fn check_bucket(links: &mut Links, link: &Link, bucket: Bucket) -> Result<(), CniError> {
    let message = Message {
        kind: GET_QDISC,
        flags: 0,
        head: head(link.index, 0, 0, 0),
        attributes: Attributes::new(),
    };
    let all = links
        .socket()
        .list(&message)
        .or_fail("could not list qdiscs")?;
    let parameters = bucket.parameters();
    let has = all.iter().any(|answer| {
        let (head, attributes) = answer.body.split_at(20.min(answer.body.len()));
        let is_here = head.get(4..8) == Some(&link.index.to_ne_bytes()[..]);
        let is_bucket = find(attributes, KIND).map(text).as_deref() == Some("tbf");
        let options = find(attributes, OPTIONS).unwrap_or_default();
        let told = find(options, BUCKET_PARAMETERS).unwrap_or_default();
        // The rate, the limit and the burst; the kernel adds what it was not told.
        let same = |range: std::ops::Range<usize>| told.get(range.clone()) == parameters.get(range);
        is_here && is_bucket && same(8..12) && same(24..32)
    });
    match has {
        true => Ok(()),
        false => Err(fail(format!(
            "link {}: its token bucket is not there, or another one",
            link.name
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_as_large_as_the_program_s() {
        // 8 Mbit/s with a burst of 2 Mbit, at 15.625 ticks a microsecond: `tc qdisc add ... tbf rate 8mbit burst 250000`.
        let bucket = Bucket::of(8_000_000, 2_000_000, 15.625).unwrap().unwrap();
        assert_eq!(
            bucket,
            Bucket {
                rate: 1_000_000,
                limit: 275_000,
                buffer: 3_906_250
            }
        );
        assert_eq!(Bucket::of(0, 0, 15.625).unwrap(), None);
        for (rate, burst) in [(1, 0), (0, 1), (8, u64::MAX), (7, 8)] {
            assert!(Bucket::of(rate, burst, 15.625).is_err(), "{rate} {burst}");
        }
    }

    #[test]
    fn the_link_s_name_is_the_program_s() {
        let call = Call {
            network: "net".to_owned(),
            container_id: "a".to_owned(),
            ..Call::default()
        };
        assert_eq!(ifb(&call).len(), 15);
        assert!(ifb(&call).starts_with("bwp"));
    }
}
