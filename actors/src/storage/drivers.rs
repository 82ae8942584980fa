//! The drivers behind a plugin: which there are, and what becomes of them.

use std::time::Duration;

use logic_volumes::RegisteredDriver;
use proto::storage as wire;
use tonic::Streaming;

use super::{Storage, StorageError, StoragePlugin, convert, millis};

/// What becomes of the drivers behind a plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DriverEvent {
    There(RegisteredDriver),
    Gone(String),
    Refused {
        endpoint: String,
        name: String,
        why: String,
    },
    /// Everything that is there now has been told.
    Synced,
}

/// The news of one plugin's drivers, until the stream ends.
#[derive(Debug)]
pub struct DriverEvents(Streaming<wire::Event>);

impl DriverEvents {
    /// None at the end, whyever it came.
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
    /// Has a driver asked anew how many volumes it takes on this node; what is different comes as news.
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

    /// Listens to what becomes of the drivers behind a plugin.
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
