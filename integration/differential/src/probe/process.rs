//! The process itself: ids, capabilities, signals, arguments, environment, limits, namespaces, cgroup.

use std::env;
use std::fs;
use std::io::IsTerminal;
use std::os::unix::ffi::OsStrExt;

use super::files;
use super::report::{Report, errno, escaped};

/// Lines of `/proc/self/status` that a runtime decides.
const STATUS: [&str; 20] = [
    "Uid",
    "Gid",
    "Groups",
    "Umask",
    "CapInh",
    "CapPrm",
    "CapEff",
    "CapBnd",
    "CapAmb",
    "NoNewPrivs",
    "Seccomp",
    "Seccomp_filters",
    "Speculation_Store_Bypass",
    "SpeculationIndirectBranch",
    "SigBlk",
    "SigIgn",
    "SigCgt",
    "Cpus_allowed_list",
    "Mems_allowed_list",
    "THP_enabled",
];

const SMALL_FILES: [&str; 6] = [
    "/proc/self/oom_score_adj",
    "/proc/self/coredump_filter",
    "/proc/self/loginuid",
    "/proc/self/setgroups",
    "/proc/self/timerslack_ns",
    "/proc/self/uid_map",
];

const SYSCTLS: [&str; 8] = [
    "kernel/hostname",
    "kernel/domainname",
    "kernel/shm_rmid_forced",
    "kernel/msgmax",
    "kernel/sem",
    "net/ipv4/ip_unprivileged_port_start",
    "net/ipv4/ping_group_range",
    "net/core/somaxconn",
];

const NAMESPACES: [&str; 7] = ["cgroup", "ipc", "mnt", "net", "pid", "user", "uts"];

pub(super) fn report(report: &mut Report) {
    status(report);
    invocation(report);
    for path in SMALL_FILES {
        report.put(path, text(path));
    }
    for name in SYSCTLS {
        report.put(format!("sysctl.{name}"), text(&format!("/proc/sys/{name}")));
    }
    for line in text("/proc/self/limits").lines().skip(1) {
        // Columns are aligned: a name of several words, then the soft limit, the hard one, the unit.
        let (name, values) = line.split_at_checked(26).unwrap_or((line, ""));
        let values: Vec<&str> = values.split_whitespace().collect();
        report.put(format!("limits.{}", name.trim()), values.join(" "));
    }
    for name in NAMESPACES {
        let link = fs::read_link(format!("/proc/self/ns/{name}"));
        let inode = link.map_or_else(|error| errno(&error), |link| link.display().to_string());
        report.put(format!("ns.{name}"), inode);
    }
    for line in text("/proc/self/cgroup").lines() {
        let (controllers, path) = line.split_once(':').map_or((line, ""), |(_, rest)| {
            rest.split_once(':').unwrap_or((rest, ""))
        });
        report.put(format!("cgroup.{controllers}"), path);
    }
    session_keyrings(report);
    let interfaces = text("/proc/net/dev");
    let mut interfaces: Vec<&str> = interfaces
        .lines()
        .filter_map(|line| Some(line.split_once(':')?.0.trim()))
        .collect();
    interfaces.sort_unstable();
    report.put("net.interfaces", interfaces.join(" "));
}

fn status(report: &mut Report) {
    for line in text("/proc/self/status").lines() {
        let Some((name, value)) = line.split_once(':') else {
            continue;
        };
        if STATUS.contains(&name) {
            let words: Vec<&str> = value.split_whitespace().collect();
            report.put(format!("status.{name}"), words.join(" "));
        }
    }
    // man 5 proc: fields after the program's name, which may hold spaces.
    let stat = text("/proc/self/stat");
    let fields: Vec<&str> = stat
        .rsplit_once(')')
        .map(|(_, rest)| rest.split_whitespace().collect())
        .unwrap_or_default();
    let field = |number: usize| fields.get(number - 3).copied().unwrap_or_default();
    let pid = std::process::id().to_string();
    report.put("stat.is_init", pid == "1");
    report.put("stat.leads_group", field(5) == pid);
    report.put("stat.leads_session", field(6) == pid);
    report.put("stat.has_terminal", field(7) != "0");
    report.put("stat.policy", field(41));
    for (name, is_terminal) in [
        ("stdin", std::io::stdin().is_terminal()),
        ("stdout", std::io::stdout().is_terminal()),
        ("stderr", std::io::stderr().is_terminal()),
    ] {
        report.put(format!("terminal.{name}"), is_terminal);
    }
}

fn invocation(report: &mut Report) {
    for (at, argument) in env::args_os().enumerate() {
        report.put(format!("args.{at}"), escaped(argument.as_bytes()));
    }
    for (name, value) in env::vars_os() {
        let name = escaped(name.as_bytes());
        report.put(format!("env.{name}"), escaped(value.as_bytes()));
    }
    match env::current_dir() {
        Ok(path) => {
            report.put("cwd.path", escaped(path.as_os_str().as_bytes()));
            report.put("cwd.is", files::described(&path));
        }
        Err(error) => report.put("cwd.path", errno(&error)),
    }
    let program = fs::read_link("/proc/self/exe");
    report.put(
        "program",
        program.map_or_else(
            |error| errno(&error),
            |path| escaped(path.as_os_str().as_bytes()),
        ),
    );
}

/// Every session keyring in sight, by its name: the node's root sees those of other containers too.
fn session_keyrings(report: &mut Report) {
    let keys = text("/proc/keys");
    let names: Vec<&str> = keys
        .lines()
        .filter_map(|line| line.split_whitespace().nth(8))
        .filter(|name| name.starts_with("_ses"))
        .map(|name| name.trim_end_matches(':'))
        .collect();
    report.put("keyrings", names.join(" "));
}

/// Returns a file's text without the last line's end; the error's name if it cannot be read.
pub(super) fn text(path: &str) -> String {
    match fs::read(path) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).trim_end().to_owned(),
        Err(error) => errno(&error),
    }
}
