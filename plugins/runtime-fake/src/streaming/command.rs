//! Commands that a client runs in a container. What ExecSync simulates is simulated here too, each output at
//! its time; `cat` echoes its input, `sh` is an interactive shell, `tar` packs and unpacks.

use std::future::pending;
use std::sync::Weak;
use std::sync::atomic::{AtomicU16, Ordering};

use cri_server::{
    CommandResult, OutputStream, RemoteStreams, StreamReader, TerminalSize, TerminalSizeReader,
};
use proto::cri::ExecRequest;
use tokio::sync::oneshot;

use super::archive;
use super::terminal::{Input, Keyboard, Screen, TerminalMode};
use crate::node::{CriError, ExecCommand};
use crate::program::interpreter::ProgramProgress;
use crate::shared::SharedNode;

/// The code of a command whose container ends under it.
const KILLED: i32 = 137;
const INTERRUPTED: i32 = 130;
const PROMPT: &[u8] = b"/ # ";

/// The commands that are simulated.
enum CommandKind {
    Echo,
    Shell,
    Pack(String),
    Unpack(String),
    Program,
}

impl CommandKind {
    fn of(argv: &[String]) -> CommandKind {
        let words: Vec<&str> = argv.iter().map(String::as_str).collect();
        let words = match words.as_slice() {
            ["sh" | "/bin/sh" | "bash" | "/bin/bash", "-c", "cat"] => &["cat"],
            ["busybox", rest @ ..] => rest,
            all => all,
        };
        let Some((name, args)) = words.split_first() else {
            return CommandKind::Program;
        };
        match name.rsplit('/').next().unwrap_or(name) {
            "cat" if args.iter().all(|arg| *arg == "-") => CommandKind::Echo,
            "sh" | "bash" | "ash" if args.iter().all(|arg| ["-i", "-l", "-il"].contains(arg)) => {
                CommandKind::Shell
            }
            "tar" => archive::kind(args).map_or(CommandKind::Program, |kind| match kind {
                archive::TarOperation::Pack(path) => CommandKind::Pack(path),
                archive::TarOperation::Unpack(folder) => CommandKind::Unpack(folder),
            }),
            _ => CommandKind::Program,
        }
    }
}

/// Runs a command over the streams of a client.
pub(super) async fn run(
    node: &Weak<SharedNode>,
    request: &ExecRequest,
    mut streams: RemoteStreams,
) -> CommandResult {
    let mode = if request.tty {
        TerminalMode::Terminal
    } else {
        TerminalMode::Pipe
    };
    let screen = Screen::of(&mut streams, mode);
    let RemoteStreams { stdin, resize, .. } = streams;
    let process = CommandSession {
        node,
        container: &request.container_id,
        screen: &screen,
        size: (AtomicU16::new(0), AtomicU16::new(0)),
    };
    let body = async {
        match CommandKind::of(&request.cmd) {
            CommandKind::Echo => process.echo(stdin).await,
            CommandKind::Shell => process.shell(stdin).await,
            CommandKind::Pack(path) => process.pack(&path).await,
            CommandKind::Unpack(folder) => process.unpack(&folder, stdin).await,
            CommandKind::Program => {
                // It reads nothing: its input is dropped.
                drop(stdin);
                process.execute(&request.cmd).await
            }
        }
    };
    let ended = tokio::select! {
        ended = body => ended,
        () = process.resized(resize) => Ok(KILLED),
        () = process.ended() => Ok(KILLED),
    };
    screen.close().await;
    match ended {
        Ok(code) => CommandResult::Exited(code),
        Err(why) => CommandResult::Failed(why.0),
    }
}

/// A command cannot be run, for this reason.
struct CommandError(String);

impl From<CriError> for CommandError {
    fn from(refusal: CriError) -> CommandError {
        CommandError(refusal.to_string())
    }
}

struct CommandSession<'a> {
    node: &'a Weak<SharedNode>,
    container: &'a str,
    screen: &'a Screen,
    /// Width and height of its terminal.
    size: (AtomicU16, AtomicU16),
}

impl CommandSession<'_> {
    fn shared(&self) -> Result<std::sync::Arc<SharedNode>, CommandError> {
        self.node
            .upgrade()
            .ok_or_else(|| CommandError("the node is gone".to_owned()))
    }

    /// Carries a simulated program out, in its own time.
    async fn execute(&self, argv: &[String]) -> Result<i32, CommandError> {
        if argv.iter().map(String::as_str).eq(["stty", "size"]) {
            let [width, height] =
                [&self.size.0, &self.size.1].map(|one| one.load(Ordering::Relaxed));
            self.screen
                .print(OutputStream::Stdout, &format!("{height} {width}"))
                .await;
            return Ok(0);
        }
        let mut command = self.shared()?.node().command(self.container, argv)?;
        loop {
            let (said, next) = self.advance(&mut command)?;
            for (stream, line) in said {
                self.screen.print(stream, &line).await;
            }
            match next {
                NextStep::Ended(code) => return Ok(code),
                NextStep::At(at) => tokio::time::sleep_until(at).await,
                NextStep::Never => pending().await,
            }
            tokio::task::yield_now().await;
        }
    }

    fn advance(
        &self,
        command: &mut ExecCommand,
    ) -> Result<(Vec<(OutputStream, String)>, NextStep), CommandError> {
        let shared = self.shared()?;
        let mut node = shared.node();
        let now = node.clock.now();
        let mut said = Vec::new();
        let mut write =
            |_: i64, stream: OutputStream, line: &str| said.push((stream, line.to_owned()));
        let progress = node.carry(command, now, &mut write)?;
        let next = match progress {
            ProgramProgress::Ended(end) => NextStep::Ended(command.ruled.unwrap_or(end.code)),
            ProgramProgress::Waits(at) => NextStep::At(node.clock.instant(at)),
            ProgramProgress::Forever => NextStep::Never,
        };
        Ok((said, next))
    }

    /// Echoes its input.
    async fn echo(&self, stdin: Option<StreamReader>) -> Result<i32, CommandError> {
        drop(
            self.shared()?
                .node()
                .command(self.container, &["cat".to_owned()])?,
        );
        let Some(mut stdin) = stdin else { return Ok(0) };
        let mut keyboard = Keyboard::new(TerminalMode::Terminal);
        while let Some(bytes) = stdin.recv().await {
            if self.screen.mode == TerminalMode::Pipe {
                self.screen.write(OutputStream::Stdout, bytes).await;
                continue;
            }
            let (shown, read) = keyboard.typed(&bytes);
            self.screen.write(OutputStream::Stdout, shown).await;
            for input in read {
                match input {
                    Input::Line(line) => self.screen.print(OutputStream::Stdout, &line).await,
                    Input::End => return Ok(0),
                    Input::Interrupt => return Ok(INTERRUPTED),
                }
            }
        }
        Ok(0)
    }

    /// Runs each line as a script.
    async fn shell(&self, stdin: Option<StreamReader>) -> Result<i32, CommandError> {
        drop(
            self.shared()?
                .node()
                .command(self.container, &["true".to_owned()])?,
        );
        let mut status = 0;
        let Some(mut stdin) = stdin else {
            return Ok(status);
        };
        let mut keyboard = Keyboard::new(self.screen.mode);
        self.prompt().await;
        loop {
            let typed = stdin.recv().await;
            let (shown, read) = match &typed {
                Some(bytes) => keyboard.typed(bytes),
                None => (Vec::new(), keyboard.rest()),
            };
            self.screen.write(OutputStream::Stdout, shown).await;
            for input in read {
                match input {
                    Input::Line(line) => match leaves(&line, status) {
                        Some(code) => return Ok(code),
                        None => status = self.line(&line, status).await?,
                    },
                    Input::End => return Ok(status),
                    Input::Interrupt => status = INTERRUPTED,
                }
                self.prompt().await;
            }
        }
    }

    async fn line(&self, line: &str, status: i32) -> Result<i32, CommandError> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        match words.as_slice() {
            [] => Ok(status),
            [stty, size] if stty == "stty" && size == "size" => self.execute(&words).await,
            _ => self.execute(&["sh", "-c", line].map(str::to_owned)).await,
        }
    }

    async fn prompt(&self) {
        if self.screen.mode == TerminalMode::Terminal {
            self.screen
                .write(OutputStream::Stdout, PROMPT.to_vec())
                .await;
        }
    }

    async fn pack(&self, path: &str) -> Result<i32, CommandError> {
        let content = self.shared()?.node().read_file(self.container, path)?;
        let Some(content) = content else {
            let complaint = format!("tar: {path}: No such file or directory");
            self.screen.print(OutputStream::Stderr, &complaint).await;
            return Ok(1);
        };
        let packed =
            archive::pack(path, &content).map_err(|error| CommandError(error.to_string()))?;
        self.screen.write(OutputStream::Stdout, packed).await;
        Ok(0)
    }

    async fn unpack(&self, folder: &str, stdin: Option<StreamReader>) -> Result<i32, CommandError> {
        let mut packed = Vec::new();
        if let Some(mut stdin) = stdin {
            while let Some(bytes) = stdin.recv().await {
                packed.extend_from_slice(&bytes);
                if packed.len() > archive::LONGEST {
                    self.screen
                        .print(OutputStream::Stderr, "tar: the archive is too long")
                        .await;
                    return Ok(2);
                }
            }
        }
        let files = archive::unpack(folder, &packed);
        let Ok(files) = files else {
            self.screen
                .print(OutputStream::Stderr, "tar: invalid tar magic")
                .await;
            return Ok(1);
        };
        for (path, content) in files {
            if !self
                .shared()?
                .node()
                .put_file(self.container, &path, &content)?
            {
                let complaint = format!("tar: can't open '{path}': No space left on device");
                self.screen.print(OutputStream::Stderr, &complaint).await;
                return Ok(1);
            }
        }
        Ok(0)
    }

    /// Keeps the size of the terminal; never ends.
    async fn resized(&self, from: Option<StreamReader>) {
        let mut sizes = TerminalSizeReader::default();
        if let Some(mut from) = from {
            while let Some(piece) = from.recv().await {
                if let Some(TerminalSize { width, height }) = sizes.read(&piece) {
                    self.size.0.store(width, Ordering::Relaxed);
                    self.size.1.store(height, Ordering::Relaxed);
                }
            }
        }
        pending().await
    }

    /// Waits for the end of the container, if it runs.
    async fn ended(&self) {
        let ending: Option<oneshot::Receiver<()>> = self.node.upgrade().and_then(|shared| {
            let mut node = shared.node();
            let (seq, _) = node
                .container(self.container)
                .ok()
                .filter(|(_, one)| one.running())?;
            Some(node.ending(seq))
        });
        match ending {
            Some(ending) => drop(ending.await),
            // The command itself finds out, and says why.
            None => pending().await,
        }
    }
}

/// How a program goes on.
enum NextStep {
    Ended(i32),
    At(tokio::time::Instant),
    Never,
}

/// Returns the code with which a line leaves a shell.
fn leaves(line: &str, status: i32) -> Option<i32> {
    let mut words = line.split_whitespace();
    (words.next() == Some("exit")).then(|| {
        words
            .next()
            .and_then(|code| code.parse().ok())
            .unwrap_or(status)
    })
}
