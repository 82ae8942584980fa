//! Whether a container that must not run as root would.

use k8s_openapi::api::core::v1::{Container, Pod};
use logic_api::pod::PodView;

use super::{ImageUser, SecurityError};

/// Refuses a container that must not run as root and would (upstream's `verifyRunAsNonRoot`).
pub fn verify_non_root(
    pod: &Pod,
    container: &Container,
    image: &ImageUser,
) -> Result<(), SecurityError> {
    let (own, shared) = (container.security_context.as_ref(), pod.security());
    let non_root = own
        .and_then(|s| s.run_as_non_root)
        .or(shared.and_then(|s| s.run_as_non_root));
    if non_root != Some(true) {
        return Ok(());
    }
    let user = own
        .and_then(|s| s.run_as_user)
        .or(shared.and_then(|s| s.run_as_user));
    let (pod, container) = (pod.formatted(), container.name.clone());
    match (user, image) {
        (Some(0), _) => Err(SecurityError::RunsAsRoot { pod, container }),
        (Some(_), _) => Ok(()),
        (None, ImageUser::Uid(0) | ImageUser::Unset) => {
            Err(SecurityError::ImageRunsAsRoot { pod, container })
        }
        (None, ImageUser::Uid(1..=MAX_UID)) => Ok(()),
        (None, ImageUser::Uid(user)) => Err(SecurityError::ImageUserId {
            user: *user,
            pod,
            container,
        }),
        (None, ImageUser::Name(user)) => Err(SecurityError::ImageUserName {
            user: user.clone(),
            pod,
            container,
        }),
    }
}

/// The greatest id that a user may have.
const MAX_UID: i64 = i32::MAX as i64;

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{PodSecurityContext, SecurityContext};
    use logic_api::testing::*;

    use super::*;

    /// What is said of a container, up to the pod that it is said of.
    fn complaint(pod: &Pod, image: &ImageUser) -> Option<String> {
        let error = verify_non_root(pod, &pod.app_containers()[0], image).err()?;
        let text = error.to_string();
        let of = " (pod: \"p_default(p-uid)\", container: c)";
        Some(text.strip_suffix(of).unwrap().to_owned())
    }

    /// Upstream's TestVerifyRunAsNonRoot; an image without a user is root, as its getImageUser has it.
    #[test]
    fn root_is_refused_where_it_must_not_be() {
        use ImageUser::{Name, Uid, Unset};
        const BREAKS: &str = "container's runAsUser breaks non-root policy";
        const ROOT: &str = "container has runAsNonRoot and image will run as root";
        const NAMED: &str = "container has runAsNonRoot and image has non-numeric user (test), cannot verify user is non-root";
        let invalid = |user: i64| {
            format!(
                "container has runAsNonRoot and image has an invalid user id ({user}). (Must be 1-(2147483647)): must be between 0 and 2147483647, inclusive"
            )
        };
        let cases = [
            (None, None, Uid(0), None),
            (Some(true), Some(1000), Unset, None),
            (None, Some(0), Uid(0), None),
            (Some(false), None, Uid(0), None),
            (Some(false), Some(0), Uid(0), None),
            (Some(true), Some(0), Uid(0), Some(BREAKS.to_owned())),
            (Some(true), Some(0), Uid(7), Some(BREAKS.to_owned())),
            (Some(true), None, Uid(0), Some(ROOT.to_owned())),
            (Some(true), None, Unset, Some(ROOT.to_owned())),
            (
                Some(true),
                None,
                Name("test".into()),
                Some(NAMED.to_owned()),
            ),
            (Some(true), None, Uid(1000), None),
            (
                Some(true),
                None,
                Uid(2_147_483_648),
                Some(invalid(2_147_483_648)),
            ),
            (Some(true), None, Uid(-1000), Some(invalid(-1000))),
            (Some(true), None, Uid(i32::MAX.into()), None),
            (Some(true), Some(7), Uid(0), None),
        ];
        for (non_root, user, image, expected) in cases {
            let own = pod("p").app_with("c", |c| {
                c.security_context = Some(SecurityContext {
                    run_as_user: user,
                    run_as_non_root: non_root,
                    ..SecurityContext::default()
                });
            });
            let shared = pod("p").app("c").spec_with(|spec| {
                spec.security_context = Some(PodSecurityContext {
                    run_as_user: user,
                    run_as_non_root: non_root,
                    ..PodSecurityContext::default()
                });
            });
            for pod in [own, shared] {
                assert_eq!(
                    complaint(&pod, &image),
                    expected,
                    "{non_root:?} {user:?} {image:?}"
                );
            }
        }
    }
}
