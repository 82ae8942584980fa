//! The connections to the drivers' sockets: each is made again when it ends, and none waits for another.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clients::drivers::{DriverCallError, DriverClient, HealthReports};
use kernel::{Context, TaskId};
use logic_placement::claims::health::{DeviceHealth, DeviceKey};
use logic_placement::claims::{
    CallFailure, ClaimDevice, ClaimIdentity, ClaimUid, Connection, DriverEndpoint, DriverError,
    DriverName, check_answer, validate_driver,
};

use super::{CALL_TIMEOUT, DynamicResources, HealthWatch, Msg};

/// Between attempts to connect: the first, and the longest after doubling. A driver that is back must be noticed well
/// before its ResourceSlices go.
const RECONNECT_MIN: Duration = Duration::from_secs(1);
const RECONNECT_MAX: Duration = Duration::from_secs(5);
/// A socket of this machine takes a connection at once, or its driver is not well.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// What happens to a connection; `link` is its number.
#[derive(Debug)]
pub enum LinkEvent {
    /// It is made, or is not.
    Connected {
        link: u64,
        result: Result<DriverClient, DriverCallError>,
    },
    /// It has ended.
    Closed { link: u64 },
    /// The driver reports the health of its devices, or does not.
    HealthOpened {
        link: u64,
        result: Result<HealthReports, DriverCallError>,
    },
    /// A report, or none any more.
    HealthReported {
        link: u64,
        reports: Box<HealthReports>,
        report: Result<Option<BTreeMap<DeviceKey, DeviceHealth>>, DriverCallError>,
    },
}

/// A driver's socket, and the connection to it.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) driver: DriverName,
    socket: PathBuf,
    pub(super) client: Option<DriverClient>,
    /// Until the next attempt to connect, if this one fails.
    retry: Duration,
    /// Connects, or waits for the end of the connection.
    task: Option<TaskId>,
    /// Follows the health of the devices.
    pub(super) health: Option<TaskId>,
}

/// How a driver is called: by its connection, or where that is lost by one of its own.
#[derive(Debug)]
pub(super) struct DriverLine {
    driver: DriverName,
    endpoint: DriverEndpoint,
    client: Option<DriverClient>,
}

impl DriverLine {
    pub(super) async fn prepare(
        &self,
        claims: &[ClaimIdentity],
    ) -> Result<BTreeMap<ClaimUid, Vec<ClaimDevice>>, CallFailure> {
        let rpc = "NodePrepareResources";
        let answer = match self.client().await {
            Ok((client, within)) => client.prepare(claims, within).await,
            Err(error) => Err(error),
        };
        let answer = answer.map_err(|error| failed(rpc, &error))?;
        check_answer(rpc, claims, answer)
    }

    pub(super) async fn unprepare(
        &self,
        claims: &[ClaimIdentity],
    ) -> Result<BTreeMap<ClaimUid, ()>, CallFailure> {
        let rpc = "NodeUnprepareResources";
        let answer = match self.client().await {
            Ok((client, within)) => client.unprepare(claims, within).await,
            Err(error) => Err(error),
        };
        let answer = answer.map_err(|error| failed(rpc, &error))?;
        check_answer(rpc, claims, answer)
    }

    /// The client, and what is left of the call's time.
    async fn client(&self) -> Result<(DriverClient, Duration), DriverCallError> {
        if let Some(client) = &self.client {
            return Ok((client.clone(), CALL_TIMEOUT));
        }
        let client = DriverClient::connect(&self.driver, &self.endpoint, CONNECT_TIMEOUT).await?;
        Ok((client, CALL_TIMEOUT.saturating_sub(CONNECT_TIMEOUT)))
    }
}

impl DynamicResources {
    pub(super) fn register(
        &mut self,
        driver: DriverName,
        socket: PathBuf,
        versions: &[String],
        ctx: &mut Context<Msg>,
    ) -> Result<(), DriverError> {
        let service = validate_driver(&driver, &socket, versions)?;
        self.drivers.add(&driver, &socket, service)?;
        tracing::info!(
            "DRA driver {driver} serves {} at {}",
            service.as_str(),
            socket.display()
        );
        let number = self.number();
        let link = Link {
            driver: driver.clone(),
            socket,
            client: None,
            retry: RECONNECT_MIN,
            task: None,
            health: None,
        };
        self.links.insert(number, link);
        self.connect(number, Duration::ZERO, ctx);
        self.follow_slices(&driver, ctx);
        Ok(())
    }

    pub(super) fn deregister(
        &mut self,
        driver: &DriverName,
        socket: &Path,
        ctx: &mut Context<Msg>,
    ) {
        let mut links = self.links.iter();
        let own = links.find(|(_, link)| link.driver == *driver && link.socket == socket);
        let Some(number) = own.map(|(number, _)| *number) else {
            return;
        };
        if let Some(link) = self.links.remove(&number) {
            for task in [link.task, link.health].into_iter().flatten() {
                ctx.abort(task);
            }
        }
        tracing::info!("DRA driver {driver} is gone from {}", socket.display());
        self.drivers.remove(driver, socket);
        self.clear_health(driver, ctx);
        self.follow_slices(driver, ctx);
    }

    /// How the driver is called now.
    pub(super) fn line(&self, driver: &DriverName) -> Result<DriverLine, DriverError> {
        let endpoint = self.drivers.get(driver)?.clone();
        let mut links = self.links.values();
        let link = links.find(|link| link.driver == *driver && link.socket == endpoint.socket);
        Ok(DriverLine {
            driver: driver.clone(),
            client: link.and_then(|link| link.client.clone()),
            endpoint,
        })
    }

    fn connect(&mut self, number: u64, after: Duration, ctx: &mut Context<Msg>) {
        let Some(link) = self.links.get_mut(&number) else {
            return;
        };
        let endpoints = self.drivers.drivers().get(&link.driver);
        let mut endpoints = endpoints.into_iter().flatten();
        let own = endpoints.find(|endpoint| endpoint.socket == link.socket);
        let Some(endpoint) = own.cloned() else {
            return;
        };
        let driver = link.driver.clone();
        link.task = Some(ctx.run(async move {
            tokio::time::sleep(after).await;
            let result = DriverClient::connect(&driver, &endpoint, CONNECT_TIMEOUT).await;
            let link = number;
            Msg::Link(LinkEvent::Connected { link, result })
        }));
    }

    pub(super) fn link_event(&mut self, event: LinkEvent, ctx: &mut Context<Msg>) {
        match event {
            LinkEvent::Connected { link, result } => self.connected(link, result, ctx),
            LinkEvent::Closed { link } => self.closed(link, ctx),
            LinkEvent::HealthOpened { link, result } => self.health_opened(link, result, ctx),
            LinkEvent::HealthReported {
                link,
                reports,
                report,
            } => self.health_reported(link, reports, report, ctx),
        }
    }

    fn connected(
        &mut self,
        number: u64,
        result: Result<DriverClient, DriverCallError>,
        ctx: &mut Context<Msg>,
    ) {
        let Some(link) = self.links.get_mut(&number) else {
            return;
        };
        let client = match result {
            Ok(client) => client,
            Err(error) => {
                tracing::debug!("DRA driver {}: {error}", link.driver);
                let after = link.retry;
                link.retry = RECONNECT_MAX.min(after.saturating_mul(2));
                return self.connect(number, after, ctx);
            }
        };
        link.retry = RECONNECT_MIN;
        link.client = Some(client.clone());
        link.task = Some(ctx.run(async move {
            client.closed().await;
            Msg::Link(LinkEvent::Closed { link: number })
        }));
        self.connection_changed(number, Connection::Connected, ctx);
        if self.config.health == HealthWatch::On {
            self.open_health(number, Duration::ZERO, ctx);
        }
    }

    fn closed(&mut self, number: u64, ctx: &mut Context<Msg>) {
        let Some(link) = self.links.get_mut(&number) else {
            return;
        };
        link.client = None;
        if let Some(task) = link.health.take() {
            ctx.abort(task);
        }
        let driver = link.driver.clone();
        self.clear_health(&driver, ctx);
        self.connection_changed(number, Connection::Disconnected, ctx);
        self.connect(number, RECONNECT_MIN, ctx);
    }

    fn connection_changed(&mut self, number: u64, to: Connection, ctx: &mut Context<Msg>) {
        let Some(link) = self.links.get(&number) else {
            return;
        };
        let driver = link.driver.clone();
        self.drivers.set_connection(&driver, &link.socket, to);
        self.follow_slices(&driver, ctx);
    }
}

fn failed(rpc: &'static str, error: &DriverCallError) -> CallFailure {
    CallFailure::Call {
        rpc,
        why: error.to_string(),
    }
}
