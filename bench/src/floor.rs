//! A server that does nothing but what the network asks for: threads with an epoll loop each, that read what has come,
//! answer every Ping with the same bytes, and write once per wake-up of a connection. What it costs is the floor for
//! any master that is called like this.

use anyhow::Context as _;
use bytes::BytesMut;
use mooncake_master::{
    error::ErrorCode,
    rpc::native::{
        answer::{self, Payload, Pong},
        frame::{Limits, RequestHeader, RpcErrorCode, write_error},
        generation::{Generation, Method},
    },
    types::ClientStatus,
};
use rustix::{
    buffer::spare_capacity,
    event::epoll::{self, CreateFlags, EventData, EventFlags},
    io::Errno,
};
use std::{
    io::{self, Read as _, Write as _},
    net::{Ipv4Addr, TcpListener, TcpStream},
    num::NonZero,
    os::fd::OwnedFd,
    sync::{Arc, mpsc},
    thread,
};

/// Serves until the process is ended.
pub(crate) fn serve(port: u16, threads: Option<u32>) -> anyhow::Result<()> {
    let threads = match threads {
        Some(threads) => threads as usize,
        None => thread::available_parallelism().map_or(1, NonZero::get),
    };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).with_context(|| format!("port {port}"))?;
    let answers = Arc::new(Answers::new()?);
    let mut lanes = (0..threads).map(|_| Lane::start(answers.clone())).collect::<io::Result<Vec<_>>>()?;
    for (lane, stream) in (0..threads).cycle().zip(listener.incoming()) {
        lanes[lane].hand(stream?)?;
    }
    Ok(())
}

/// The answer to each function that it knows, to which only the number of the request has to be added.
struct Answers(Vec<(u32, Vec<u8>)>);

impl Answers {
    /// Beside Ping there is only what makes clients that mount memory content.
    fn new() -> anyhow::Result<Answers> {
        let pong = Ok::<_, ErrorCode>(Pong { view_version: 0, status: ClientStatus::Ok });
        let done = Ok::<_, ErrorCode>(());
        Ok(Answers(vec![
            to(Method::Ping, &pong)?,
            to(Method::MountSegment, &done)?,
            to(Method::ReMountSegment, &done)?,
        ]))
    }

    fn write(&self, request: RequestHeader, out: &mut BytesMut) {
        match self.0.iter().find(|(function, _)| *function == request.function) {
            Some((_, answer)) => {
                let start = out.len();
                out.extend_from_slice(answer);
                out[start + 4..start + 8].copy_from_slice(&request.seq.to_le_bytes());
            }
            None => write_error(out, request.seq, RpcErrorCode::NotRegistered, "there is only Ping here"),
        }
    }
}

fn to(method: Method, value: &impl Payload) -> anyhow::Result<(u32, Vec<u8>)> {
    let rpc = Generation::newest().method(method).with_context(|| method.name())?;
    let mut out = BytesMut::new();
    answer::write(&mut out, 0, rpc, value);
    Ok((rpc.function_id(), out.to_vec()))
}

/// A thread and the way to it.
struct Lane {
    epoll: Arc<OwnedFd>,
    inbox: mpsc::Sender<TcpStream>,
    handed: u64,
}

impl Lane {
    fn start(answers: Arc<Answers>) -> io::Result<Lane> {
        let epoll = Arc::new(epoll::create(CreateFlags::CLOEXEC)?);
        let (inbox, outbox) = mpsc::channel();
        let waited = epoll.clone();
        thread::Builder::new().name("floor".into()).spawn(move || {
            if let Err(error) = run(&waited, &outbox, &answers) {
                eprintln!("a loop of the floor ended: {error:#}");
            }
        })?;
        Ok(Lane { epoll, inbox, handed: 0 })
    }

    fn hand(&mut self, stream: TcpStream) -> anyhow::Result<()> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        // An event may come before the stream does: the loop waits for that.
        epoll::add(&*self.epoll, &stream, EventData::new_u64(self.handed), EventFlags::IN)?;
        self.handed += 1;
        self.inbox.send(stream).context("a loop of the floor has ended")
    }
}

struct Open {
    stream: TcpStream,
    /// The beginning of a frame that has not come whole.
    begun: Vec<u8>,
}

fn run(epoll: &OwnedFd, outbox: &mpsc::Receiver<TcpStream>, answers: &Answers) -> anyhow::Result<()> {
    let mut events = Vec::with_capacity(256);
    let (mut input, mut out) = (vec![0; 64 << 10], BytesMut::new());
    let mut connections: Vec<Option<Open>> = Vec::new();
    loop {
        match epoll::wait(epoll, spare_capacity(&mut events), None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for event in events.drain(..) {
            let data = event.data;
            let index = data.u64() as usize;
            while connections.len() <= index {
                connections.push(Some(Open { stream: outbox.recv()?, begun: Vec::new() }));
            }
            let Some(open) = &mut connections[index] else { continue };
            if !open.serve(&mut input, &mut out, answers) {
                connections[index] = None;
            }
        }
    }
}

impl Open {
    /// Answers what has come; false when the connection is over. Who does not read his answers is cut off.
    fn serve(&mut self, input: &mut [u8], out: &mut BytesMut, answers: &Answers) -> bool {
        let read = match self.stream.read(input) {
            Ok(0) => return false,
            Ok(read) => read,
            Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
        };
        out.clear();
        let whole = if self.begun.is_empty() {
            self.answer(&input[..read], out, answers)
        } else {
            let mut joined = std::mem::take(&mut self.begun);
            joined.extend_from_slice(&input[..read]);
            self.answer(&joined, out, answers)
        };
        whole && self.stream.write_all(out).is_ok()
    }

    fn answer(&mut self, mut input: &[u8], out: &mut BytesMut, answers: &Answers) -> bool {
        loop {
            match RequestHeader::parse(input, &Limits::default()) {
                Ok(Some(header)) if header.frame_len() <= input.len() as u64 => {
                    answers.write(header, out);
                    input = &input[header.frame_len() as usize..];
                }
                Ok(_) => {
                    self.begun.extend_from_slice(input);
                    return true;
                }
                Err(_) => return false,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mooncake_master::rpc::native::frame::{REQUEST_HEADER, ResponseHeader};

    #[test]
    fn a_frame_is_answered_when_it_is_whole() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut lane = Lane::start(Arc::new(Answers::new().unwrap())).unwrap();
        lane.hand(listener.accept().unwrap().0).unwrap();
        let ping = RequestHeader { seq: 7, function: Method::Ping.function_id(), body: 4, attachment: 0 };
        let unknown = RequestHeader { seq: 8, function: 1, ..ping };
        let mut frames = [&ping.to_bytes()[..], &[0; 4], &unknown.to_bytes()[..], &[0; 4]].concat();
        let rest = frames.split_off(REQUEST_HEADER + 4 + 3);
        client.write_all(&frames).unwrap();
        let mut answer = vec![0; Answers::new().unwrap().0[0].1.len()];
        client.read_exact(&mut answer).unwrap();
        let header = ResponseHeader::parse(&answer, &Limits::default()).unwrap().unwrap();
        assert_eq!((header.error, header.seq, header.frame_len()), (0, 7, answer.len() as u64));
        client.write_all(&rest).unwrap();
        client.read_exact(&mut answer[..16]).unwrap();
        let header = ResponseHeader::parse(&answer[..16], &Limits::default()).unwrap().unwrap();
        assert_eq!((header.error, header.seq), (RpcErrorCode::NotRegistered as u8, 8));
    }
}
