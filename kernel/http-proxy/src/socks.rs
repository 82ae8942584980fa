//! SOCKS 5: RFC 1928, with the login of RFC 1929.

use std::io;
use std::net::IpAddr;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

const VERSION: u8 = 5;
const NO_LOGIN: u8 = 0;
const LOGIN: u8 = 2;
const LOGIN_VERSION: u8 = 1;
const CONNECT: u8 = 1;
const IPV4: u8 = 1;
const NAME: u8 = 3;
const IPV6: u8 = 4;

/// Asks for a connection to the target; the inner error is the proxy's refusal.
pub(super) async fn connect(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    (host, port): (&str, u16),
    login: Option<(&str, &str)>,
) -> io::Result<Result<(), String>> {
    let methods: &[u8] = match login {
        Some(_) => &[VERSION, 2, NO_LOGIN, LOGIN],
        None => &[VERSION, 1, NO_LOGIN],
    };
    stream.write_all(methods).await?;
    let [version, method] = read(stream).await?;
    match (version, method, login) {
        (VERSION, NO_LOGIN, _) => {}
        (VERSION, LOGIN, Some(login)) => {
            stream.write_all(&login_message(login)?).await?;
            let [_, status] = read(stream).await?;
            if status != 0 {
                return Ok(Err("the login is wrong".to_owned()));
            }
        }
        (VERSION, ..) => return Ok(Err("it wants another kind of login".to_owned())),
        _ => return Err(no_socks()),
    }
    stream.write_all(&request(host, port)?).await?;
    let [version, status, _, kind] = read(stream).await?;
    if version != VERSION {
        return Err(no_socks());
    }
    if status != 0 {
        return Ok(Err(refusal(status)));
    }
    skip_address(stream, kind).await?;
    Ok(Ok(()))
}

async fn read<const N: usize>(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes).await?;
    Ok(bytes)
}

/// The address by which the proxy reaches the target concerns nobody.
async fn skip_address(stream: &mut (impl AsyncRead + Unpin), kind: u8) -> io::Result<()> {
    let length = match kind {
        IPV4 => 4,
        IPV6 => 16,
        NAME => usize::from(read::<1>(stream).await?[0]),
        _ => return Err(no_socks()),
    };
    let mut rest = vec![0; length + 2];
    stream.read_exact(&mut rest).await.map(drop)
}

fn login_message((user, password): (&str, &str)) -> io::Result<Vec<u8>> {
    let mut message = vec![LOGIN_VERSION];
    push_text(user, &mut message)?;
    push_text(password, &mut message)?;
    Ok(message)
}

fn request(host: &str, port: u16) -> io::Result<Vec<u8>> {
    let mut message = vec![VERSION, CONNECT, 0];
    match host.parse() {
        Ok(IpAddr::V4(ip)) => {
            message.push(IPV4);
            message.extend(ip.octets());
        }
        Ok(IpAddr::V6(ip)) => {
            message.push(IPV6);
            message.extend(ip.octets());
        }
        Err(_) => {
            message.push(NAME);
            push_text(host, &mut message)?;
        }
    }
    message.extend(port.to_be_bytes());
    Ok(message)
}

/// A text behind its length, which is one byte.
fn push_text(text: &str, message: &mut Vec<u8>) -> io::Result<()> {
    let length = u8::try_from(text.len());
    let length = length.map_err(|_| io::Error::other("a text is too long for SOCKS"))?;
    message.push(length);
    message.extend(text.as_bytes());
    Ok(())
}

fn refusal(status: u8) -> String {
    let words = match status {
        1 => "general failure",
        2 => "not allowed by its rules",
        3 => "network unreachable",
        4 => "host unreachable",
        5 => "connection refused",
        6 => "TTL expired",
        7 => "command not supported",
        8 => "address type not supported",
        _ => "unknown code",
    };
    format!("{words} ({status})")
}

fn no_socks() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "it speaks no SOCKS 5")
}
