//! A process that is run in a container in a user namespace becomes one of its users.
//!
//! libcontainer 0.7 joins every namespace of the container's but this one, by which the process would be the node's root
//! among the container's files. So libcontainer is told to run it as root of the node, and it joins the namespace and
//! takes its ids here, as the last step but those that need the namespace's capabilities.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use libcontainer::workload::ExecutorError;
use nix::sched::{CloneFlags, setns};
use nix::unistd::{Gid, Uid, setgroups, setresgid, setresuid};
use serde_json::{Value, json};

/// Why a container's user namespace cannot be joined.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UsersError {
    #[error("cannot open user namespace {0}")]
    Open(PathBuf, #[source] io::Error),
    #[error("process.user.{0} is no id")]
    Id(&'static str),
}

/// A user namespace, open, and the ids of a process in it.
#[derive(Clone, Debug)]
pub(crate) struct JoinedUsers {
    namespace: Arc<File>,
    user: u32,
    group: u32,
    groups: Vec<u32>,
}

impl JoinedUsers {
    /// Takes the ids out of a process if the container, whose `linux` section this is, is in a user namespace: what
    /// libcontainer reads is the node's root.
    pub(crate) fn take(
        linux: &Value,
        process: &mut Value,
    ) -> Result<Option<JoinedUsers>, UsersError> {
        let mut namespaces = linux["namespaces"].as_array().into_iter().flatten();
        let user = namespaces.find(|namespace| namespace["type"] == "user");
        let Some(path) = user.and_then(|user| user["path"].as_str()) else {
            return Ok(None);
        };
        let namespace = File::open(path).map_err(|error| UsersError::Open(path.into(), error))?;
        let ids = &process["user"];
        let groups = ids["additionalGids"].as_array().into_iter().flatten();
        let joined = JoinedUsers {
            namespace: Arc::new(namespace),
            user: id(&ids["uid"], "uid")?,
            group: id(&ids["gid"], "gid")?,
            groups: groups
                .map(|group| id(group, "additionalGids"))
                .collect::<Result<_, _>>()?,
        };
        let umask = ids["umask"].clone();
        process["user"] = json!({ "uid": 0, "gid": 0 });
        if !umask.is_null() {
            process["user"]["umask"] = umask;
        }
        Ok(Some(joined))
    }

    /// Joins. The process has one thread, and keeps all capabilities, in the namespace now.
    pub(crate) fn join(&self) -> Result<(), ExecutorError> {
        let joined = || {
            setns(&*self.namespace, CloneFlags::CLONE_NEWUSER)?;
            let groups: Vec<_> = self.groups.iter().copied().map(Gid::from_raw).collect();
            setgroups(&groups)?;
            let (user, group) = (Uid::from_raw(self.user), Gid::from_raw(self.group));
            setresgid(group, group, group)?;
            setresuid(user, user, user)
        };
        joined().map_err(|error: nix::Error| {
            ExecutorError::Other(format!("the container's users cannot be joined: {error}"))
        })
    }
}

/// An id that is absent is root's, as in the specification's own types.
fn id(value: &Value, field: &'static str) -> Result<u32, UsersError> {
    if value.is_null() {
        return Ok(0);
    }
    let number = value.as_u64().and_then(|id| u32::try_from(id).ok());
    number.ok_or(UsersError::Id(field))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_leaves_its_ids_where_the_container_has_users_of_its_own() {
        let asked = json!({ "user": { "uid": 7, "gid": 8, "additionalGids": [9], "umask": 18 } });
        let mut process = asked.clone();
        let none = json!({ "namespaces": [{ "type": "mount" }] });
        assert!(JoinedUsers::take(&none, &mut process).unwrap().is_none());
        assert_eq!(process, asked);
        let own = json!({ "namespaces": [{ "type": "user", "path": "/proc/self/ns/user" }] });
        let taken = JoinedUsers::take(&own, &mut process).unwrap().unwrap();
        assert_eq!((taken.user, taken.group, taken.groups), (7, 8, vec![9]));
        assert_eq!(process["user"], json!({ "uid": 0, "gid": 0, "umask": 18 }));
        let mut odd = json!({ "user": { "uid": -1 } });
        assert!(JoinedUsers::take(&own, &mut odd).is_err());
    }
}
