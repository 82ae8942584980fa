//! Which runtime this node's pods are on, kept from life to life: the configuration says only where they are to be.

use std::collections::BTreeMap;
use std::path::PathBuf;

use plugin_host::{Declaration, LaunchMethod, ServiceKind};
use serde::{Deserialize, Serialize};

/// A runtime plugin as it was declared, so that it can be started although it is no longer declared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuntimeChoice {
    /// Its name in the plugin file.
    pub name: String,
    /// What holds the pods behind the plugin. Two plugins of one backend show the same pods.
    pub backend: String,
    start: LaunchMethod,
    /// Its own section, as JSON.
    configuration: String,
}

impl RuntimeChoice {
    pub fn of(name: &str, declared: &Declaration) -> RuntimeChoice {
        RuntimeChoice {
            name: name.to_owned(),
            backend: backend(declared),
            start: declared.start.clone(),
            configuration: declared.configuration.to_string(),
        }
    }

    /// The runtime in words, beside another one: two of one name are told apart by what is behind them.
    pub fn describe(&self, beside: &RuntimeChoice) -> String {
        if self.name == beside.name && self.backend != beside.backend {
            return format!("{} at {}", self.name, self.backend);
        }
        self.name.clone()
    }

    /// The declaration to start it from: the declared one if it is still of this backend, else as it was.
    pub fn declaration(&self, host: &str, declared: &BTreeMap<String, Declaration>) -> Declaration {
        let current = declared.get(&self.name);
        if let Some(current) = current.filter(|current| backend(current) == self.backend) {
            return current.clone();
        }
        let configuration = serde_json::from_str(&self.configuration);
        Declaration {
            configuration: configuration.unwrap_or_default(),
            ..Declaration::new(host, ServiceKind::Runtime, self.start.clone())
        }
    }
}

/// The socket at which a runtime may be asked beside the one in use; none where only its plugin can be asked.
pub(super) fn endpoint(declared: &Declaration) -> Option<PathBuf> {
    let named = declared.configuration.get("endpoint")?.as_str()?;
    Some(named.trim_start_matches("unix://").into())
}

/// Names what holds the pods: the runtime's endpoint where the plugin is told one, else the plugin itself.
///
/// A plugin's new program, from another folder, is of the same backend.
fn backend(declared: &Declaration) -> String {
    if let Some(endpoint) = endpoint(declared) {
        return endpoint.display().to_string();
    }
    match &declared.start {
        LaunchMethod::Managed { command, args } => {
            let program = command.file_name().unwrap_or_default().to_string_lossy();
            format!("{program} {} {}", args.join(" "), declared.configuration)
        }
        LaunchMethod::External { endpoint } => endpoint.display().to_string(),
    }
}

/// The record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuntimeRecord {
    /// The backend that the configuration named when this was written: a swap by `oxctl` lasts until it names another one.
    pub configured: String,
    pub current: RuntimeChoice,
    pub handover: Option<PendingHandover>,
}

/// A hand-over that is to be, or has begun.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingHandover {
    pub to: RuntimeChoice,
    /// Whether pods are being ended for it: then it goes on whatever happens to the agent.
    pub begun: bool,
}

impl RuntimeRecord {
    /// What holds at a start, from what an earlier life left and the runtime that is configured now.
    pub fn at_start(earlier: Option<RuntimeRecord>, configured: RuntimeChoice) -> RuntimeRecord {
        let Some(earlier) = earlier else {
            return RuntimeRecord {
                configured: configured.backend.clone(),
                current: configured,
                handover: None,
            };
        };
        let is_wanted = earlier.configured != configured.backend;
        let named = configured.backend.clone();
        let same = |choice: &RuntimeChoice| choice.backend == earlier.current.backend;
        let handover = match earlier.handover {
            Some(pending) if !is_wanted => Some(pending),
            Some(PendingHandover { begun, .. }) => Some(PendingHandover {
                to: configured.clone(),
                begun,
            }),
            None => is_wanted.then(|| PendingHandover {
                to: configured.clone(),
                begun: false,
            }),
        };
        let current = match same(&configured) {
            true => configured,
            false => earlier.current.clone(),
        };
        RuntimeRecord {
            configured: named,
            current,
            handover: handover.filter(|pending| !same(&pending.to)),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn declared(command: &str, configuration: Value) -> Declaration {
        let start = LaunchMethod::Managed {
            command: command.into(),
            args: vec!["serve".to_owned()],
        };
        Declaration {
            configuration,
            ..Declaration::new("runtime", ServiceKind::Runtime, start)
        }
    }

    fn choice(name: &str, backend: &str) -> RuntimeChoice {
        let endpoint = json!({ "endpoint": backend });
        RuntimeChoice::of(name, &declared("/bin/adapter", endpoint))
    }

    #[test]
    fn plugins_are_of_one_backend_if_they_show_the_same_pods() {
        let backend = |command, configuration| backend(&declared(command, configuration));
        let adapter = backend("/a/adapter", json!({ "endpoint": "unix:///run/c.sock" }));
        let same = [
            backend("/b/adapter", json!({ "endpoint": "/run/c.sock" })),
            backend(
                "/b/other",
                json!({ "endpoint": "/run/c.sock", "eventsFrom": "x" }),
            ),
        ];
        assert!(same.iter().all(|same| *same == adapter));
        assert_ne!(
            adapter,
            backend("/a/adapter", json!({ "endpoint": "/run/o.sock" }))
        );
        // Who listens at an endpoint of another name is known only while it listens: with its adapter or as plain CRI.
        let plain = LaunchMethod::External {
            endpoint: "/run/c.sock".into(),
        };
        let plain = Declaration::new("runtime", ServiceKind::Runtime, plain);
        assert_eq!(adapter, super::backend(&plain));
        let fake = backend("/a/fake", json!({ "stateDir": "/s" }));
        assert_eq!(fake, backend("/new/fake", json!({ "stateDir": "/s" })));
        assert_ne!(fake, backend("/a/fake", json!({ "stateDir": "/t" })));
        assert_ne!(fake, backend("/a/native", json!({ "stateDir": "/s" })));
    }

    #[test]
    fn what_the_file_names_anew_is_handed_over_to_and_what_oxctl_chose_stays() {
        let (c, o) = (choice("containerd", "/c"), choice("crio", "/o"));
        let record =
            |configured: &str, current: &RuntimeChoice, to: Option<(&RuntimeChoice, bool)>| {
                RuntimeRecord {
                    configured: configured.to_owned(),
                    current: current.clone(),
                    handover: to.map(|(to, begun)| PendingHandover {
                        to: to.clone(),
                        begun,
                    }),
                }
            };
        let third = choice("third", "/t");
        let cases = [
            ("a first start", None, &c, record("/c", &c, None)),
            (
                "no change",
                Some(record("/c", &c, None)),
                &c,
                record("/c", &c, None),
            ),
            (
                "the file names another",
                Some(record("/c", &c, None)),
                &o,
                record("/o", &c, Some((&o, false))),
            ),
            (
                "swapped by oxctl",
                Some(record("/c", &o, None)),
                &c,
                record("/c", &o, None),
            ),
            (
                "and then the file follows",
                Some(record("/c", &o, None)),
                &o,
                record("/o", &o, None),
            ),
            (
                "half done",
                Some(record("/c", &c, Some((&o, true)))),
                &c,
                record("/c", &c, Some((&o, true))),
            ),
            (
                "half done, another wanted",
                Some(record("/c", &c, Some((&o, true)))),
                &third,
                record("/t", &c, Some((&third, true))),
            ),
            (
                "half done, taken back",
                Some(record("/o", &c, Some((&o, true)))),
                &c,
                record("/c", &c, None),
            ),
        ];
        for (what, earlier, configured, expected) in cases {
            let found = RuntimeRecord::at_start(earlier, configured.clone());
            assert_eq!(found, expected, "{what}");
        }
    }

    #[test]
    fn a_runtime_that_is_no_longer_declared_is_started_as_it_was() {
        let old = declared("/bin/adapter", json!({ "endpoint": "/c" }));
        let kept = RuntimeChoice::of("containerd", &old);
        let none = BTreeMap::new();
        assert_eq!(kept.declaration("runtime", &none), old);
        let moved = declared("/new/adapter", json!({ "endpoint": "/c" }));
        let now = [("containerd".to_owned(), moved.clone())].into();
        assert_eq!(kept.declaration("runtime", &now), moved);
        let other = declared("/new/adapter", json!({ "endpoint": "/o" }));
        let now = [("containerd".to_owned(), other)].into();
        assert_eq!(kept.declaration("runtime", &now), old);
    }
}
