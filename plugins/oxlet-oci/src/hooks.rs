//! Hooks: which are well-formed, and those that run after a container's end. libcontainer runs all others itself; of these
//! it would let one that fails stop the deletion for good, where the specification wants a warning.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use libcontainer::container::State;
use libcontainer::hooks::run_hooks;
use libcontainer::oci_spec::runtime::Hook;
use serde_json::Value;

use crate::bundle::fields::FieldError;

/// The hooks that are kept until the container is deleted, beside its prepared bundle's document.
const FILE: &str = "poststop.json";
/// When hooks run, by the specification's names.
const KINDS: [&str; 6] = [
    "prestart",
    "createRuntime",
    "createContainer",
    "startContainer",
    "poststart",
    "poststop",
];

/// Checks what a spec says of hooks.
pub(crate) fn check(hooks: &Value) -> Result<(), FieldError> {
    for (kind, list) in hooks.as_object().into_iter().flatten() {
        if !KINDS.contains(&kind.as_str()) {
            return Err(FieldError::Unsupported(format!("hooks.{kind}")));
        }
        for (at, hook) in list.as_array().into_iter().flatten().enumerate() {
            let wrong = |field: &str, why: String| {
                Err(FieldError::Wrong(
                    format!("hooks.{kind}[{at}].{field}"),
                    why,
                ))
            };
            let path = hook["path"].as_str().unwrap_or_default();
            if !path.starts_with('/') {
                return wrong("path", format!("{path:?} is no absolute path"));
            }
            if hook["timeout"].as_i64().is_some_and(|timeout| timeout <= 0) {
                return wrong("timeout", "it is not above zero".to_owned());
            }
        }
    }
    Ok(())
}

/// Takes the hooks that run after a container's end out of its spec, and keeps them in its folder.
pub(crate) fn keep_last(spec: &mut Value, folder: &Path) -> io::Result<()> {
    let hooks = spec["hooks"].as_object_mut();
    match hooks.and_then(|hooks| hooks.remove("poststop")) {
        Some(last) if !last.is_null() => fs::write(folder.join(FILE), last.to_string()),
        Some(_) | None => Ok(()),
    }
}

/// The hooks that run after a container's end.
#[derive(Debug, Default)]
pub(crate) struct Last(Vec<Hook>);

impl Last {
    /// Reads what was kept in a folder.
    pub(crate) fn read(folder: &Path) -> io::Result<Last> {
        let path: PathBuf = folder.join(FILE);
        match fs::read(path) {
            Ok(bytes) => Ok(Last(serde_json::from_slice(&bytes)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Last::default()),
            Err(error) => Err(error),
        }
    }

    /// Runs them, one after the other. What fails is a warning, and hinders no other.
    pub(crate) fn run(self, state: &State) {
        for hook in self.0 {
            let path = hook.path().clone();
            if let Err(error) = run_hooks(Some(&vec![hook]), Some(state), None, None, None) {
                // Nobody is there to be told that telling failed.
                drop(writeln!(
                    io::stderr(),
                    "oxlet-oci: hook poststop {}: {error}",
                    path.display()
                ));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn hooks_that_are_none_are_refused_by_their_names() {
        let refused =
            |hooks: Value| check(&hooks).map_or_else(|error| error.to_string(), |()| String::new());
        for (hooks, expected) in [
            (
                json!({ "prestart": [{ "path": "/a" }], "poststop": [{ "path": "/b", "timeout": 1 }] }),
                "",
            ),
            (
                json!({ "later": [{ "path": "/a" }] }),
                "hooks.later is not supported by this runtime",
            ),
            (
                json!({ "poststart": [{ "path": "/a" }, { "path": "b" }] }),
                "hooks.poststart[1].path: \"b\" is no absolute path",
            ),
            (
                json!({ "createRuntime": [{ "path": "/a", "timeout": 0 }] }),
                "hooks.createRuntime[0].timeout: it is not above zero",
            ),
        ] {
            assert_eq!(refused(hooks), expected);
        }
    }

    #[test]
    fn the_last_hooks_are_kept_apart_from_all_others() {
        let folder = tempfile::tempdir().unwrap();
        let hook = |path: &str| json!([{ "path": path }]);
        let mut spec =
            json!({ "hooks": { "poststop": hook("/last"), "poststart": hook("/first") } });
        keep_last(&mut spec, folder.path()).unwrap();
        assert_eq!(spec, json!({ "hooks": { "poststart": hook("/first") } }));
        let Last(kept) = Last::read(folder.path()).unwrap();
        assert_eq!(kept.len(), 1);
        assert_eq!(kept[0].path(), Path::new("/last"));
        let empty = folder.path().join("empty");
        fs::create_dir(&empty).unwrap();
        assert!(Last::read(&empty).unwrap().0.is_empty());
    }
}
