//! Drivers that register by their sockets, with an inbox for the manager.

use proto::registration::registration_server::{Registration, RegistrationServer};
use proto::registration::{
    InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse,
};
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

use super::super::plugin_watcher::{self, DraHandler, PluginWatcher};
use super::*;
use crate::device_manager::{self, DevicePluginHandler, PluginEndpoint};

/// So long the folder is looked at again, and sockets that were refused are asked again.
const SOON: Duration = Duration::from_secs(60);

/// What a plugin says of itself, and what it is told.
#[derive(Clone)]
struct Introduction {
    info: PluginInfo,
    told: Arc<Mutex<Vec<RegistrationStatus>>>,
}

#[tonic::async_trait]
impl Registration for Introduction {
    async fn get_info(&self, _: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        Ok(Response::new(self.info.clone()))
    }

    async fn notify_registration_status(
        &self,
        request: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        self.told.lock().unwrap().push(request.into_inner());
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}

struct WatcherRig {
    folder: TempDir,
    root: Supervisor,
    watcher: Addr<plugin_watcher::Msg>,
    manager: Inbox<Msg>,
}

impl WatcherRig {
    fn start() -> WatcherRig {
        let folder = TempDir::new().unwrap();
        let (manager, heard) = inbox(16);
        let (watcher, port) = mailbox(plugin_watcher::MAILBOX);
        let root = Supervisor::root("test", Intensity::UNLIMITED);
        let root_dir = folder.path().to_owned();
        let spec = ChildSpec::permanent("plugin-watcher");
        root.spawn(spec, port, move || {
            PluginWatcher::new(&root_dir, DraHandler::new(manager.clone()))
        });
        WatcherRig {
            folder,
            root,
            watcher,
            manager: heard,
        }
    }

    fn socket(&self, name: &str) -> PathBuf {
        let registry = plugin_watcher::registration_folder(self.folder.path());
        std::fs::create_dir_all(&registry).unwrap();
        registry.join(name)
    }

    /// A plugin of this type that introduces itself at a socket.
    fn plugin(&self, socket: &str, r#type: &str, versions: &[&str]) -> Introduction {
        let info = PluginInfo {
            r#type: r#type.to_owned(),
            name: "gpu".to_owned(),
            endpoint: format!("/run/{socket}"),
            supported_versions: versions.iter().map(ToString::to_string).collect(),
        };
        let introduction = Introduction {
            info,
            told: Arc::default(),
        };
        let listener = UnixListener::bind(self.socket(socket)).unwrap();
        let service = RegistrationServer::new(introduction.clone());
        let server = Server::builder().add_service(service);
        let incoming = UnixListenerStream::new(listener);
        tokio::spawn(async move { server.serve_with_incoming(incoming).await });
        introduction
    }

    /// Takes the driver that the watcher asks the manager to take in; its socket.
    async fn registered(&mut self, answer: Result<(), DriverError>) -> PathBuf {
        match self.manager.next(SOON).await {
            Some(Msg::Registered {
                driver,
                socket,
                versions,
                reply,
            }) => {
                assert_eq!(
                    (driver.as_str(), &*versions),
                    ("gpu", &["v1.DRAPlugin".to_owned()][..])
                );
                reply.send(answer);
                socket
            }
            other => panic!("{other:?}"),
        }
    }

    /// Takes it that a driver's socket is no longer there, or that another connection is to be made to it.
    async fn deregistered(&mut self) -> PathBuf {
        match self.manager.next(SOON).await {
            Some(Msg::Deregistered { driver, socket }) => {
                assert_eq!(driver.as_str(), "gpu");
                socket
            }
            other => panic!("{other:?}"),
        }
    }
}

impl Introduction {
    /// What it was told last: whether it is registered, and why not.
    fn told(&self) -> Option<(bool, String)> {
        let told = self.told.lock().unwrap();
        told.last()
            .map(|status| (status.plugin_registered, status.error.clone()))
    }
}

/// Upstream's TestRegistrationHandler, as far as the watcher goes.
#[test]
fn a_driver_is_registered_by_its_socket_again_for_a_new_manager_and_let_go_with_it() {
    run_paused(|| async {
        let mut rig = WatcherRig::start();
        let driver = rig.plugin("gpu.sock", "DRAPlugin", &["v1.DRAPlugin"]);
        let endpoint = PathBuf::from("/run/gpu.sock");
        assert_eq!(rig.deregistered().await, endpoint);
        assert_eq!(rig.registered(Ok(())).await, endpoint);
        pass(SECOND).await;
        assert_eq!(driver.told(), Some((true, String::new())));
        rig.watcher.tell(plugin_watcher::Msg::Resync).unwrap();
        assert_eq!(rig.deregistered().await, endpoint);
        assert_eq!(rig.registered(Ok(())).await, endpoint);
        pass(SOON).await;
        assert!(rig.manager.drain().is_empty(), "it is asked once");
        std::fs::remove_file(rig.socket("gpu.sock")).unwrap();
        assert_eq!(rig.deregistered().await, endpoint);
        rig.root.shutdown().await;
    });
}

#[test]
fn two_instances_of_a_driver_are_registered_side_by_side() {
    run_paused(|| async {
        let mut rig = WatcherRig::start();
        let _old = rig.plugin("old.sock", "DRAPlugin", &["v1.DRAPlugin"]);
        rig.deregistered().await;
        assert_eq!(rig.registered(Ok(())).await, Path::new("/run/old.sock"));
        let _new = rig.plugin("new.sock", "DRAPlugin", &["v1.DRAPlugin"]);
        assert_eq!(rig.deregistered().await, Path::new("/run/new.sock"));
        assert_eq!(rig.registered(Ok(())).await, Path::new("/run/new.sock"));
        pass(SECOND).await;
        std::fs::remove_file(rig.socket("old.sock")).unwrap();
        assert_eq!(rig.deregistered().await, Path::new("/run/old.sock"));
        rig.root.shutdown().await;
    });
}

#[test]
fn a_driver_that_is_refused_is_told_why_and_other_plugins_are_left_to_others() {
    run_paused(|| async {
        let mut rig = WatcherRig::start();
        let csi = rig.plugin("csi.sock", "CSIPlugin", &["1.0.0"]);
        let old = rig.plugin("old.sock", "DRAPlugin", &["v1alpha1.DRAPlugin"]);
        pass(5 * SECOND).await;
        let (registered, why) = old.told().unwrap();
        assert!(!registered);
        assert!(why.contains("v1alpha1"), "{why}");
        assert_eq!(csi.told(), None);
        assert!(rig.manager.drain().is_empty());
        rig.root.shutdown().await;
    });
}

/// Upstream's ValidatePlugin, RegisterPlugin and DeRegisterPlugin of devicemanager/plugin/v1beta1/handler.go.
#[test]
fn a_device_plugin_that_is_found_there_is_registered_at_its_socket_and_let_go_with_it() {
    run_paused(|| async {
        let mut rig = WatcherRig::start();
        let (manager, mut heard) = inbox(16);
        let (_, port) = mailbox(plugin_watcher::MAILBOX);
        let root_dir = rig.folder.path().to_owned();
        let spec = ChildSpec::permanent("device-plugin-watcher");
        rig.root.spawn(spec, port, move || {
            PluginWatcher::new(&root_dir, DevicePluginHandler::new(manager.clone()))
        });
        let newer = rig.plugin("new.sock", "DevicePlugin", &["v2"]);
        let plugin = rig.plugin("gpu.sock", "DevicePlugin", &["v2", "v1beta1"]);
        match heard.next(SOON).await {
            Some(device_manager::Msg::Register(call)) => {
                assert_eq!(call.registration.resource, "gpu");
                assert_eq!(call.endpoint, PluginEndpoint::At("/run/gpu.sock".into()));
                call.reply.send(Ok(())).unwrap();
            }
            other => panic!("{other:?}"),
        }
        pass(SECOND).await;
        assert_eq!(plugin.told(), Some((true, String::new())));
        let (registered, why) = newer.told().unwrap();
        let words = "manager version, v1beta1, is not among plugin supported versions [v2]";
        assert!(!registered && why.contains(words), "{why}");
        std::fs::remove_file(rig.socket("gpu.sock")).unwrap();
        let gone = heard.next(SOON).await;
        assert!(
            matches!(&gone, Some(device_manager::Msg::Deregister { resource }) if resource == "gpu"),
            "{gone:?}"
        );
        assert!(rig.manager.drain().is_empty(), "it is no DRA driver");
        rig.root.shutdown().await;
    });
}
