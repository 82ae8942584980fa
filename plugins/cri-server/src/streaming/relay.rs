//! The port's side of a port-forward: what runtimes with real ports have in common.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{StreamReader, StreamWriter};

/// Carries bytes between a client and a connection to a port until the server ends its half, or the client is gone.
///
/// # Errors
/// That of reading from the connection.
pub async fn relay(
    stream: TcpStream,
    from_client: &mut StreamReader,
    to_client: &StreamWriter,
) -> std::io::Result<()> {
    let (mut read, mut write) = stream.into_split();
    let inwards = async {
        while let Some(bytes) = from_client.recv().await {
            if write.write_all(&bytes).await.is_err() {
                break;
            }
        }
        // A client that has sent everything may still wait for the answer.
        drop(write.shutdown().await);
        std::future::pending().await
    };
    let outwards = async {
        let mut bytes = vec![0; 32 << 10];
        while let count @ 1.. = read.read(&mut bytes).await? {
            if to_client.write(bytes[..count].to_vec()).await.is_err() {
                break;
            }
        }
        Ok(())
    };
    tokio::select! {
        () = inwards => Ok(()),
        done = outwards => done,
    }
}
