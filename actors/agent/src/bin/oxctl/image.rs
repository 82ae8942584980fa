//! `oxctl image`: the images of the runtime, asked at its own socket.
//!
//! The agent only tells where that is. Archives don't pass through it.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use clients::images::{Credentials, ImageClient, ImageClientError, ImageRow, Import, ImportedRow};
use serde::Serialize;
use serde_json::{Value, json};

use crate::agent::{AgentClient, AgentError, Method};
use crate::output::OutputFormat;
use crate::table::TextTable;

/// Digits of an id that are shown in a table.
const SHORT_ID: usize = 12;
/// A password is a line.
const MAX_PASSWORD_BYTES: u64 = 64 << 10;

#[derive(Debug, Args)]
pub(crate) struct ImageArguments {
    /// The runtime's socket; the agent is asked for it otherwise
    #[arg(long, global = true, value_name = "SOCKET")]
    runtime: Option<PathBuf>,
    #[command(subcommand)]
    command: ImageCommand,
}

#[derive(Debug, Subcommand)]
enum ImageCommand {
    /// Lists the images that the runtime has
    Ls,
    /// Pulls an image
    Pull {
        image: String,
        /// Who pulls; the password is read from standard input
        #[arg(long, value_name = "NAME")]
        username: Option<String>,
    },
    /// Removes images with all their names; what containers use stays until they are gone
    Rm {
        #[arg(required = true)]
        images: Vec<String>,
    },
    /// Takes the images of an archive into the runtime: an OCI layout or `docker save`'s, packed by gzip, zstd or not
    Import {
        /// The archive; - is standard input
        file: PathBuf,
        /// The name of the one image in it, whatever name it has there
        #[arg(long, value_name = "IMAGE")]
        name: Option<String>,
        /// Which image of several platforms is taken, as linux/arm64; this machine's otherwise
        #[arg(long, value_name = "OS/ARCHITECTURE")]
        platform: Option<String>,
    },
    /// Writes images into an archive: an OCI layout with Docker's manifest.json
    Export {
        #[arg(required = true)]
        images: Vec<String>,
        /// The archive; - is standard output
        #[arg(short = 'f', long = "file", value_name = "FILE")]
        file: PathBuf,
    },
}

/// Why an image's command failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ImageError {
    #[error("the agent has no runtime that answers; --runtime SOCKET names one")]
    NoRuntime,
    #[error("{agent}; --runtime SOCKET names a runtime without the agent")]
    NoAgent { agent: String },
    #[error(transparent)]
    Client(#[from] ImageClientError),
    #[error("cannot {what} {}", path.display())]
    File {
        what: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error("standard input has no password")]
    NoPassword,
}

impl ImageError {
    fn file(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| ImageError::File { what, path, source }
    }
}

pub(crate) async fn run(
    agent: &AgentClient,
    arguments: &ImageArguments,
    output: OutputFormat,
) -> Result<(), AgentError> {
    let socket = match &arguments.runtime {
        Some(socket) => socket.clone(),
        None => runtime_of(agent).await?,
    };
    let client = ImageClient::at(&socket);
    let text = carry_out(&client, &arguments.command, output).await?;
    crate::print(&text)
}

async fn runtime_of(agent: &AgentClient) -> Result<PathBuf, ImageError> {
    let answer = agent.ask(Method::GET, "/plugins").await;
    let answer = answer.map_err(|error| ImageError::NoAgent {
        agent: error.to_string(),
    })?;
    let plugins: Vec<Value> = serde_json::from_slice(&answer).unwrap_or_default();
    let runtime = plugins.iter().find(|plugin| plugin["kind"] == "runtime");
    let socket = runtime.and_then(|runtime| runtime["socket"].as_str());
    socket.map(PathBuf::from).ok_or(ImageError::NoRuntime)
}

async fn carry_out(
    client: &ImageClient,
    command: &ImageCommand,
    output: OutputFormat,
) -> Result<String, ImageError> {
    match command {
        ImageCommand::Ls => {
            let rows = client.list().await?;
            Ok(shown(output, &rows, |rows| table(rows)))
        }
        ImageCommand::Pull { image, username } => {
            let credentials = username.as_deref().map(credentials).transpose()?;
            let id = client.pull(image, credentials).await?;
            Ok(shown(output, &json!({ "id": id }), |_| format!("{id}\n")))
        }
        ImageCommand::Rm { images } => {
            for image in images {
                client.remove(image).await?;
            }
            let removed = |images: &Vec<String>| images.join("\n") + "\n";
            Ok(shown(output, images, removed))
        }
        ImageCommand::Import {
            file,
            name,
            platform,
        } => {
            let import = Import {
                origin: file.display().to_string(),
                name: name.clone().unwrap_or_default(),
                platform: platform.clone().unwrap_or_default(),
            };
            let opened = opened(file).map_err(ImageError::file("open", file))?;
            let archive = tokio::fs::File::from_std(opened);
            let rows = client.import(import, archive).await?;
            Ok(shown(output, &rows, |rows| imported(rows)))
        }
        ImageCommand::Export { images, file } => {
            let bytes = export(client, images, file).await?;
            match file == Path::new("-") {
                // Standard output is the archive.
                true => Ok(String::new()),
                false => Ok(shown(output, &json!({ "bytes": bytes }), |_| {
                    format!("{} ({bytes} bytes)\n", file.display())
                })),
            }
        }
    }
}

fn shown<T: Serialize>(output: OutputFormat, value: &T, text: impl Fn(&T) -> String) -> String {
    match output {
        OutputFormat::Json => format!("{:#}\n", json!(value)),
        OutputFormat::Table => text(value),
    }
}

fn table(rows: &[ImageRow]) -> String {
    let mut table = TextTable::new(&["IMAGE", "ID", "SIZE", "PINNED", "DIGEST"]);
    for row in rows {
        let digest = row.digests.first().and_then(|name| name.rsplit('@').next());
        let nameless = ["<none>".to_owned()];
        let names = match row.tags.as_slice() {
            [] => nameless.as_slice(),
            tags => tags,
        };
        for name in names {
            table.row([
                name.clone(),
                short(&row.id),
                size(row.bytes),
                if row.pinned { "yes" } else { "" }.to_owned(),
                digest.unwrap_or_default().to_owned(),
            ]);
        }
    }
    table.take()
}

fn imported(rows: &[ImportedRow]) -> String {
    let line = |row: &ImportedRow| format!("{} {}\n", row.id, row.tags.join(" "));
    rows.iter().map(line).collect()
}

fn short(id: &str) -> String {
    let hex = id.strip_prefix("sha256:").unwrap_or(id);
    hex.chars().take(SHORT_ID).collect()
}

/// In the units of quantities, one digit behind the point.
fn size(bytes: u64) -> String {
    let mut unit = (1_u64, "B");
    for (scale, name) in [(1 << 10, "Ki"), (1 << 20, "Mi"), (1 << 30, "Gi")] {
        if bytes >= scale {
            unit = (scale, name);
        }
    }
    let (scale, name) = unit;
    match scale {
        1 => format!("{bytes}B"),
        _ => {
            let tenths = bytes.saturating_mul(10) / scale;
            format!("{}.{}{name}", tenths / 10, tenths % 10)
        }
    }
}

fn credentials(username: &str) -> Result<Credentials, ImageError> {
    let mut password = String::new();
    let input = Path::new("-");
    let read = io::stdin()
        .take(MAX_PASSWORD_BYTES)
        .read_to_string(&mut password);
    read.map_err(ImageError::file("read a password from", input))?;
    let password = password.trim_end_matches(['\r', '\n']).to_owned();
    match password.is_empty() {
        true => Err(ImageError::NoPassword),
        false => Ok(Credentials {
            username: username.to_owned(),
            password,
        }),
    }
}

fn opened(file: &Path) -> io::Result<File> {
    if file == Path::new("-") {
        return Ok(io::stdin().as_fd().try_clone_to_owned()?.into());
    }
    let opened = File::open(file)?;
    match opened.metadata()?.is_dir() {
        true => Err(io::ErrorKind::IsADirectory.into()),
        false => Ok(opened),
    }
}

/// Writes the archive beside its place, which it gets when it is whole.
async fn export(client: &ImageClient, images: &[String], file: &Path) -> Result<u64, ImageError> {
    if file == Path::new("-") {
        let output = io::stdout().as_fd().try_clone_to_owned();
        let output = File::from(output.map_err(ImageError::file("write", file))?);
        let mut output = tokio::fs::File::from_std(output);
        return Ok(client.export(images.to_vec(), &mut output).await?);
    }
    let mut beside = file.as_os_str().to_owned();
    beside.push(format!(".{}.part", std::process::id()));
    let beside = PathBuf::from(beside);
    let made = File::create_new(&beside).map_err(ImageError::file("make", &beside))?;
    let mut out = tokio::fs::File::from_std(made);
    let exported = async {
        let bytes = client.export(images.to_vec(), &mut out).await?;
        let synced = out.sync_all().await;
        synced.map_err(ImageError::file("write", &beside))?;
        fs::rename(&beside, file).map_err(ImageError::file("make", file))?;
        Ok(bytes)
    };
    let exported = exported.await;
    if exported.is_err() {
        drop(fs::remove_file(&beside));
    }
    exported
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_show_each_of_their_names() {
        let row = |tags: &[&str], bytes| ImageRow {
            id: format!("sha256:{}", "ab".repeat(32)),
            tags: tags.iter().map(|&tag| tag.to_owned()).collect(),
            digests: vec!["a@sha256:1".to_owned()],
            bytes,
            pinned: false,
        };
        let text = table(&[row(&["a:1", "b:2"], 1536), row(&[], 12)]);
        let rows: Vec<Vec<&str>> = text
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(rows[1], ["a:1", "abababababab", "1.5Ki", "-", "sha256:1"]);
        assert_eq!(rows[2][0], "b:2");
        assert_eq!(rows[3][..3], ["<none>", "abababababab", "12B"]);
        assert_eq!(size(3 << 30), "3.0Gi");
    }

    #[tokio::test]
    async fn without_agent_and_socket_it_is_said_how_to_do_without() {
        let folder = tempfile::tempdir().unwrap();
        let agent = AgentClient::at(&folder.path().join("admin.sock"));
        let refused = runtime_of(&agent).await.unwrap_err().to_string();
        assert!(refused.contains("is oxlet running?"), "{refused}");
        assert!(refused.contains("--runtime SOCKET"), "{refused}");
        let client = ImageClient::at(&folder.path().join("runtime.sock"));
        let refused = client.list().await.unwrap_err().to_string();
        assert!(refused.contains("runtime.sock"), "{refused}");
        assert!(refused.contains("no runtime answers"), "{refused}");
    }
}
