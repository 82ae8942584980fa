//! Clients that look at a container's output, and talk to it.

use std::sync::{Arc, Weak};

use cri_server::{CommandResult, OutputStream, RemoteStreams, StreamReader};
use proto::cri::AttachRequest;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};

use super::terminal::{Input, Keyboard, Screen, TerminalMode};
use crate::node::AttachedClient;
use crate::shared::SharedNode;

/// Carries a container's output to a client from now on, until the container ends.
pub(super) async fn run(
    node: &Weak<SharedNode>,
    request: &AttachRequest,
    mut streams: RemoteStreams,
) -> CommandResult {
    let mode = if request.tty {
        TerminalMode::Terminal
    } else {
        TerminalMode::Pipe
    };
    let screen = Screen::of(&mut streams, mode);
    let RemoteStreams { stdin, resize, .. } = streams;
    let Some(shared) = node.upgrade() else {
        return CommandResult::Failed("the node is gone".to_owned());
    };
    let attached = shared.node().attach(&request.container_id);
    drop(shared);
    let mut attached = match attached {
        Ok(attached) => attached,
        Err(refusal) => return CommandResult::Failed(refusal.to_string()),
    };
    let container = Arc::<str>::from(request.container_id.as_str());
    tokio::select! {
        () = watch(&mut attached, &screen) => {}
        () = talk(node, container, stdin, &screen) => {}
        () = ignore(resize) => {}
    }
    screen.close().await;
    CommandResult::Exited(0)
}

async fn watch(attached: &mut AttachedClient, screen: &Screen) {
    loop {
        tokio::select! {
            biased;
            line = attached.output.recv() => match line {
                Ok((stream, line)) => screen.print(stream, &line).await,
                // A client that is too slow misses lines, as it would without being attached.
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return,
            },
            _ = &mut attached.ending => break,
        }
    }
    loop {
        match attached.output.try_recv() {
            Ok((stream, line)) => screen.print(stream, &line).await,
            Err(TryRecvError::Lagged(_)) => {}
            Err(TryRecvError::Empty | TryRecvError::Closed) => return,
        }
    }
}

/// Tells the container what the client says; never ends.
async fn talk(
    node: &Weak<SharedNode>,
    container: Arc<str>,
    stdin: Option<StreamReader>,
    screen: &Screen,
) {
    if let Some(mut stdin) = stdin {
        let mut keyboard = Keyboard::new(screen.mode);
        loop {
            let typed = stdin.recv().await;
            let (shown, read) = match &typed {
                Some(bytes) => keyboard.typed(bytes),
                None => (Vec::new(), keyboard.rest()),
            };
            screen.write(OutputStream::Stdout, shown).await;
            for input in read {
                let Some(shared) = node.upgrade() else { return };
                match input {
                    Input::Line(line) => shared.node().write_stdin(&container, &line),
                    Input::End => shared.node().hears_no_more(&container),
                    Input::Interrupt => shared.node().interrupt(&container),
                }
            }
            if typed.is_none() {
                break;
            }
        }
    }
    std::future::pending().await
}

async fn ignore(resize: Option<StreamReader>) {
    if let Some(mut resize) = resize {
        while resize.recv().await.is_some() {}
    }
    std::future::pending().await
}
