//! Archives of images, in and out: `oxlet.images.v1`.
//!
//! The store reads and writes on a thread; a task carries the pieces between it and the caller. Who stalls for a minute
//! ends the call, and the thread with it: its channel closes.

use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use cri_server::list::ResponseStream;
use futures_util::stream;
use images::{ArchiveError, ExportError, Import, Platform, StoreError};
use proto::images::images_server::Images;
use proto::images::{
    ExportRequest, ExportResponse, ExportSummary, ImportRequest, ImportResponse, ImportedImage,
    export_response, import_request,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::timeout;
use tonic::{Request, Response, Status, Streaming};

use crate::node::Node;

/// Archives on their way at a time.
const ARCHIVES: usize = 2;
/// How long the caller may send or take nothing.
const STALL_TIMEOUT: Duration = Duration::from_secs(60);
/// The longest import, whatever the disk does.
const IMPORT_TIMEOUT: Duration = Duration::from_secs(3600);
/// Pieces between the caller and the thread.
const PIECES: usize = 4;
const PIECE_BYTES: usize = 256 << 10;
/// A piece of an archive from a caller.
const MAX_PIECE_BYTES: usize = 1 << 20;
/// Images of one archive.
const MAX_IMAGES: usize = 1000;

/// Serves archives.
#[derive(Clone, Debug)]
pub(crate) struct ArchiveCalls {
    node: Arc<Node>,
    places: Arc<Semaphore>,
}

impl ArchiveCalls {
    pub(crate) fn new(node: Arc<Node>) -> ArchiveCalls {
        ArchiveCalls {
            node,
            places: Arc::new(Semaphore::new(ARCHIVES)),
        }
    }

    fn place(&self) -> Result<OwnedSemaphorePermit, Status> {
        let place = self.places.clone().try_acquire_owned();
        place.map_err(|_| {
            Status::resource_exhausted(format!("{ARCHIVES} archives are on their way already"))
        })
    }
}

#[tonic::async_trait]
impl Images for ArchiveCalls {
    type ExportStream = ResponseStream<ExportResponse>;

    async fn import(
        &self,
        request: Request<Streaming<ImportRequest>>,
    ) -> Result<Response<ImportResponse>, Status> {
        let _place = self.place()?;
        let mut pieces = request.into_inner();
        let import = options(next(&mut pieces).await?)?;
        let (sender, receiver) = mpsc::channel(PIECES);
        let reader = PieceReader {
            receiver,
            current: Vec::new(),
            at: 0,
            ended: false,
        };
        let importing = self.node.parts.images.import_stream(reader, import);
        let both = async { tokio::join!(importing, carry(pieces, sender)) };
        let Ok((imported, carried)) = timeout(IMPORT_TIMEOUT, both).await else {
            let seconds = IMPORT_TIMEOUT.as_secs();
            return Err(Status::deadline_exceeded(format!(
                "the archive was not imported within {seconds} s"
            )));
        };
        // That the archive ended early is then the caller's own doing.
        carried?;
        let images = imported.map_err(|error| refused_import(&error))?;
        let images = images.into_iter().map(|image| ImportedImage {
            id: image.id.to_string(),
            tags: image.tags,
        });
        Ok(Response::new(ImportResponse {
            images: images.collect(),
        }))
    }

    async fn export(
        &self,
        request: Request<ExportRequest>,
    ) -> Result<Response<Self::ExportStream>, Status> {
        let place = self.place()?;
        let images = request.into_inner().images;
        if images.is_empty() || images.len() > MAX_IMAGES {
            let count = images.len();
            return Err(Status::invalid_argument(format!(
                "{count} images, expected 1 to {MAX_IMAGES}"
            )));
        }
        let (answers, receiver) = mpsc::channel(1);
        tokio::spawn(export(self.node.clone(), images, answers, place));
        let answers = stream::unfold(receiver, |mut receiver| async {
            receiver.recv().await.map(|answer| (answer, receiver))
        });
        Ok(Response::new(Box::pin(answers)))
    }
}

/// Returns the caller's next message; none at the end of the archive.
async fn next(pieces: &mut Streaming<ImportRequest>) -> Result<Option<ImportRequest>, Status> {
    match timeout(STALL_TIMEOUT, pieces.message()).await {
        Ok(message) => message,
        Err(_) => Err(stalled("sent")),
    }
}

fn stalled(what: &str) -> Status {
    let seconds = STALL_TIMEOUT.as_secs();
    Status::deadline_exceeded(format!(
        "no piece of the archive was {what} for {seconds} s"
    ))
}

fn options(first: Option<ImportRequest>) -> Result<Import, Status> {
    let Some(import_request::Part::Options(options)) = first.and_then(|first| first.part) else {
        return Err(Status::invalid_argument(
            "the first message has no options of the import",
        ));
    };
    let invalid = |error: &dyn std::error::Error| Status::invalid_argument(error.to_string());
    let name = match options.name.as_str() {
        "" => None,
        name => Some(name.parse().map_err(|error| invalid(&error))?),
    };
    let platform = match options.platform.as_str() {
        "" => Platform::host(),
        platform => platform.parse().map_err(|error| invalid(&error))?,
    };
    let origin = match options.origin.as_str() {
        "" => "-",
        origin => origin,
    };
    Ok(Import {
        origin: PathBuf::from(origin),
        name,
        platform,
    })
}

/// Carries the pieces to the thread, up to the end of the archive or until the thread takes no more.
async fn carry(
    mut pieces: Streaming<ImportRequest>,
    thread: mpsc::Sender<ArchivePiece>,
) -> Result<(), Status> {
    loop {
        let piece = match next(&mut pieces).await? {
            None => ArchivePiece::End,
            Some(ImportRequest {
                part: Some(import_request::Part::Data(data)),
            }) if data.len() <= MAX_PIECE_BYTES => ArchivePiece::Data(data),
            Some(_) => {
                return Err(Status::invalid_argument(format!(
                    "expected a piece of the archive of at most {MAX_PIECE_BYTES} bytes"
                )));
            }
        };
        let is_end = matches!(piece, ArchivePiece::End);
        // The disk may be slower than the caller: that is no stall. A thread that has failed says why itself.
        if thread.send(piece).await.is_err() || is_end {
            return Ok(());
        }
    }
}

#[derive(Debug)]
enum ArchivePiece {
    Data(Vec<u8>),
    End,
}

/// The pieces of an archive as a reader, on a thread.
struct PieceReader {
    receiver: mpsc::Receiver<ArchivePiece>,
    current: Vec<u8>,
    at: usize,
    ended: bool,
}

impl Read for PieceReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.at == self.current.len() && !self.ended {
            match self.receiver.blocking_recv() {
                Some(ArchivePiece::Data(data)) => (self.current, self.at) = (data, 0),
                Some(ArchivePiece::End) => self.ended = true,
                // Not the end of the archive: the caller is gone.
                None => return Err(io::ErrorKind::UnexpectedEof.into()),
            }
        }
        let rest = &self.current[self.at..];
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        self.at += count;
        Ok(count)
    }
}

type Answer = Result<ExportResponse, Status>;

/// Exports to the caller, who may go away.
async fn export(
    node: Arc<Node>,
    images: Vec<String>,
    answers: mpsc::Sender<Answer>,
    _place: OwnedSemaphorePermit,
) {
    let (sender, mut pieces) = mpsc::channel::<Vec<u8>>(PIECES);
    let caller = &answers;
    let writer = PieceWriter {
        sender,
        piece: Vec::with_capacity(PIECE_BYTES),
    };
    // The channel is its own: where the caller ends, the thread does.
    let carrying = async move {
        let mut bytes = 0;
        while let Some(piece) = pieces.recv().await {
            bytes += u64::try_from(piece.len()).expect("a length fits");
            tell(caller, Ok(export_response::Part::Data(piece))).await?;
        }
        Ok(bytes)
    };
    let exporting = node.parts.images.export(&images, writer);
    let (exported, carried) = tokio::join!(exporting, carrying);
    let last = match (exported, carried) {
        (_, Err(status)) => Err(status),
        (Err(error), Ok(_)) => Err(refused_export(&error)),
        (Ok(()), Ok(bytes)) => Ok(export_response::Part::Summary(ExportSummary { bytes })),
    };
    // Nobody is there to be told.
    drop(tell(&answers, last).await);
}

async fn tell(
    answers: &mpsc::Sender<Answer>,
    part: Result<export_response::Part, Status>,
) -> Result<(), Status> {
    let answer = part.map(|part| ExportResponse { part: Some(part) });
    match timeout(STALL_TIMEOUT, answers.send(answer)).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) => Err(Status::cancelled("the caller is gone")),
        Err(_) => Err(stalled("taken")),
    }
}

/// An archive as pieces, from a thread.
struct PieceWriter {
    sender: mpsc::Sender<Vec<u8>>,
    piece: Vec<u8>,
}

impl Write for PieceWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = bytes.len().min(PIECE_BYTES - self.piece.len());
        self.piece.extend_from_slice(&bytes[..count]);
        if self.piece.len() == PIECE_BYTES {
            self.flush()?;
        }
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.piece.is_empty() {
            return Ok(());
        }
        let piece = std::mem::replace(&mut self.piece, Vec::with_capacity(PIECE_BYTES));
        let sent = self.sender.blocking_send(piece);
        sent.map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

fn refused_import(error: &ArchiveError) -> Status {
    let text = sdk::error_chain(error);
    match error {
        ArchiveError::Tar { .. }
        | ArchiveError::Refused { .. }
        | ArchiveError::Document { .. }
        | ArchiveError::Layer { .. } => Status::invalid_argument(text),
        ArchiveError::Read { .. } | ArchiveError::Store(_) => Status::internal(text),
    }
}

fn refused_export(error: &ExportError) -> Status {
    let text = sdk::error_chain(error);
    match error {
        ExportError::Store(StoreError::NoSuchImage(_)) => Status::not_found(text),
        ExportError::Store(StoreError::Ambiguous(_) | StoreError::Reference(_)) => {
            Status::invalid_argument(text)
        }
        ExportError::Old { .. } => Status::failed_precondition(text),
        ExportError::Mismatch { .. } | ExportError::Layer { .. } => Status::data_loss(text),
        ExportError::Store(
            StoreError::Pinned(_)
            | StoreError::Disk(_)
            | StoreError::Document { .. }
            | StoreError::Thread(_),
        )
        | ExportError::Write(_) => Status::internal(text),
    }
}
