//! What the kernel says of a process that has confined itself: `/proc/PID/status`.

use std::fs;

use confine::Capabilities;

use super::{Confined, Preparation};

/// What of it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Status {
    bounding: Capabilities,
    no_new_privileges: bool,
    seccomp: bool,
}

impl Preparation {
    /// Returns what holds of the process, which runs its program by now. `refused` is what it said itself. Blocks.
    pub(crate) fn seen(self, pid: u32, refused: Vec<String>) -> Confined {
        let mut confined = self.expected;
        confined.not_enforced.extend(refused);
        let read = |process: &str| fs::read_to_string(format!("/proc/{process}/status"));
        let (Ok(status), Ok(own)) = (read(&pid.to_string()), read("self")) else {
            // It has ended already.
            return confined;
        };
        let (Some(status), Some(own)) = (Status::parse(&status), Status::parse(&own)) else {
            confined
                .not_enforced
                .push("whether it is confined: the kernel does not say".to_owned());
            return confined;
        };
        let everything = self.order.capabilities.contains(own.bounding);
        confined.capabilities = match everything {
            true => vec!["ALL".to_owned()],
            false => status.bounding.names(),
        };
        (confined.no_new_privileges, confined.seccomp) = (status.no_new_privileges, status.seccomp);
        let filtered = !self.order.system_calls.denied().is_empty();
        let amiss = [
            (
                !everything && !self.order.capabilities.contains(status.bounding),
                "capabilities: it may have more than declared",
            ),
            (
                self.order.no_new_privileges && !status.no_new_privileges,
                "no new privileges: not set",
            ),
            (
                filtered && !status.seccomp,
                "system calls: no filter is installed",
            ),
        ];
        let amiss = amiss.into_iter().filter(|(amiss, _)| *amiss);
        confined
            .not_enforced
            .extend(amiss.map(|(_, what)| what.to_owned()));
        confined
    }
}

impl Status {
    fn parse(text: &str) -> Option<Self> {
        let field = |name: &str| {
            let mut lines = text.lines();
            lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':').map(str::trim))
        };
        let bounding = u64::from_str_radix(field("CapBnd")?, 16).ok()?;
        Some(Self {
            bounding: Capabilities::from_mask(bounding),
            no_new_privileges: field("NoNewPrivs")? == "1",
            // 2 is a filter.
            seccomp: field("Seccomp").is_some_and(|mode| mode == "2"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_is_read_from_the_kernels_words() {
        let text = "Name:\tcat\nCapBnd:\t0000000000001001\nNoNewPrivs:\t1\nSeccomp:\t2\n";
        let status = Status::parse(text).unwrap();
        assert_eq!(status.bounding.names(), ["CHOWN", "NET_ADMIN"]);
        assert!(status.no_new_privileges && status.seccomp);
        assert_eq!(Status::parse("Name:\tcat\n"), None);
        let own = fs::read_to_string("/proc/self/status").unwrap();
        assert!(Status::parse(&own).is_some());
    }
}
