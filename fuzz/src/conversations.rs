//! Clients that say anything, on several connections from several addresses, to one master that has to find out their
//! generations.

use super::{
    generations::{Dialect, Generations},
    native::{
        frame::{Limits, REQUEST_HEADER, RequestHeader, ResponseHeader},
        generation::{Function, Generation},
        request,
    },
};
use crate::{
    admin::{Metrics, PerGeneration},
    clock::Instant,
};
use bytes::BytesMut;
use std::{net::Ipv4Addr, sync::Arc, time::Duration};

/// Connections that can be open at the same time.
const PLACES: usize = 4;
/// A guess is waited for no longer than this.
const WAIT: Duration = Duration::from_millis(100);

/// The master's side: what it knows, and its connections.
pub struct Conversations {
    metrics: Arc<Metrics>,
    shared: Arc<Generations>,
    now: Instant,
    open: [Option<Connection>; PLACES],
    out: BytesMut,
}

struct Connection {
    dialect: Dialect,
    fixed: Option<&'static Generation>,
}

/// What happens next, as one byte of the input says it.
struct Step(u8);

impl Step {
    fn place(&self) -> usize {
        usize::from(self.0) % PLACES
    }

    fn address(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 0, 0, self.0 >> 2 & 3)
    }

    fn kind(&self) -> u8 {
        self.0 >> 4
    }
}

impl Conversations {
    /// A master that has just started; the byte chooses what it takes clients for of which it knows nothing.
    pub fn new(default: u8) -> Conversations {
        let all = Generation::all();
        let metrics = Arc::<Metrics>::default();
        let shared = Generations::new(&all[usize::from(default) % all.len()], metrics.clone());
        let now = Instant::from_nanos(1_000_000_000);
        Conversations { metrics, shared, now, open: [const { None }; PLACES], out: BytesMut::new() }
    }

    /// Steps of one byte; behind one that is a call, the call's frame.
    pub fn run(mut self, mut input: &[u8]) {
        while let Some((step, rest)) = input.split_first() {
            let step = Step(*step);
            input = rest;
            match step.kind() {
                15 => self.advance(Duration::from_secs(6)),
                14 => self.advance(Duration::from_millis(60)),
                13 => self.close(&step),
                12 => {
                    let all = Generation::all();
                    let fixed = &all[usize::from(step.0 >> 2) % all.len()];
                    self.connect(&step, Some(fixed));
                }
                kind => {
                    let Some(rest) = self.call(&step, input, kind < 10) else { break };
                    input = rest;
                }
            }
            self.count();
        }
        self.open = [const { None }; PLACES];
        let wire = self.metrics.wire();
        assert_eq!((total(&wire.connections), total(&wire.clients)), (0, 0));
    }

    fn advance(&mut self, by: Duration) {
        self.now = self.now.saturating_add(by);
    }

    fn connect(&mut self, step: &Step, fixed: Option<&'static Generation>) {
        let dialect = Dialect::new(self.shared.clone(), step.address().into(), fixed);
        self.open[step.place()] = Some(Connection { dialect, fixed });
    }

    fn close(&mut self, step: &Step) {
        if let Some(mut connection) = self.open[step.place()].take() {
            connection.dialect.closed(self.now);
        }
    }

    /// One call and its answer, which leaves at once or stays; what is behind it in the input.
    fn call<'i>(&mut self, step: &Step, input: &'i [u8], leaves: bool) -> Option<&'i [u8]> {
        let limits = Limits { body: 1 << 20, attachment: 1 << 10 };
        let header = RequestHeader::parse(input, &limits).ok().flatten()?;
        let behind = &input[REQUEST_HEADER..];
        let body = behind.get(..header.body as usize)?;
        let rest = behind.get(body.len() + header.attachment as usize..)?;
        if self.open[step.place()].is_none() {
            self.connect(step, None);
        }
        let connection = self.open[step.place()].as_mut()?;
        let call = connection.dialect.call(&header, body, || self.now);
        let call = call.unwrap_or_else(|| {
            self.now = self.now.saturating_add(WAIT);
            connection.dialect.call(&header, body, || self.now).expect("nobody waits for ever")
        });
        let Some(rpc) = call.rpc else { return Some(rest) };
        assert_eq!(rpc.function_id(), header.function);
        let head = body.first_chunk().map_or(0, |head| u32::from_le_bytes(*head));
        let known = Function::of(header.function).expect("there is an Rpc of it");
        if connection.fixed.is_none() && !known.senders(head).is_empty() {
            assert!(rpc.accepts_head(head), "{:?} is taken for another generation's", rpc.method());
        }
        self.out.clear();
        match request::decode(rpc, body) {
            Ok(request) => {
                assert!(!format!("{request:?}").is_empty());
                let answer = ResponseHeader { error: 0, seq: header.seq, body: 0, attachment: 0 };
                self.out.extend_from_slice(&answer.to_bytes());
            }
            Err(error) => error.answer(&mut self.out, header.seq),
        }
        connection.dialect.answered(call.guess, &self.out);
        if leaves {
            connection.dialect.all_sent(|| self.now);
        }
        Some(rest)
    }

    /// What the gauges say is what there is.
    fn count(&self) {
        let wire = self.metrics.wire();
        let open = self.open.iter().flatten().count() as u64;
        assert_eq!(total(&wire.connections), open);
        assert!(total(&wire.clients) <= open);
    }
}

fn total(gauge: &PerGeneration) -> u64 {
    Generation::all().iter().map(Some).chain([None]).map(|generation| gauge.get(generation)).sum()
}
