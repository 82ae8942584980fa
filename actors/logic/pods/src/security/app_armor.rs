//! Which AppArmor profile confines a container, and whether the node can enforce what a pod asks for.
//!
//! Mirrors upstream's pkg/security/apparmor at v1.36: a container's own field, then the old annotation of
//! its name, then the pod's field.

use std::borrow::Cow;

use k8s_openapi::api::core::v1::{AppArmorProfile, Container, Pod};
use logic_api::pod::PodView;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Before AppArmor had a field of its own: the annotation of this prefix and a container's name.
pub const ANNOTATION_PREFIX: &str = "container.apparmor.security.beta.kubernetes.io/";

const RUNTIME_DEFAULT: &str = "runtime/default";
const UNCONFINED: &str = "unconfined";
const LOCALHOST: &str = "localhost/";

/// A profile as a runtime is asked for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AppArmor {
    Unconfined,
    RuntimeDefault,
    /// The name of a profile that is loaded on the node.
    Localhost(String),
}

impl AppArmor {
    /// The one word that older runtimes read: `runtime/default`, `unconfined`, `localhost/NAME`.
    pub fn as_word(&self) -> Cow<'static, str> {
        match self {
            Self::Unconfined => UNCONFINED.into(),
            Self::RuntimeDefault => RUNTIME_DEFAULT.into(),
            Self::Localhost(name) => format!("{LOCALHOST}{name}").into(),
        }
    }

    fn from_word(word: &str) -> Option<Self> {
        match word {
            RUNTIME_DEFAULT => Some(Self::RuntimeDefault),
            UNCONFINED => Some(Self::Unconfined),
            _ => Some(Self::Localhost(word.strip_prefix(LOCALHOST)?.to_owned())),
        }
    }
}

/// Why a profile cannot be applied.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum AppArmorError {
    #[error("AppArmor is not enabled on the host")]
    NotEnabled,
    #[error("invalid empty AppArmor profile name: {0:?}")]
    EmptyName(String),
    #[error("missing localhost apparmor profile name")]
    MissingName,
    #[error("unknown apparmor profile type: {0:?}")]
    UnknownType(String),
}

/// The profile that confines a container; none leaves it to the runtime.
pub fn profile(pod: &Pod, container: &Container) -> Result<Option<AppArmor>, AppArmorError> {
    let own = container
        .security_context
        .as_ref()
        .and_then(|s| s.app_armor_profile.as_ref());
    if let Some(own) = own {
        return read(own).map(Some);
    }
    let annotation = pod
        .annotations()
        .get(&format!("{ANNOTATION_PREFIX}{}", container.name));
    if let Some(profile) = annotation.and_then(|word| AppArmor::from_word(word)) {
        return Ok(Some(profile));
    }
    let shared = pod.security().and_then(|s| s.app_armor_profile.as_ref());
    shared.map(read).transpose()
}

fn read(profile: &AppArmorProfile) -> Result<AppArmor, AppArmorError> {
    match profile.type_.as_str() {
        "RuntimeDefault" => Ok(AppArmor::RuntimeDefault),
        "Unconfined" => Ok(AppArmor::Unconfined),
        "Localhost" => {
            let name = profile.localhost_profile.clone();
            name.map(AppArmor::Localhost)
                .ok_or(AppArmorError::MissingName)
        }
        unknown => Err(AppArmorError::UnknownType(unknown.to_owned())),
    }
}

/// Refuses a pod whose profiles this node cannot enforce: part of the pod's admission, with the reason
/// [`REASON`] and the message of [`message`].
pub fn validate(pod: &Pod, enabled: bool) -> Result<(), AppArmorError> {
    if !is_required(pod) {
        return Ok(());
    }
    if !enabled {
        return Err(AppArmorError::NotEnabled);
    }
    let ephemeral = pod.ephemeral_containers();
    let lasting = pod.all_containers().map(|(_, container)| container);
    for container in lasting.chain(&ephemeral) {
        match profile(pod, container) {
            Ok(Some(AppArmor::Localhost(name))) if name.trim().is_empty() => {
                return Err(AppArmorError::EmptyName(name));
            }
            Err(AppArmorError::MissingName) => return Err(AppArmorError::EmptyName(String::new())),
            // An unknown type is reported when the container is created.
            Ok(_) | Err(_) => {}
        }
    }
    Ok(())
}

/// The reason of a pod that is refused for its profiles.
pub const REASON: &str = "AppArmor";

/// The message of a pod that is refused for its profiles.
pub fn message(error: &AppArmorError) -> String {
    format!("Cannot enforce AppArmor: {error}")
}

/// Whether any container of the pod is to be confined.
fn is_required(pod: &Pod) -> bool {
    let confines =
        |profile: Option<&AppArmorProfile>| profile.is_some_and(|p| p.type_ != "Unconfined");
    let of = |container: &Container| {
        let security = container.security_context.as_ref();
        confines(security.and_then(|s| s.app_armor_profile.as_ref()))
    };
    let mut annotations = pod.annotations().iter();
    confines(pod.security().and_then(|s| s.app_armor_profile.as_ref()))
        || pod.all_containers().any(|(_, container)| of(container))
        || pod.ephemeral_containers().iter().any(of)
        || annotations.any(|(key, word)| key.starts_with(ANNOTATION_PREFIX) && word != UNCONFINED)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{PodSecurityContext, SecurityContext};
    use logic_api::testing::*;

    use super::*;

    fn field(kind: &str, name: Option<&str>) -> AppArmorProfile {
        AppArmorProfile {
            type_: kind.into(),
            localhost_profile: name.map(str::to_owned),
        }
    }

    /// A pod of the containers `i` and `c`; annotation and field are those of `c`.
    fn confined(
        shared: Option<AppArmorProfile>,
        annotation: Option<&str>,
        own: Option<AppArmorProfile>,
    ) -> Pod {
        let mut pod = pod("p")
            .init("i")
            .spec_with(|spec| {
                spec.security_context = Some(PodSecurityContext {
                    app_armor_profile: shared,
                    ..PodSecurityContext::default()
                });
            })
            .app_with("c", |c| {
                c.security_context = Some(SecurityContext {
                    app_armor_profile: own,
                    ..SecurityContext::default()
                });
            });
        let key = format!("{ANNOTATION_PREFIX}c");
        pod.metadata.annotations = annotation.map(|word| string_map(&[(key.as_str(), word)]));
        pod
    }

    /// Upstream's TestGetAppArmorProfile, TestGetProfile and TestGetProfileFromPodAnnotations.
    #[test]
    fn the_field_goes_before_the_annotation_and_that_before_the_pods_field() {
        let local = || Some(field("Localhost", Some("mine")));
        let mine = || Ok(Some(AppArmor::Localhost("mine".into())));
        let plain = || Some(field("RuntimeDefault", None));
        let free = || Some(field("Unconfined", None));
        let cases = [
            (confined(None, None, None), Ok(None)),
            (
                confined(plain(), None, None),
                Ok(Some(AppArmor::RuntimeDefault)),
            ),
            (
                confined(free(), None, plain()),
                Ok(Some(AppArmor::RuntimeDefault)),
            ),
            (confined(plain(), Some("localhost/mine"), None), mine()),
            (confined(plain(), Some("localhost/other"), local()), mine()),
            (
                confined(None, Some("unconfined"), None),
                Ok(Some(AppArmor::Unconfined)),
            ),
            (
                confined(None, Some("runtime/default"), None),
                Ok(Some(AppArmor::RuntimeDefault)),
            ),
            (
                confined(plain(), Some("nonsense"), None),
                Ok(Some(AppArmor::RuntimeDefault)),
            ),
            (
                confined(None, None, Some(field("Localhost", None))),
                Err(AppArmorError::MissingName),
            ),
            (
                confined(None, None, Some(field("Sometimes", None))),
                Err(AppArmorError::UnknownType("Sometimes".into())),
            ),
        ];
        for (pod, expected) in cases {
            assert_eq!(
                profile(&pod, &pod.app_containers()[0]),
                expected,
                "{:?}",
                pod.metadata
            );
        }
    }

    #[test]
    fn old_runtimes_read_one_word() {
        for word in ["runtime/default", "unconfined", "localhost/mine"] {
            let profile = AppArmor::from_word(word).unwrap();
            assert_eq!(profile.as_word(), word);
        }
    }

    /// Upstream's TestValidateBadHost, TestValidateValidHost and TestValidateHost.
    #[test]
    fn a_node_without_app_armor_refuses_who_asks_for_it() {
        let local = |name| Some(field("Localhost", name));
        let empty = |name: &str| Err(AppArmorError::EmptyName(name.into()));
        let off = || Err(AppArmorError::NotEnabled);
        let cases = [
            (confined(None, None, None), Ok(()), Ok(())),
            (
                confined(Some(field("Unconfined", None)), None, None),
                Ok(()),
                Ok(()),
            ),
            (confined(None, Some("unconfined"), None), Ok(()), Ok(())),
            (confined(None, Some("runtime/default"), None), off(), Ok(())),
            (confined(None, Some("localhost/a"), None), off(), Ok(())),
            (
                confined(Some(field("RuntimeDefault", None)), None, None),
                off(),
                Ok(()),
            ),
            (confined(None, None, local(Some("a"))), off(), Ok(())),
            (confined(None, None, local(Some(" "))), off(), empty(" ")),
            (confined(None, None, local(Some(""))), off(), empty("")),
            (confined(None, None, local(None)), off(), empty("")),
            (confined(None, Some("localhost/"), None), off(), empty("")),
            (confined(None, Some("nonsense"), None), off(), Ok(())),
        ];
        for (pod, disabled, enabled) in cases {
            assert_eq!(validate(&pod, false), disabled, "{:?}", pod.metadata);
            assert_eq!(validate(&pod, true), enabled, "{:?}", pod.metadata);
        }
        let said = message(&AppArmorError::NotEnabled);
        assert_eq!(
            said,
            "Cannot enforce AppArmor: AppArmor is not enabled on the host"
        );
    }
}
