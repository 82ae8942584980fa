//! Commands that a client runs in a container. What ExecSync simulates is simulated here too, each output at
//! its time; `cat` says back what it is told, `sh` is a shell for people, `tar` packs and unpacks.

use std::future::pending;
use std::sync::Weak;
use std::sync::atomic::{AtomicU16, Ordering};

use proto::cri::ExecRequest;
use tokio::sync::oneshot;

use super::archive;
use super::remote::{Outcome, Streams};
use super::session::Inlet;
use super::terminal::{Input, Keyboard, Mode, Screen, Size, Sizes};
use crate::node::{Command, Refusal};
use crate::program::machine::Progress;
use crate::program::world::Stream;
use crate::shared::Shared;

/// The code of a command whose container ends under it.
const KILLED: i32 = 137;
const INTERRUPTED: i32 = 130;
const PROMPT: &[u8] = b"/ # ";

/// What a command line asks for.
enum Kind {
    Echo,
    Shell,
    Pack(String),
    Unpack(String),
    Program,
}

impl Kind {
    fn of(argv: &[String]) -> Kind {
        let words: Vec<&str> = argv.iter().map(String::as_str).collect();
        let words = match words.as_slice() {
            ["sh" | "/bin/sh" | "bash" | "/bin/bash", "-c", "cat"] => &["cat"],
            ["busybox", rest @ ..] => rest,
            all => all,
        };
        let Some((name, args)) = words.split_first() else {
            return Kind::Program;
        };
        match name.rsplit('/').next().unwrap_or(name) {
            "cat" if args.iter().all(|arg| *arg == "-") => Kind::Echo,
            "sh" | "bash" | "ash" if args.iter().all(|arg| ["-i", "-l", "-il"].contains(arg)) => {
                Kind::Shell
            }
            "tar" => archive::kind(args).map_or(Kind::Program, |kind| match kind {
                archive::Kind::Pack(path) => Kind::Pack(path),
                archive::Kind::Unpack(folder) => Kind::Unpack(folder),
            }),
            _ => Kind::Program,
        }
    }
}

/// Runs a command over the streams of a client.
pub(super) async fn run(
    node: &Weak<Shared>,
    request: &ExecRequest,
    mut streams: Streams,
) -> Outcome {
    let mode = if request.tty {
        Mode::Terminal
    } else {
        Mode::Pipe
    };
    let screen = Screen::of(&mut streams, mode);
    let Streams { stdin, resize, .. } = streams;
    let process = Process {
        node,
        container: &request.container_id,
        screen: &screen,
        size: (AtomicU16::new(0), AtomicU16::new(0)),
    };
    let body = async {
        match Kind::of(&request.cmd) {
            Kind::Echo => process.echo(stdin).await,
            Kind::Shell => process.shell(stdin).await,
            Kind::Pack(path) => process.pack(&path).await,
            Kind::Unpack(folder) => process.unpack(&folder, stdin).await,
            Kind::Program => {
                // It reads nothing: what it is told goes nowhere.
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
        Ok(code) => Outcome::Exited(code),
        Err(why) => Outcome::Failed(why.0),
    }
}

/// A command cannot be run, for this reason.
struct Unable(String);

impl From<Refusal> for Unable {
    fn from(refusal: Refusal) -> Unable {
        Unable(refusal.to_string())
    }
}

struct Process<'a> {
    node: &'a Weak<Shared>,
    container: &'a str,
    screen: &'a Screen,
    /// Width and height of its terminal.
    size: (AtomicU16, AtomicU16),
}

impl Process<'_> {
    fn shared(&self) -> Result<std::sync::Arc<Shared>, Unable> {
        self.node
            .upgrade()
            .ok_or_else(|| Unable("the node is gone".to_owned()))
    }

    /// Carries a simulated program out, in its own time.
    async fn execute(&self, argv: &[String]) -> Result<i32, Unable> {
        if argv.iter().map(String::as_str).eq(["stty", "size"]) {
            let [width, height] =
                [&self.size.0, &self.size.1].map(|one| one.load(Ordering::Relaxed));
            self.screen
                .print(Stream::Stdout, &format!("{height} {width}"))
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
                Next::Ended(code) => return Ok(code),
                Next::At(at) => tokio::time::sleep_until(at).await,
                Next::Never => pending().await,
            }
            tokio::task::yield_now().await;
        }
    }

    fn advance(&self, command: &mut Command) -> Result<(Vec<(Stream, String)>, Next), Unable> {
        let shared = self.shared()?;
        let mut node = shared.node();
        let now = node.clock.now();
        let mut said = Vec::new();
        let mut write = |_: i64, stream: Stream, line: &str| said.push((stream, line.to_owned()));
        let progress = node.carry(command, now, &mut write)?;
        let next = match progress {
            Progress::Ended(end) => Next::Ended(command.ruled.unwrap_or(end.code)),
            Progress::Waits(at) => Next::At(node.clock.instant(at)),
            Progress::Forever => Next::Never,
        };
        Ok((said, next))
    }

    /// Says back what it is told.
    async fn echo(&self, stdin: Option<Inlet>) -> Result<i32, Unable> {
        drop(
            self.shared()?
                .node()
                .command(self.container, &["cat".to_owned()])?,
        );
        let Some(mut stdin) = stdin else { return Ok(0) };
        let mut keyboard = Keyboard::new(Mode::Terminal);
        while let Some(bytes) = stdin.recv().await {
            if self.screen.mode == Mode::Pipe {
                self.screen.write(Stream::Stdout, bytes).await;
                continue;
            }
            let (shown, read) = keyboard.typed(&bytes);
            self.screen.write(Stream::Stdout, shown).await;
            for input in read {
                match input {
                    Input::Line(line) => self.screen.print(Stream::Stdout, &line).await,
                    Input::End => return Ok(0),
                    Input::Interrupt => return Ok(INTERRUPTED),
                }
            }
        }
        Ok(0)
    }

    /// Runs each line as a script.
    async fn shell(&self, stdin: Option<Inlet>) -> Result<i32, Unable> {
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
            self.screen.write(Stream::Stdout, shown).await;
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

    async fn line(&self, line: &str, status: i32) -> Result<i32, Unable> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        match words.as_slice() {
            [] => Ok(status),
            [stty, size] if stty == "stty" && size == "size" => self.execute(&words).await,
            _ => self.execute(&["sh", "-c", line].map(str::to_owned)).await,
        }
    }

    async fn prompt(&self) {
        if self.screen.mode == Mode::Terminal {
            self.screen.write(Stream::Stdout, PROMPT.to_vec()).await;
        }
    }

    async fn pack(&self, path: &str) -> Result<i32, Unable> {
        let content = self.shared()?.node().read_file(self.container, path)?;
        let Some(content) = content else {
            let complaint = format!("tar: {path}: No such file or directory");
            self.screen.print(Stream::Stderr, &complaint).await;
            return Ok(1);
        };
        let packed = archive::pack(path, &content).map_err(|error| Unable(error.to_string()))?;
        self.screen.write(Stream::Stdout, packed).await;
        Ok(0)
    }

    async fn unpack(&self, folder: &str, stdin: Option<Inlet>) -> Result<i32, Unable> {
        let mut packed = Vec::new();
        if let Some(mut stdin) = stdin {
            while let Some(bytes) = stdin.recv().await {
                packed.extend_from_slice(&bytes);
                if packed.len() > archive::LONGEST {
                    self.screen
                        .print(Stream::Stderr, "tar: the archive is too long")
                        .await;
                    return Ok(2);
                }
            }
        }
        let files = archive::unpack(folder, &packed);
        let Ok(files) = files else {
            self.screen
                .print(Stream::Stderr, "tar: invalid tar magic")
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
                self.screen.print(Stream::Stderr, &complaint).await;
                return Ok(1);
            }
        }
        Ok(0)
    }

    /// Keeps the size of the terminal; never ends.
    async fn resized(&self, from: Option<Inlet>) {
        let mut sizes = Sizes::default();
        if let Some(mut from) = from {
            while let Some(piece) = from.recv().await {
                if let Some(Size { width, height }) = sizes.take(&piece) {
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
enum Next {
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
