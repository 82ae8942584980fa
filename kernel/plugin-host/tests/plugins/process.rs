//! The plugin processes of these tests: this binary, started again by the host with the name of the
//! one test below and a word that says how to behave.

use std::convert::Infallible;
use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::ExitCode;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::Stream;
use futures_util::future::BoxFuture;
use listenfd::ListenFd;
use plugin_host::{Declaration, LaunchMethod, ServiceKind};
use proto::cri::{VersionRequest, VersionResponse};
use proto::plugin::plugin_server::{Plugin, PluginServer};
use proto::plugin::{
    ConfigureRequest, ConfigureResponse, DrainRequest, DrainResponse, HealthReport, HealthRequest,
    InfoRequest, InfoResponse,
};
use serde_json::json;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::body::Body;
use tonic::codegen::http::{Request, Response};
use tonic::server::{Grpc, NamedService, UnaryService};
use tonic::transport::Server;
use tonic::{Status, async_trait};
use tower::Service;

/// How a plugin behaves.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Manner {
    /// As the SDK makes it.
    Well,
    /// Well, but its directory bears one process at a time.
    Alone,
    /// Well, but it does not end when it is done.
    Lingers,
    /// Ends at once.
    Crash,
    /// Answers with bytes that are no HTTP/2.
    Garbage,
    /// Speaks a contract of the future.
    Contract,
    /// Never reports its health.
    Mute,
}

/// Declares a plugin that behaves in this manner and answers with `label`.
pub(crate) fn plugin(label: &str, manner: Manner) -> Declaration {
    let args = [
        "process::runs_as_a_plugin",
        "--exact",
        "--nocapture",
        &format!("manner={manner:?}"),
    ];
    let start = LaunchMethod::Managed {
        command: std::env::current_exe().unwrap(),
        args: args.map(str::to_owned).to_vec(),
    };
    let mut declaration = Declaration::new("test", ServiceKind::Runtime, start);
    declaration.configuration = json!({ "label": label });
    declaration.health_interval = Duration::from_millis(200);
    declaration.term_within = Duration::from_millis(200);
    declaration
}

#[test]
fn runs_as_a_plugin() {
    if std::env::var_os("OXLET_PLUGIN_NAME").is_none() {
        return;
    }
    let manner = std::env::args().find_map(|word| word.strip_prefix("manner=").map(str::to_owned));
    match manner.unwrap().as_str() {
        "Well" => exit(sdk::serve(info(vec![]), build)),
        "Alone" => exit(sdk::serve(info(vec!["alone"]), build)),
        "Lingers" => {
            sdk::serve(info(vec![]), build);
            loop {
                std::thread::park();
            }
        }
        "Crash" => std::process::exit(3),
        "Garbage" => talk_garbage(),
        "Contract" => serve_rudely(Rude { contract: 2 }),
        "Mute" => serve_rudely(Rude { contract: 1 }),
        other => panic!("unknown manner {other}"),
    }
}

fn exit(code: ExitCode) -> ! {
    std::process::exit(if code == ExitCode::SUCCESS { 0 } else { 1 })
}

fn info(capabilities: Vec<&'static str>) -> sdk::Info {
    sdk::Info {
        name: "test-plugin",
        version: "0.1.0",
        kind: sdk::Kind::Runtime,
        capabilities,
    }
}

async fn build(setup: sdk::Setup) -> Result<sdk::Routes, sdk::Refusal> {
    let word = |field: &str| setup.configuration[field].as_str().map(str::to_owned);
    if let Some(why) = word("refuse").or_else(|| refuses_once(&setup.dir)) {
        return Err(sdk::Refusal::new(why));
    }
    note_overlap(&setup.dir);
    setup
        .health
        .attribute("label", word("label").unwrap_or_default());
    if let Some(why) = word("degraded") {
        setup.health.degraded(why);
    }
    Ok(sdk::Routes::new(Echo {
        label: word("label").unwrap_or_default(),
        greed: word("greed"),
        dir: setup.dir,
    }))
}

/// Why this process refuses; the next one will not.
fn refuses_once(dir: &Path) -> Option<String> {
    let path = dir.join("refuse");
    let why = fs::read_to_string(&path).ok()?;
    fs::remove_file(path).ok()?;
    Some(why)
}

/// Leaves a note if another process that used this directory still lives.
fn note_overlap(dir: &Path) {
    let pid = dir.join("pid");
    if let Ok(before) = fs::read_to_string(&pid)
        && Path::new("/proc").join(before).exists()
    {
        fs::write(dir.join("overlap"), "").unwrap();
    }
    fs::write(pid, std::process::id().to_string()).unwrap();
}

/// Answers Version at once; RunPodSandbox notes that it was called, and answers when it may.
#[derive(Clone)]
struct Echo {
    label: String,
    /// What RunPodSandbox takes without end: memory or processes.
    greed: Option<String>,
    dir: PathBuf,
}

impl NamedService for Echo {
    const NAME: &'static str = "runtime.v1.RuntimeService";
}

impl Service<Request<Body>> for Echo {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let echo = self.clone();
        Box::pin(async move {
            let creates = request.uri().path().ends_with("/RunPodSandbox");
            let codec = tonic_prost::ProstCodec::<VersionResponse, VersionRequest>::default();
            Ok(Grpc::new(codec)
                .unary(Method { echo, creates }, request)
                .await)
        })
    }
}

struct Method {
    echo: Echo,
    creates: bool,
}

impl UnaryService<VersionRequest> for Method {
    type Response = VersionResponse;
    type Future = BoxFuture<'static, Result<tonic::Response<VersionResponse>, Status>>;

    fn call(&mut self, _: tonic::Request<VersionRequest>) -> Self::Future {
        let (Echo { label, greed, dir }, creates) = (self.echo.clone(), self.creates);
        Box::pin(async move {
            if let Some(greed) = greed.filter(|_| creates) {
                let refused = take(&greed);
                return Err(Status::resource_exhausted(refused));
            }
            if creates {
                let mut made = fs::OpenOptions::new()
                    .create(true)
                    .append(true)
                    .open(dir.join("made"))
                    .unwrap();
                writeln!(made, "{}", std::process::id()).unwrap();
                match pipe::OpenOptions::new().open_receiver(dir.join("hold")) {
                    Ok(mut held) => assert_eq!(held.read(&mut [0]).await.unwrap(), 0),
                    Err(error) => assert_eq!(error.kind(), ErrorKind::NotFound),
                }
            }
            let mut environment: Vec<_> = std::env::vars().map(|(name, _)| name).collect();
            environment.sort();
            // A sandbox's answer has its id where a version's has its own: one message serves both.
            Ok(tonic::Response::new(VersionResponse {
                version: label,
                runtime_name: environment.join(" "),
                runtime_version: std::process::id().to_string(),
                runtime_api_version: std::env::var("OXLET_PLUGIN_GENERATION").unwrap(),
            }))
        })
    }
}

/// Takes until it is refused; returns how.
fn take(what: &str) -> String {
    let mut memory = Vec::new();
    let mut children = Vec::new();
    loop {
        match what {
            // Written to: memory that nobody touches is not there.
            "memory" => memory.push(vec![1_u8; 1 << 20]),
            "processes" => match std::process::Command::new("sleep").arg("3600").spawn() {
                Ok(child) => children.push(child),
                Err(error) => {
                    for child in &mut children {
                        child.kill().unwrap();
                        child.wait().unwrap();
                    }
                    return format!("{} processes: {:?}", children.len(), error.kind());
                }
            },
            other => panic!("unknown greed {other}"),
        }
    }
}

fn talk_garbage() -> ! {
    let listener = ListenFd::from_env().take_unix_listener(0).unwrap().unwrap();
    loop {
        let (mut stream, _) = listener.accept().unwrap();
        // The other side may have gone already.
        drop(stream.write_all(b"HTTP/1.1 418 I am no plugin\r\n\r\n"));
    }
}

/// A plugin without the SDK, and without its manners.
struct Rude {
    contract: u32,
}

fn serve_rudely(rude: Rude) {
    let listener = ListenFd::from_env().take_unix_listener(0).unwrap().unwrap();
    listener.set_nonblocking(true).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let served = runtime.block_on(async {
        let incoming =
            UnixListenerStream::new(tokio::net::UnixListener::from_std(listener).unwrap());
        Server::builder()
            .add_service(PluginServer::new(rude))
            .serve_with_incoming(incoming)
            .await
    });
    served.unwrap();
}

#[async_trait]
impl Plugin for Rude {
    type HealthStream = Pin<Box<dyn Stream<Item = Result<HealthReport, Status>> + Send>>;

    async fn info(
        &self,
        _: tonic::Request<InfoRequest>,
    ) -> Result<tonic::Response<InfoResponse>, Status> {
        Ok(tonic::Response::new(InfoResponse {
            contract: self.contract,
            kind: proto::plugin::Kind::Runtime.into(),
            name: "rude-plugin".to_owned(),
            ..InfoResponse::default()
        }))
    }

    async fn configure(
        &self,
        _: tonic::Request<ConfigureRequest>,
    ) -> Result<tonic::Response<ConfigureResponse>, Status> {
        Ok(tonic::Response::new(ConfigureResponse {}))
    }

    async fn health(
        &self,
        _: tonic::Request<HealthRequest>,
    ) -> Result<tonic::Response<Self::HealthStream>, Status> {
        Ok(tonic::Response::new(Box::pin(
            futures_util::stream::pending(),
        )))
    }

    async fn drain(
        &self,
        _: tonic::Request<DrainRequest>,
    ) -> Result<tonic::Response<DrainResponse>, Status> {
        std::future::pending().await
    }
}
