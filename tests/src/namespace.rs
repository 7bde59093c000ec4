//! A network namespace with nothing but loopback, in which ports that clients open on every address are harmless.

use crate::master::http;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::{
    fs::File,
    io::Read,
    net::{IpAddr, Ipv4Addr},
    os::fd::AsFd,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
};

/// A namespace for as long as its first process lives.
#[derive(Debug)]
pub struct Namespace(Process);

/// A child process, ended by its pid when dropped.
#[derive(Debug)]
pub struct Process(pub Child);

impl Drop for Process {
    fn drop(&mut self) {
        // Terminated and not killed: `timeout` passes it on. It fails only when the process has ended already.
        let _ = rustix::process::kill_process(
            rustix::process::Pid::from_child(&self.0),
            rustix::process::Signal::TERM,
        );
        let _ = self.0.wait();
    }
}

/// Whether namespaces can be made; a test that needs one says why it does nothing.
pub fn is_possible() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        eprintln!(
            "SKIPPED: only root can make the network namespace in which the clients' ports are harmless"
        );
    }
    is_root
}

impl Namespace {
    /// With these addresses on `lo` beside its own.
    pub fn new(addresses: &[IpAddr]) -> Namespace {
        let mut steps = vec!["ip link set lo up".to_owned()];
        steps.extend(addresses.iter().map(|address| format!("ip address add {address} dev lo")));
        steps.push("echo up && exec sleep 3600".to_owned());
        let script = steps.join(" && ");
        let mut child = Command::new("unshare")
            .args(["--net", "sh", "-c", &script])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("unshare");
        let mut up = [0; 3];
        let stdout = child.stdout.as_mut().expect("piped");
        let outcome = stdout.read_exact(&mut up);
        let namespace = Namespace(Process(child));
        outcome.expect("a namespace; only root can make one");
        namespace
    }

    fn path(&self) -> String {
        format!("/proc/{}/ns/net", self.0.0.id())
    }

    /// A command that runs in there.
    pub fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", self.path())).arg("--").arg(program.as_ref());
        command.stdin(Stdio::null());
        command
    }

    /// Runs `body` on a thread that opens all its sockets in there.
    pub fn run<T: Send>(&self, body: impl FnOnce() -> T + Send) -> T {
        let namespace = File::open(self.path()).expect("the namespace is there");
        thread::scope(|scope| {
            let inside = scope.spawn(move || {
                move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
                    .expect("root may enter it");
                body()
            });
            inside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// The body of a GET on a port of its 127.0.0.1.
    pub fn get(&self, port: u16, path: &str) -> String {
        self.run(|| http((Ipv4Addr::LOCALHOST, port).into(), "GET", path).1)
    }
}
