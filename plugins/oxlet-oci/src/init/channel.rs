//! What a command and the init that it makes tell each other: one message a packet, and the end of one is the other's news.

use std::io;
use std::os::fd::OwnedFd;

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair,
};

use super::{InitError, cannot};

/// The longest message, in bytes: an error's words.
const MAX_MESSAGE: usize = 8 << 10;

/// One end.
#[derive(Debug)]
pub(crate) struct Channel(OwnedFd);

/// What an init tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum InitMessage {
    /// The process id of the init, from the process between it and the command.
    Pid(i32),
    /// The namespaces and mounts are made: hooks of the node may run.
    Hooks,
    /// All is done but the program.
    Ready,
    Error(String),
    /// It has ended, or runs the program.
    End,
}

impl Channel {
    /// Makes both ends.
    pub(crate) fn pair() -> io::Result<(Channel, Channel)> {
        let (one, other) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )?;
        Ok((Channel(one), Channel(other)))
    }

    fn say(&self, message: &[u8]) -> io::Result<()> {
        send(&self.0, message, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    fn hear(&self, flags: RecvFlags) -> io::Result<Vec<u8>> {
        let mut buffer = vec![0_u8; MAX_MESSAGE];
        loop {
            match recv(&self.0, buffer.as_mut_slice(), flags) {
                Ok((length, _)) => {
                    buffer.truncate(length);
                    return Ok(buffer);
                }
                Err(rustix::io::Errno::INTR) => {}
                // It has ended with a message of ours unread.
                Err(rustix::io::Errno::CONNRESET) => return Ok(Vec::new()),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// The command's end: lets the init go on.
    pub(crate) fn go(&self) -> io::Result<()> {
        self.say(b"g")
    }

    /// The command's end: what the init tells next.
    pub(crate) fn next(&self) -> io::Result<InitMessage> {
        self.read(RecvFlags::empty())
    }

    /// The command's end: what the init has told already; its end if that is nothing.
    pub(crate) fn heard(&self) -> io::Result<InitMessage> {
        match self.read(RecvFlags::DONTWAIT) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(InitMessage::End),
            read => read,
        }
    }

    fn read(&self, flags: RecvFlags) -> io::Result<InitMessage> {
        let message = self.hear(flags)?;
        let text = |rest: &[u8]| String::from_utf8_lossy(rest).into_owned();
        Ok(match message.split_first() {
            None => InitMessage::End,
            Some((b'p', rest)) => InitMessage::Pid(text(rest).parse().map_err(io::Error::other)?),
            Some((b'h', _)) => InitMessage::Hooks,
            Some((b'r', _)) => InitMessage::Ready,
            Some((_, rest)) => InitMessage::Error(text(rest)),
        })
    }

    /// The init's end: waits until it may go on.
    pub(crate) fn wait_go(&self) -> Result<(), InitError> {
        match self.hear(RecvFlags::empty()) {
            Ok(message) if message == b"g" => Ok(()),
            Ok(_) => Err(InitError::Abandoned),
            Err(error) => Err(cannot("wait for the command")(error)),
        }
    }

    pub(crate) fn tell_pid(&self, pid: i32) -> Result<(), InitError> {
        self.say(format!("p{pid}").as_bytes())
            .map_err(|_| InitError::Abandoned)
    }

    pub(crate) fn ask_hooks(&self) -> Result<(), InitError> {
        self.say(b"h").map_err(|_| InitError::Abandoned)?;
        self.wait_go()
    }

    pub(crate) fn tell_ready(&self) -> Result<(), InitError> {
        self.say(b"r").map_err(|_| InitError::Abandoned)?;
        self.wait_go()
    }

    pub(crate) fn tell_error(&self, text: &str) {
        let mut message = b"e".to_vec();
        message.extend(text.bytes().take(MAX_MESSAGE - 1));
        // The command has ended: there is nobody to be told.
        drop(self.say(&message));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_init_tells_is_heard_in_order_to_its_end() {
        let (command, init) = Channel::pair().unwrap();
        assert_eq!(command.heard().unwrap(), InitMessage::End);
        command.go().unwrap();
        init.wait_go().unwrap();
        init.tell_pid(7).unwrap();
        command.go().unwrap();
        command.go().unwrap();
        init.ask_hooks().unwrap();
        init.tell_ready().unwrap();
        init.tell_error(&"x".repeat(2 * MAX_MESSAGE));
        drop(init);
        let told: Vec<InitMessage> = std::iter::repeat_with(|| command.next().unwrap())
            .take(5)
            .collect();
        let error = InitMessage::Error("x".repeat(MAX_MESSAGE - 1));
        let expected = [
            InitMessage::Pid(7),
            InitMessage::Hooks,
            InitMessage::Ready,
            error,
            InitMessage::End,
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn an_init_does_not_go_on_without_its_command() {
        let (command, init) = Channel::pair().unwrap();
        drop(command);
        assert!(matches!(init.wait_go(), Err(InitError::Abandoned)));
        assert!(matches!(init.tell_ready(), Err(InitError::Abandoned)));
    }
}
