//! What is seen of a namespace by the kernel's own tools, without what differs by chance.

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::{Value, json};

use super::rig::output;

const SYSCTLS: [&str; 11] = [
    "net.ipv4.ip_forward",
    "net.ipv6.conf.all.forwarding",
    "net.ipv6.conf.{}.accept_ra",
    "net.ipv6.conf.{}.accept_dad",
    "net.ipv6.conf.{}.disable_ipv6",
    "net.ipv6.conf.{}.enhanced_dad",
    "net.ipv4.conf.{}.arp_notify",
    "net.ipv4.conf.{}.route_localnet",
    "net.ipv4.conf.{}.rp_filter",
    "net.ipv4.conf.{}.arp_filter",
    "net.core.somaxconn",
];

/// A veth's name on the node is drawn at random.
pub(crate) fn plain(text: &str) -> String {
    match text.strip_prefix("veth") {
        Some(rest) if rest.len() == 8 => "veth".to_owned(),
        _ => text.to_owned(),
    }
}

/// Links with their settings, addresses, routes and parameters. Left out: the queue's length and keep_addr_on_down, which the programs leave alone since
/// version 1.2 and set since 1.6, and Debian's 1.1 does otherwise.
pub(crate) fn of(namespace: &str) -> Value {
    let links: Vec<Value> = parsed(namespace, &["ip", "-d", "-j", "address"]);
    let links: BTreeMap<_, _> = links
        .iter()
        .map(|link| {
            let name = link["ifname"].as_str().unwrap();
            (plain(name), seen(namespace, name, link))
        })
        .collect();
    json!({ "links": links, "routes": routes(namespace) })
}

fn parsed(namespace: &str, words: &[&str]) -> Vec<Value> {
    match output(namespace, words).trim() {
        "" => Vec::new(),
        text => serde_json::from_str(text).unwrap(),
    }
}

fn seen(namespace: &str, name: &str, link: &Value) -> Value {
    let addresses = link["addr_info"].as_array().unwrap().iter();
    let addresses: Vec<_> = addresses
        .filter(|of| of["scope"] != "link")
        .map(|of| {
            let kept = ["local", "prefixlen", "broadcast", "scope", "label"];
            Value::from_iter(kept.map(|key| (key, of[key].clone())))
                .to_string()
                .replace(name, &plain(name))
        })
        .collect();
    let mut flags: Vec<_> = link["flags"]
        .as_array()
        .unwrap()
        .iter()
        .map(Value::to_string)
        .collect();
    flags.sort();
    let info = &link["linkinfo"];
    let port = &info["info_slave_data"];
    let ports = [
        "hairpin",
        "isolated",
        "learning",
        "flood",
        "fastleave",
        "guard",
        "root_block",
    ];
    json!({
        "flags": flags,
        "addresses": addresses,
        "mtu": link["mtu"],
        "state": link["operstate"],
        "kind": info["info_kind"],
        "vlan_filtering": info["info_data"]["vlan_filtering"],
        "port": ports.map(|key| port[key].to_string()),
        "master": link["master"],
        "promiscuity": link["promiscuity"],
        "allmulti": link["allmulti"],
        "queueing": link["qdisc"],
        "group": link["group"],
        "sysctls": sysctls(namespace, name),
    })
}

fn sysctls(namespace: &str, link: &str) -> Vec<String> {
    let each = SYSCTLS.iter().map(|name| {
        let path = format!("/proc/sys/{}", name.replace('.', "/").replace("{}", link));
        let value = output(
            namespace,
            &["sh", "-c", &format!("cat {path} 2>/dev/null || echo none")],
        );
        format!("{name} {}", value.trim())
    });
    each.collect()
}

fn routes(namespace: &str) -> Vec<String> {
    let mut all = Vec::new();
    for version in ["-4", "-6"] {
        for route in parsed(
            namespace,
            &["ip", version, "-j", "route", "show", "table", "all"],
        ) {
            let text = |key: &str| route[key].as_str().unwrap_or_default().to_owned();
            let (to, link) = (text("dst"), plain(&text("dev")));
            // Of addresses that are made of hardware addresses, drawn at random.
            if to.starts_with("fe80:") {
                continue;
            }
            let kept = [
                "type", "gateway", "prefsrc", "protocol", "scope", "metric", "table", "flags",
            ];
            let kept = kept.map(|key| format!("{key}={}", route[key]));
            all.push(format!("{to} {link} {}", kept.join(" ")));
        }
    }
    all.sort();
    all
}

/// The queueing disciplines, and where packets are turned to another link.
pub(crate) fn queueing(namespace: &str) -> Vec<String> {
    let all = output(namespace, &["tc", "qdisc", "show"]);
    let mut shown = Vec::new();
    for line in all.lines() {
        let name = line
            .split_whitespace()
            .skip_while(|word| *word != "dev")
            .nth(1)
            .unwrap();
        shown.push(line.replace(name, &plain(name)));
        if line.contains("ingress") {
            let filters = output(namespace, &["tc", "filter", "show", "dev", name, "ingress"]);
            // The library of the programs adds the same action again, which no packet reaches.
            let turned = filters
                .lines()
                .map(str::trim)
                .find(|line| line.contains("mirred"));
            shown.push(turned.unwrap_or("none").to_owned());
        }
    }
    shown
}

/// The rules of pods in the tables of nf_tables that are the plugins' own: what nft(8) shows, one line each.
pub(crate) fn pods_rules(namespace: &str) -> Vec<String> {
    let all = nft(namespace);
    let lines = all.lines().map(str::trim);
    lines
        .filter(|line| line.contains("comment") && !line.starts_with("comment"))
        .map(ToOwned::to_owned)
        .collect()
}

/// The tables of nf_tables that are the plugins' own. Without nft(8) nothing is seen; with `CI=true` that panics.
pub(crate) fn nft(namespace: &str) -> String {
    let has_nft = Command::new("nft").arg("--version").output().is_ok();
    if !has_nft {
        let why = "nft is missing: apt-get install nftables";
        assert!(std::env::var("CI").as_deref() != Ok("true"), "{why}");
        eprintln!("not looked at: {why}");
        return String::new();
    }
    let all = output(namespace, &["nft", "list", "ruleset"]);
    let tables = all.split("\n}\n");
    let own = tables.filter(|table| table.contains("cni_"));
    own.map(|table| format!("{table}\n}}\n")).collect()
}
