//! The double as a program: `apiserver '{"port": 8001, "scheduler": true}'`, then
//! `kubectl --server http://127.0.0.1:8001 get nodes`.

use std::io::Write as _;

use anyhow::Context as _;
use apiserver::{Server, ServerOptions};

fn main() -> anyhow::Result<()> {
    let options = match std::env::args().nth(1) {
        None => ServerOptions::default(),
        Some(text) if text.trim_start().starts_with('{') => {
            serde_json::from_str(&text).context("the options are no JSON")?
        }
        Some(file) => {
            let text =
                std::fs::read_to_string(&file).with_context(|| format!("cannot read {file}"))?;
            serde_json::from_str(&text).with_context(|| format!("{file} holds no options"))?
        }
    };
    let server = Server::start_now(options)?;
    writeln!(std::io::stdout(), "{}", server.url()).context("nobody listens")?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime
        .block_on(tokio::signal::ctrl_c())
        .context("cannot wait for the signal to end")
}
