//! Clean-up at an HTTP metadata server that runs elsewhere: a DELETE for each key of a lost client, one after the other, on
//! a thread of its own, so that a server which does not answer holds up nothing but this.

use super::keys::Prefix;
use crate::{
    clock::Instant,
    config::RemoteMetadataConfig,
    core::{Core, ExternalMetadata},
    permit::ServingPermit,
};
use bytes::Bytes;
use http::{Request, StatusCode, Uri};
use http_body_util::Empty;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use std::{
    fmt::Write as _,
    io,
    sync::{Arc, OnceLock, Weak},
    time::Duration,
};
use tokio::{sync::mpsc, time};

/// Lost segments whose keys are still there, at the most; what is over stays where it is.
const QUEUE: usize = 4096;
/// For one request, connecting included.
const TIMEOUT: Duration = Duration::from_secs(5);
/// A segment that was lost so long ago is not begun with any more, and a key of it that fails is not tried again.
const KEEP_TRYING: Duration = Duration::from_secs(60);
/// The pause after a first failure; it doubles with each further one.
const PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// How often a missing permit is looked for.
const LOOK: Duration = Duration::from_millis(200);

/// A segment whose client is gone for good.
#[derive(Debug)]
struct Lost {
    name: Box<[u8]>,
    since: time::Instant,
}

/// Whether a lost segment's keys may be removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum May {
    /// Nobody has that name.
    Remove,
    /// Without the permit nothing moves.
    Wait,
    /// Somebody has mounted memory under that name again, and the keys are theirs.
    Leave,
    /// Nothing serves any more.
    End,
}

/// Why a key is still there, or may be.
#[derive(Debug, thiserror::Error)]
enum DeleteError {
    #[error("no answer within {TIMEOUT:?}")]
    TimedOut,
    #[error("{0}")]
    Uri(#[from] http::Error),
    #[error("{0}")]
    Request(#[from] hyper_util::client::legacy::Error),
    #[error("answered {0}")]
    Refused(StatusCode),
}

/// Takes the names of lost segments. The thread behind it ends when nothing serves any more.
#[derive(Debug)]
pub struct RemoteMetadata {
    lost: mpsc::Sender<Lost>,
    core: Arc<OnceLock<Weak<Core>>>,
}

impl RemoteMetadata {
    /// Starts the thread. It removes nothing before [`RemoteMetadata::serve`].
    pub fn start(
        config: &RemoteMetadataConfig,
        permit: Arc<ServingPermit>,
    ) -> io::Result<Arc<RemoteMetadata>> {
        let core: Arc<OnceLock<Weak<Core>>> = Arc::default();
        let serving = core.clone();
        let may = move |name: &[u8]| match serving.get().map(Weak::upgrade) {
            Some(None) => May::End,
            Some(Some(core)) if core.has_segment_named(name) => May::Leave,
            Some(Some(_)) if permit.held() => May::Remove,
            None | Some(Some(_)) => May::Wait,
        };
        Ok(Arc::new(RemoteMetadata { lost: start(config, may)?, core }))
    }

    /// Whose segments are lost, and whose are there.
    pub fn serve(&self, core: &Arc<Core>) {
        // Serving begins once in the life of this.
        let _ = self.core.set(Arc::downgrade(core));
    }
}

impl ExternalMetadata for RemoteMetadata {
    /// Such a server does not tell when something was written. A later incarnation that has mounted is spared; one that has
    /// written and not mounted yet writes again when it is told to re-mount, which its first `Ping` does.
    fn forget(&self, segment_name: &[u8], _written_until: Instant) {
        let lost = Lost { name: segment_name.into(), since: time::Instant::now() };
        if let Err(error) = self.lost.try_send(lost) {
            let segment = String::from_utf8_lossy(segment_name);
            tracing::warn!(%segment, %error, "its keys stay in the HTTP metadata server");
        }
    }
}

/// Starts the thread that removes what comes through the returned end.
fn start(
    config: &RemoteMetadataConfig,
    may: impl Fn(&[u8]) -> May + Send + 'static,
) -> io::Result<mpsc::Sender<Lost>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (sender, mut lost) = mpsc::channel::<Lost>(QUEUE);
    let cleaner = Cleaner {
        server: config.server.clone(),
        prefix: Prefix::new(&config.cluster),
        client: Client::builder(TokioExecutor::new()).build_http(),
        may,
    };
    std::thread::Builder::new().name("metadata-cleaner".to_owned()).spawn(move || {
        runtime.block_on(async {
            while let Some(lost) = lost.recv().await {
                if cleaner.clean(&lost).await == May::End {
                    return;
                }
            }
        });
    })?;
    Ok(sender)
}

struct Cleaner<F> {
    server: Uri,
    prefix: Prefix,
    client: Client<HttpConnector, Empty<Bytes>>,
    may: F,
}

impl<F: Fn(&[u8]) -> May> Cleaner<F> {
    /// Removes the keys of a segment, as far as that is possible: what was found out last.
    async fn clean(&self, lost: &Lost) -> May {
        let segment = String::from_utf8_lossy(&lost.name);
        if lost.since.elapsed() >= KEEP_TRYING {
            // It has waited behind others for so long that a new process may have written these keys and not mounted yet.
            tracing::warn!(%segment, server = %self.server, "too late; its keys stay in the HTTP metadata server");
            return May::Leave;
        }
        let mut pause = PAUSE;
        let mut keys = self.prefix.keys_of(&lost.name).into_iter().peekable();
        while let Some(key) = keys.peek() {
            match (self.may)(&lost.name) {
                May::Remove => {}
                May::Wait => {
                    time::sleep(LOOK).await;
                    continue;
                }
                leave_or_end => return leave_or_end,
            }
            let Err(error) = self.delete(key).await else {
                keys.next();
                continue;
            };
            if lost.since.elapsed() >= KEEP_TRYING {
                tracing::warn!(%segment, server = %self.server, %error, "a key stays in the HTTP metadata server");
                keys.next();
                continue;
            }
            time::sleep(pause).await;
            pause = LONGEST_PAUSE.min(pause * 2);
        }
        May::Remove
    }

    async fn delete(&self, key: &[u8]) -> Result<(), DeleteError> {
        let authority = self.server.authority().map_or("", |authority| authority.as_str());
        let uri = format!("http://{authority}{}?key={}", self.server.path(), escaped(key));
        let request = Request::delete(uri).body(Empty::new())?;
        let answer = time::timeout(TIMEOUT, self.client.request(request));
        match answer.await.map_err(|_| DeleteError::TimedOut)??.status() {
            // One that is not there was removed by its client.
            status if status.is_success() || status == StatusCode::NOT_FOUND => Ok(()),
            status => Err(DeleteError::Refused(status)),
        }
    }
}

/// As clients escape a key: everything but what needs no escape in any part of a URL.
fn escaped(key: &[u8]) -> String {
    key.iter().fold(String::with_capacity(key.len() * 3), |mut escaped, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(byte) {
            escaped.push(char::from(*byte));
        } else {
            // Writing to a String does not fail.
            let _ = write!(escaped, "%{byte:02X}");
        }
        escaped
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        io::{BufRead, BufReader, Write},
        net::TcpListener,
        sync::mpsc as std_mpsc,
    };

    /// A server that gives these answers, one to a connection, and passes on what it was asked.
    fn server(answers: &'static [&'static str]) -> (RemoteMetadataConfig, std_mpsc::Receiver<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        let (asked, requests) = std_mpsc::channel();
        std::thread::spawn(move || {
            for answer in answers {
                let (mut stream, _) = listener.accept().expect("a connection");
                let mut lines = BufReader::new(stream.try_clone().expect("a handle")).lines();
                let request = lines.next().expect("a line").expect("read");
                while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
                stream.write_all(answer.as_bytes()).expect("written");
                if asked.send(request).is_err() {
                    return;
                }
            }
        });
        let server = format!("http://{address}/metadata").parse().expect("a URL");
        (RemoteMetadataConfig { server, cluster: "blue".to_owned() }, requests)
    }

    fn lose(lost: &mpsc::Sender<Lost>, name: &str) {
        lost.try_send(Lost { name: name.as_bytes().into(), since: time::Instant::now() }).expect("room");
    }

    const OK: &str = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
    const NOT_FOUND: &str = "HTTP/1.1 404 Not Found\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
    const BROKEN: &str = "HTTP/1.1 500 Oh\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";

    fn next(requests: &std_mpsc::Receiver<String>) -> String {
        requests.recv_timeout(Duration::from_secs(20)).expect("asked")
    }

    #[test]
    fn every_key_is_deleted_and_a_failure_is_tried_again() {
        let (config, requests) = server(&[BROKEN, "", OK, NOT_FOUND, OK, OK]);
        let lost = start(&config, |_| May::Remove).expect("started");
        lose(&lost, "h:1");
        lose(&lost, "[::1]:2");
        let ram = "DELETE /metadata?key=mooncake%2Fblue%2Fram%2Fh%3A1 HTTP/1.1";
        assert_eq!([next(&requests), next(&requests), next(&requests)], [ram; 3]);
        assert_eq!(next(&requests), ram.replace("ram", "rpc_meta"));
        let other = ram.replace("h%3A1", "%5B%3A%3A1%5D%3A2");
        assert_eq!(next(&requests), other);
        assert_eq!(next(&requests), other.replace("ram", "rpc_meta"));
    }

    #[test]
    fn what_has_an_owner_again_is_left_and_without_the_permit_nothing_is_removed() {
        let (config, requests) = server(&[OK, OK]);
        let (say, verdicts) = std_mpsc::channel();
        let lost = start(&config, move |name| {
            let verdict = verdicts.recv().unwrap_or(May::End);
            if name == b"taken" { May::Leave } else { verdict }
        });
        let lost = lost.expect("started");
        for verdict in [May::Leave, May::Wait, May::Remove, May::Remove] {
            say.send(verdict).expect("it runs");
        }
        lose(&lost, "taken");
        lose(&lost, "lost");
        assert!(next(&requests).contains("ram%2Flost") && next(&requests).contains("rpc_meta%2Flost"));
    }
}
