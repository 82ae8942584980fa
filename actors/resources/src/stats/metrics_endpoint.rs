//! `/metrics`: the counters kept all along, and the gauges that are computed for each scrape.

use std::collections::BTreeMap;

use logic_api::pod::PodView;
use logic_api::types::PodUid;
use logic_resources::summary::plugin_name;
use metrics::exposition::Exposition;
use metrics::node::volumes::{write_stats, write_totals};
use metrics::pods::logs::{self, LogUsage};
use pods::collectors;

use super::disk::DiskScan;
use super::{ASK_TIMEOUT, SummaryError, SummaryProvider, error_text};

/// The number of volumes by plugin and state (`desired_state_of_world`, `actual_state_of_world`).
type Totals = BTreeMap<(String, &'static str), usize>;

impl SummaryProvider {
    /// The agent's own metrics. Those of an actor that does not answer are left out.
    pub async fn metrics_text(&self) -> String {
        let tree = self.0.peers.root.tree().await;
        collectors::count(&tree);
        cluster::certificates::measure(kernel::timestamp());
        let mut text = metrics::text();
        let mut exposition = Exposition::default();
        match self.claims().await {
            Ok(claims) => write_stats(&claims, &mut exposition),
            Err(error) => tracing::warn!("no metrics of volumes: {error}"),
        }
        match self.logs().await {
            Ok(all) => logs::write(&all, &mut exposition),
            Err(error) => tracing::warn!("no metrics of logs: {}", error_text(&error)),
        }
        let volumes = &self.0.peers.volumes;
        match volumes.ask(ASK_TIMEOUT, volumes::Msg::view).await {
            Ok(view) => {
                let totals = totals(&view.volumes);
                let totals = totals
                    .iter()
                    .map(|((plugin, state), count)| (plugin.as_str(), *state, *count));
                write_totals(totals, &mut exposition);
            }
            Err(error) => tracing::warn!("no totals of volumes: {error}"),
        }
        text.push_str(&exposition.into_text());
        text.push_str(&collectors::text(&tree));
        text
    }

    /// Bytes of logs by pod and container.
    async fn logs(&self) -> Result<Vec<LogUsage>, SummaryError> {
        let pods = self.pods().await.map_err(SummaryError::Silent)?;
        let node = &self.0.peers.rules.node;
        let names = pods
            .values()
            .map(|pod| (pod.uid(), pod.namespace().to_owned(), pod.name().to_owned()));
        let look = DiskScan {
            root_dir: node.root_dir.clone(),
            pod_logs_dir: node.pod_logs_dir.clone(),
            pods: names.collect(),
        };
        let read = self.0.logs_io.run(move || look.logs()).await;
        read.map_err(SummaryError::Machine)
    }
}

impl DiskScan {
    fn logs(&self) -> Vec<LogUsage> {
        let disks = self.see();
        let of_pod = |(uid, namespace, pod): &(PodUid, String, String)| {
            let containers = disks.get(uid).map(|disk| &disk.container_logs);
            let logs = containers
                .into_iter()
                .flatten()
                .map(|(name, taken)| LogUsage {
                    uid: uid.as_str().to_owned(),
                    namespace: namespace.clone(),
                    pod: pod.clone(),
                    container: name.clone(),
                    bytes: taken.bytes,
                });
            logs.collect::<Vec<_>>()
        };
        self.pods.iter().flat_map(of_pod).collect()
    }
}

/// Counts desired and actual volumes; a volume left over or being unmounted is only an actual one.
fn totals(rows: &[volumes::VolumeView]) -> Totals {
    let mut totals = Totals::new();
    for row in rows {
        let plugin = plugin(row);
        let (actual, desired) = match row.state.as_str() {
            "Mounted" => (true, true),
            "Unmounting" | "Left over" => (true, false),
            _ => (false, true),
        };
        if actual {
            *totals
                .entry((plugin.clone(), "actual_state_of_world"))
                .or_default() += 1;
        }
        if desired {
            *totals
                .entry((plugin, "desired_state_of_world"))
                .or_default() += 1;
        }
    }
    totals
}

fn plugin(row: &volumes::VolumeView) -> String {
    match row.kind.is_empty() {
        true => "N/A".to_owned(),
        false => plugin_name(&row.kind, &row.id),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Upstream's TestMetricCollection and TestTotalVolumesCollector of pkg/kubelet/volumemanager/metrics.
    #[test]
    fn volumes_count_as_wanted_and_as_mounted_by_their_plugin() {
        let row = |kind: &str, id: &str, state: &str| volumes::VolumeView {
            pod: String::new(),
            volume: String::new(),
            kind: kind.to_owned(),
            id: id.to_owned(),
            state: state.to_owned(),
            why: String::new(),
            path: String::new(),
            figures: logic_api::pod::volume_stats::VolumeMetrics::default(),
        };
        let rows = [
            row("empty-dir", "kubernetes.io/empty-dir/u1-a", "Mounted"),
            row("empty-dir", "kubernetes.io/empty-dir/u1-b", "Mounting"),
            row("csi", "kubernetes.io/csi/disk.example^handle", "Left over"),
            row("", "x", "Waiting"),
        ];
        let (actual, desired) = ("actual_state_of_world", "desired_state_of_world");
        let expected = [
            (("N/A".to_owned(), desired), 1),
            (("kubernetes.io/csi:disk.example".to_owned(), actual), 1),
            (("kubernetes.io/empty-dir".to_owned(), actual), 1),
            (("kubernetes.io/empty-dir".to_owned(), desired), 2),
        ];
        assert_eq!(totals(&rows), expected.into());
    }
}
