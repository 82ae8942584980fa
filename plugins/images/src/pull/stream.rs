//! A download as a reader: pieces come on a task, and are read on the thread that unpacks.

use std::io::{self, Read};
use std::sync::Arc;

use hyper::body::{Buf, Bytes};
use tokio::sync::mpsc;

use super::Progress;
use crate::registry::Piece;

/// Reads the pieces of a channel, to be used on a thread of its own.
pub(super) struct Pieces {
    receiver: mpsc::Receiver<Piece>,
    current: Bytes,
    ended: bool,
    progress: Arc<Progress>,
}

impl Pieces {
    pub(super) fn new(receiver: mpsc::Receiver<Piece>, progress: Arc<Progress>) -> Self {
        Self {
            receiver,
            current: Bytes::new(),
            ended: false,
            progress,
        }
    }
}

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.current.is_empty() && !self.ended {
            match self.receiver.blocking_recv() {
                Some(Piece::Data(data)) => {
                    self.progress.add(u64::try_from(data.len()).unwrap_or(0));
                    self.current = data;
                }
                Some(Piece::End) => self.ended = true,
                // Not the end of the layer: it was broken off.
                None => return Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
            }
        }
        let count = self.current.len().min(buffer.len());
        self.current.copy_to_slice(&mut buffer[..count]);
        Ok(count)
    }
}
