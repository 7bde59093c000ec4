//! A network in memory, with faults: deterministic under paused time.

use futures::{FutureExt, future::BoxFuture};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    service::TowerToHyperService,
};
use mooncake_client::{Connector, Io};
use mooncake_proto::v1::master_service_server::MasterServiceServer;
use parking_lot::Mutex;
use std::{collections::HashMap, io, net::SocketAddr, sync::Arc};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex},
    sync::watch,
};

use crate::master::{Door, Master};

/// What happens to bytes of established connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line {
    Good,
    /// Looks alive until the client sends something.
    Stale,
    /// Swallows everything, says nothing.
    Silent,
    /// Closed.
    Cut,
}

#[derive(Debug)]
struct Port {
    door: Option<Door>,
    line: watch::Sender<Line>,
}

/// Addresses and who listens there.
#[derive(Debug, Default)]
pub struct Network {
    names: Mutex<HashMap<String, SocketAddr>>,
    ports: Mutex<HashMap<SocketAddr, Port>>,
    /// Connection attempts, in order.
    pub attempts: Mutex<Vec<u16>>,
    /// Names that were resolved.
    pub resolved: Mutex<Vec<String>>,
}

impl Network {
    pub fn new() -> Arc<Network> {
        Arc::default()
    }

    pub fn name(&self, name: &str, address: SocketAddr) {
        self.names.lock().insert(name.to_owned(), address);
    }

    pub fn listen(&self, address: SocketAddr, door: Door) {
        self.ports.lock().insert(address, Port { door: Some(door), line: watch::Sender::new(Line::Good) });
    }

    /// Accepts and never answers.
    pub fn blackhole(&self, address: SocketAddr) {
        self.set(address, Line::Silent);
        self.ports.lock().insert(address, Port { door: None, line: watch::Sender::new(Line::Silent) });
    }

    /// What becomes of the connections that are there.
    pub fn set(&self, address: SocketAddr, line: Line) {
        if let Some(port) = self.ports.lock().get(&address) {
            port.line.send_replace(line);
        }
    }

    /// Refuses connections; those that are there end as `line` says.
    pub fn close(&self, address: SocketAddr, line: Line) {
        self.set(address, line);
        // Established lines keep their receiver's last value when the sender is gone.
        self.ports.lock().remove(&address);
    }

    /// A master process on its ports.
    pub fn start(&self, master: &Arc<Master>, ip: &str) {
        let at = |port| SocketAddr::new(ip.parse().expect("an address"), port);
        self.listen(at(crate::MAIN), Door { master: master.clone(), main: true });
        if master.port != 0 {
            self.listen(at(master.port), Door { master: master.clone(), main: false });
        }
    }
}

impl Connector for Network {
    fn resolve<'a>(&'a self, master: &'a str) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        self.resolved.lock().push(master.to_owned());
        let found = self.names.lock().get(master).copied().or_else(|| master.parse().ok());
        async move { found.map(|address| vec![address]).ok_or_else(|| io::Error::other("no such name")) }
            .boxed()
    }

    fn connect(&self, address: SocketAddr) -> BoxFuture<'_, io::Result<Box<dyn Io>>> {
        self.attempts.lock().push(address.port());
        let found = self.ports.lock().get(&address).map(|port| (port.door.clone(), port.line.subscribe()));
        async move {
            let Some((door, line)) = found else { return Err(io::ErrorKind::ConnectionRefused.into()) };
            let (client, outer) = duplex(1 << 16);
            let (inner, server) = duplex(1 << 16);
            if let Some(door) = door {
                let service = TowerToHyperService::new(MasterServiceServer::new(door));
                let http = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                // Ends with its line; what it says then is of no interest.
                tokio::spawn(async move { drop(http.serve_connection(TokioIo::new(server), service).await) });
                tokio::spawn(carry(outer, inner, line));
            } else {
                tokio::spawn(carry(outer, server, line));
            }
            Ok(Box::new(client) as Box<dyn Io>)
        }
        .boxed()
    }
}

/// Carries bytes both ways while the line is good.
async fn carry(mut client: DuplexStream, mut server: DuplexStream, mut line: watch::Receiver<Line>) {
    let (mut up, mut down) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    let mut changes = true;
    loop {
        let state = *line.borrow_and_update();
        if state == Line::Cut {
            return;
        }
        tokio::select! {
            biased;
            changed = line.changed(), if changes => changes = changed.is_ok(),
            read = client.read(&mut up) => match (read, state) {
                (Ok(0) | Err(_), _) | (_, Line::Stale) => return,
                (Ok(read), Line::Good) => if server.write_all(&up[..read]).await.is_err() { return },
                (Ok(_), _) => {}
            },
            read = server.read(&mut down), if state == Line::Good => match read {
                Ok(0) | Err(_) => return,
                Ok(read) => if client.write_all(&down[..read]).await.is_err() { return },
            },
        }
    }
}
