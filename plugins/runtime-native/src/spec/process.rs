//! The `process` section: command, environment, folder, user, capabilities, limits.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{SpecError, SpecInput};

const DEFAULT_PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

pub(super) fn section(
    input: SpecInput<'_>,
    capabilities: &BTreeSet<&'static str>,
) -> Result<Value, SpecError> {
    let held: Vec<_> = capabilities.iter().collect();
    let user = input.user;
    let no_new_privileges = input.security().is_some_and(|context| context.no_new_privs);
    let mut process = json!({
        "terminal": input.config.tty,
        "user": { "uid": user.uid, "gid": user.gid, "additionalGids": user.groups },
        "args": args(input)?,
        "env": env(input)?,
        "cwd": working_dir(input)?,
        "capabilities": { "bounding": held, "effective": held, "permitted": held },
        "noNewPrivileges": no_new_privileges,
    });
    process["oomScoreAdj"] = oom_score_adj(input).into();
    let limits = input.host.rlimits.iter();
    let rlimits: Vec<_> = limits
        .map(|(name, (soft, hard))| json!({ "type": name, "soft": soft, "hard": hard }))
        .collect();
    if !rlimits.is_empty() {
        process["rlimits"] = rlimits.into();
    }
    Ok(process)
}

/// The container's command replaces the image's entrypoint and its command; arguments alone replace its command.
fn args(input: SpecInput<'_>) -> Result<Vec<String>, SpecError> {
    let (config, image) = (input.config, input.image);
    let mut args = config.command.clone();
    if args.is_empty() {
        args.clone_from(&image.entrypoint);
        let own = if config.args.is_empty() {
            &image.command
        } else {
            &config.args
        };
        args.extend(own.iter().cloned());
    } else {
        args.extend(config.args.iter().cloned());
    }
    // An empty word is a program that the OCI runtime does not find, as with containerd.
    if args.is_empty() {
        return Err(SpecError::NoCommand);
    }
    Ok(args)
}

/// Later ones replace earlier ones of their name: the defaults, the image's, the container's.
fn env(input: SpecInput<'_>) -> Result<Vec<String>, SpecError> {
    let hostname = match input.sandbox.hostname.as_str() {
        "" => &input.host.hostname,
        named => named,
    };
    let mut env = vec![DEFAULT_PATH.to_owned(), format!("HOSTNAME={hostname}")];
    if input.config.tty {
        env.push("TERM=xterm".to_owned());
    }
    for entry in &input.image.env {
        replace(&mut env, entry.clone());
    }
    for pair in &input.config.envs {
        let value = std::str::from_utf8(&pair.value).map_err(|_| SpecError::Invalid {
            field: "the value of an environment variable",
            found: pair.key.clone(),
            expected: "UTF-8",
        })?;
        replace(&mut env, format!("{}={value}", pair.key));
    }
    Ok(env)
}

/// Sets a variable. As with containerd, an entry without `=` is no variable, and takes away a default of its name.
fn replace(env: &mut Vec<String>, entry: String) {
    let Some((name, _)) = entry.split_once('=') else {
        env.retain(|old| name_of(old) != entry);
        return;
    };
    match env.iter().position(|old| name_of(old) == name) {
        Some(place) => env[place] = entry,
        None => env.push(entry),
    }
}

fn name_of(entry: &str) -> &str {
    entry.split('=').next().unwrap_or_default()
}

fn working_dir(input: SpecInput<'_>) -> Result<String, SpecError> {
    let asked = [&input.config.working_dir, &input.image.working_dir];
    let dir = asked.into_iter().find(|dir| !dir.is_empty());
    match dir {
        None => Ok("/".to_owned()),
        Some(dir) if dir.starts_with('/') => Ok(dir.clone()),
        Some(dir) => Err(SpecError::Invalid {
            field: "working_dir",
            found: dir.clone(),
            expected: "an absolute path",
        }),
    }
}

/// Returns what is asked for, raised to what this machine lets the runtime set; the caller warns when they differ. There
/// is always one: a process without inherits the monitor's, which the kernel spares.
pub(crate) fn oom_score_adj(input: SpecInput<'_>) -> i64 {
    let linux = input.config.linux.as_ref();
    let resources = linux.and_then(|linux| linux.resources.as_ref());
    let asked = resources.map_or(0, |resources| resources.oom_score_adj);
    asked.max(input.host.oom_score_adj_min)
}
