//! The operator's client of a runtime's images: CRI for the list, pulls and removals, `oxlet.images.v1` for archives.
//!
//! It speaks to the runtime's own socket, without the agent: an archive is no business of its. The agent finds out what
//! came and went as with every image of the runtime.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::stream;
use hyper_util::rt::TokioIo;
use plugin_host::MESSAGE_LIMIT;
use proto::cri;
use proto::cri::image_service_client::ImageServiceClient;
use proto::cri::runtime_service_client::RuntimeServiceClient;
use proto::images::images_client::ImagesClient;
use proto::images::{
    ExportRequest, ExportResponse, ImportOptions, ImportRequest, export_response, import_request,
};
use serde::Serialize;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::oneshot;
use tokio::time::timeout;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Code, Status, Streaming};
use tower::service_fn;

/// A list is made from memory.
const LIST_TIMEOUT: Duration = Duration::from_secs(10);
/// The removal of an image deletes its files, which takes a slow disk a minute.
const REMOVE_TIMEOUT: Duration = Duration::from_secs(120);
/// As the agent's own pulls.
const LONG_TIMEOUT: Duration = Duration::from_secs(3600);
const PIECE_BYTES: usize = 256 << 10;

/// What the runtime did not do.
#[derive(Debug, thiserror::Error)]
pub enum ImageClientError {
    #[error("no runtime answers at {}: {why}", socket.display())]
    NotRunning { socket: PathBuf, why: String },
    #[error("{runtime} does not {what} archives of images; its own tools may")]
    NoArchives { runtime: String, what: &'static str },
    #[error("{message}")]
    Refused { code: Code, message: String },
    #[error("there is no image {0:?}")]
    NoSuchImage(String),
    #[error("the runtime did not {what} within {} s", within.as_secs())]
    Deadline {
        what: &'static str,
        within: Duration,
    },
    #[error("the archive broke off after {0} bytes: it is not whole")]
    BrokenOff(u64),
    #[error("cannot read the archive")]
    Read(#[source] io::Error),
    #[error("cannot write the archive")]
    Write(#[source] io::Error),
}

/// An image of the runtime.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ImageRow {
    pub id: String,
    pub tags: Vec<String>,
    pub digests: Vec<String>,
    pub bytes: u64,
    pub pinned: bool,
}

/// An image that was imported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ImportedRow {
    pub id: String,
    pub tags: Vec<String>,
}

/// What is taken from an archive.
#[derive(Clone, Debug, Default)]
pub struct Import {
    /// What the archive is called in errors.
    pub origin: String,
    /// The name of the one image in it; empty for its own.
    pub name: String,
    /// Empty for the node's.
    pub platform: String,
}

/// Who may pull.
#[derive(Clone, Debug)]
pub struct Credentials {
    pub username: String,
    pub password: String,
}

/// The client of one runtime.
#[derive(Clone, Debug)]
pub struct ImageClient {
    socket: PathBuf,
    channel: Channel,
}

type Result<T> = std::result::Result<T, ImageClientError>;

impl ImageClient {
    /// Names the runtime at this socket; it is connected to at the first call.
    pub fn at(socket: &Path) -> Self {
        let path = socket.to_owned();
        let connect = move |_: Uri| {
            let path = path.clone();
            async move { UnixStream::connect(path).await.map(TokioIo::new) }
        };
        let endpoint = Endpoint::from_static("http://localhost");
        ImageClient {
            socket: socket.to_owned(),
            channel: endpoint.connect_with_connector_lazy(service_fn(connect)),
        }
    }

    fn cri(&self) -> ImageServiceClient<Channel> {
        ImageServiceClient::new(self.channel.clone()).max_decoding_message_size(MESSAGE_LIMIT)
    }

    fn archives(&self) -> ImagesClient<Channel> {
        ImagesClient::new(self.channel.clone()).max_decoding_message_size(MESSAGE_LIMIT)
    }

    /// Returns the images of the runtime, by name.
    pub async fn list(&self) -> Result<Vec<ImageRow>> {
        let mut cri = self.cri();
        let asked = cri.list_images(cri::ListImagesRequest::default());
        let answer = self.within("list its images", LIST_TIMEOUT, asked).await?;
        let images = answer.into_inner().images.into_iter();
        let mut rows: Vec<_> = images
            .map(|image| ImageRow {
                id: image.id,
                tags: image.repo_tags,
                digests: image.repo_digests,
                bytes: image.size,
                pinned: image.pinned,
            })
            .collect();
        rows.sort_by(|one, other| (&one.tags, &one.id).cmp(&(&other.tags, &other.id)));
        Ok(rows)
    }

    /// Pulls an image; returns its id or reference, as the runtime tells it.
    pub async fn pull(&self, name: &str, credentials: Option<Credentials>) -> Result<String> {
        let request = cri::PullImageRequest {
            image: spec(name),
            auth: credentials.map(|credentials| cri::AuthConfig {
                username: credentials.username,
                password: credentials.password,
                ..cri::AuthConfig::default()
            }),
            sandbox_config: None,
        };
        let mut cri = self.cri();
        let pulled = self.within("pull the image", LONG_TIMEOUT, cri.pull_image(request));
        Ok(pulled.await?.into_inner().image_ref)
    }

    /// Removes an image with all its names. CRI takes an absent one for removed: it is asked before.
    pub async fn remove(&self, name: &str) -> Result<()> {
        let request = cri::ImageStatusRequest {
            image: spec(name),
            verbose: false,
        };
        let mut cri = self.cri();
        let status = self.within("find the image", LIST_TIMEOUT, cri.image_status(request));
        if status.await?.into_inner().image.is_none() {
            return Err(ImageClientError::NoSuchImage(name.to_owned()));
        }
        let request = cri::RemoveImageRequest { image: spec(name) };
        let removed = cri.remove_image(request);
        let removed = self.within("remove the image", REMOVE_TIMEOUT, removed);
        removed.await.map(drop)
    }

    /// Sends an archive of images to the runtime; returns what was in it.
    pub async fn import(
        &self,
        import: Import,
        archive: impl AsyncRead + Unpin + Send + 'static,
    ) -> Result<Vec<ImportedRow>> {
        let (failed, mut failure) = oneshot::channel();
        let mut archives = self.archives();
        let sent = archives.import(messages(import, archive, failed));
        let imported = self.within("import the archive", LONG_TIMEOUT, sent).await;
        if let Ok(error) = failure.try_recv() {
            return Err(ImageClientError::Read(error));
        }
        match imported {
            Ok(answer) => {
                let images = answer.into_inner().images.into_iter();
                let rows = images.map(|image| ImportedRow {
                    id: image.id,
                    tags: image.tags,
                });
                Ok(rows.collect())
            }
            Err(error) => Err(self.without_archives("import", error).await),
        }
    }

    /// Writes an archive of images; returns its size. After an error what was written is no whole archive.
    pub async fn export(
        &self,
        images: Vec<String>,
        out: &mut (impl AsyncWrite + Unpin),
    ) -> Result<u64> {
        const WHAT: &str = "export the archive";
        let mut archives = self.archives();
        let asked = archives.export(ExportRequest { images });
        let answer = match self.within(WHAT, LIST_TIMEOUT, asked).await {
            Ok(answer) => answer,
            Err(error) => return Err(self.without_archives("export", error).await),
        };
        let written = timeout(LONG_TIMEOUT, self.write(answer.into_inner(), out)).await;
        written.unwrap_or(Err(ImageClientError::Deadline {
            what: WHAT,
            within: LONG_TIMEOUT,
        }))
    }

    async fn write(
        &self,
        mut answer: Streaming<ExportResponse>,
        out: &mut (impl AsyncWrite + Unpin),
    ) -> Result<u64> {
        let mut bytes = 0;
        let broken_off = |bytes| Err(ImageClientError::BrokenOff(bytes));
        while let Some(message) = answer
            .message()
            .await
            .map_err(|error| self.refused(&error))?
        {
            match message.part {
                Some(export_response::Part::Data(data)) => {
                    out.write_all(&data)
                        .await
                        .map_err(ImageClientError::Write)?;
                    bytes += u64::try_from(data.len()).expect("a length fits");
                }
                Some(export_response::Part::Summary(summary)) if summary.bytes == bytes => {
                    out.flush().await.map_err(ImageClientError::Write)?;
                    return Ok(bytes);
                }
                Some(export_response::Part::Summary(_)) | None => return broken_off(bytes),
            }
        }
        broken_off(bytes)
    }

    async fn within<T>(
        &self,
        what: &'static str,
        within: Duration,
        call: impl Future<Output = std::result::Result<T, Status>>,
    ) -> Result<T> {
        match timeout(within, call).await {
            Ok(answer) => answer.map_err(|status| self.refused(&status)),
            Err(_) => Err(ImageClientError::Deadline { what, within }),
        }
    }

    fn refused(&self, status: &Status) -> ImageClientError {
        let socket = self.socket.clone();
        // Only a connection that was never made has a cause of its own.
        match std::error::Error::source(status) {
            Some(_) if status.code() == Code::Unavailable => ImageClientError::NotRunning {
                socket,
                why: kernel::error_chain(status),
            },
            _ => ImageClientError::Refused {
                code: status.code(),
                message: status.message().to_owned(),
            },
        }
    }

    /// Names the runtime, where the error is that it doesn't know archives.
    async fn without_archives(
        &self,
        what: &'static str,
        error: ImageClientError,
    ) -> ImageClientError {
        let unknown = Code::Unimplemented;
        if !matches!(&error, ImageClientError::Refused { code, .. } if *code == unknown) {
            return error;
        }
        ImageClientError::NoArchives {
            runtime: self.runtime().await,
            what,
        }
    }

    async fn runtime(&self) -> String {
        let mut runtime = RuntimeServiceClient::new(self.channel.clone());
        let asked = runtime.version(cri::VersionRequest::default());
        match timeout(LIST_TIMEOUT, asked).await {
            Ok(Ok(answer)) => {
                let answer = answer.into_inner();
                format!("{} {}", answer.runtime_name, answer.runtime_version)
            }
            Ok(Err(_)) | Err(_) => format!("the runtime at {}", self.socket.display()),
        }
    }
}

fn spec(name: &str) -> Option<cri::ImageSpec> {
    Some(cri::ImageSpec {
        image: name.to_owned(),
        user_specified_image: name.to_owned(),
        ..cri::ImageSpec::default()
    })
}

/// Where an archive is that is sent.
enum Sending<R> {
    Options(Import, R),
    Content(R),
    Broken,
}

/// The messages of an import. A read that fails is told to `failed`, and ends them with a message that is no piece: the end
/// alone would be that of the archive.
fn messages<R: AsyncRead + Unpin + Send + 'static>(
    import: Import,
    archive: R,
    failed: oneshot::Sender<io::Error>,
) -> impl stream::Stream<Item = ImportRequest> + Send + 'static {
    let state = (Sending::Options(import, archive), Some(failed));
    stream::unfold(state, |(sending, mut failed)| async move {
        let message = |part| ImportRequest { part: Some(part) };
        let mut archive = match sending {
            Sending::Options(import, archive) => {
                let options = import_request::Part::Options(ImportOptions {
                    origin: import.origin,
                    name: import.name,
                    platform: import.platform,
                });
                return Some((message(options), (Sending::Content(archive), failed)));
            }
            Sending::Content(archive) => archive,
            Sending::Broken => return None,
        };
        let mut piece = vec![0; PIECE_BYTES];
        match archive.read(&mut piece).await {
            Ok(0) => None,
            Ok(count) => {
                piece.truncate(count);
                let piece = import_request::Part::Data(piece);
                Some((message(piece), (Sending::Content(archive), failed)))
            }
            Err(error) => {
                if let Some(failed) = failed.take() {
                    drop(failed.send(error));
                }
                Some((ImportRequest { part: None }, (Sending::Broken, failed)))
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use kernel::testing::run_paused;
    use runtime_fake::{Clock, Fake, FakeSettings};

    use super::*;
    use crate::runtime::fake::serve;

    #[test]
    fn every_runtime_lists_pulls_and_removes_and_one_without_archives_is_named() {
        run_paused(|| async {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("fake");
            let fake = Fake::open_at(path, FakeSettings::default(), Clock::start()).unwrap();
            let client = ImageClient {
                socket: folder.path().join("s"),
                channel: serve(&fake),
            };
            client.pull("localhost/pulled:1", None).await.unwrap();
            let names = async || {
                let rows = client.list().await.unwrap();
                let tags = rows.into_iter().flat_map(|row| row.tags);
                tags.collect::<Vec<_>>()
            };
            let pulled = "localhost/pulled:1".to_owned();
            assert!(names().await.contains(&pulled));
            client.remove("localhost/pulled:1").await.unwrap();
            assert!(!names().await.contains(&pulled));
            let absent = client.remove("localhost/pulled:1").await.unwrap_err();
            assert!(
                matches!(absent, ImageClientError::NoSuchImage(_)),
                "{absent}"
            );
            let archive = std::io::Cursor::new(b"archive".to_vec());
            let refused = client.import(Import::default(), archive).await.unwrap_err();
            let text = refused.to_string();
            assert!(text.contains("does not import archives"), "{text}");
            let mut out = Vec::new();
            let refused = client.export(vec![pulled], &mut out).await.unwrap_err();
            let text = refused.to_string();
            assert!(text.contains("does not export archives"), "{text}");
        });
    }

    /// A read that fails must not look like the end of the archive.
    #[tokio::test]
    async fn an_archive_that_cannot_be_read_to_its_end_has_none() {
        use futures_util::StreamExt;
        let (failed, mut failure) = oneshot::channel();
        let archive = AsyncReadExt::chain(&b"some"[..], Broken);
        let messages: Vec<_> = messages(Import::default(), archive, failed).collect().await;
        let [options, data, last] = messages.as_slice() else {
            panic!("{messages:?}");
        };
        assert!(matches!(
            options.part,
            Some(import_request::Part::Options(_))
        ));
        assert!(matches!(&data.part, Some(import_request::Part::Data(data)) if data == b"some"));
        assert_eq!(last.part, None);
        assert_eq!(failure.try_recv().unwrap().kind(), io::ErrorKind::TimedOut);
    }

    struct Broken;

    impl AsyncRead for Broken {
        fn poll_read(
            self: std::pin::Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
            _: &mut tokio::io::ReadBuf<'_>,
        ) -> std::task::Poll<io::Result<()>> {
            std::task::Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
        }
    }
}
