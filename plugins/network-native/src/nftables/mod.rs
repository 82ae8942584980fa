//! nf_tables by netlink: tables, chains and rules, changed in one transaction.

mod expression;
pub(crate) mod iptables;

use std::io;

use rustix::io::Errno;

pub(crate) use self::expression::{Expressions, Side, Target};
use crate::links::is;
use crate::netlink::attributes::{Attributes, each, find, text};
use crate::netlink::{Answer, Message, Socket};

const SUBSYSTEM: u16 = 10 << 8;
const NEW_TABLE: u16 = SUBSYSTEM;
const NEW_CHAIN: u16 = SUBSYSTEM | 3;
const GET_CHAIN: u16 = SUBSYSTEM | 4;
const DELETE_CHAIN: u16 = SUBSYSTEM | 5;
const NEW_RULE: u16 = SUBSYSTEM | 6;
const GET_RULE: u16 = SUBSYSTEM | 7;
const DELETE_RULE: u16 = SUBSYSTEM | 8;
const BATCH_BEGIN: u16 = 16;
const BATCH_END: u16 = 17;

const ACK: u16 = 4;
/// `NLM_F_ECHO`: the kernel sends the new object back, with its handle.
const ECHO: u16 = 8;
const CREATE: u16 = 0x400;
const APPEND: u16 = 0x800;

const RULE_TABLE: u16 = 1;
const RULE_CHAIN: u16 = 2;
const RULE_HANDLE: u16 = 3;
const RULE_EXPRESSIONS: u16 = 4;
const RULE_USERDATA: u16 = 7;
const CHAIN_TABLE: u16 = 1;
const CHAIN_NAME: u16 = 3;
const CHAIN_HOOK: u16 = 4;
const CHAIN_TYPE: u16 = 7;
const CHAIN_USERDATA: u16 = 12;
const TABLE_NAME: u16 = 1;
const TABLE_USERDATA: u16 = 6;
/// The first kind of user data of tables, chains and rules: a text.
const COMMENT: u8 = 0;
/// What nft(8) takes.
const COMMENT_MAX: usize = 128;
/// A rule that goes away between its listing and its deletion fails the transaction.
const TRANSACTIONS_MAX: usize = 10;

/// Where a table is looked up: by the version of packets, or for both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    Both,
    V4,
    V6,
}

impl Family {
    pub(crate) const EACH: [Self; 2] = [Self::V4, Self::V6];

    pub(crate) fn of(address: std::net::IpAddr) -> Self {
        match address.is_ipv4() {
            true => Self::V4,
            false => Self::V6,
        }
    }

    fn number(self) -> u8 {
        match self {
            Self::Both => 1,
            Self::V4 => 2,
            Self::V6 => 10,
        }
    }
}

/// A place in the way of packets, with the order among chains there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hook {
    pub(crate) number: u32,
    pub(crate) priority: i32,
    pub(crate) kind: &'static str,
}

/// Packets come in, and their connection is not known yet.
pub(crate) const RAW_PREROUTING: Hook = Hook {
    number: 0,
    priority: -300,
    kind: "filter",
};
/// Destinations are changed as packets come in.
pub(crate) const PREROUTING: Hook = Hook {
    number: 0,
    priority: -100,
    kind: "nat",
};
/// Destinations of this node's own packets are changed.
pub(crate) const OUTPUT: Hook = Hook {
    number: 3,
    priority: -100,
    kind: "nat",
};
/// Sources are changed as packets go out.
pub(crate) const POSTROUTING: Hook = Hook {
    number: 4,
    priority: 100,
    kind: "nat",
};

/// Packets that are passed on are accepted or dropped.
pub(crate) const FORWARD: Hook = Hook {
    number: 2,
    priority: 0,
    kind: "filter",
};

/// A rule that is there.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    pub(crate) handle: u64,
    pub(crate) comment: Option<String>,
    expressions: Vec<u8>,
}

impl Rule {
    /// The chain to which it sends packets.
    pub(crate) fn target(&self) -> Option<String> {
        self.each().find_map(|(name, data)| match name.as_str() {
            "immediate" => find(find(find(data, 2)?, 2)?, 2).map(text),
            _ => None,
        })
    }

    /// Tells whether it compares something with these bytes.
    pub(crate) fn compares_with(&self, bytes: &[u8]) -> bool {
        self.each().any(|(name, data)| {
            let value = find(data, 3).and_then(|value| find(value, 1));
            name == "cmp" && value == Some(bytes)
        })
    }

    /// The names of its expressions, in their order.
    pub(crate) fn names(&self) -> Vec<String> {
        self.each().map(|(name, _)| name).collect()
    }

    /// The names and data of its expressions.
    fn each(&self) -> impl Iterator<Item = (String, &[u8])> {
        each(&self.expressions).filter_map(|(_, element)| {
            let name = text(find(element, 1)?);
            Some((name, find(element, 2).unwrap_or_default()))
        })
    }
}

/// Changes that are done together or not at all.
#[derive(Debug)]
pub(crate) struct Batch {
    family: Family,
    table: &'static str,
    messages: Vec<Message>,
}

impl Batch {
    pub(crate) fn new(family: Family, table: &'static str) -> Self {
        Self {
            family,
            table,
            messages: Vec::new(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    fn push(&mut self, kind: u16, flags: u16, attributes: Attributes) {
        self.messages.push(Message {
            kind,
            flags: flags | ACK,
            head: vec![self.family.number(), 0, 0, 0],
            attributes,
        });
    }

    /// Makes the table unless it is there.
    pub(crate) fn table(&mut self, words: Option<&str>) {
        let table = Attributes::new().text(TABLE_NAME, self.table);
        self.push(NEW_TABLE, CREATE, commented(table, TABLE_USERDATA, words));
    }

    fn chain_attributes(&self, name: &str) -> Attributes {
        Attributes::new()
            .text(CHAIN_TABLE, self.table)
            .text(CHAIN_NAME, name)
    }

    /// Makes a chain unless it is there.
    pub(crate) fn chain(&mut self, name: &str, words: Option<&str>) {
        let chain = commented(self.chain_attributes(name), CHAIN_USERDATA, words);
        self.push(NEW_CHAIN, CREATE, chain);
    }

    /// Makes a chain at a hook unless it is there.
    pub(crate) fn base_chain(&mut self, name: &str, hook: Hook) {
        let at = Attributes::new()
            .be32(1, hook.number)
            .be32(2, hook.priority.cast_unsigned());
        let chain = self.chain_attributes(name).nested(CHAIN_HOOK, at);
        self.push(NEW_CHAIN, CREATE, chain.text(CHAIN_TYPE, hook.kind));
    }

    /// Deletes a chain that no rule jumps to, with its rules.
    pub(crate) fn delete_chain(&mut self, name: &str) {
        self.flush(name);
        self.push(DELETE_CHAIN, 0, self.chain_attributes(name));
    }

    /// Deletes all rules of a chain.
    pub(crate) fn flush(&mut self, chain: &str) {
        let rule = self.rule_attributes(chain);
        self.push(DELETE_RULE, 0, rule);
    }

    fn rule_attributes(&self, chain: &str) -> Attributes {
        Attributes::new()
            .text(RULE_TABLE, self.table)
            .text(RULE_CHAIN, chain)
    }

    /// Adds a rule at the end of a chain. [`Tables::create`] returns those with a comment.
    pub(crate) fn rule(&mut self, chain: &str, rule: Expressions, words: Option<&str>) {
        let rule = self.rule_attributes(chain).nested(RULE_EXPRESSIONS, rule.0);
        let flags = CREATE | APPEND | if words.is_some() { ECHO } else { 0 };
        self.push(NEW_RULE, flags, commented(rule, RULE_USERDATA, words));
    }

    /// Adds a rule at the beginning of a chain.
    pub(crate) fn first_rule(&mut self, chain: &str, rule: Expressions) {
        let rule = self.rule_attributes(chain).nested(RULE_EXPRESSIONS, rule.0);
        self.push(NEW_RULE, CREATE, rule);
    }

    pub(crate) fn delete_rule(&mut self, chain: &str, handle: u64) {
        let rule = self.rule_attributes(chain).be64(RULE_HANDLE, handle);
        self.push(DELETE_RULE, 0, rule);
    }
}

fn commented(attributes: Attributes, kind: u16, words: Option<&str>) -> Attributes {
    let Some(words) = words else {
        return attributes;
    };
    let words = cut(words);
    let length = u8::try_from(words.len() + 1).expect("cut to less");
    let mut data = vec![COMMENT, length];
    data.extend(words.as_bytes());
    data.push(0);
    attributes.bytes(kind, &data)
}

/// As long as nft(8) takes a comment.
pub(crate) fn cut(words: &str) -> &str {
    &words[..words.floor_char_boundary(COMMENT_MAX)]
}

/// The tables of the namespace in which it was opened.
#[derive(Debug)]
pub(crate) struct Tables {
    socket: Socket,
}

impl Tables {
    pub(crate) fn open() -> io::Result<Self> {
        let socket = Socket::netfilter()?;
        Ok(Self { socket })
    }

    /// Returns the rules of a chain; none where there is no chain.
    pub(crate) fn rules(
        &mut self,
        family: Family,
        table: &str,
        chain: &str,
    ) -> io::Result<Vec<Rule>> {
        match self.socket.list(&get_rules(family, table, chain)) {
            Err(error) if is(&error, Errno::NOENT) => Ok(Vec::new()),
            answers => Ok(read_rules(&answers?, chain)),
        }
    }

    /// Gets one rule by its handle; `None` if the chain has no such rule.
    pub(crate) fn rule(
        &mut self,
        family: Family,
        table: &str,
        chain: &str,
        handle: u64,
    ) -> io::Result<Option<Rule>> {
        let mut message = get_rules(family, table, chain);
        message.attributes = message.attributes.be64(RULE_HANDLE, handle);
        match self.socket.get(&message) {
            Err(error) if is(&error, Errno::NOENT) => Ok(None),
            answers => Ok(read_rules(&answers?, chain).pop()),
        }
    }

    /// Tells whether there is a chain.
    pub(crate) fn has_chain(
        &mut self,
        family: Family,
        table: &str,
        chain: &str,
    ) -> io::Result<bool> {
        let message = Message {
            kind: GET_CHAIN,
            flags: 0,
            head: vec![family.number(), 0, 0, 0],
            attributes: Attributes::new()
                .text(CHAIN_TABLE, table)
                .text(CHAIN_NAME, chain),
        };
        match self.socket.get(&message) {
            Ok(_) => Ok(true),
            Err(error) if is(&error, Errno::NOENT) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Plans a transaction by what is there, and does it; again where another one came between.
    pub(crate) fn change(
        &mut self,
        plan: impl FnMut(&mut Self) -> io::Result<Batch>,
    ) -> io::Result<()> {
        self.create(plan).map(drop)
    }

    /// Like [`Self::change`], but returns the new rules that have a comment.
    pub(crate) fn create(
        &mut self,
        mut plan: impl FnMut(&mut Self) -> io::Result<Batch>,
    ) -> io::Result<Vec<Rule>> {
        let mut tried = 0;
        loop {
            let batch = plan(self)?;
            tried += 1;
            match self.commit(&batch) {
                Err(error)
                    if tried < TRANSACTIONS_MAX
                        && (is(&error, Errno::NOENT) || is(&error, Errno::BUSY)) => {}
                done => return done,
            }
        }
    }

    fn commit(&mut self, batch: &Batch) -> io::Result<Vec<Rule>> {
        if batch.is_empty() {
            return Ok(Vec::new());
        }
        let frame = |kind| Message {
            kind,
            flags: 0,
            // The subsystem stands where other messages have their own number, in the network's order.
            head: vec![0, 0, 0, 10],
            attributes: Attributes::new(),
        };
        let (begin, end) = (frame(BATCH_BEGIN), frame(BATCH_END));
        let all = [&begin].into_iter().chain(&batch.messages).chain([&end]);
        let all: Vec<_> = all.collect();
        let answers = self.socket.batch(&all)?;
        let made = answers.iter().filter(|answer| answer.kind == NEW_RULE);
        Ok(made
            .filter_map(|answer| read_rule(answer.body.get(4..)?))
            .collect())
    }
}

/// Asks for the rules of a chain.
fn get_rules(family: Family, table: &str, chain: &str) -> Message {
    Message {
        kind: GET_RULE,
        flags: 0,
        head: vec![family.number(), 0, 0, 0],
        attributes: Attributes::new()
            .text(RULE_TABLE, table)
            .text(RULE_CHAIN, chain),
    }
}

fn read_rules(answers: &[Answer], chain: &str) -> Vec<Rule> {
    answers
        .iter()
        .filter(|answer| answer.kind == NEW_RULE)
        .filter_map(|answer| answer.body.get(4..))
        // Kernels before 4.x list all chains of the table.
        .filter(|rule| find(rule, RULE_CHAIN).map(text).as_deref() == Some(chain))
        .filter_map(read_rule)
        .collect()
}

fn read_rule(attributes: &[u8]) -> Option<Rule> {
    let handle = find(attributes, RULE_HANDLE)?.try_into().ok()?;
    let userdata = find(attributes, RULE_USERDATA);
    Some(Rule {
        handle: u64::from_be_bytes(handle),
        comment: userdata.and_then(comment),
        expressions: find(attributes, RULE_EXPRESSIONS)
            .unwrap_or_default()
            .to_vec(),
    })
}

/// The comment among user data, which are kind, length, value.
fn comment(userdata: &[u8]) -> Option<String> {
    let mut rest = userdata;
    loop {
        let (kind, length) = (*rest.first()?, usize::from(*rest.get(1)?));
        let value = rest.get(2..2 + length)?;
        if kind == COMMENT {
            return Some(text(value));
        }
        rest = &rest[2 + length..];
    }
}
