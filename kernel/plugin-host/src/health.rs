//! The health stream of a plugin, opened again when it breaks, and its silence.

use std::collections::BTreeMap;
use std::time::Duration;

use proto::plugin::health_report::Status as WireStatus;
use proto::plugin::plugin_client::PluginClient as BaseClient;
use proto::plugin::{HealthReport, HealthRequest};
use tokio::time::sleep;
use tonic::Streaming;
use tonic::transport::Channel;

/// Before a stream that broke is opened again.
const RETRY_INTERVAL: Duration = Duration::from_millis(10);

/// A plugin's health report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PluginHealth {
    pub(super) healthy: bool,
    pub(super) reason: String,
    pub(super) attributes: BTreeMap<String, String>,
}

impl From<HealthReport> for PluginHealth {
    fn from(report: HealthReport) -> Self {
        let (healthy, unsaid) = match report.status() {
            WireStatus::Healthy => (true, ""),
            WireStatus::Degraded => (false, "degraded, without a reason"),
            WireStatus::Unspecified => (
                false,
                "its health report has no status that this agent knows",
            ),
        };
        let reason = if report.reason.is_empty() {
            unsaid.to_owned()
        } else {
            report.reason
        };
        Self {
            healthy,
            reason,
            attributes: report.attributes,
        }
    }
}

/// The reports of one generation.
pub(super) struct HealthMonitor {
    client: BaseClient<Channel>,
    interval: Duration,
    stream: Option<Streaming<HealthReport>>,
}

impl HealthMonitor {
    pub(super) fn new(channel: Channel, interval: Duration) -> Self {
        Self {
            client: BaseClient::new(channel),
            interval,
            stream: None,
        }
    }

    /// Waits for the next report, however often the stream must be opened for it.
    pub(super) async fn next(&mut self) -> PluginHealth {
        loop {
            if let Some(stream) = &mut self.stream {
                match stream.message().await {
                    Ok(Some(report)) => return report.into(),
                    Ok(None) | Err(_) => self.stream = None,
                }
            }
            let interval_ms = u32::try_from(self.interval.as_millis())
                .unwrap_or(u32::MAX)
                .max(1);
            match self.client.health(HealthRequest { interval_ms }).await {
                Ok(answer) => self.stream = Some(answer.into_inner()),
                Err(error) => {
                    tracing::debug!(%error, "no health stream");
                    sleep(RETRY_INTERVAL).await;
                }
            }
        }
    }

    /// Waits for the next report within the longest silence that counts as life.
    pub(super) async fn beat(&mut self) -> Option<PluginHealth> {
        tokio::time::timeout(longest_silence(self.interval), self.next())
            .await
            .ok()
    }
}

/// The longest silence that counts as life.
pub(super) fn longest_silence(interval: Duration) -> Duration {
    interval.saturating_mul(3)
}
