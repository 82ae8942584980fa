//! What a terminal does between a person and a program: it shows what is typed, edits lines, and knows the
//! keys that end them. Without one, bytes are just cut into lines.

use cri_server::{OutputStream, RemoteStreams, StreamWriter};

/// A longer line is cut here.
const LONGEST: usize = 4 << 10;
const INTERRUPT: u8 = 3;
const END: u8 = 4;
const DELETE: u8 = 0x7f;

/// An item of a program's input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Input {
    Line(String),
    End,
    Interrupt,
}

/// Whether there is a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TerminalMode {
    Terminal,
    Pipe,
}

/// Makes lines of what is typed.
#[derive(Debug)]
pub(super) struct Keyboard {
    mode: TerminalMode,
    line: Vec<u8>,
}

impl Keyboard {
    pub(super) fn new(mode: TerminalMode) -> Keyboard {
        Keyboard {
            mode,
            line: Vec::new(),
        }
    }

    /// Takes what is typed; returns what is shown of it, and what the program reads.
    pub(super) fn typed(&mut self, bytes: &[u8]) -> (Vec<u8>, Vec<Input>) {
        let (mut shown, mut read) = (Vec::new(), Vec::new());
        for byte in bytes {
            match (*byte, self.mode) {
                (b'\n', _) | (b'\r', TerminalMode::Terminal) => {
                    shown.extend(b"\r\n");
                    read.push(self.line());
                }
                (INTERRUPT, TerminalMode::Terminal) => {
                    shown.extend(b"^C\r\n");
                    self.line.clear();
                    read.push(Input::Interrupt);
                }
                (END, TerminalMode::Terminal) if self.line.is_empty() => read.push(Input::End),
                (DELETE | 8, TerminalMode::Terminal) => {
                    let erased = self.line.pop().map_or(&b""[..], |_| b"\x08 \x08");
                    shown.extend(erased);
                }
                (byte, _) if self.line.len() < LONGEST => {
                    self.line.push(byte);
                    shown.push(byte);
                }
                _ => {}
            }
        }
        if self.mode == TerminalMode::Pipe {
            shown.clear();
        }
        (shown, read)
    }

    /// Returns what is left when no more is typed.
    pub(super) fn rest(&mut self) -> Vec<Input> {
        let rest = (!self.line.is_empty()).then(|| self.line());
        rest.into_iter().chain([Input::End]).collect()
    }

    fn line(&mut self) -> Input {
        Input::Line(String::from_utf8_lossy(&std::mem::take(&mut self.line)).into_owned())
    }
}

/// Where a program writes to.
#[derive(Clone, Debug)]
pub(super) struct Screen {
    stdout: Option<StreamWriter>,
    stderr: Option<StreamWriter>,
    pub(super) mode: TerminalMode,
}

impl Screen {
    /// Takes the outputs of a command. A terminal has one for both.
    pub(super) fn of(streams: &mut RemoteStreams, mode: TerminalMode) -> Screen {
        let stdout = streams.stdout.take();
        let stderr = match mode {
            TerminalMode::Terminal => stdout.clone(),
            TerminalMode::Pipe => streams.stderr.take(),
        };
        Screen {
            stdout,
            stderr,
            mode,
        }
    }

    /// Writes a line. If the client is gone, its connection ends and drops the command.
    pub(super) async fn print(&self, stream: OutputStream, line: &str) {
        let text = match self.mode {
            TerminalMode::Terminal => format!("{}\r\n", line.replace('\n', "\r\n")),
            TerminalMode::Pipe => format!("{line}\n"),
        };
        self.write(stream, text.into_bytes()).await;
    }

    pub(super) async fn write(&self, stream: OutputStream, bytes: Vec<u8>) {
        let to = match stream {
            OutputStream::Stdout => &self.stdout,
            OutputStream::Stderr => &self.stderr,
        };
        if let Some(to) = to.as_ref().filter(|_| !bytes.is_empty()) {
            drop(to.write(bytes).await);
        }
    }

    /// Says that no more is written.
    pub(super) async fn close(&self) {
        for writer in [&self.stdout, &self.stderr].into_iter().flatten() {
            writer.close().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_shows_and_edits_what_is_typed() {
        let mut keyboard = Keyboard::new(TerminalMode::Terminal);
        let (shown, read) = keyboard.typed(b"lx\x7fs\r\x04");
        assert_eq!(shown, b"lx\x08 \x08s\r\n");
        assert_eq!(read, [Input::Line("ls".into()), Input::End]);
        let (shown, read) = keyboard.typed(b"abc\x03");
        assert_eq!(
            (shown, read),
            (b"abc^C\r\n".to_vec(), vec![Input::Interrupt])
        );
        assert_eq!(keyboard.rest(), [Input::End]);
    }

    #[test]
    fn a_pipe_shows_nothing_and_has_no_keys() {
        let mut keyboard = Keyboard::new(TerminalMode::Pipe);
        let (shown, read) = keyboard.typed(b"a\x03\nb");
        assert!(shown.is_empty());
        assert_eq!(read, [Input::Line("a\u{3}".into())]);
        assert_eq!(keyboard.rest(), [Input::Line("b".into()), Input::End]);
    }
}
