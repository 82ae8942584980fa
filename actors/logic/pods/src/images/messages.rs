//! The texts of image events and of waiting containers, as upstream words them (image_manager.go, v1.36).

use std::time::Duration;

use logic_api::text::go_duration::go_duration;

pub fn pulling(image: &str) -> String {
    format!("Pulling image {image:?}")
}

/// `waited` includes the time in the queue; a size of zero is unknown.
pub fn pulled(image: &str, took: Duration, waited: Duration, size: u64) -> String {
    let took = go_duration(whole_millis(took));
    let waited = go_duration(whole_millis(waited));
    format!(
        "Successfully pulled image {image:?} in {took} ({waited} including waiting). Image size: {size} bytes."
    )
}

/// For a node that does not verify access to images.
pub fn present(image: &str) -> String {
    format!("Container image {image:?} already present on machine")
}

/// For a node that verifies access, and a pod that has it.
pub fn accessible(image: &str) -> String {
    format!("Container image {image:?} already present on machine and can be accessed by the pod")
}

pub fn back_off(image: &str) -> String {
    format!("Back-off pulling image {image:?}")
}

pub fn intent_not_recorded(image: &str, error: &str) -> String {
    format!("Failed to record image pull intent for container image {image:?}: {error}")
}

/// The error of a pull beyond the rate limit (`registryPullQPS`, `registryBurst`).
pub const QPS_EXCEEDED: &str = "pull QPS exceeded";

/// Several errors in one line, each once: `[a, b]`.
pub fn aggregate(errors: &[String]) -> String {
    let mut distinct: Vec<&str> = Vec::new();
    for error in errors {
        if !distinct.contains(&error.as_str()) {
            distinct.push(error);
        }
    }
    match distinct.as_slice() {
        [one] => (*one).to_owned(),
        several => format!("[{}]", several.join(", ")),
    }
}

/// The waiting message during back-off names the error that led to it.
pub fn back_off_because(image: &str, reason: &str, error: &str) -> String {
    format!("Back-off pulling image {image:?}: {reason}: {error}")
}

pub fn failed(image: &str, error: &str) -> String {
    format!("Failed to pull image {image:?}: {error}")
}

pub fn never_pull(image: &str) -> String {
    format!("Container image {image:?} is not present with pull policy of Never")
}

pub fn invalid(image: &str, error: &str) -> String {
    format!("Failed to apply default image tag {image:?}: {error}")
}

pub fn inspect_failed(image: &str, error: &str) -> String {
    format!("Failed to inspect image {image:?}: {error}")
}

fn whole_millis(duration: Duration) -> Duration {
    Duration::from_millis(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}
