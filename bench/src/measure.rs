//! One measurement after the other, as the command line says.

use crate::{
    cli::{
        Common, ConnectionsArgs, EvictionArgs, FloodArgs, IncidentArgs, InstructionsArgs, LoadArgs, Measure,
        MemoryArgs, StartArgs,
    },
    connections, eviction,
    fleet::{Fleet, Ports},
    flood, incident, instructions, keys,
    load::{self, Op, Session},
    memory,
    report::{Figures, Measurement, Report},
    start,
    target::Target,
};
use anyhow::{Context as _, ensure};
use serde_json::{Map, Value, json};
use std::{collections::BTreeMap, time::Duration};

/// Measures all targets in turn, round by round, and prints the tables.
pub(crate) fn run(measure: &Measure) -> anyhow::Result<()> {
    let common = measure.common();
    ensure!(
        keys::LENGTHS.contains(&common.key_bytes),
        "--key-bytes: {}, expected {} to {}",
        common.key_bytes,
        keys::LENGTHS.start(),
        keys::LENGTHS.end()
    );
    let targets = common
        .targets
        .iter()
        .map(|text| Target::parse(text, common.protocol, common.allow_remote))
        .collect::<anyhow::Result<Vec<_>>>()?;
    let mut bench = Bench { report: Report::new(common.json.as_deref(), &common.note)?, common };
    for round in 0..common.rounds as usize {
        for target in &targets {
            bench.measure(measure, target, round).with_context(|| format!("target {}", target.name))?;
        }
    }
    println!("{}", bench.report.tables());
    ensure!(common.allow_refused || !bench.report.any_refused(), "calls were refused, see above");
    Ok(())
}

/// A time on the command line, at most an hour.
fn seconds(name: &str, value: f64) -> anyhow::Result<Duration> {
    ensure!((0.0..=3600.0).contains(&value), "--{name}: {value}, expected 0 to 3600 seconds");
    Ok(Duration::from_secs_f64(value))
}

/// A rate on the command line.
fn rate(name: &str, value: f64) -> anyhow::Result<f64> {
    ensure!((0.01..=10e6).contains(&value), "--{name}: {value}, expected 0.01 to 10000000 calls per second");
    Ok(value)
}

type Measured = (Figures, BTreeMap<String, u64>);

struct Bench<'a> {
    report: Report,
    common: &'a Common,
}

impl Bench<'_> {
    fn session(target: &Target, clients: u32, segment_gib: u64) -> anyhow::Result<Session> {
        let instance = target.start()?;
        let ports = Ports::discover(target.protocol, instance.address)?;
        let fleet = Fleet::start(ports, clients as usize, segment_gib << 30)?;
        Ok(Session::new(instance, ports, fleet))
    }

    fn add(
        &mut self,
        target: &Target,
        round: usize,
        case: String,
        (figures, refused): Measured,
        parameters: Value,
    ) -> anyhow::Result<()> {
        let mut all = Map::new();
        all.insert("protocol".into(), json!(self.common.protocol));
        all.insert("key_bytes".into(), json!(self.common.key_bytes));
        all.insert("value_bytes".into(), json!(self.common.value_bytes));
        if let Value::Object(parameters) = parameters {
            all.extend(parameters);
        }
        let target = target.name.clone();
        self.report.add(Measurement { target, round, case, figures, refused, parameters: all })
    }

    fn measure(&mut self, measure: &Measure, target: &Target, round: usize) -> anyhow::Result<()> {
        match measure {
            Measure::Load(args) => self.load(args, target, round),
            Measure::Flood(args) => self.flood(args, target, round),
            Measure::Incident(args) => self.incident(args, target, round),
            Measure::Memory(args) => self.memory(args, target, round),
            Measure::Start(args) => self.start(args, target, round),
            Measure::Eviction(args) => self.eviction(args, target, round),
            Measure::Connections(args) => self.connections(args, target, round),
            Measure::Instructions(args) => self.instructions(args, target, round),
        }
    }

    /// A closed loop over four connections, as far as the command line does not say otherwise.
    fn spec(&self, op: Op, connections: u32, time: f64) -> anyhow::Result<load::Spec> {
        Ok(load::Spec {
            op,
            connections: connections as usize,
            warmup: Duration::from_secs(1),
            duration: seconds("seconds", time)?,
            batch: 128,
            key_bytes: self.common.key_bytes,
            value_bytes: self.common.value_bytes,
            prefill: 1000,
            rate: None,
        })
    }

    fn load(&mut self, args: &LoadArgs, target: &Target, round: usize) -> anyhow::Result<()> {
        let all = clap::ValueEnum::value_variants();
        let ops: &[Op] = if args.ops.is_empty() { all } else { &args.ops };
        let rate = args.rate.map(|value| rate("rate", value)).transpose()?;
        let mut session = Bench::session(target, args.fleet.clients, args.fleet.segment_gib)?;
        for &connections in &args.connections {
            for &op in ops {
                let spec = load::Spec {
                    warmup: seconds("warmup", args.warmup)?,
                    batch: u64::from(args.batch),
                    prefill: args.prefill,
                    rate,
                    ..self.spec(op, connections, args.seconds)?
                };
                let result = load::run(&mut session, &spec).with_context(|| op.name())?;
                let case = format!("{}, {connections} connections", op.name());
                let parameters = json!({
                    "kind": "load", "op": op.name(), "connections": connections, "clients": args.fleet.clients,
                    "batch": args.batch, "seconds": args.seconds, "rate": rate, "sweep": args.sweep,
                    "keys": args.prefill * u64::from(connections),
                });
                self.add(target, round, case, result, parameters)?;
            }
        }
        Ok(())
    }

    fn flood(&mut self, args: &FloodArgs, target: &Target, round: usize) -> anyhow::Result<()> {
        ensure!((0.1..=1000.0).contains(&args.ping_rate), "--ping-rate: expected 0.1 to 1000");
        let spec = flood::Spec {
            connections: args.connections as usize,
            duration: seconds("seconds", args.seconds)?,
            batch: u64::from(args.batch),
            key_bytes: self.common.key_bytes,
            value_bytes: self.common.value_bytes,
            max_keys: args.max_keys,
            ping_rate: args.ping_rate,
            ping_main: args.ping_main,
        };
        let session = Bench::session(target, args.clients, args.segment_gib)?;
        let result = flood::run(&session, &spec)?;
        let parameters = json!({
            "kind": "flood", "connections": args.connections, "clients": args.clients, "batch": args.batch,
            "ping_main": args.ping_main,
        });
        self.add(target, round, format!("flood, {} connections", args.connections), result, parameters)
    }

    fn incident(&mut self, args: &IncidentArgs, target: &Target, round: usize) -> anyhow::Result<()> {
        let IncidentArgs { victim_keys, other_keys, .. } = *args;
        for &variant in &args.variants {
            let spec = incident::Spec {
                variant,
                victim_keys,
                other_keys,
                key_bytes: self.common.key_bytes,
                value_bytes: self.common.value_bytes,
                quiet: seconds("quiet", args.quiet)?,
                limit: seconds("limit", args.limit)?,
            };
            let instance = target.start()?;
            let ports = Ports::discover(target.protocol, instance.address)?;
            let result = incident::run(&instance, ports, &spec)?;
            let parameters = json!({
                "kind": "incident", "variant": variant.name(), "victim_keys": victim_keys, "other_keys": other_keys,
            });
            let case = format!("incident, {}, {victim_keys} of {}", variant.name(), victim_keys + other_keys);
            self.add(target, round, case, result, parameters)?;
        }
        Ok(())
    }

    fn memory(&mut self, args: &MemoryArgs, target: &Target, round: usize) -> anyhow::Result<()> {
        let Common { key_bytes, value_bytes, .. } = *self.common;
        for &count in &args.keys {
            let session = Bench::session(target, args.fleet.clients, args.fleet.segment_gib)?;
            let figures = memory::run(&session, count, key_bytes, value_bytes)?;
            let parameters = json!({ "kind": "memory", "keys": count, "clients": args.fleet.clients });
            let case = format!("memory, {count} keys");
            self.add(target, round, case, (figures, BTreeMap::new()), parameters)?;
        }
        Ok(())
    }

    fn start(&mut self, args: &StartArgs, target: &Target, round: usize) -> anyhow::Result<()> {
        let figures = start::run(target, seconds("settle", args.settle)?)?;
        self.add(target, round, "start".into(), (figures, BTreeMap::new()), json!({ "kind": "start" }))
    }

    fn eviction(&mut self, args: &EvictionArgs, target: &Target, round: usize) -> anyhow::Result<()> {
        let spec = self.spec(Op::Put, args.connections, args.seconds)?;
        let open = |gib| Bench::session(target, args.clients, gib);
        let pool =
            eviction::Pool { clients: u64::from(args.clients), full: args.full_gib, roomy: args.roomy_gib };
        let result = eviction::run(open, &spec, pool, round)?;
        let case = format!("eviction, {} connections", args.connections);
        let parameters = json!({
            "kind": "eviction", "connections": args.connections, "clients": args.clients, "full_gib": args.full_gib,
            "roomy_gib": args.roomy_gib,
        });
        self.add(target, round, case, result, parameters)
    }

    fn connections(&mut self, args: &ConnectionsArgs, target: &Target, round: usize) -> anyhow::Result<()> {
        let ConnectionsArgs { connections, busy, .. } = *args;
        ensure!(busy < connections, "--busy: {busy}, expected fewer than --connections, {connections}");
        let spec =
            load::Spec { rate: Some(rate("rate", args.rate)?), ..self.spec(Op::Get, busy, args.seconds)? };
        let mut session = Bench::session(target, args.fleet.clients, args.fleet.segment_gib)?;
        let result = connections::run(&mut session, &spec, connections as usize, round)?;
        let parameters = json!({
            "kind": "connections", "connections": connections, "busy": busy, "clients": args.fleet.clients,
            "rate": args.rate,
        });
        self.add(target, round, format!("{connections} connections, {busy} busy"), result, parameters)
    }

    fn instructions(&mut self, args: &InstructionsArgs, target: &Target, round: usize) -> anyhow::Result<()> {
        let Common { key_bytes, value_bytes, .. } = *self.common;
        for &clients in &args.clients {
            let figures = instructions::run(target, clients as usize, args.calls, key_bytes, value_bytes)?;
            let parameters = json!({ "kind": "instructions", "clients": clients, "calls": args.calls });
            let case = format!("instructions, {clients} clients");
            self.add(target, round, case, (figures, BTreeMap::new()), parameters)?;
        }
        Ok(())
    }
}
