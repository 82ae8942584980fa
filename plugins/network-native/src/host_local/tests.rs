//! Laws of the store and of the order of addresses.

use std::collections::BTreeSet;

use serde_json::json;

use super::*;

fn ipam(dir: &std::path::Path, mut fields: Value) -> Ipam {
    fields["type"] = json!("host-local");
    fields["dataDir"] = json!(dir);
    let Value::Object(fields) = fields else {
        panic!("an object")
    };
    Ipam::read("net", fields, Vec::new()).unwrap()
}

fn holder(container: &str) -> Holder<'_> {
    Holder {
        container,
        interface: "eth0",
    }
}

fn add(ipam: &Ipam, container: &str) -> Result<Vec<String>, String> {
    let result = ipam.add(holder(container)).map_err(|error| error.msg)?;
    Ok(result.ips.into_iter().map(|ip| ip.address).collect())
}

#[test]
fn addresses_go_round_without_gateway_and_broadcast_and_end_with_the_program_s_words() {
    let dir = tempfile::tempdir().unwrap();
    let ipam = ipam(dir.path(), json!({ "subnet": "10.1.0.0/29" }));
    for last in 2..=6 {
        assert_eq!(
            add(&ipam, &format!("c{last}")).unwrap(),
            [format!("10.1.0.{last}/29")]
        );
    }
    assert_eq!(
        add(&ipam, "more").unwrap_err(),
        "failed to allocate for range 0: no IP addresses available in range set: 10.1.0.1-10.1.0.6"
    );
    ipam.delete(holder("c4")).unwrap();
    ipam.delete(holder("c3")).unwrap();
    // Behind the last one that was given, and round.
    assert_eq!(add(&ipam, "again").unwrap(), ["10.1.0.3/29"]);
    ipam.delete(holder("c2")).unwrap();
    assert_eq!(add(&ipam, "later").unwrap(), ["10.1.0.4/29"]);
    let text = fs::read_to_string(dir.path().join("net/10.1.0.4")).unwrap();
    assert_eq!(text, "later\r\neth0");
    let last = fs::read_to_string(dir.path().join("net/last_reserved_ip.0")).unwrap();
    assert_eq!(last, "10.1.0.4");
}

#[test]
fn each_range_set_gives_an_address_and_a_set_that_has_none_takes_all_back() {
    let dir = tempfile::tempdir().unwrap();
    let ipam = ipam(
        dir.path(),
        json!({ "ranges": [
            [
                { "subnet": "10.1.0.0/24", "rangeStart": "10.1.0.9", "rangeEnd": "10.1.0.9" },
                { "subnet": "10.2.0.0/24", "rangeStart": "10.2.0.5", "rangeEnd": "10.2.0.5", "gateway": "10.2.0.254" },
            ],
            [{ "subnet": "fd00::/64", "rangeEnd": "fd00::3" }],
        ] }),
    );
    assert_eq!(add(&ipam, "a").unwrap(), ["10.1.0.9/24", "fd00::2/64"]);
    assert!(
        add(&ipam, "a")
            .unwrap_err()
            .contains("duplicate allocation is not allowed")
    );
    let result = ipam.add(holder("b")).unwrap();
    assert_eq!(result.ips[0].gateway, "10.2.0.254");
    let before = names(dir.path());
    assert!(
        add(&ipam, "c")
            .unwrap_err()
            .contains("10.1.0.9-10.1.0.9,10.2.0.5-10.2.0.5")
    );
    ipam.delete(holder("a")).unwrap();
    ipam.check(holder("a")).unwrap_err();
    ipam.check(holder("b")).unwrap();
    assert!(before.is_superset(&names(dir.path())));
}

fn names(dir: &std::path::Path) -> BTreeSet<String> {
    let entries = fs::read_dir(dir.join("net")).unwrap();
    entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}

#[test]
fn an_address_that_is_asked_for_is_given_or_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let of = |address: &str| {
        let ipam = ipam(dir.path(), json!({ "subnet": "10.1.0.0/24" }));
        ipam.asked(vec![address.parse().unwrap()])
    };
    assert_eq!(add(&of("10.1.0.77"), "a").unwrap(), ["10.1.0.77/24"]);
    assert!(
        add(&of("10.1.0.77"), "b")
            .unwrap_err()
            .contains("10.1.0.77 is not available")
    );
    assert!(
        add(&of("10.1.0.1"), "b")
            .unwrap_err()
            .contains("is subnet's gateway")
    );
    assert_eq!(
        add(&of("10.9.0.1"), "b").unwrap_err(),
        "failed to allocate all requested IPs: 10.9.0.1"
    );
    assert!(!names(dir.path()).contains("10.1.0.2"));
}

#[test]
fn ranges_that_cannot_be_are_refused_with_the_program_s_words() {
    let dir = tempfile::tempdir().unwrap();
    for (conf, words) in [
        (json!({}), "no IP ranges specified"),
        (
            json!({ "subnet": "10.1.0.0/31" }),
            "too small to allocate from",
        ),
        (
            json!({ "subnet": "10.1.0.5/24" }),
            "Network has host bits set",
        ),
        (
            json!({ "subnet": "10.1.0.0/24", "rangeStart": "10.2.0.1" }),
            "RangeStart 10.2.0.1 not in network",
        ),
        (
            json!({ "subnet": "10.1.0.0/24", "rangeStart": "10.1.0.9", "rangeEnd": "10.1.0.8" }),
            "RangeEnd 10.1.0.8 not in",
        ),
        (
            json!({ "ranges": [[{ "subnet": "10.1.0.0/24" }], [{ "subnet": "10.1.0.0/16" }]] }),
            "range set 0 overlaps with 1",
        ),
        (
            json!({ "ranges": [[{ "subnet": "10.1.0.0/24" }, { "subnet": "fd00::/64" }]] }),
            "mixed address families",
        ),
    ] {
        let error = add(&ipam(dir.path(), conf), "a").unwrap_err();
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn a_holder_of_an_old_version_without_an_interface_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let ipam = ipam(dir.path(), json!({ "subnet": "10.1.0.0/24" }));
    add(&ipam, "other").unwrap();
    fs::write(dir.path().join("net/10.1.0.9"), "old").unwrap();
    ipam.check(holder("old")).unwrap();
    ipam.delete(holder("old")).unwrap();
    assert!(!names(dir.path()).contains("10.1.0.9"));
    assert!(names(dir.path()).contains("10.1.0.2"));
}

#[test]
fn what_a_killed_reservation_left_holds_nothing_and_an_address_without_a_holder_is_somebody_s() {
    let dir = tempfile::tempdir().unwrap();
    let ipam = ipam(dir.path(), json!({ "subnet": "10.1.0.0/29" }));
    fs::create_dir(dir.path().join("net")).unwrap();
    // So an operator keeps an address from being given.
    fs::write(dir.path().join("net/10.1.0.2"), "").unwrap();
    fs::write(dir.path().join("net/new"), "killed\r\neth0").unwrap();
    assert!(ipam.check(holder("killed")).is_err());
    assert_eq!(add(&ipam, "next").unwrap(), ["10.1.0.3/29"]);
    let left = ["10.1.0.2", "10.1.0.3", "last_reserved_ip.0", "lock"].map(str::to_owned);
    assert_eq!(names(dir.path()), BTreeSet::from(left));
}

#[test]
fn the_resolver_s_file_is_read() {
    let dns =
        resolver("# no\nnameserver 10.0.0.1\nsearch a b\noptions ndots:5\ndomain c\nnameserver\n");
    assert_eq!(dns.nameservers, ["10.0.0.1"]);
    assert_eq!(dns.search, ["a", "b"]);
    assert_eq!(dns.options, ["ndots:5"]);
    assert_eq!(dns.domain, "c");
}
