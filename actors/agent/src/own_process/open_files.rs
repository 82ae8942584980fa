//! The limit of open files (`maxOpenFiles`).
//!
//! Upstream: pkg/util/rlimit/rlimit_linux.go, and its caller in cmd/kubelet/app/server.go (1.36).

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Sets both limits of this process and of those that it starts. One that may not raise the hard limit raises the
/// other one up to it, and says so.
pub fn limit(most: i64) {
    let Ok(most) = u64::try_from(most) else {
        return;
    };
    let wanted = Rlimit {
        current: Some(most),
        maximum: Some(most),
    };
    let Err(error) = setrlimit(Resource::Nofile, wanted) else {
        return;
    };
    let hard = getrlimit(Resource::Nofile).maximum;
    tracing::error!(
        %error,
        wanted = most,
        hard,
        "the limit of open files cannot be set: the hard limit counts"
    );
    let reached = Rlimit {
        current: hard.map(|hard| hard.min(most)),
        maximum: hard,
    };
    if let Err(error) = setrlimit(Resource::Nofile, reached) {
        tracing::error!(%error, "the limit of open files stays as it is");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_of_open_files_is_the_configured_one_or_the_most_there_may_be() {
        let before = getrlimit(Resource::Nofile);
        limit(-1);
        assert_eq!(getrlimit(Resource::Nofile), before);
        limit(2048);
        let lower = getrlimit(Resource::Nofile);
        assert_eq!((lower.current, lower.maximum), (Some(2048), Some(2048)));
        // More than the kernel grants anybody (fs.nr_open).
        limit(i64::MAX);
        assert_eq!(getrlimit(Resource::Nofile), lower);
    }
}
