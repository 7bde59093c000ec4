//! The admin port of a master: one request on a connection of its own.

use anyhow::{Context as _, ensure};
use std::{net::SocketAddr, time::Duration};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

/// After this a request counts as not answered.
const TIMEOUT: Duration = Duration::from_secs(5);

/// What was answered.
#[derive(Debug)]
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    head: String,
    /// What follows the head.
    pub body: String,
}

impl Answer {
    /// A header's value; `name` in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then_some(value.trim())
        })
    }
}

/// `GET path`.
pub async fn get(address: SocketAddr, path: &str) -> anyhow::Result<Answer> {
    request("GET", address, path).await
}

/// Begins a fault (docs/fault-injection.md) at a master that was started with fault injection, and waits until it is in
/// effect; `what` is for example `hold_shard?index=7&for_ms=12000`.
///
/// # Errors
/// When the master refuses it.
pub async fn fault(address: SocketAddr, what: &str) -> anyhow::Result<()> {
    let answer = request("POST", address, &format!("/fault/{what}")).await?;
    ensure!(answer.status == 200, "{what}: {} {}", answer.status, answer.body);
    Ok(())
}

/// Ends every fault of that master.
pub async fn end_faults(address: SocketAddr) -> anyhow::Result<()> {
    let answer = request("DELETE", address, "/fault").await?;
    ensure!(answer.status == 200, "DELETE /fault: {} {}", answer.status, answer.body);
    Ok(())
}

async fn request(method: &str, address: SocketAddr, path: &str) -> anyhow::Result<Answer> {
    let exchange = async {
        let mut stream = TcpStream::connect(address).await?;
        let length = if method == "POST" { "Content-Length: 0\r\n" } else { "" };
        let request =
            format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\n{length}Connection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        anyhow::Ok(answer)
    };
    let answer = tokio::time::timeout(TIMEOUT, exchange)
        .await
        .with_context(|| format!("{method} {path}: no answer from {address} within {TIMEOUT:?}"))??;
    parse(&answer).with_context(|| format!("{method} {path}: {answer}"))
}

fn parse(answer: &str) -> anyhow::Result<Answer> {
    let (head, body) = answer.split_once("\r\n\r\n").context("no end of the head")?;
    let status = head.split(' ').nth(1).context("no status line")?.parse()?;
    Ok(Answer { status, head: head.to_owned(), body: body.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_taken_apart() {
        let answer = parse("HTTP/1.1 503 Service Unavailable\r\nMooncake-Epoch: 7\r\n\r\nstandby").unwrap();
        assert_eq!((answer.status, answer.body.as_str()), (503, "standby"));
        assert_eq!(answer.header("mooncake-epoch"), Some("7"));
        assert_eq!(answer.header("mooncake"), None);
        assert!(parse("garbage").is_err());
    }
}
