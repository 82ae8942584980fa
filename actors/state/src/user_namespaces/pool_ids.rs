//! The node's ids for pods as the operator assigned them: those of the user `kubelet`, as `getsubids` prints them.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::time::Duration;

use logic_api::linux::IdRange;
use logic_pods::security::user_namespaces::{SubIdsError, sub_ids};
use thiserror::Error;
use tokio::process::Command;
use tokio::time::timeout;

const USER: &str = "kubelet";
const TOOL: &str = "getsubids";
const PASSWD: &str = "/etc/passwd";
/// Bytes of the passwd file that are read.
const MAX_PASSWD_BYTES: u64 = 16 << 20;
/// The tool may ask a directory service.
const GETSUBIDS_TIMEOUT: Duration = Duration::from_secs(20);

/// Why the operator's ids are unknown.
#[derive(Debug, Error)]
pub enum IdsError {
    #[error("{PASSWD}: {0}")]
    Users(io::Error),
    #[error("{TOOL}: {0}")]
    Tool(io::Error),
    #[error("error retrieving additional {kind} for user {USER:?}")]
    Refused { kind: &'static str },
    #[error("{TOOL} does not answer")]
    Silent,
    #[error("mismatched subuids and subgids for user {USER:?}")]
    Different,
    #[error(transparent)]
    Text(#[from] SubIdsError),
}

/// The operator's range of ids; none if there is no such user or tool: then all ids but the node's own
/// may be used.
pub(super) async fn of_node() -> Result<Option<IdRange>, IdsError> {
    let listed = kernel::spawn_blocking(|| {
        let file = File::open(PASSWD).map_err(IdsError::Users)?;
        lists_user(file)
    });
    let listed = listed
        .await
        .map_err(|error| IdsError::Users(io::Error::other(error)))?;
    if !listed? {
        return Ok(None);
    }
    let Some(users) = ask(&[USER], "uids").await? else {
        return Ok(None);
    };
    let groups = ask(&["-g", USER], "gids").await?;
    match groups {
        Some(groups) if groups == users => Ok(Some(sub_ids(&users)?)),
        Some(_) | None => Err(IdsError::Different),
    }
}

fn lists_user(passwd: impl Read) -> Result<bool, IdsError> {
    let mut lines = BufReader::new(passwd.take(MAX_PASSWD_BYTES)).split(b'\n');
    let is_user = |line: &Vec<u8>| line.split(|byte| *byte == b':').next() == Some(USER.as_bytes());
    let found = lines.try_fold(false, |found, line| {
        line.map(|line| found || is_user(&line))
    });
    found.map_err(IdsError::Users)
}

/// The tool's output; none where it is not installed.
async fn ask(arguments: &[&str], kind: &'static str) -> Result<Option<String>, IdsError> {
    let mut command = Command::new(TOOL);
    command.args(arguments).kill_on_drop(true);
    let output = match timeout(GETSUBIDS_TIMEOUT, command.output()).await {
        Err(_) => return Err(IdsError::Silent),
        Ok(Err(error)) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Ok(output) => output.map_err(IdsError::Tool)?,
    };
    match output.status.success() {
        true => Ok(Some(String::from_utf8_lossy(&output.stdout).into_owned())),
        false => Err(IdsError::Refused { kind }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_line_of_the_user_is_the_user() {
        let of = |text: &str| lists_user(text.as_bytes()).unwrap();
        assert!(of(
            "root:x:0:0::/root:/bin/sh\nkubelet:x:9:9::/:/bin/false\n"
        ));
        assert!(!of(
            "root:x:0:0:kubelet:/root:/bin/sh\nkubelet2:x:9:9::/:/bin/false\n"
        ));
        assert!(!of(""));
    }
}
