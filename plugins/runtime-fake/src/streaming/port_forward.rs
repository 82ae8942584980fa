//! Connections to ports of a pod.

use std::sync::Weak;

use cri_server::{StreamReader, StreamWriter, relay};
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
        PortTarget::Tcp(address) => {
            let relayed = async {
                let stream = TcpStream::connect(address).await?;
                relay(stream, from_client, to_client).await
            };
            relayed.await.map_err(|error| error.to_string())
        }
        PortTarget::Refused => Err(format!(
            "failed to connect to localhost:{port}: connect: connection refused"
        )),
    }
}
