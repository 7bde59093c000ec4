//! The masters under load: found or started, and what the kernel says about their processes.

use crate::{clock, connection::Protocol};
use anyhow::{Context as _, bail, ensure};
use std::{
    fs,
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    time::Duration,
};

/// How a target is given.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    /// A running master, and its pid if its CPU and memory are to be read.
    Running { address: SocketAddr, pid: Option<u32> },
    /// A command line with `{rpc_port}`, `{metrics_port}` and `{heartbeat_port}` in it.
    Command(String),
}

/// One master to be measured.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) name: String,
    pub(crate) source: Source,
    pub(crate) protocol: Protocol,
}

impl Target {
    /// From `NAME=...`: `HOST:PORT`, `HOST:PORT,pid=N`, or `spawn:COMMAND`.
    pub(crate) fn parse(text: &str, protocol: Protocol, allow_remote: bool) -> anyhow::Result<Target> {
        let expected = "expected NAME=HOST:PORT[,pid=N] or NAME=spawn:COMMAND";
        let Some((name, rest)) = text.split_once('=').filter(|(name, _)| !name.is_empty()) else {
            bail!("--target {text:?}: {expected}");
        };
        let source = if let Some(command) = rest.strip_prefix("spawn:") {
            ensure!(command.contains("{rpc_port}"), "--target {name}: {{rpc_port}} is not in the command");
            Source::Command(command.to_owned())
        } else {
            let (address, pid) = match rest.split_once(",pid=") {
                Some((address, pid)) => {
                    (address, Some(pid.parse().with_context(|| format!("--target {name}: pid {pid:?}"))?))
                }
                None => (rest, None),
            };
            let address: SocketAddr = address
                .parse()
                .with_context(|| format!("--target {text:?}: {expected}, HOST an IP address"))?;
            ensure!(
                allow_remote || address.ip().is_loopback(),
                "--target {name}: {address} is not a loopback address; --allow-remote puts load on other machines"
            );
            Source::Running { address, pid }
        };
        Ok(Target { name: name.to_owned(), source, protocol })
    }

    /// Makes sure that it runs.
    pub(crate) fn start(&self) -> anyhow::Result<Instance> {
        self.start_under("")
    }

    /// The same with its command behind that of a tool which runs it.
    pub(crate) fn start_under(&self, tool: &str) -> anyhow::Result<Instance> {
        match &self.source {
            Source::Running { .. } if !tool.is_empty() => {
                bail!("target {}: only spawn: can do that", self.name)
            }
            Source::Running { address, pid } => {
                Ok(Instance { address: *address, admin: None, pid: *pid, child: None, start: None })
            }
            Source::Command(command) => {
                let [rpc, metrics, heartbeat] = free_ports()?;
                let command = command
                    .replace("{rpc_port}", &rpc.to_string())
                    .replace("{metrics_port}", &metrics.to_string())
                    .replace("{heartbeat_port}", &heartbeat.to_string());
                let begin = clock::now();
                // `exec`, so that the child is the master itself and its pid the one to read and to kill.
                let child = Command::new("sh")
                    .args(["-c", &format!("exec {tool} {command}")])
                    .stdin(Stdio::null())
                    .stdout(Stdio::null())
                    .stderr(Stdio::null())
                    .spawn()
                    .with_context(|| format!("starting {command:?}"))?;
                let mut instance = Instance {
                    address: (Ipv4Addr::LOCALHOST, rpc).into(),
                    admin: Some((Ipv4Addr::LOCALHOST, metrics).into()),
                    pid: Some(child.id()),
                    child: Some(child),
                    start: None,
                };
                while TcpStream::connect(instance.address).is_err() {
                    if let Some(Some(status)) = instance.child.as_mut().map(Child::try_wait).transpose()? {
                        bail!("{command:?} ended at once: {status}");
                    }
                    ensure!(begin.elapsed() < Duration::from_secs(30), "{command:?} does not accept");
                    std::thread::sleep(Duration::from_micros(200));
                }
                instance.start = Some(begin.elapsed());
                Ok(instance)
            }
        }
    }
}

/// Ports that were free a moment ago.
fn free_ports<const N: usize>() -> anyhow::Result<[u16; N]> {
    let listeners =
        (0..N).map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).collect::<Result<Vec<_>, _>>()?;
    let mut ports = [0; N];
    for (port, listener) in ports.iter_mut().zip(&listeners) {
        *port = listener.local_addr()?.port();
    }
    Ok(ports)
}

/// A running master; one that was started here is killed by its pid when dropped.
#[derive(Debug)]
pub(crate) struct Instance {
    pub(crate) address: SocketAddr,
    /// Its admin port, if it was started here.
    pub(crate) admin: Option<SocketAddr>,
    pub(crate) pid: Option<u32>,
    child: Option<Child>,
    /// From the start of the process until it accepted.
    pub(crate) start: Option<Duration>,
}

impl Instance {
    /// CPU time used so far, all threads, user and system.
    pub(crate) fn cpu(&self) -> Option<Duration> {
        cpu(&self.pid?.to_string())
    }

    /// Resident memory, bytes.
    pub(crate) fn resident(&self) -> Option<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid?)).ok()?;
        let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
        Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? * 1024)
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // Both fail only when it has ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// CPU time of this very process, to tell what the load itself costs.
pub(crate) fn own_cpu() -> Option<Duration> {
    // Not the sum of the living threads: workers end while they are measured.
    ticks("self")
}

/// In nanoseconds from the scheduler where it counts them (the sum of the threads that live), else in clock ticks.
fn cpu(pid: &str) -> Option<Duration> {
    let of_thread = |entry: fs::DirEntry| -> Option<u64> {
        let text = fs::read_to_string(entry.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse().ok()
    };
    let threads = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let nanos: u64 = threads.filter_map(Result::ok).filter_map(of_thread).sum();
    if nanos > 0 { Some(Duration::from_nanos(nanos)) } else { ticks(pid) }
}

fn ticks(pid: &str) -> Option<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<u64>().ok();
    // A hundred a second on every Linux that this runs on.
    Some(Duration::from_millis((ticks()? + ticks()?) * 10))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_read_and_refused_by_name() {
        let parse = |text| Target::parse(text, Protocol::Native, false);
        let target = parse("ours=127.0.0.1:50051,pid=7").unwrap();
        assert_eq!(target.name, "ours");
        assert!(matches!(target.source, Source::Running { pid: Some(7), .. }));
        let target = parse("theirs=spawn:./master --rpc_port={rpc_port}").unwrap();
        assert!(matches!(target.source, Source::Command(_)));
        for (bad, word) in [
            ("127.0.0.1:1", "NAME="),
            ("a=10.0.0.1:1", "loopback"),
            ("a=spawn:./master", "{rpc_port}"),
            ("a=127.0.0.1:1,pid=x", "pid"),
            ("a=nowhere", "HOST:PORT"),
        ] {
            let error = format!("{:#}", parse(bad).unwrap_err());
            assert!(error.contains(word), "{bad}: {error}");
        }
        assert!(Target::parse("a=10.0.0.1:1", Protocol::Native, true).is_ok());
    }

    #[test]
    fn a_command_is_started_measured_and_ended() {
        let python = "python3 -c \"import socket,time; s=socket.create_server(('127.0.0.1', {rpc_port})); time.sleep(60)\"";
        let target =
            Target { name: "a".into(), source: Source::Command(python.into()), protocol: Protocol::Native };
        let instance = target.start().unwrap();
        assert!(instance.cpu().unwrap() > Duration::ZERO && instance.resident().unwrap() > 1 << 20);
        let address = instance.address;
        drop(instance);
        assert!(TcpStream::connect(address).is_err());
        assert!(own_cpu().is_some());
    }
}
