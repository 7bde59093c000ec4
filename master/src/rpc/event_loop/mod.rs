//! The loop of a data thread: it waits for sockets with epoll and runs the tasks that own them.
//!
//! It is our own because of what it saves for a call, of which most is the kernel's: a receive, a send and a share of a
//! wait (design §3; measured in `docs/performance.md`). What has come is told to its task at once, without a queue, a
//! lock or a clock in between. Otherwise it is as tasks expect it: they are futures, are woken from any thread, and sleep
//! by tokio's timers.

mod bell;
mod stream;
mod tasks;
#[cfg(test)]
mod tests;
mod timers;

pub(super) use stream::LoopStream;
pub(super) use tasks::{Spawner, Tasks};
pub(super) use timers::{TimerHandle, Timers};

use bell::Bell;
use rustix::{
    buffer::spare_capacity,
    event::epoll::{self, Event, EventData, EventFlags},
    io::Errno,
    time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    },
};
use std::{
    io,
    os::fd::OwnedFd,
    sync::{
        Arc,
        mpsc::{self, TryRecvError},
    },
    time::Duration,
};

/// Events that are taken from the kernel at once.
const EVENTS: usize = 256;
/// Rounds of woken tasks before the network is asked again: a connection, the calls that it began, and it again.
const ROUNDS: usize = 2;
/// Events that belong to no task.
const BELL: u64 = u64::MAX;
const TICK: u64 = u64::MAX - 1;
const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// Hands a loop something from another thread. When it is dropped the loop ends.
pub(super) struct Inlet<T> {
    /// `None` only while it is being dropped.
    messages: Option<mpsc::Sender<T>>,
    bell: Arc<Bell>,
}

impl<T> Inlet<T> {
    /// False when the loop has ended.
    pub(super) fn send(&self, message: T) -> bool {
        let sent = self.messages.as_ref().is_some_and(|messages| messages.send(message).is_ok());
        self.bell.ring();
        sent
    }
}

impl<T> Drop for Inlet<T> {
    fn drop(&mut self) {
        self.messages = None;
        self.bell.ring();
    }
}

/// What a loop does besides its tasks.
pub(super) trait Duty<T> {
    /// Something was handed in.
    fn take(&mut self, message: T, tasks: &mut Tasks);
    /// A tick is due. Missed ones come as one.
    fn tick(&mut self);
}

/// A loop that does not run yet. It is [run](EventLoop::run) by the thread that is to own its tasks.
pub(super) struct EventLoop<T> {
    epoll: Arc<OwnedFd>,
    bell: Arc<Bell>,
    timer: OwnedFd,
    messages: mpsc::Receiver<T>,
}

impl<T> EventLoop<T> {
    /// A loop that ticks so often.
    pub(super) fn new(tick: Duration) -> io::Result<(EventLoop<T>, Inlet<T>)> {
        let epoll = Arc::new(epoll::create(epoll::CreateFlags::CLOEXEC)?);
        let bell = Arc::new(Bell::new()?);
        epoll::add(&*epoll, &*bell, EventData::new_u64(BELL), EventFlags::IN)?;
        // By a descriptor: a time-out of the wait would cost the kernel a timer for every single call.
        let timer =
            timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        let tick = Timespec { tv_sec: tick.as_secs() as i64, tv_nsec: i64::from(tick.subsec_nanos()) };
        let every = Itimerspec { it_interval: tick, it_value: tick };
        timerfd_settime(&timer, TimerfdTimerFlags::empty(), &every)?;
        epoll::add(&*epoll, &timer, EventData::new_u64(TICK), EventFlags::IN)?;
        let (sender, messages) = mpsc::channel();
        let inlet = Inlet { messages: Some(sender), bell: bell.clone() };
        Ok((EventLoop { epoll, bell, timer, messages }, inlet))
    }

    /// Runs until the inlet is dropped; then every task is dropped.
    ///
    /// # Errors
    /// When the kernel does not let it wait.
    pub(super) fn run(self, timers: &TimerHandle, duty: &mut impl Duty<T>) -> io::Result<()> {
        let _timers = timers.enter();
        let EventLoop { epoll, bell, timer, messages } = self;
        let mut tasks = Tasks::new(epoll.clone(), bell.clone());
        let mut events: Vec<Event> = Vec::with_capacity(EVENTS);
        loop {
            let timeout = (!bell.may_sleep()).then_some(&AT_ONCE);
            let waited = epoll::wait(&*epoll, spare_capacity(&mut events), timeout);
            bell.awake();
            match waited {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            for Event { flags, data } in events.drain(..) {
                match data.u64() {
                    BELL => bell.silence(),
                    TICK => {
                        let _ = rustix::io::read(&timer, &mut [0; 8]);
                        duty.tick();
                    }
                    task => tasks.told(task as usize, flags),
                }
            }
            for _ in 0..ROUNDS {
                if !bell.look() {
                    break;
                }
                loop {
                    match messages.try_recv() {
                        Ok(message) => duty.take(message, &mut tasks),
                        Err(TryRecvError::Empty) => break,
                        Err(TryRecvError::Disconnected) => return Ok(()),
                    }
                }
                tasks.run_woken();
            }
        }
    }
}
