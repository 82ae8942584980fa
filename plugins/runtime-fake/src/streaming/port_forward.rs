//! Connections to ports of a pod.

use std::net::SocketAddr;
use std::sync::Weak;

use cri_server::{StreamReader, StreamWriter};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::settings::annotations::PortTarget;
use crate::shared::SharedNode;

/// Carries bytes between a client and a port until the server ends; the error is the reason that the client reads.
pub(super) async fn run(
    node: &Weak<SharedNode>,
    sandbox_id: &str,
    port: u16,
    (from_client, to_client): (&mut StreamReader, &StreamWriter),
) -> Result<(), String> {
    let target = match node.upgrade() {
        Some(shared) => {
            let target = shared.node().target(sandbox_id, port);
            target.map_err(|refusal| refusal.to_string())?
        }
        None => return Err("the node is gone".to_owned()),
    };
    match target {
        PortTarget::Echo => {
            while let Some(bytes) = from_client.recv().await {
                if to_client.write(bytes).await.is_err() {
                    break;
                }
            }
            Ok(())
        }
        PortTarget::Tcp(address) => relay(address, from_client, to_client)
            .await
            .map_err(|error| error.to_string()),
        PortTarget::Refused => Err(format!(
            "failed to connect to localhost:{port}: connect: connection refused"
        )),
    }
}

/// Carries bytes both ways until the server ends its half.
async fn relay(
    address: SocketAddr,
    from_client: &mut StreamReader,
    to_client: &StreamWriter,
) -> std::io::Result<()> {
    let (mut read, mut write) = TcpStream::connect(address).await?.into_split();
    let inwards = async {
        while let Some(bytes) = from_client.recv().await {
            if write.write_all(&bytes).await.is_err() {
                break;
            }
        }
        // A client that has sent everything may still wait for the response.
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
