use super::*;
use crate::{
    clock::{BootClock, Clock as _},
    ha::connections::Connections,
    lock::Mutex,
};
use std::{
    future::{Future, poll_fn},
    io::{ErrorKind, Read, Write},
    net::{TcpListener, TcpStream},
    pin::Pin,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    task::{Poll, Waker},
    thread::JoinHandle,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// Longer than anything here takes, and not for ever.
const LIMIT: Duration = Duration::from_secs(60);

type Work = Pin<Box<dyn Future<Output = ()>>>;
type Begin = Box<dyn FnOnce(LoopStream, Spawner) -> Work + Send>;

/// Serves each connection by what came with it.
struct Serving {
    connections: Arc<Connections>,
    ticks: Arc<AtomicU64>,
}

impl Duty<(TcpStream, Begin)> for Serving {
    fn take(&mut self, (stream, begin): (TcpStream, Begin), tasks: &mut Tasks) {
        tasks.serve(self.connections.register(stream), begin).unwrap();
    }

    fn tick(&mut self) {
        self.ticks.fetch_add(1, Ordering::SeqCst);
    }
}

struct Running {
    inlet: Option<Inlet<(TcpStream, Begin)>>,
    thread: Option<JoinHandle<()>>,
    connections: Arc<Connections>,
    ticks: Arc<AtomicU64>,
    _timers: Timers,
}

impl Running {
    fn start() -> Running {
        let timers = Timers::start("timers".to_owned()).unwrap();
        let (event_loop, inlet) = EventLoop::new(Duration::from_millis(1)).unwrap();
        let (handle, connections, ticks) = (timers.handle(), Connections::new(), Arc::default());
        let mut serving = Serving { connections: connections.clone(), ticks: Arc::clone(&ticks) };
        let thread = std::thread::spawn(move || event_loop.run(&handle, &mut serving).unwrap());
        Running { inlet: Some(inlet), thread: Some(thread), connections, ticks, _timers: timers }
    }

    /// The other end of a connection that is served like that.
    fn serve<F: Future<Output = ()> + 'static>(
        &self,
        begin: impl FnOnce(LoopStream, Spawner) -> F + Send + 'static,
    ) -> TcpStream {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        client.set_read_timeout(Some(LIMIT)).unwrap();
        client.set_write_timeout(Some(LIMIT)).unwrap();
        let (server, _) = listener.accept().unwrap();
        server.set_nonblocking(true).unwrap();
        let begin: Begin = Box::new(|stream, spawner| Box::pin(begin(stream, spawner)));
        assert!(self.inlet.as_ref().unwrap().send((server, begin)));
        client
    }

    fn end(&mut self) {
        self.inlet = None;
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

async fn echo(mut stream: LoopStream, _: Spawner) {
    let mut bytes = vec![0; 16 << 10];
    while let Ok(n) = stream.read(&mut bytes).await
        && n > 0
    {
        if stream.write_all(&bytes[..n]).await.is_err() {
            return;
        }
    }
}

fn says(stream: &mut TcpStream, text: &[u8]) {
    stream.write_all(text).unwrap();
    let mut back = vec![0; text.len()];
    stream.read_exact(&mut back).unwrap();
    assert_eq!(back, text);
}

#[test]
fn more_than_any_buffer_holds_goes_both_ways() {
    const SIZE: usize = 32 << 20;
    let running = Running::start();
    let mut client = running.serve(echo);
    let mut reader = client.try_clone().unwrap();
    let read = std::thread::spawn(move || {
        let mut all = vec![0; SIZE];
        reader.read_exact(&mut all).unwrap();
        all
    });
    let sent: Vec<u8> = (0..SIZE).map(|i| (i / 7 % 251) as u8).collect();
    client.write_all(&sent).unwrap();
    assert!(read.join().unwrap() == sent);
}

/// The end comes with the last bytes, so that the kernel tells of both at once or of each by itself.
#[test]
fn what_comes_before_the_end_is_read_and_the_end_is_seen() {
    let running = Running::start();
    for round in (0..=u8::MAX).chain(0..=u8::MAX) {
        let (told, hears) = std::sync::mpsc::channel();
        let mut client = running.serve(move |mut stream, _| async move {
            let first = stream.first_byte().await;
            let mut all = Vec::with_capacity(8);
            let mut read = Vec::new();
            while let Ok(n) = poll_fn(|cx| stream.poll_append(cx, &mut all)).await
                && n > 0
            {
                read.append(&mut all);
            }
            told.send((first.unwrap(), read)).unwrap();
        });
        let sent: Vec<u8> = (0..round % 23).collect();
        client.write_all(&sent).unwrap();
        drop(client);
        assert_eq!(hears.recv_timeout(LIMIT).unwrap(), (sent.first().copied(), sent));
    }
}

/// Each wake-up is waited for before the next one, so a lost one ends the test.
#[test]
fn no_wake_up_from_another_thread_is_lost() {
    const ROUNDS: u64 = 30_000;
    let running = Running::start();
    let (count, waker) = (Arc::<AtomicU64>::default(), Arc::new(Mutex::new(None::<Waker>)));
    let (counted, given) = (count.clone(), waker.clone());
    let _client = running.serve(move |stream, _| async move {
        let _open = stream;
        poll_fn(|cx| {
            *given.lock() = Some(cx.waker().clone());
            counted.fetch_add(1, Ordering::SeqCst);
            Poll::<()>::Pending
        })
        .await;
    });
    let began = BootClock.now();
    let wait = |above: u64| {
        while count.load(Ordering::SeqCst) <= above {
            assert!(BootClock.now().saturating_since(began) < LIMIT, "a wake-up was lost after {above}");
            std::hint::spin_loop();
        }
        count.load(Ordering::SeqCst)
    };
    let mut seen = wait(0);
    for _ in 0..ROUNDS {
        waker.lock().as_ref().unwrap().wake_by_ref();
        seen = wait(seen);
    }
}

#[test]
fn a_task_that_panics_takes_its_connection_and_no_other() {
    let running = Running::start();
    let mut well = running.serve(echo);
    says(&mut well, b"before");
    let mut ill = running.serve(|stream, _| async move {
        stream.first_byte().await.unwrap();
        panic!("a defect");
    });
    ill.write_all(b"x").unwrap();
    match ill.read(&mut [0]) {
        Ok(0) => {}
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        other => panic!("{other:?}"),
    }
    says(&mut well, b"after");
}

#[test]
fn tasks_begin_tasks_and_sleep() {
    let running = Running::start();
    let mut client = running.serve(|mut stream, spawner| async move {
        let (told, hears) = tokio::sync::oneshot::channel();
        hyper::rt::Executor::execute(&spawner, async move {
            tokio::time::sleep(Duration::from_millis(5)).await;
            told.send(b'!').unwrap();
        });
        let byte = hears.await.unwrap();
        stream.write_all(&[byte]).await.unwrap();
    });
    let mut byte = [0];
    client.read_exact(&mut byte).unwrap();
    assert_eq!(byte, *b"!");
}

/// One that never ends would keep the thread for ever if a task could read as long as there is something.
#[test]
fn a_peer_that_sends_without_end_keeps_nobody() {
    let running = Running::start();
    let mut flood = running.serve(|mut stream, _| async move {
        let mut bytes = Vec::with_capacity(64);
        while let Ok(n) = poll_fn(|cx| stream.poll_append(cx, &mut bytes)).await
            && n > 0
        {
            bytes.clear();
        }
    });
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = stop.clone();
    let sender = std::thread::spawn(move || {
        let bytes = vec![0; 1 << 20];
        while !stopped.load(Ordering::SeqCst) && flood.write_all(&bytes).is_ok() {}
    });
    let mut client = running.serve(echo);
    for _ in 0..100 {
        says(&mut client, b"and I?");
    }
    let ticks = running.ticks.load(Ordering::SeqCst);
    while running.ticks.load(Ordering::SeqCst) == ticks {
        says(&mut client, b"does it tick?");
    }
    stop.store(true, Ordering::SeqCst);
    sender.join().unwrap();
}

/// What comes in one piece is thousands of small reads, of which each turn does a bounded number.
#[test]
fn a_turn_reads_a_bounded_number_of_times() {
    const SIZE: usize = 64 << 10;
    let running = Running::start();
    let (told, hears) = std::sync::mpsc::channel();
    let mut client = running.serve(move |mut stream, _| async move {
        let (mut all, mut most) = (0, 0);
        let mut bytes = Vec::with_capacity(16);
        poll_fn(|cx| {
            let mut reads = 0;
            while all < SIZE {
                match stream.poll_append(cx, &mut bytes) {
                    Poll::Ready(read) => all += read.unwrap(),
                    Poll::Pending => return Poll::Pending,
                }
                bytes.clear();
                reads += 1;
                most = most.max(reads);
            }
            Poll::Ready(())
        })
        .await;
        told.send(most).unwrap();
    });
    client.write_all(&vec![0; SIZE]).unwrap();
    assert!(hears.recv_timeout(LIMIT).unwrap() <= stream::READS_PER_TURN);
}

#[test]
fn the_end_of_the_loop_and_an_abort_end_connections() {
    let mut running = Running::start();
    let mut first = running.serve(echo);
    says(&mut first, b"1");
    assert_eq!(running.connections.abort_all(), 1);
    assert_eq!(first.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    let mut second = running.serve(echo);
    says(&mut second, b"2");
    running.end();
    assert!(matches!(second.read(&mut [0]), Ok(0)));
    assert!(running.connections.is_empty());
}
