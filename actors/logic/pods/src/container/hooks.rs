//! Lifecycle hooks: upstream's words about them.
//!
//! Mirrors upstream's pkg/kubelet/lifecycle/handlers.go at v1.36. Where a hook reaches to is decided as for
//! probes, by [`crate::probes::target`].

use k8s_openapi::api::core::v1::{LifecycleHandler, Pod};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use logic_api::pod::PodView;

/// The reason and text of the event about a failed postStart hook: without its output, which may be secret.
pub const POST_START_FAILED: (&str, &str) = ("FailedPostStartHook", "PostStartHook failed");
/// The reason and text of the event about a failed preStop hook.
pub const PRE_STOP_FAILED: (&str, &str) = ("FailedPreStopHook", "PreStopHook failed");
/// The reason of the event about a hook that HTTP carried in place of HTTPS.
pub const HTTP_FALLBACK: &str = "LifecycleHTTPFallback";
/// Why a sleep ended before its time.
pub const SLEEP_ENDED: &str = "container terminated before sleep hook finished";
/// Why there is no host to reach.
pub const NO_ADDRESS: &str = "failed to find networking container";

/// A hook's action: the first one that its handler names.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum HookAction<'a> {
    Exec(&'a [String]),
    Get(&'a k8s_openapi::api::core::v1::HTTPGetAction),
    /// Seconds; zero is allowed, and is no wait.
    Sleep(i64),
    /// Nothing that is carried out: `tcpSocket` is not, and never was.
    Nothing,
}

impl<'a> HookAction<'a> {
    pub fn of(handler: &'a LifecycleHandler) -> Self {
        if let Some(exec) = &handler.exec {
            Self::Exec(exec.command.as_deref().unwrap_or_default())
        } else if let Some(get) = &handler.http_get {
            Self::Get(get)
        } else if let Some(sleep) = &handler.sleep {
            Self::Sleep(sleep.seconds)
        } else {
            Self::Nothing
        }
    }
}

/// The text about a hook that failed: which one, whose, and why; `message` is what a command wrote.
pub fn failed(
    handler: &LifecycleHandler,
    pod: &Pod,
    container: &str,
    (error, message): (&str, &str),
) -> String {
    let whose = format!("for Container {container:?} in Pod {:?}", pod.formatted());
    match HookAction::of(handler) {
        HookAction::Exec(command) => format!(
            "Exec lifecycle hook ([{}]) {whose} failed - error: {error}, message: {message:?}",
            command.join(" ")
        ),
        HookAction::Get(get) => format!(
            "HTTP lifecycle hook ({}) {whose} failed - error: {error}",
            get.path.as_deref().unwrap_or_default()
        ),
        HookAction::Sleep(seconds) => {
            format!("Sleep lifecycle hook ({seconds}) {whose} failed - error: {error}")
        }
        HookAction::Nothing => format!("Cannot run handler: {error}"),
    }
}

/// Why a handler that names nothing to do is none.
pub fn invalid(handler: &LifecycleHandler) -> String {
    let tcp = handler.tcp_socket.as_ref().map(|tcp| {
        let port = match &tcp.port {
            IntOrString::Int(number) => format!("{{0 {number} }}"),
            IntOrString::String(name) => format!("{{1 0 {name}}}"),
        };
        let host = tcp.host.as_deref().unwrap_or_default();
        format!("&TCPSocketAction{{Port:{port},Host:{host},}}")
    });
    format!(
        "invalid handler: &LifecycleHandler{{Exec:nil,HTTPGet:nil,TCPSocket:{},Sleep:nil,}}",
        tcp.as_deref().unwrap_or("nil")
    )
}

/// Why a command failed.
pub fn exited(command: &[String], code: i32, errors: &str) -> String {
    format!(
        "command '{}' exited with {code}: {errors}",
        command.join(" ")
    )
}

/// The text of the event about HTTP in place of HTTPS.
pub fn fell_back(authority: &str) -> String {
    format!(
        "request to HTTPS lifecycle hook {authority} got HTTP response, retry with HTTP succeeded"
    )
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{ExecAction, HTTPGetAction, SleepAction, TCPSocketAction};

    use super::*;

    fn exec(command: &[&str]) -> LifecycleHandler {
        let command = command.iter().map(|word| (*word).to_owned()).collect();
        LifecycleHandler {
            exec: Some(ExecAction {
                command: Some(command),
            }),
            ..LifecycleHandler::default()
        }
    }

    fn get(path: &str) -> LifecycleHandler {
        LifecycleHandler {
            http_get: Some(HTTPGetAction {
                path: Some(path.into()),
                ..HTTPGetAction::default()
            }),
            ..LifecycleHandler::default()
        }
    }

    fn sleep(seconds: i64) -> LifecycleHandler {
        LifecycleHandler {
            sleep: Some(SleepAction { seconds }),
            ..LifecycleHandler::default()
        }
    }

    fn tcp(port: IntOrString) -> LifecycleHandler {
        LifecycleHandler {
            tcp_socket: Some(TCPSocketAction { host: None, port }),
            ..LifecycleHandler::default()
        }
    }

    /// Upstream's TestRunHandlerExecFailure, TestRunHandlerHttpFailure, TestRunSleepHandler, TestRunHandlerNil.
    #[test]
    fn a_failed_hook_is_told_as_upstream_tells_it() {
        let pod = logic_api::testing::pod("podFoo");
        let text = |handler: &LifecycleHandler| failed(handler, &pod, "foo", ("no", "say \"x\"\n"));
        let pod_name = "podFoo_default(podFoo-uid)";
        let cases = [
            (
                exec(&["ls", "--a"]),
                format!(
                    "Exec lifecycle hook ([ls --a]) for Container \"foo\" in Pod \"{pod_name}\" failed - error: no, message: \"say \\\"x\\\"\\n\""
                ),
            ),
            (
                get("bar"),
                format!(
                    "HTTP lifecycle hook (bar) for Container \"foo\" in Pod \"{pod_name}\" failed - error: no"
                ),
            ),
            (
                sleep(3),
                format!(
                    "Sleep lifecycle hook (3) for Container \"foo\" in Pod \"{pod_name}\" failed - error: no"
                ),
            ),
            (
                LifecycleHandler::default(),
                "Cannot run handler: no".to_owned(),
            ),
        ];
        for (handler, expected) in cases {
            assert_eq!(text(&handler), expected);
        }
    }

    /// Upstream's TestRunHandlerNil.
    #[test]
    fn a_hook_that_does_nothing_is_invalid_and_so_is_a_tcp_socket() {
        let cases = [
            (LifecycleHandler::default(), "nil"),
            (
                tcp(IntOrString::Int(80)),
                "&TCPSocketAction{Port:{0 80 },Host:,}",
            ),
            (
                tcp(IntOrString::String("web".into())),
                "&TCPSocketAction{Port:{1 0 web},Host:,}",
            ),
        ];
        for (handler, tcp) in cases {
            assert_eq!(HookAction::of(&handler), HookAction::Nothing);
            let expected = format!(
                "invalid handler: &LifecycleHandler{{Exec:nil,HTTPGet:nil,TCPSocket:{tcp},Sleep:nil,}}"
            );
            assert_eq!(invalid(&handler), expected);
        }
    }

    #[test]
    fn a_hook_does_one_thing() {
        assert_eq!(HookAction::of(&sleep(0)), HookAction::Sleep(0));
        let mut both = exec(&["ls"]);
        both.sleep = Some(SleepAction { seconds: 1 });
        assert_eq!(HookAction::of(&both), HookAction::Exec(&["ls".to_owned()]));
    }

    #[test]
    fn a_command_that_fails_is_named_with_its_errors() {
        let command = ["ls".to_owned(), "-a".to_owned()];
        let text = exited(&command, 2, "gone");
        assert_eq!(text, "command 'ls -a' exited with 2: gone");
    }
}
