//! A master process of the binary that was built with these tests.

use crate::wait_for;
use std::{
    fs::File,
    io::{Read, Write},
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};
use tempfile::TempDir;

/// The binary, which cargo puts beside the directory of the test executables.
pub fn binary(name: &str) -> PathBuf {
    let mut path = std::env::current_exe().expect("a test has an executable");
    path.pop();
    if path.ends_with("deps") {
        path.pop();
    }
    path.push(name);
    assert!(path.exists(), "{} is missing: build the workspace first (cargo build)", path.display());
    path
}

/// Ports that were free a moment ago.
pub fn free_ports<const N: usize>() -> [u16; N] {
    let listeners: [TcpListener; N] =
        std::array::from_fn(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port"));
    std::array::from_fn(|i| listeners[i].local_addr().expect("bound").port())
}

/// How to start a master.
#[derive(Debug, Clone)]
pub struct MasterBuilder {
    args: Vec<String>,
    env: Vec<(String, String)>,
    address: IpAddr,
    rpc_port: u16,
    metrics_port: u16,
}

impl Default for MasterBuilder {
    fn default() -> Self {
        let [rpc_port, metrics_port] = free_ports();
        MasterBuilder {
            args: Vec::new(),
            env: Vec::new(),
            address: Ipv4Addr::LOCALHOST.into(),
            rpc_port,
            metrics_port,
        }
    }
}

impl MasterBuilder {
    /// One more argument.
    #[must_use]
    pub fn arg(mut self, arg: impl Into<String>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// One more environment variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl Into<String>) -> Self {
        self.env.push((name.to_owned(), value.into()));
        self
    }

    /// Binds that address instead of 127.0.0.1.
    #[must_use]
    pub fn address(mut self, address: IpAddr) -> Self {
        self.address = address;
        self
    }

    /// Starts it and waits until its RPC port accepts.
    pub fn start(self) -> Master {
        let master = self.spawn();
        wait_for("the master accepts connections", 10, || TcpStream::connect(master.rpc_address()).ok());
        master
    }

    /// Starts it.
    pub fn spawn(self) -> Master {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let log = File::create(directory.path().join("log")).expect("a log file");
        let child = Command::new(binary("mooncake-master"))
            .arg(format!("--rpc_address={}", self.address))
            .arg(format!("--rpc_port={}", self.rpc_port))
            .arg(format!("--metrics_port={}", self.metrics_port))
            .arg("--metrics_host=127.0.0.1")
            .args(&self.args)
            .env("RUST_BACKTRACE", "1")
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a log file"))
            .stderr(log)
            .spawn()
            .expect("the master starts");
        Master { child, builder: self, directory }
    }
}

/// A running master; killed by its pid when dropped, its log shown when the test panics.
#[derive(Debug)]
pub struct Master {
    child: Child,
    builder: MasterBuilder,
    directory: TempDir,
}

impl Master {
    /// With default options on free ports.
    pub fn start() -> Master {
        MasterBuilder::default().start()
    }

    /// Where its RPC server is reached.
    pub fn rpc_address(&self) -> SocketAddr {
        let ip = match self.builder.address {
            IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(ip) if ip.is_unspecified() => std::net::Ipv6Addr::LOCALHOST.into(),
            ip => ip,
        };
        SocketAddr::new(ip, self.builder.rpc_port)
    }

    /// Where its admin HTTP server is reached.
    pub fn admin_address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.builder.metrics_port).into()
    }

    /// Process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it has written to its standard output and error.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    fn log_path(&self) -> PathBuf {
        Path::new(self.directory.path()).join("log")
    }

    /// Status and body of a GET on the admin port.
    pub fn get(&self, path: &str) -> (u16, String) {
        http(self.admin_address(), "GET", path)
    }

    /// Waits until `/readyz` answers with that status.
    pub fn wait_ready(&self, status: u16, seconds: u64) {
        wait_for(&format!("/readyz answers {status}"), seconds, || {
            (self.get("/readyz").0 == status).then_some(())
        });
    }

    /// Resident memory, bytes.
    pub fn resident_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("it runs");
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("VmRSS");
        line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).expect("a number") * 1024
    }

    /// Sends a signal.
    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).expect("it runs");
    }

    /// Waits for its end; the exit code, if it has one.
    pub fn wait_exit(&mut self, seconds: u64) -> Option<i32> {
        wait_for("the master ends", seconds, || self.child.try_wait().expect("it is our child")).code()
    }

    /// Kills it and starts it again with the same ports and options.
    #[must_use]
    pub fn restart(mut self) -> Master {
        self.kill();
        self.builder.clone().start()
    }

    /// The same without waiting for its RPC port, which a standby does not open.
    #[must_use]
    pub fn respawn(mut self) -> Master {
        self.kill();
        self.builder.clone().spawn()
    }

    /// The same with other options; the ports stay.
    #[must_use]
    pub fn restart_with(mut self, args: &[&str]) -> Master {
        self.kill();
        let args = args.iter().map(|arg| (*arg).to_owned()).collect();
        MasterBuilder { args, ..self.builder.clone() }.start()
    }

    fn kill(&mut self) {
        // Both fail only when it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Master {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            eprintln!("--- log of the master on {} ---\n{}", self.rpc_address(), self.log());
        }
    }
}

/// Status and body of an HTTP/1.1 request without a body.
pub fn http(address: SocketAddr, method: &str, path: &str) -> (u16, String) {
    let (status, _, body) = http_with_headers(address, method, path);
    (status, body)
}

/// The same with the lines of the head.
pub fn http_with_headers(address: SocketAddr, method: &str, path: &str) -> (u16, Vec<String>, String) {
    let ask = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        write!(stream, "{method} {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Ok(text)
    };
    let Ok(text) = ask() else { return (0, Vec::new(), String::new()) };
    let status = text.split_whitespace().nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    (status, head.lines().map(str::to_owned).collect(), body.to_owned())
}
