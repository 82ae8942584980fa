//! Which devices are out of order, by a file that may change at any time: it stands for a look at real hardware.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Context;
use futures_util::StreamExt;
use inotify::{Inotify, WatchMask};
use tokio::sync::watch;

/// Follows the ids in a file, one a line; a file that is not there has none.
pub(crate) fn follow(file: &Path) -> anyhow::Result<watch::Receiver<BTreeSet<String>>> {
    let folder = file.parent().context("a file lies in a folder")?;
    let inotify = Inotify::init()?;
    let mask = WatchMask::CLOSE_WRITE | WatchMask::MOVED_TO | WatchMask::DELETE;
    let watched = inotify.watches().add(folder, mask);
    watched.with_context(|| folder.display().to_string())?;
    let mut changes = inotify.into_event_stream([0; 4096])?;
    let (sender, receiver) = watch::channel(read(file));
    let file = file.to_owned();
    drop(tokio::spawn(async move {
        while let Some(Ok(_)) = changes.next().await {
            let ids = read(&file);
            sender.send_if_modified(|known| {
                let differs = *known != ids;
                *known = ids;
                differs
            });
        }
    }));
    Ok(receiver)
}

fn read(file: &Path) -> BTreeSet<String> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}
