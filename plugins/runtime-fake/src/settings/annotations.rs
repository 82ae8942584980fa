//! Annotations that tell a simulated container how to behave. The table of them is on the crate's page.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::str::FromStr;

use proto::cri::ContainerConfig;

use crate::program::compile::{self, ProgramRole, moved};
use crate::program::{Program, ProgramBehavior, ProgramStep, Sink};
use crate::settings::duration::{DurationSetting, nanos};

const DOMAIN: &str = "fake.oxlet.dev";
const MOST_LINES: u32 = 1_000_000;

/// An annotation does not read.
#[derive(Debug, thiserror::Error)]
#[error("annotation {DOMAIN}/{key} is {value:?}, expected {expected}")]
pub struct AnnotationError {
    key: &'static str,
    value: String,
    expected: &'static str,
}

/// What the annotations say about one container.
#[derive(Debug, Default)]
pub(crate) struct ContainerTuning {
    pub(crate) create_delay: DurationSetting,
    pub(crate) start_delay: DurationSetting,
    pub(crate) create_error: Option<String>,
    pub(crate) start_error: Option<String>,
    pub(crate) exec_exit_code: Option<i32>,
    pub(crate) memory_bytes: Option<u64>,
    pub(crate) cpu_millis: Option<u64>,
    run_for: Option<DurationSetting>,
    log_lines: u32,
    log_interval: DurationSetting,
    termination_message: Option<String>,
    behavior: ProgramBehavior,
}

/// What the annotations say about a sandbox.
#[derive(Debug, Default)]
pub(crate) struct SandboxTuning {
    pub(crate) delay: DurationSetting,
    pub(crate) error: Option<String>,
    /// It stays ready though StopPodSandbox says that it is done.
    pub(crate) stays: bool,
    /// Its network gives it no address.
    pub(crate) addressless: bool,
    /// What is behind its ports, where that is not an echo.
    pub(crate) ports: BTreeMap<u16, PortTarget>,
}

impl SandboxTuning {
    pub(crate) fn of(
        annotations: &HashMap<String, String>,
    ) -> Result<SandboxTuning, AnnotationError> {
        let source = AnnotationSource {
            own: None,
            pod: annotations,
            container: "",
        };
        Ok(SandboxTuning {
            delay: source.duration("sandbox-delay")?,
            error: source.text("sandbox-error"),
            stays: source
                .read("sandbox-stays", "true or false")?
                .unwrap_or(false),
            addressless: source
                .read("sandbox-addressless", "true or false")?
                .unwrap_or(false),
            ports: source
                .read::<PortTargets>("ports", "PORT=IP:PORT or PORT=refused, divided by commas")?
                .unwrap_or_default()
                .0,
        })
    }
}

impl ContainerTuning {
    /// Reads the annotations of a container and, behind them, those of its pod.
    pub(crate) fn of(
        pod: &HashMap<String, String>,
        config: &ContainerConfig,
    ) -> Result<ContainerTuning, AnnotationError> {
        let (name, attempt) = config
            .metadata
            .as_ref()
            .map_or(("", 0), |meta| (meta.name.as_str(), meta.attempt));
        let source = AnnotationSource {
            own: Some(&config.annotations),
            pod,
            container: name,
        };
        let attempts = source.read::<u32>("attempts", "a number of attempts")?;
        if attempts.is_some_and(|attempts| attempt >= attempts) {
            return Ok(ContainerTuning::default());
        }
        let code = "an exit code from 0 to 255";
        let exit = |key| source.read::<u8>(key, code).map(|read| read.map(i32::from));
        Ok(ContainerTuning {
            create_delay: source.duration("create-delay")?,
            start_delay: source.duration("start-delay")?,
            create_error: source.text("create-error"),
            start_error: source.text("start-error"),
            exec_exit_code: exit("exec-exit-code")?,
            memory_bytes: source.read("memory-bytes", "a number of bytes")?,
            cpu_millis: source.read("cpu-millis", "a number of millicores")?,
            run_for: source
                .text("run-for")
                .map(|_| source.duration("run-for"))
                .transpose()?,
            log_lines: source
                .read::<u32>("log-lines", "a number of lines")?
                .unwrap_or(0)
                .min(MOST_LINES),
            log_interval: source.duration("log-interval")?,
            termination_message: source.text("termination-message"),
            behavior: ProgramBehavior {
                ignore_term: source
                    .read("ignore-term", "true or false")?
                    .unwrap_or(false),
                stop_delay: nanos(source.duration("stop-delay")?.0),
                term_exit_code: exit("term-exit-code")?,
                exit_code: exit("exit-code")?,
                exit_reason: source.text("exit-reason").map(Into::into),
            },
        })
    }

    /// Returns the program of a container so tuned.
    pub(crate) fn program(self, config: &ContainerConfig) -> Program {
        let argv: Vec<String> = config.command.iter().chain(&config.args).cloned().collect();
        let variable = |name: &str| {
            let found = config.envs.iter().rev().find(|env| env.key == name);
            found
                .map(|env| String::from_utf8_lossy(&env.value).into_owned())
                .unwrap_or_default()
        };
        let written = compile::program(&argv, ProgramRole::Main, &variable)
            .steps
            .into_vec();
        let body = match self.run_for {
            Some(time) => vec![
                ProgramStep::Sleep(nanos(time.0)),
                ProgramStep::Exit(Some(0)),
            ],
            None if self.behavior.exit_code.is_some()
                && written.first() == Some(&ProgramStep::Forever) =>
            {
                vec![ProgramStep::Exit(Some(0))]
            }
            None => written,
        };
        let mut steps = Vec::new();
        if let Some(text) = self.termination_message {
            let path = config
                .annotations
                .get("io.kubernetes.container.terminationMessagePath");
            let path = path.map_or("/dev/termination-log", String::as_str).into();
            steps.push(ProgramStep::Echo {
                text: text.into(),
                to: Sink::File {
                    path,
                    append: false,
                },
            });
        }
        if self.log_lines > 0 {
            steps.push(ProgramStep::Lines {
                total: self.log_lines,
                every: nanos(self.log_interval.0),
            });
        }
        let by = u32::try_from(steps.len()).unwrap_or(0);
        steps.extend(body.into_iter().map(|step| moved(step, by)));
        let behavior =
            (self.behavior != ProgramBehavior::default()).then(|| Box::new(self.behavior));
        Program {
            steps: steps.into(),
            behavior,
        }
    }
}

/// What is behind a port of a simulated pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PortTarget {
    /// Sends back what it receives.
    Echo,
    /// A server at this address of the host.
    Tcp(SocketAddr),
    /// No server listens.
    Refused,
}

/// Targets of ports, as an annotation names them.
#[derive(Default)]
struct PortTargets(BTreeMap<u16, PortTarget>);

impl FromStr for PortTargets {
    type Err = ();

    fn from_str(text: &str) -> Result<PortTargets, ()> {
        let one = |part: &str| {
            let (port, target) = part.trim().split_once('=')?;
            let target = match target {
                "refused" => PortTarget::Refused,
                "echo" => PortTarget::Echo,
                address => PortTarget::Tcp(address.parse().ok()?),
            };
            Some((port.parse().ok()?, target))
        };
        text.split(',')
            .map(one)
            .collect::<Option<_>>()
            .map(PortTargets)
            .ok_or(())
    }
}

struct AnnotationSource<'a> {
    own: Option<&'a HashMap<String, String>>,
    pod: &'a HashMap<String, String>,
    container: &'a str,
}

impl AnnotationSource<'_> {
    /// Finds an annotation: the container's own, then the pod's for this container, then the pod's for all.
    fn find(&self, key: &str) -> Option<&String> {
        let plain = format!("{DOMAIN}/{key}");
        let own = self.own.and_then(|own| own.get(&plain));
        own.or_else(|| self.pod.get(&format!("{}.{plain}", self.container)))
            .or_else(|| self.pod.get(&plain))
    }

    fn text(&self, key: &str) -> Option<String> {
        self.find(key).cloned()
    }

    fn read<T: FromStr>(
        &self,
        key: &'static str,
        expected: &'static str,
    ) -> Result<Option<T>, AnnotationError> {
        let Some(value) = self.find(key) else {
            return Ok(None);
        };
        let wrong = |_| AnnotationError {
            key,
            value: value.chars().take(64).collect(),
            expected,
        };
        value.trim().parse().map(Some).map_err(wrong)
    }

    fn duration(&self, key: &'static str) -> Result<DurationSetting, AnnotationError> {
        Ok(self
            .read(key, "a duration such as \"250ms\"")?
            .unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use proto::cri::ContainerMetadata;

    use super::*;

    fn container(name: &str, attempt: u32, command: &str) -> ContainerConfig {
        ContainerConfig {
            metadata: Some(ContainerMetadata {
                name: name.into(),
                attempt,
            }),
            command: command.split(' ').map(Into::into).collect(),
            ..ContainerConfig::default()
        }
    }

    fn annotations(pairs: &[(&str, &str)]) -> HashMap<String, String> {
        pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn the_nearest_annotation_wins() {
        let pod = annotations(&[
            ("fake.oxlet.dev/run-for", "1s"),
            ("a.fake.oxlet.dev/run-for", "2s"),
        ]);
        let first = |config: &ContainerConfig| {
            ContainerTuning::of(&pod, config)
                .unwrap()
                .program(config)
                .steps[0]
                .clone()
        };
        let mut a = container("a", 0, "server");
        assert_eq!(first(&a), ProgramStep::Sleep(2_000_000_000));
        assert_eq!(
            first(&container("b", 0, "server")),
            ProgramStep::Sleep(1_000_000_000)
        );
        a.annotations = annotations(&[("fake.oxlet.dev/run-for", "3s")]);
        assert_eq!(first(&a), ProgramStep::Sleep(3_000_000_000));
    }

    #[test]
    fn tuning_may_end_with_an_attempt() {
        let pod = annotations(&[
            ("fake.oxlet.dev/exit-code", "1"),
            ("fake.oxlet.dev/attempts", "2"),
        ]);
        let steps = |config: &ContainerConfig| {
            ContainerTuning::of(&pod, config)
                .unwrap()
                .program(config)
                .steps[0]
                .clone()
        };
        assert_eq!(
            steps(&container("a", 1, "server")),
            ProgramStep::Exit(Some(0))
        );
        assert_eq!(steps(&container("a", 2, "server")), ProgramStep::Forever);
    }

    #[test]
    fn a_wrong_annotation_is_named() {
        let wrong = |key: &str, value: &str| {
            let pod = annotations(&[(&format!("fake.oxlet.dev/{key}"), value)]);
            ContainerTuning::of(&pod, &container("a", 0, "x"))
                .unwrap_err()
                .to_string()
        };
        assert!(wrong("run-for", "soon").contains("fake.oxlet.dev/run-for is \"soon\""));
        assert!(wrong("exit-code", "256").contains("from 0 to 255"));
        assert!(wrong("ignore-term", "yes").contains("true or false"));
    }
}
