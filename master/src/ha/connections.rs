//! Every accepted connection, so that the lease thread alone can end them all at once (design §6.5, §6.8), and what
//! each is doing, so that it can let them end what they do first (design §6.7).

use crate::lock::Mutex;
use std::{
    ops::Deref,
    os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering, fence},
    },
};

/// The registry of open connections.
///
/// Invariant: a descriptor in the table is open and is the connection it was registered for. It is inserted before
/// the connection is served and removed, under the lock, before the descriptor is closed (see [`Registered`]), and
/// [`Connections::abort_all`] works under the same lock: it can never touch a descriptor number that was reused.
/// Holders of the lock do a constant amount of work, so the lease thread never waits for a data thread's work.
#[derive(Debug, Default)]
pub struct Connections {
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    slots: Vec<Slot>,
    free: Vec<usize>,
}

#[derive(Debug, Default)]
struct Slot {
    fd: Option<RawFd>,
    activity: Arc<Activity>,
}

/// What a connection is doing. Written by the thread that owns the connection, read by the lease thread.
#[derive(Debug, Default)]
pub struct Activity {
    calls: AtomicU32,
    writing: AtomicBool,
}

impl Activity {
    /// A call began; it is under way until the guard is dropped.
    pub fn call(&self) -> impl Drop + Send + '_ {
        CallUnderWay::new(self)
    }

    /// The same for a call that does not borrow the connection.
    pub fn detached_call(self: &Arc<Self>) -> impl Drop + Send + 'static + use<> {
        CallUnderWay::new(self.clone())
    }

    /// Announces a write. What is looked at after this, e.g. the permit, cannot be taken back unseen: whoever takes it
    /// back and looks for announcements afterwards either finds this one or is found.
    pub fn announce_write(&self) -> impl Drop + '_ {
        self.writing.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        Writing(self)
    }
}

struct CallUnderWay<A: Deref<Target = Activity>>(A);

impl<A: Deref<Target = Activity>> CallUnderWay<A> {
    fn new(activity: A) -> CallUnderWay<A> {
        activity.calls.fetch_add(1, Ordering::Relaxed);
        CallUnderWay(activity)
    }
}

impl<A: Deref<Target = Activity>> Drop for CallUnderWay<A> {
    fn drop(&mut self) {
        self.0.calls.fetch_sub(1, Ordering::Relaxed);
    }
}

struct Writing<'a>(&'a Activity);

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        self.0.writing.store(false, Ordering::Release);
    }
}

impl Connections {
    /// An empty registry.
    pub fn new() -> Arc<Connections> {
        Arc::new(Connections::default())
    }

    /// Registers the connection and takes ownership of it.
    pub fn register<S: AsFd>(self: &Arc<Self>, stream: S) -> Registered<S> {
        let fd = stream.as_fd().as_raw_fd();
        let mut table = self.table.lock();
        let slot = table.free.pop().unwrap_or_else(|| {
            table.slots.push(Slot::default());
            table.slots.len() - 1
        });
        let activity = Arc::<Activity>::default();
        table.slots[slot] = Slot { fd: Some(fd), activity: activity.clone() };
        drop(table);
        Registered { entry: Entry { connections: self.clone(), slot, activity }, stream }
    }

    /// Open connections.
    pub fn len(&self) -> usize {
        let table = self.table.lock();
        table.slots.len() - table.free.len()
    }

    /// Whether no connection is open.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Resets every connection: its queued output is dropped, the peer sees a reset, and every later write of ours
    /// on it fails. The owners notice by the error and drop their side. Returns how many there were.
    pub fn abort_all(&self) -> usize {
        self.abort(|_| true)
    }

    /// Does the same to those that are in the middle of a write, which may have looked at the permit before it was taken
    /// away. To be called after [`ServingPermit::suspend`](crate::permit::ServingPermit::suspend): when it returns, no
    /// answer can reach a socket any more.
    pub fn abort_writing(&self) -> usize {
        self.abort(|activity| activity.writing.load(Ordering::Acquire))
    }

    /// Whether any connection has a call under way.
    pub fn any_call(&self) -> bool {
        let table = self.table.lock();
        table.slots.iter().any(|slot| slot.activity.calls.load(Ordering::Relaxed) > 0)
    }

    fn abort(&self, which: impl Fn(&Activity) -> bool) -> usize {
        let table = self.table.lock();
        let mut aborted = 0;
        for slot in &table.slots {
            let Some(fd) = slot.fd.filter(|_| which(&slot.activity)) else { continue };
            // SAFETY: by the table's invariant the descriptor is open until its entry is removed, which needs the
            // lock that is held here.
            let fd = unsafe { BorrowedFd::borrow_raw(fd) };
            // Disconnecting a socket that is already gone fails, and there is nothing left to do for it then.
            if rustix::net::connect_unspec(fd).is_ok() {
                aborted += 1;
            }
        }
        aborted
    }
}

/// A connection that [`Connections::abort_all`] reaches. Fields drop in order: the entry goes before the descriptor.
#[derive(Debug)]
pub struct Registered<S> {
    entry: Entry,
    stream: S,
}

impl<S> Registered<S> {
    /// The connection.
    pub fn get_ref(&self) -> &S {
        &self.stream
    }

    /// What it is doing.
    pub fn activity(&self) -> &Arc<Activity> {
        &self.entry.activity
    }
}

#[derive(Debug)]
struct Entry {
    connections: Arc<Connections>,
    slot: usize,
    activity: Arc<Activity>,
}

impl Drop for Entry {
    fn drop(&mut self) {
        let mut table = self.connections.table.lock();
        // A call that outlives its connection is none of the next one's.
        table.slots[self.slot] = Slot::default();
        table.free.push(self.slot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        io::{ErrorKind, Read, Write},
        net::{TcpListener, TcpStream},
    };

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (client, listener.accept().unwrap().0)
    }

    #[test]
    fn abort_resets_the_peer_and_drops_queued_output() {
        let connections = Connections::new();
        let (mut client, server) = pair();
        server.set_nonblocking(true).unwrap();
        let server = connections.register(server);
        // Fill the peer's window, so that bytes are queued on our side.
        let mut queued = 0usize;
        while let Ok(n) = server.get_ref().write(&[7; 16384]) {
            queued += n;
        }
        assert_eq!(connections.abort_all(), 1);
        assert!(server.get_ref().write(b"late").is_err(), "a later write must fail");
        let mut got = 0usize;
        let error = loop {
            match client.read(&mut [0; 16384]) {
                Ok(0) => panic!("an orderly end, not a reset"),
                Ok(n) => got += n,
                Err(e) => break e,
            }
        };
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        assert!(got < queued, "{got} of {queued} bytes arrived although the queue was dropped");
    }

    #[test]
    fn a_dropped_connection_is_not_reached_through_its_reused_descriptor() {
        let connections = Connections::new();
        let (_client, server) = pair();
        let fd = server.as_raw_fd();
        drop(connections.register(server));
        assert!(connections.is_empty());
        // The next pair very likely reuses the descriptor number; aborting must not touch it either way.
        let (mut client2, mut server2) = pair();
        let reused = client2.as_raw_fd() == fd || server2.as_raw_fd() == fd;
        assert_eq!(connections.abort_all(), 0);
        server2.write_all(b"x").unwrap();
        client2.read_exact(&mut [0; 1]).unwrap_or_else(|e| panic!("reused {reused}: {e}"));
    }

    #[test]
    fn only_the_connection_that_writes_is_aborted_and_calls_are_seen() {
        let connections = Connections::new();
        let ((mut quiet, server1), (mut busy, server2)) = (pair(), pair());
        let (server1, server2) = (connections.register(server1), connections.register(server2));
        assert!(!connections.any_call());
        let call = server1.activity().call();
        assert!(connections.any_call());
        drop(call);
        assert!(!connections.any_call());
        assert_eq!(connections.abort_writing(), 0);
        let writing = server2.activity().announce_write();
        assert_eq!(connections.abort_writing(), 1);
        drop(writing);
        assert_eq!(busy.read(&mut [0; 1]).unwrap_err().kind(), ErrorKind::ConnectionReset);
        server1.get_ref().write_all(b"x").unwrap();
        quiet.read_exact(&mut [0; 1]).unwrap();
        assert_eq!(connections.abort_writing(), 0);
    }
}
