//! How connections to the API server are made.

use std::sync::Arc;
use std::{fmt, io};

use tokio::io::DuplexStream;

/// How a connection to the server is made: client-go's `rest.Config.Dial`.
#[derive(Clone, Default)]
pub enum Dial {
    /// By TCP to the kubeconfig's address.
    #[default]
    Tcp,
    /// By this function: a pipe within the process, at whose other end HTTP/2 is spoken in clear.
    Pipe(Arc<dyn Fn() -> io::Result<DuplexStream> + Send + Sync>),
}

impl fmt::Debug for Dial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Dial::Tcp => "Tcp",
            Dial::Pipe(_) => "Pipe",
        })
    }
}
