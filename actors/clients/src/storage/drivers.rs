//! The CSI drivers behind a plugin, and their events.

use std::time::Duration;

use logic_volumes::RegisteredDriver;
use proto::storage as wire;
use tonic::Streaming;

use super::{Storage, StorageError, StoragePlugin, convert, millis};

/// A change of the drivers behind a plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DriverEvent {
    There(RegisteredDriver),
    Gone(String),
    Refused {
        endpoint: String,
        name: String,
        why: String,
    },
    /// All drivers present at the start of the stream have been sent.
    Synced,
}

/// The events of one plugin's drivers.
#[derive(Debug)]
pub struct DriverEvents(Streaming<wire::Event>);

impl DriverEvents {
    /// The next event; none when the stream ends, with or without an error.
    pub async fn next(&mut self) -> Option<DriverEvent> {
        loop {
            let event = self.0.message().await.ok()??;
            if let Some(news) = convert::news(event) {
                return Some(news);
            }
        }
    }
}

impl Storage {
    /// Has the plugin ask a driver again how many volumes it takes on this node; a change comes as an event.
    pub async fn inquire(&self, driver: &str, within: Duration) -> Result<(), StorageError> {
        let request = wire::InquireRequest {
            name: driver.to_owned(),
            within_ms: millis(within),
        };
        self.call(
            StoragePlugin::Csi,
            within,
            request,
            async |mut client, request| client.inquire(request).await,
        )
        .await?;
        Ok(())
    }

    /// Follows the drivers behind a plugin.
    pub async fn watch(
        &self,
        plugin: StoragePlugin,
        within: Duration,
    ) -> Result<DriverEvents, StorageError> {
        let request = wire::WatchRequest {};
        let stream = self
            .call(plugin, within, request, async |mut client, request| {
                client.watch(request).await
            })
            .await?;
        Ok(DriverEvents(stream))
    }
}
