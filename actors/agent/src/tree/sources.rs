//! The sources of static pods.

use std::path::PathBuf;

use kernel::{ChildSpec, Intensity, Strategy, mailbox};
use pods::pod_manager::PodSource;
use pods::sources::file::{self, FileSource};
use pods::sources::http::{self, UrlSource};

use super::NodeHandle;
use crate::settings::AgentSettings;

/// Spawns the sources; each repeats its pods, so a restarted pod manager gets them again.
pub(super) fn spawn(node: &NodeHandle, settings: &AgentSettings) {
    let sources = node
        .root
        .supervisor("sources", Strategy::OneForOne, Intensity::MANAGERS);
    let kubelet = &settings.config.kubelet;
    let context = settings.static_pod_context();
    if settings.sources.contains(&PodSource::File) {
        let (_, port) = mailbox(file::MAILBOX);
        let (path, period) = (
            PathBuf::from(&kubelet.static_pod_path),
            kubelet.file_check_frequency.into(),
        );
        let (pod_manager, recorder, ground) = (
            node.pod_manager.clone(),
            node.recorder.clone(),
            context.clone(),
        );
        sources.spawn(ChildSpec::permanent("file"), port, move || {
            FileSource::new(
                path.clone(),
                period,
                ground.clone(),
                pod_manager.clone(),
                recorder.clone(),
            )
        });
    }
    if settings.sources.contains(&PodSource::Http) {
        let (_, port) = mailbox(http::MAILBOX);
        let (url, headers) = (
            kubelet.static_pod_url.0.clone(),
            kubelet.static_pod_url_header.0.clone(),
        );
        let period = kubelet.http_check_frequency.into();
        let (pod_manager, recorder) = (node.pod_manager.clone(), node.recorder.clone());
        sources.spawn(ChildSpec::permanent("http"), port, move || {
            UrlSource::new(
                url.as_str(),
                &headers,
                period,
                context.clone(),
                pod_manager.clone(),
                recorder.clone(),
            )
        });
    }
}
