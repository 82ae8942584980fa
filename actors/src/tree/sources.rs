//! Where static pods come from.

use std::path::PathBuf;

use kernel::{ChildSpec, Strategy, mailbox};

use super::{Node, PATIENCE};
use crate::directory::Source;
use crate::settings::Settings;
use crate::sources::file::{self, Files};
use crate::sources::http::{self, Url};

/// Where desired pods come from; each source repeats itself, so a directory that died hears them again.
pub(super) fn grow(node: &Node, settings: &Settings) {
    let sources = node
        .root
        .supervisor("sources", Strategy::OneForOne, PATIENCE);
    let kubelet = &settings.config.kubelet;
    let ground = settings.ground();
    if settings.sources.contains(&Source::File) {
        let (_, port) = mailbox(file::MAILBOX);
        let (path, period) = (
            PathBuf::from(&kubelet.static_pod_path),
            kubelet.file_check_frequency.into(),
        );
        let (directory, recorder, ground) = (
            node.directory.clone(),
            node.recorder.clone(),
            ground.clone(),
        );
        sources.spawn(ChildSpec::permanent("file"), port, move || {
            Files::new(
                path.clone(),
                period,
                ground.clone(),
                directory.clone(),
                recorder.clone(),
            )
        });
    }
    if settings.sources.contains(&Source::Http) {
        let (_, port) = mailbox(http::MAILBOX);
        let (url, headers) = (
            kubelet.static_pod_url.clone(),
            kubelet.static_pod_url_header.clone(),
        );
        let period = kubelet.http_check_frequency.into();
        let (directory, recorder) = (node.directory.clone(), node.recorder.clone());
        sources.spawn(ChildSpec::permanent("http"), port, move || {
            Url::new(
                url.as_str(),
                &headers,
                period,
                ground.clone(),
                directory.clone(),
                recorder.clone(),
            )
        });
    }
}
