//! How a plugin process was started: by the agent with an inherited socket, or by hand with
//! `--socket PATH`.

use std::ffi::OsString;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::{env, fs};

use interprocess::local_socket::{GenericFilePath, ListenerOptions, ToFsName};
use listenfd::ListenFd;

use crate::base::ProcessIdentity;
use crate::plugin::{Info, Refusal};

const USAGE: &str = "started by the agent it takes its socket as descriptor 3 (LISTEN_FDS=1); \
    by hand: --socket PATH [--configuration FILE] [--dir PATH] [--name NAME]";

/// The way in which this process was started: by the agent or by hand.
#[derive(Debug)]
pub(crate) enum Start {
    /// By the agent with this process id.
    Inherited {
        identity: ProcessIdentity,
        listener: UnixListener,
        agent: u32,
    },
    /// By hand; with a configuration it serves without waiting for one.
    ByHand {
        identity: ProcessIdentity,
        listener: UnixListener,
        configuration: Option<Vec<u8>>,
    },
}

impl Start {
    /// Reads arguments and environment. To be called before there is a second thread, because
    /// taking the descriptor also takes its variable out of the environment.
    pub(crate) fn read(info: &Info) -> Result<Self, Refusal> {
        // With a socket handed over, the arguments are the plugin's own affair.
        if env::var_os("LISTEN_FDS").is_some() {
            return Self::inherited(info);
        }
        // A program of several plugins is told first which of them it is to be.
        let mut given = env::args_os().skip(1).peekable();
        given.next_if(|first| first.as_os_str() == info.name);
        let arguments = Arguments::read(given)?;
        match arguments.socket {
            Some(ref socket) => Self::by_hand(info, socket.clone(), arguments),
            None => Err(Refusal::new(format!("no socket was handed over; {USAGE}"))),
        }
    }

    fn inherited(info: &Info) -> Result<Self, Refusal> {
        let listener = ListenFd::from_env()
            .take_unix_listener(0)
            .map_err(|error| Refusal::new(format!("descriptor 3: {error}; {USAGE}")))?
            .ok_or_else(|| Refusal::new(format!("no socket was handed over; {USAGE}")))?;
        let dir = env::var_os("OXLET_PLUGIN_DIR").map_or_else(env::temp_dir, PathBuf::from);
        let identity = ProcessIdentity {
            name: env::var("OXLET_PLUGIN_NAME").unwrap_or_else(|_| info.name.to_owned()),
            generation: number("OXLET_PLUGIN_GENERATION")?.unwrap_or(1),
            dir,
        };
        let agent = number("OXLET_AGENT_PID")?.unwrap_or_else(std::os::unix::process::parent_id);
        Ok(Self::Inherited {
            identity,
            listener,
            agent,
        })
    }

    fn by_hand(info: &Info, socket: PathBuf, arguments: Arguments) -> Result<Self, Refusal> {
        let dir = arguments.dir.unwrap_or_else(|| {
            let mut beside = socket.clone().into_os_string();
            beside.push(".d");
            beside.into()
        });
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&dir)
            .map_err(|error| {
                Refusal::new(format!("cannot make folder {}: {error}", dir.display()))
            })?;
        let configuration = match arguments.configuration {
            Some(file) => Some(fs::read(&file).map_err(|error| {
                Refusal::new(format!(
                    "cannot read configuration {}: {error}",
                    file.display()
                ))
            })?),
            None => None,
        };
        let listener = bind(&socket)?;
        let name = arguments.name.unwrap_or_else(|| info.name.to_owned());
        Ok(Self::ByHand {
            identity: ProcessIdentity {
                name,
                generation: 1,
                dir,
            },
            listener,
            configuration,
        })
    }
}

fn number<T: std::str::FromStr>(variable: &str) -> Result<Option<T>, Refusal> {
    let Ok(text) = env::var(variable) else {
        return Ok(None);
    };
    text.parse()
        .map(Some)
        .map_err(|_| Refusal::new(format!("{variable} is {text:?}, expected a number")))
}

/// Binds the socket of the command line; a stale file is replaced, a live server's is not.
pub(crate) fn bind(socket: &Path) -> Result<UnixListener, Refusal> {
    if UnixStream::connect(socket).is_ok() {
        return Err(Refusal::new(format!(
            "socket {} is served by another process",
            socket.display()
        )));
    }
    let cannot = |error| Refusal::new(format!("cannot listen on {}: {error}", socket.display()));
    let name = socket.to_fs_name::<GenericFilePath>().map_err(cannot)?;
    let listener = ListenerOptions::new()
        .name(name)
        .reclaim_name(false)
        .try_overwrite(true)
        .create_sync()
        .map_err(cannot)?;
    let interprocess::local_socket::Listener::UdSocket(listener) = listener;
    Ok(listener.into())
}

#[derive(Debug, Default)]
struct Arguments {
    socket: Option<PathBuf>,
    configuration: Option<PathBuf>,
    dir: Option<PathBuf>,
    name: Option<String>,
}

impl Arguments {
    fn read(given: impl Iterator<Item = OsString>) -> Result<Self, Refusal> {
        let mut arguments = Self::default();
        let mut given = given;
        while let Some(flag) = given.next() {
            let flag = flag.to_string_lossy().into_owned();
            let mut value = || {
                given
                    .next()
                    .ok_or_else(|| Refusal::new(format!("{flag} needs a value; {USAGE}")))
            };
            match flag.as_str() {
                "--socket" => arguments.socket = Some(value()?.into()),
                "--configuration" => arguments.configuration = Some(value()?.into()),
                "--dir" => arguments.dir = Some(value()?.into()),
                "--name" => arguments.name = Some(value()?.to_string_lossy().into_owned()),
                _ => return Err(Refusal::new(format!("unknown argument {flag:?}; {USAGE}"))),
            }
        }
        Ok(arguments)
    }
}
