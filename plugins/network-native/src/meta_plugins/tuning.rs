//! tuning: kernel parameters of the sandbox, and settings of its interface, which DEL restores.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use network_cni::{Call, CniError, CniResult, Work};
use serde::{Deserialize, Serialize};

use crate::conf::{self, Asked, NotBuiltIn};
use crate::failure::{OrFail, fail};
use crate::links::{ALL_MULTICAST, Link, Links, PROMISCUOUS};
use crate::{inside, sysctl};

const DEFAULT_DIR: &str = "/run/cni/tuning";
/// An administrator's list of parameters that may be set, of regular expressions.
const ALLOWLIST: &str = "/etc/cni/tuning/allowlist.conf";

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct Conf {
    data_dir: String,
    sysctl: BTreeMap<String, String>,
    mac: String,
    promisc: bool,
    mtu: u32,
    #[serde(rename = "txQLen")]
    queue: Option<u32>,
    allmulti: Option<bool>,
    args: Arguments,
    runtime_config: Runtime,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Runtime {
    mac: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Arguments {
    cni: CniArguments,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct CniArguments {
    sysctl: BTreeMap<String, String>,
    mac: Option<String>,
    promisc: Option<bool>,
    mtu: Option<u32>,
    #[serde(rename = "txQLen")]
    queue: Option<u32>,
    allmulti: Option<bool>,
}

/// What an interface was before: the program reads and writes the same file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct Backup {
    #[serde(skip_serializing_if = "String::is_empty")]
    mac: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    promisc: Option<bool>,
    #[serde(skip_serializing_if = "is_zero")]
    mtu: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    allmulti: Option<bool>,
    #[serde(rename = "txQLen", skip_serializing_if = "Option::is_none")]
    queue: Option<u32>,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

pub(crate) fn plan(call: &Call) -> Result<Work, NotBuiltIn> {
    let conf = read(call)?;
    let call = call.clone();
    Ok(Box::new(move || match call.verb {
        "ADD" => conf.add(&call),
        "DEL" => conf.delete(&call),
        "CHECK" => conf.check(&call),
        _ => Ok(CniResult::default()),
    }))
}

fn read(call: &Call) -> Result<Conf, NotBuiltIn> {
    let mut conf: Conf = conf::read(call)?;
    if Path::new(ALLOWLIST).exists() {
        return Err(NotBuiltIn(format!("{ALLOWLIST} is")));
    }
    let asked = Asked::of(call)?;
    let args = std::mem::take(&mut conf.args.cni);
    let macs = [
        Some(asked.mac),
        Some(conf.runtime_config.mac.clone()),
        args.mac,
    ];
    for mac in macs.into_iter().flatten().filter(|mac| !mac.is_empty()) {
        conf.mac = mac;
    }
    conf.sysctl.extend(args.sysctl);
    conf.promisc = args.promisc.unwrap_or(conf.promisc);
    conf.mtu = args.mtu.unwrap_or(conf.mtu);
    conf.queue = args.queue.or(conf.queue);
    conf.allmulti = args.allmulti.or(conf.allmulti);
    if conf.data_dir.is_empty() {
        DEFAULT_DIR.clone_into(&mut conf.data_dir);
    }
    Ok(conf)
}

impl Conf {
    fn changes_link(&self) -> bool {
        !self.mac.is_empty()
            || self.promisc
            || self.mtu != 0
            || self.queue.is_some()
            || self.allmulti.is_some()
    }

    fn parameters(&self, interface: &str) -> Result<Vec<(String, &str)>, CniError> {
        let each = self.sysctl.iter();
        each.map(|(key, value)| Ok((parameter(key, interface)?, value.as_str())))
            .collect()
    }

    fn backup_path(&self, call: &Call) -> PathBuf {
        let name = format!("{}_{}.json", call.container_id, call.interface);
        Path::new(&self.data_dir).join(name)
    }

    fn add(&self, call: &Call) -> Result<CniResult, CniError> {
        let mut result = previous(call)?.clone();
        let parameters = self.parameters(&call.interface)?;
        let sandbox = inside::open(&call.netns)?;
        inside::within(&sandbox, |links| {
            for (name, value) in &parameters {
                sysctl::write(name, value).or_fail(format!("parameter {name}"))?;
            }
            match self.changes_link() {
                true => self.change_link(links, call),
                false => Ok(()),
            }
        })?;
        if !self.mac.is_empty() {
            let told = result.interfaces.iter_mut();
            for interface in told.filter(|told| told.name == call.interface) {
                interface.mac.clone_from(&self.mac);
            }
        }
        Ok(result)
    }

    fn change_link(&self, links: &mut Links, call: &Call) -> Result<(), CniError> {
        let name = &call.interface;
        let link = links
            .named(name)
            .or_fail(format!("failed to get {name:?}"))?;
        let path = self.backup_path(call);
        self.backup(&link)
            .write(&path)
            .or_fail(format!("failed to save file {}", path.display()))?;
        let wanted = Backup {
            mac: self.mac.clone(),
            promisc: self.promisc.then_some(true),
            mtu: self.mtu,
            allmulti: self.allmulti,
            queue: self.queue,
        };
        wanted.apply(links, &link)
    }

    fn backup(&self, link: &Link) -> Backup {
        let mac = match self.mac.as_str() {
            "" => String::new(),
            _ => link.mac_text(),
        };
        Backup {
            mac,
            promisc: self.promisc.then_some(link.promiscuity != 0),
            mtu: if self.mtu == 0 { 0 } else { link.mtu },
            allmulti: self.allmulti.map(|_| link.flags & ALL_MULTICAST != 0),
            queue: self.queue.map(|_| link.queue),
        }
    }

    fn delete(&self, call: &Call) -> Result<CniResult, CniError> {
        let path = self.backup_path(call);
        let Ok(text) = fs::read(&path) else {
            return Ok(CniResult::default());
        };
        if let Some(sandbox) = inside::open_if_there(&call.netns)?
            && let Ok(backup) = serde_json::from_slice::<Backup>(&text)
        {
            let restored = inside::within(&sandbox, |links| {
                match links
                    .find(&call.interface)
                    .or_fail("failed to look at links")?
                {
                    Some(link) => backup.apply(links, &link),
                    None => Ok(()),
                }
            });
            if let Err(error) = restored {
                // The interface goes with its sandbox; the program says nothing at all.
                tracing::warn!("{} is not restored: {}", call.interface, error.msg);
            }
        }
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(error).or_fail(format!("failed to remove file {}", path.display()))
            }
            _ => Ok(CniResult::default()),
        }
    }

    fn check(&self, call: &Call) -> Result<CniResult, CniError> {
        previous(call)?;
        let parameters = self.parameters(&call.interface)?;
        let sandbox = inside::open(&call.netns)?;
        inside::within(&sandbox, |links| {
            for (name, wanted) in &parameters {
                let has = sysctl::read(name).or_fail(format!("parameter {name}"))?;
                if has != *wanted {
                    return Err(fail(format!(
                        "Error: Tuning configured value of {name} is {wanted}, current value is {has}"
                    )));
                }
            }
            let name = &call.interface;
            let link = links.named(name).or_fail("Cannot find container link")?;
            self.check_link(&link)
        })?;
        Ok(CniResult::default())
    }

    fn check_link(&self, link: &Link) -> Result<(), CniError> {
        let facts = [
            (
                "Ethernet",
                self.mac.is_empty() || self.mac == link.mac_text(),
            ),
            ("promisc", self.promisc == (link.promiscuity != 0)),
            ("MTU", self.mtu == 0 || self.mtu == link.mtu),
            (
                "all-multicast mode",
                self.allmulti
                    .is_none_or(|wanted| wanted == (link.flags & ALL_MULTICAST != 0)),
            ),
            (
                "Transmit Queue Length",
                self.queue.is_none_or(|wanted| wanted == link.queue),
            ),
        ];
        match facts.iter().find(|(_, holds)| !holds) {
            Some((what, _)) => Err(fail(format!(
                "Error: Tuning configured {what} of {} is not what it has",
                link.name
            ))),
            None => Ok(()),
        }
    }
}

impl Backup {
    /// Gives a link these settings; what is not said stays.
    fn apply(&self, links: &mut Links, link: &Link) -> Result<(), CniError> {
        let (index, name) = (link.index, &link.name);
        let flag = |on: bool, flag: u32| (if on { flag } else { 0 }, flag);
        if !self.mac.is_empty() {
            let mac = conf::mac(&self.mac)
                .ok_or_else(|| fail(format!("invalid args {} for MAC addr", self.mac)))?;
            links
                .set_mac(index, &mac)
                .or_fail(format!("hardware address of {name:?}"))?;
        }
        if let Some(on) = self.promisc {
            let (flags, change) = flag(on, PROMISCUOUS);
            links
                .set_flags(index, flags, change)
                .or_fail(format!("promiscuous mode of {name:?}"))?;
        }
        if self.mtu != 0 {
            links
                .set_mtu(index, self.mtu)
                .or_fail(format!("MTU of {name:?}"))?;
        }
        if let Some(on) = self.allmulti {
            let (flags, change) = flag(on, ALL_MULTICAST);
            links
                .set_flags(index, flags, change)
                .or_fail(format!("all-multicast mode of {name:?}"))?;
        }
        if let Some(length) = self.queue {
            links
                .set_queue(index, length)
                .or_fail(format!("transmit queue of {name:?}"))?;
        }
        Ok(())
    }

    fn write(&self, path: &Path) -> io::Result<()> {
        if let Some(dir) = path.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        }
        let text = serde_json::to_vec(self).map_err(io::Error::other)?;
        let mut options = OpenOptions::new();
        let options = options.write(true).create(true).truncate(true).mode(0o600);
        options.open(path)?.write_all(&text)
    }
}

fn previous(call: &Call) -> Result<&CniResult, CniError> {
    let previous = call.previous.as_ref();
    previous.ok_or_else(|| fail("Required prevResult missing"))
}

/// Returns a parameter's name with slashes: one of the network, and no other.
fn parameter(key: &str, interface: &str) -> Result<String, CniError> {
    let name = key.replace('.', "/").replacen("IFNAME", interface, 1);
    let mut parts = name.split('/');
    let sound = parts.clone().all(|part| !part.is_empty() && part != "..");
    match parts.next() {
        Some("net") if sound => Ok(name),
        _ => Err(fail(format!("invalid net sysctl key: {name:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_those_of_the_network() {
        let name = |key| parameter(key, "eth0").ok();
        assert_eq!(
            name("net.core.somaxconn").as_deref(),
            Some("net/core/somaxconn")
        );
        assert_eq!(
            name("net/ipv4/conf/IFNAME/arp_filter").as_deref(),
            Some("net/ipv4/conf/eth0/arp_filter")
        );
        for wrong in [
            "kernel.hostname",
            "net/../kernel/hostname",
            "/net/core",
            "",
            "netx.core",
        ] {
            assert_eq!(name(wrong), None, "{wrong}");
        }
    }
}
