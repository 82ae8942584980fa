//! A storage plugin's process, started as the agent starts it: its socket outlives it.

use std::fs::{self, File};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::Result;
use command_fds::{CommandFdExt, FdMapping};
use integration::agent::program;
use integration::containerd::connect;
use proto::plugin::ConfigureRequest;
use proto::plugin::plugin_client::PluginClient;
use proto::storage::storage_client::StorageClient;
use serde_json::Value;
use tonic::transport::Channel;

/// The descriptor of the contract.
const SOCKET: i32 = 3;

pub(super) struct PluginProcess {
    program: &'static str,
    dir: PathBuf,
    listener: UnixListener,
    configuration: Value,
    generation: u32,
    process: Option<Child>,
}

impl PluginProcess {
    /// Starts a plugin with a folder of its own.
    pub(super) async fn start(
        program: &'static str,
        dir: &Path,
        configuration: Value,
    ) -> Result<Self> {
        fs::create_dir_all(dir)?;
        let mut plugin = Self {
            program,
            dir: dir.to_owned(),
            listener: UnixListener::bind(dir.join("plugin.sock"))?,
            configuration,
            generation: 0,
            process: None,
        };
        plugin.begin().await?;
        Ok(plugin)
    }

    /// Starts the next generation and configures it.
    async fn begin(&mut self) -> Result<()> {
        self.generation += 1;
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.dir.join("plugin.log"))?;
        let mut command = Command::new(program("oxlet-plugins")?);
        command
            .arg(self.program)
            .env_clear()
            .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
            .env("LISTEN_FDS", "1")
            .env("OXLET_PLUGIN_NAME", self.program)
            .env("OXLET_PLUGIN_GENERATION", self.generation.to_string())
            .env("OXLET_PLUGIN_DIR", &self.dir)
            .env("OXLET_AGENT_PID", std::process::id().to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        command.fd_mappings(vec![FdMapping {
            parent_fd: self.listener.try_clone()?.into(),
            child_fd: SOCKET,
        }])?;
        self.process = Some(command.spawn()?);
        let request = ConfigureRequest {
            configuration_json: serde_json::to_vec(&self.configuration)?,
        };
        PluginClient::new(self.channel()).configure(request).await?;
        Ok(())
    }

    /// Kills the process at whatever it is; its successor takes over.
    pub(super) async fn kill9(&mut self) -> Result<()> {
        self.end()?;
        self.begin().await
    }

    pub(super) fn storage(&self) -> StorageClient<Channel> {
        StorageClient::new(self.channel())
    }

    pub(super) fn log(&self) -> String {
        fs::read_to_string(self.dir.join("plugin.log")).unwrap_or_default()
    }

    fn channel(&self) -> Channel {
        connect(&self.dir.join("plugin.sock"))
    }

    fn end(&mut self) -> Result<()> {
        if let Some(mut process) = self.process.take() {
            process.kill()?;
            process.wait()?;
        }
        Ok(())
    }
}

impl Drop for PluginProcess {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            eprintln!("{} is not ended: {error:#}", self.program);
        }
    }
}
