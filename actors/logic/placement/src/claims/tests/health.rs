//! The health that drivers report of their devices.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use logic_api::testing::at;

use super::super::health::{
    DEFAULT_TIMEOUT, DeviceHealth, DeviceKey, Health, HealthCache, decode_health, encode_health,
};
use super::*;

fn said(health: Health, message: &str) -> DeviceHealth {
    DeviceHealth {
        health,
        timeout: DEFAULT_TIMEOUT,
        message: message.to_owned(),
    }
}

fn key_of(device: &str) -> DeviceKey {
    ("pool".to_owned(), device.to_owned())
}

fn report(devices: &[(&str, DeviceHealth)]) -> BTreeMap<DeviceKey, DeviceHealth> {
    let devices = devices.iter().cloned();
    devices.map(|(name, said)| (key_of(name), said)).collect()
}

/// What is known of a device of the driver at that second.
fn known(cache: &HealthCache, now: Timestamp, device: &str) -> Health {
    cache.get(now, &"driver".into(), "pool", device).health
}

fn keys(devices: &[&str]) -> BTreeSet<DeviceKey> {
    devices.iter().map(|name| key_of(name)).collect()
}

#[test]
fn what_a_driver_says_of_a_device_holds_until_its_timeout() {
    let mut cache = HealthCache::default();
    assert_eq!(known(&cache, at(0), "dev"), Health::Unknown);
    let long = DeviceHealth {
        timeout: Duration::from_secs(100),
        ..said(Health::Healthy, "")
    };
    let unsaid = DeviceHealth {
        timeout: Duration::ZERO,
        ..said(Health::Healthy, "fine")
    };
    let devices = [
        ("dev", said(Health::Healthy, "fine")),
        ("bad", said(Health::Unhealthy, "hot")),
        ("long", long),
        ("unsaid", unsaid),
    ];
    cache.update(at(0), &"driver".into(), report(&devices));
    let cases = [
        (0, "dev", Health::Healthy),
        (0, "bad", Health::Unhealthy),
        (29, "dev", Health::Healthy),
        (30, "dev", Health::Healthy),
        (31, "dev", Health::Unknown),
        (31, "bad", Health::Unknown),
        (31, "unsaid", Health::Unknown),
        (100, "long", Health::Healthy),
        (101, "long", Health::Unknown),
        (0, "device2", Health::Unknown),
        (31, "device2", Health::Unknown),
        // The clock was set back: what was said is not older for it.
        (-60, "dev", Health::Healthy),
    ];
    for (second, device, expected) in cases {
        assert_eq!(
            known(&cache, at(second), device),
            expected,
            "{device} at {second}"
        );
    }
    let elsewhere = |driver: &str, pool| cache.get(at(0), &driver.into(), pool, "dev").health;
    assert_eq!(elsewhere("driver2", "pool"), Health::Unknown);
    assert_eq!(elsewhere("driver", "pool2"), Health::Unknown);
    let words = |second| {
        cache
            .get(at(second), &"driver".into(), "pool", "dev")
            .message
    };
    assert_eq!((words(0).as_str(), words(31).as_str()), ("fine", ""));
}

#[test]
fn a_report_changes_what_is_known_of_its_devices() {
    let mut cache = HealthCache::default();
    let driver = DriverName::from("driver");
    let healthy = said(Health::Healthy, "");
    let mut update =
        |now, devices: &[(&str, DeviceHealth)]| cache.update(at(now), &driver, report(devices));
    assert_eq!(update(0, &[("dev", healthy.clone())]), keys(&["dev"]));
    assert_eq!(update(10, &[("dev", healthy.clone())]), keys(&[]));
    let sick = said(Health::Unhealthy, "");
    assert_eq!(update(20, &[("dev", sick.clone())]), keys(&["dev"]));
    assert_eq!(
        update(21, &[("dev", said(Health::Unhealthy, "hot"))]),
        keys(&["dev"])
    );
    let patient = DeviceHealth {
        timeout: Duration::from_secs(60),
        ..said(Health::Unhealthy, "hot")
    };
    assert_eq!(update(22, &[("dev", patient)]), keys(&["dev"]));
    // Left out, it is what it was until its timeout.
    assert_eq!(
        update(82, &[("device2", healthy.clone())]),
        keys(&["device2"])
    );
    assert_eq!(update(83, &[("device2", healthy)]), keys(&["dev"]));
    assert_eq!(update(84, &[]), keys(&[]));
    assert_eq!(update(113, &[]), keys(&[]));
    assert_eq!(update(114, &[]), keys(&["device2"]));
    assert_eq!(known(&cache, at(114), "dev"), Health::Unknown);
    assert_eq!(known(&cache, at(114), "device2"), Health::Unknown);
}

#[test]
fn what_a_driver_said_is_forgotten_with_it() {
    let mut cache = HealthCache::default();
    let devices = [
        ("dev", said(Health::Healthy, "")),
        ("dim", said(Health::Unknown, "")),
    ];
    cache.update(at(0), &"driver".into(), report(&devices));
    cache.update(at(0), &"other".into(), report(&devices));
    assert_eq!(cache.clear(&"driver".into()), keys(&["dev"]));
    assert_eq!(cache.clear(&"driver".into()), keys(&[]));
    assert_eq!(known(&cache, at(0), "dev"), Health::Unknown);
    let other = cache.get(at(0), &"other".into(), "pool", "dev");
    assert_eq!(other.health, Health::Healthy);
}

#[test]
fn what_drivers_said_outlives_the_agent() {
    let mut cache = HealthCache::default();
    let devices = [
        ("dev", said(Health::Healthy, "fine")),
        ("bad", said(Health::Unhealthy, "")),
    ];
    cache.update(at(0), &"driver".into(), report(&devices[..1]));
    let written = String::from_utf8(encode_health(&cache)).unwrap();
    let expected = r#"{"driver":{"Devices":{"pool/dev":{"PoolName":"pool","DeviceName":"dev","Health":"Healthy","LastUpdated":"2023-11-14T22:13:20Z","HealthCheckTimeout":30000000000,"Message":"fine"}}}}"#;
    assert_eq!(written, expected);
    cache.update(at(1), &"driver".into(), report(&devices));
    assert_eq!(decode_health(&encode_health(&cache)).unwrap(), cache);
    assert_eq!(decode_health(b"").unwrap(), HealthCache::default());
    // As Go writes the time, and with words that mean nothing here.
    let other = expected
        .replace("Healthy", "Odd")
        .replace("20Z", "20.123456789+01:00");
    let read = decode_health(other.as_bytes()).unwrap();
    assert_eq!(known(&read, at(-3600), "dev"), Health::Unknown);
    let flaw = decode_health(b"{").unwrap_err();
    assert_eq!(
        flaw.to_string(),
        "it does not read as the health of devices"
    );
    assert!(!flaw.transient());
}

#[test]
fn only_a_timeout_above_nought_counts() {
    let cases = [
        (Health::Healthy, 12, "ok", Duration::from_secs(12)),
        (Health::Unhealthy, 0, "fail", DEFAULT_TIMEOUT),
        (Health::Unknown, -1, "?", DEFAULT_TIMEOUT),
    ];
    for (health, seconds, message, timeout) in cases {
        let expected = DeviceHealth {
            timeout,
            ..said(health, message)
        };
        assert_eq!(DeviceHealth::reported(health, seconds, message), expected);
    }
}

#[test]
fn a_message_is_shortened_to_what_a_status_takes() {
    let long = |length: usize| "\0".repeat(length);
    let cut = format!("{}...", long(1021));
    let umlauts = "ä".repeat(600);
    let cases = [
        (String::new(), String::new()),
        (
            "Device is healthy".to_owned(),
            "Device is healthy".to_owned(),
        ),
        (long(1024), long(1024)),
        (long(1025), cut.clone()),
        (long(2048), cut.clone()),
        (format!("{} extra content", long(1024)), cut),
        // Never in the middle of a letter.
        (umlauts, format!("{}...", "ä".repeat(510))),
    ];
    for (message, expected) in cases {
        let reported = DeviceHealth::reported(Health::Healthy, 0, &message).message;
        assert!(reported.len() <= 1024);
        assert_eq!(reported, expected);
    }
}
