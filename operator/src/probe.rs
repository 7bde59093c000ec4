//! Asking a master what it is: `GET /ha_status` on its metrics port, and other pages there.

use crate::decide::Says;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::{HeaderMap, body::Bytes};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

/// Time for a whole question.
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
        let Some((headers, state)) = self.get(ip, port, "/ha_status", LONGEST).await else {
            return Answer::NOTHING;
        };
        let incarnation = headers.get(INCARNATION).and_then(|id| id.to_str().ok());
        let incarnation = incarnation.filter(|id| !id.is_empty() && id.len() <= LONGEST).map(str::to_owned);
        Answer { says: read(&state), incarnation }
    }

    /// A page of at most `longest` bytes; `None` if it does not come within 1 s.
    pub(crate) async fn page(&self, ip: IpAddr, port: u16, path: &str, longest: usize) -> Option<String> {
        self.get(ip, port, path, longest).await.map(|(_, page)| page)
    }

    async fn get(&self, ip: IpAddr, port: u16, path: &str, longest: usize) -> Option<(HeaderMap, String)> {
        let uri = format!("http://{}{path}", SocketAddr::new(ip, port)).parse().ok()?;
        let answer = async {
            let response = self.client.get(uri).await.ok()?;
            if !response.status().is_success() {
                return None;
            }
            let (parts, body) = response.into_parts();
            let body = Limited::new(body, longest).collect().await.ok()?.to_bytes();
            Some((parts.headers, String::from_utf8(body.to_vec()).ok()?))
        };
        tokio::time::timeout(TIMEOUT, answer).await.ok()?
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
