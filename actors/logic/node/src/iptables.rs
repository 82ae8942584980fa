//! The rules that a node has for the sake of other components (`makeIPTablesUtilChains`): a chain that tells which of two
//! iptables the node uses, and one that keeps the outside from addresses that are the node's own.
//!
//! Upstream: pkg/kubelet/kubelet_network_linux.go (1.36). kube-proxy makes rules of the same names: they have to stay alike.

/// Seconds for which a call waits for another one that writes.
const LOCK_SECONDS: &str = "5";
/// The chain whose absence shows that all rules were removed, in each of [`CANARY_TABLES`].
pub const CANARY: &str = "KUBE-KUBELET-CANARY";
/// Where the canary is.
pub const CANARY_TABLES: [&str; 3] = ["mangle", "nat", "filter"];

/// The chain by which others know this iptables for the one in use.
const HINT: &str = "KUBE-IPTABLES-HINT";
const FIREWALL: &str = "KUBE-FIREWALL";

/// A version of IP, which has a program and rules of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum IpFamily {
    V4,
    V6,
}

impl IpFamily {
    /// Returns the program's name.
    pub fn program(self) -> &'static str {
        match self {
            IpFamily::V4 => "iptables",
            IpFamily::V6 => "ip6tables",
        }
    }
}

/// A rule in a chain, and how to have it there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    table: &'static str,
    chain: &'static str,
    /// `-A` or `-I`.
    adding: &'static str,
    matching: &'static [&'static str],
}

/// One thing that must be there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuleStep {
    /// A chain in a table.
    Chain {
        table: &'static str,
        chain: &'static str,
    },
    Rule(Rule),
}

/// Returns what must be there, in the order in which it can be made.
pub fn steps(family: IpFamily) -> Vec<RuleStep> {
    let hint = RuleStep::Chain {
        table: "mangle",
        chain: HINT,
    };
    let firewall = RuleStep::Chain {
        table: "filter",
        chain: FIREWALL,
    };
    match family {
        IpFamily::V4 => vec![
            hint,
            firewall,
            RuleStep::Rule(jump_to_firewall("OUTPUT")),
            RuleStep::Rule(jump_to_firewall("INPUT")),
            RuleStep::Rule(LOOPBACK_RULE),
        ],
        // The kernel routes no IPv6 loopback address from outside.
        IpFamily::V6 => vec![hint],
    }
}

/// Packets from elsewhere to 127.0.0.0/8, which route_localnet would let in.
const LOOPBACK_RULE: Rule = Rule {
    table: "filter",
    chain: FIREWALL,
    adding: "-A",
    matching: &[
        "-m",
        "comment",
        "--comment",
        "block incoming localnet connections",
        "--dst",
        "127.0.0.0/8",
        "!",
        "--src",
        "127.0.0.0/8",
        "-m",
        "conntrack",
        "!",
        "--ctstate",
        "RELATED,ESTABLISHED,DNAT",
        "-j",
        "DROP",
    ],
};

fn jump_to_firewall(chain: &'static str) -> Rule {
    Rule {
        table: "filter",
        chain,
        adding: "-I",
        matching: &["-j", FIREWALL],
    }
}

impl Rule {
    /// The call that fails where the rule is not there.
    pub fn check(&self) -> Vec<&'static str> {
        self.call("-C")
    }

    /// The call that adds it.
    pub fn add(&self) -> Vec<&'static str> {
        self.call(self.adding)
    }

    fn call(&self, operation: &'static str) -> Vec<&'static str> {
        let mut call = chain_call(operation, self.table, self.chain);
        call.extend(self.matching);
        call
    }
}

/// The call that makes a chain, and fails where it is there.
pub fn make_chain(table: &'static str, chain: &'static str) -> Vec<&'static str> {
    chain_call("-N", table, chain)
}

/// The call that fails where a chain is not there.
pub fn check_chain(table: &'static str, chain: &'static str) -> Vec<&'static str> {
    chain_call("-S", table, chain)
}

/// The call that fails where the kernel or the machine has no such iptables.
pub fn probe() -> Vec<&'static str> {
    check_chain("nat", "POSTROUTING")
}

/// With the arguments of iptables 1.4.22 or newer.
fn chain_call(
    operation: &'static str,
    table: &'static str,
    chain: &'static str,
) -> Vec<&'static str> {
    vec!["-w", LOCK_SECONDS, operation, chain, "-t", table]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calls(family: IpFamily) -> Vec<String> {
        let call = |step| match step {
            RuleStep::Chain { table, chain } => make_chain(table, chain).join(" "),
            RuleStep::Rule(rule) => rule.add().join(" "),
        };
        steps(family).into_iter().map(call).collect()
    }

    #[test]
    fn the_rules_are_those_of_the_kubelet_and_kube_proxy() {
        let hint = "-w 5 -N KUBE-IPTABLES-HINT -t mangle";
        assert_eq!(calls(IpFamily::V6), [hint]);
        let expected = [
            hint,
            "-w 5 -N KUBE-FIREWALL -t filter",
            "-w 5 -I OUTPUT -t filter -j KUBE-FIREWALL",
            "-w 5 -I INPUT -t filter -j KUBE-FIREWALL",
            "-w 5 -A KUBE-FIREWALL -t filter -m comment --comment block incoming localnet connections \
             --dst 127.0.0.0/8 ! --src 127.0.0.0/8 -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP",
        ];
        assert_eq!(calls(IpFamily::V4), expected);
        let check = "-w 5 -C OUTPUT -t filter -j KUBE-FIREWALL";
        assert_eq!(jump_to_firewall("OUTPUT").check().join(" "), check);
        assert_eq!(probe().join(" "), "-w 5 -S POSTROUTING -t nat");
    }
}
