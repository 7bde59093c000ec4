//! Asking a master what it is: `GET /ha_status` on its metrics port.

use crate::decide::Says;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use std::{net::IpAddr, time::Duration};

/// Time for the whole question.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Longest answer, bytes; a state is one word.
const LONGEST: usize = 256;

/// Header of the answer: id of the master's process.
const INCARNATION: &str = "mooncake-incarnation";

/// What a master answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// What it is.
    pub says: Says,
    /// Id of its process; a master of an older version does not say it.
    pub incarnation: Option<String>,
}

impl Answer {
    /// It was not reached.
    pub const NOTHING: Answer = Answer { says: Says::Nothing, incarnation: None };
}

/// Asks masters what they are.
#[derive(Clone, Debug)]
pub struct Probe {
    client: Client<HttpConnector, Empty<Bytes>>,
}

impl Default for Probe {
    fn default() -> Self {
        // Each question opens its own connection: an old one says nothing about whether a new one gets through.
        Probe { client: Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build_http() }
    }
}

impl Probe {
    /// What the master at that address says of itself.
    pub async fn ask(&self, ip: IpAddr, port: u16) -> Answer {
        let host = match ip {
            IpAddr::V4(ip) => ip.to_string(),
            IpAddr::V6(ip) => format!("[{ip}]"),
        };
        let Ok(uri) = format!("http://{host}:{port}/ha_status").parse() else { return Answer::NOTHING };
        match tokio::time::timeout(TIMEOUT, self.get(uri)).await {
            Ok(Some(answer)) => answer,
            Ok(None) | Err(_) => Answer::NOTHING,
        }
    }

    async fn get(&self, uri: hyper::Uri) -> Option<Answer> {
        let response = self.client.get(uri).await.ok()?;
        if !response.status().is_success() {
            return None;
        }
        let incarnation = response.headers().get(INCARNATION).and_then(|id| id.to_str().ok());
        let incarnation = incarnation.filter(|id| !id.is_empty() && id.len() <= LONGEST).map(str::to_owned);
        let body = Limited::new(response.into_body(), LONGEST).collect().await.ok()?.to_bytes();
        Some(Answer { says: read(std::str::from_utf8(&body).ok()?), incarnation })
    }
}

fn read(state: &str) -> Says {
    match state.trim() {
        "standby" => Says::Standby,
        "leader_warmup" | "serving" => Says::Leader,
        "" => Says::Nothing,
        other => Says::Other(other.chars().filter(char::is_ascii_graphic).take(32).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::{Router, routing::get};
    use std::net::Ipv4Addr;

    #[test]
    fn states_are_read() {
        assert_eq!(read("standby\n"), Says::Standby);
        assert_eq!(read("serving"), Says::Leader);
        assert_eq!(read("candidate"), Says::Other("candidate".to_owned()));
        assert_eq!(read(" "), Says::Nothing);
    }

    #[tokio::test]
    async fn asks_a_real_server() {
        let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let app = Router::new().route("/ha_status", get(|| async { ([(INCARNATION, "i-1")], "standby") }));
        let server = tokio::spawn(async move { axum::serve(listener, app).await });
        let probe = Probe::default();
        let standby = Answer { says: Says::Standby, incarnation: Some("i-1".to_owned()) };
        assert_eq!(probe.ask(Ipv4Addr::LOCALHOST.into(), port).await, standby);
        server.abort();
        _ = server.await;
        assert_eq!(probe.ask(Ipv4Addr::LOCALHOST.into(), port).await, Answer::NOTHING);
    }
}
