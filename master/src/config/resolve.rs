//! From the layers (command line, environment, file, defaults) to one value for each option.

use super::{
    Loaded, Surroundings,
    cmdline::CommandLine,
    errors::{ConfigError, ConfigErrors, Source},
    file,
    option::{Spec, Status},
    table::{self, TABLE},
    typed,
    value::Value,
};
use std::{collections::HashMap, time::Duration};

/// One option of the effective configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct Setting {
    /// Its row.
    pub spec: &'static Spec,
    /// What holds.
    pub value: Value,
    /// Why.
    pub source: Source,
}

/// The effective configuration: every option of this version that has an effect, in the order of the table.
#[derive(Debug, Clone, PartialEq)]
pub struct Effective(pub Vec<Setting>);

impl Effective {
    /// One flat JSON object; as a configuration file it gives this same configuration again.
    pub fn to_json(&self) -> serde_json::Value {
        let pairs = self.0.iter().map(|s| (s.spec.name.to_owned(), s.value.to_json(s.spec.kind)));
        serde_json::Value::Object(pairs.collect())
    }

    /// Where each value came from that is not its default, by option name.
    pub fn sources(&self) -> serde_json::Value {
        let set = self.0.iter().filter(|s| s.source != Source::Default);
        serde_json::Value::Object(
            set.map(|s| (s.spec.name.to_owned(), s.source.to_string().into())).collect(),
        )
    }

    /// One line for each option, `name = value (source)`, to be printed at start.
    pub fn lines(&self) -> impl Iterator<Item = String> + '_ {
        self.0.iter().map(|s| {
            let value = match &s.value {
                Value::Text(text) => format!("{text:?}"),
                other => other.to_string(),
            };
            format!("{} = {value} ({})", s.spec.name, s.source)
        })
    }
}

/// The values of one source.
#[derive(Debug)]
struct Layer {
    values: HashMap<&'static str, (Value, Source)>,
}

/// All layers, the strongest first, and what was found wrong so far.
#[derive(Debug)]
pub(super) struct Layers {
    /// Command line, environment, file.
    sources: Vec<Layer>,
    pub(super) errors: Vec<ConfigError>,
    pub(super) warnings: Vec<String>,
}

impl Layers {
    fn read(line: CommandLine, surroundings: &Surroundings<'_>) -> Layers {
        let mut all = Layers { sources: Vec::new(), errors: line.errors, warnings: line.warnings };
        let mut from_line = Layer { values: HashMap::new() };
        for (spec, text) in line.given {
            all.insert(&mut from_line, spec, &text, Source::CommandLine);
        }
        let mut from_env = Layer { values: HashMap::new() };
        for spec in TABLE {
            if let Some((name, text)) = spec.env.and_then(|name| Some((name, (surroundings.env)(name)?))) {
                all.insert(&mut from_env, spec, &text, Source::Environment(name));
            }
        }
        let mut from_file = Layer { values: HashMap::new() };
        if let Some((Value::Text(path), _)) =
            from_line.values.get("config_path").filter(|(v, _)| !is_empty(v))
        {
            all.read_file(path, &mut from_file, surroundings);
        }
        all.sources = vec![from_line, from_env, from_file];
        all
    }

    fn read_file(&mut self, path: &str, layer: &mut Layer, surroundings: &Surroundings<'_>) {
        let text = match (surroundings.read_file)(path) {
            Ok(text) => text,
            Err(problem) => {
                return self.errors.push(ConfigError::File { path: path.to_owned(), problem });
            }
        };
        let (options, problems) = file::parse(path, &text);
        for problem in problems {
            self.errors.push(ConfigError::File { path: path.to_owned(), problem });
        }
        for (key, text) in options {
            match table::find(&key) {
                // Both would be void in a file; an effective configuration that is used as one names them.
                Some(spec) if matches!(spec.name, "config_path" | "check_config") => {}
                Some(spec) => self.insert(layer, spec, &text, Source::File),
                None => self.errors.push(ConfigError::Unknown {
                    nearest: table::nearest(&key),
                    name: key,
                    from: Source::File,
                }),
            }
        }
    }

    /// Takes one value up. A later one of the same source replaces it, as in gflags.
    fn insert(&mut self, layer: &mut Layer, spec: &'static Spec, text: &str, source: Source) {
        let Some(value) = spec.kind.parse(text) else {
            self.errors.push(ConfigError::BadValue {
                option: spec.name,
                from: source,
                value: text.to_owned(),
                expected: spec.kind.expected(),
            });
            return;
        };
        if spec.status == Status::DefaultOnly && value != spec.default_value() {
            self.errors.push(ConfigError::NotInThisVersion {
                option: spec.name,
                from: source,
                value: text.to_owned(),
                accepted: spec.default.to_owned(),
            });
            return;
        }
        layer.values.insert(spec.name, (value, source));
    }

    /// The strongest value of an option under its own name or an old one, and whether one was given at all. Within a
    /// source the own name wins. `unset` is a value that stands for "not given".
    fn pick(
        &mut self,
        name: &'static str,
        old: &[&'static str],
        unset: Option<&Value>,
    ) -> Option<(&'static str, Value, Source)> {
        for layer in &self.sources {
            let mut names = std::iter::once(&name).chain(old).filter_map(|n| {
                let (value, source) = layer.values.get(n)?;
                (Some(value) != unset).then_some((*n, value, *source))
            });
            let Some((chosen, value, source)) = names.next() else { continue };
            if let Some((other, ..)) = names.next() {
                self.warnings
                    .push(format!("`{chosen}` and `{other}` are both given ({source}); `{chosen}` holds"));
            }
            return Some((chosen, value.clone(), source));
        }
        None
    }
}

fn is_empty(value: &Value) -> bool {
    matches!(value, Value::Text(text) if text.is_empty())
}

/// One value for each option.
#[derive(Debug)]
pub(super) struct Resolved(HashMap<&'static str, (Value, Source)>);

impl Resolved {
    /// Whether anybody set the option.
    pub(super) fn is_given(&self, name: &str) -> bool {
        self.source(name) != Source::Default
    }

    pub(super) fn source(&self, name: &str) -> Source {
        self.0[name].1
    }

    pub(super) fn set(&mut self, name: &'static str, value: Value, source: Source) {
        self.0.insert(name, (value, source));
    }

    /// The value of a row of the table. The typed readers are total because a row's kind fixes its value's variant; the
    /// test that loads the defaults calls every one of them.
    pub(super) fn value(&self, name: &str) -> &Value {
        &self.0[name].0
    }
}

/// Layers → values → typed configuration.
pub(super) fn resolve(line: CommandLine, surroundings: &Surroundings<'_>) -> Result<Loaded, ConfigErrors> {
    let mut layers = Layers::read(line, surroundings);
    let mut resolved = Resolved(HashMap::new());
    let zero = Value::Count(0);
    for spec in TABLE {
        let old: Vec<&'static str> = TABLE
            .iter()
            .filter(|o| o.status == (Status::Deprecated { instead: spec.name }) && o.name != "max_threads")
            .map(|o| o.name)
            .collect();
        let unset = matches!(spec.name, "rpc_port" | "rpc_thread_num").then_some(&zero);
        let (value, source) = match layers.pick(spec.name, &old, unset) {
            Some((name, value, source)) => {
                note(&mut layers.warnings, spec, name, source);
                (value, source)
            }
            None => (spec.default_value(), Source::Default),
        };
        resolved.set(spec.name, value, source);
    }
    data_threads(&mut layers, &mut resolved, surroundings.cores);
    // B11: without a suspicion TTL the active one holds for both, if somebody set that.
    if !resolved.is_given("client_suspicion_ttl_sec") && resolved.is_given("client_active_ttl_sec") {
        let active = resolved.value("client_active_ttl_sec").clone();
        resolved.set("client_suspicion_ttl_sec", active, Source::Derived);
    }
    offline_grace(&mut resolved);
    log_level(&mut resolved);
    if (surroundings.env)("MC_RPC_PROTOCOL").is_some_and(|p| p != "tcp") {
        layers.errors.push(ConfigError::Conflict(
            "environment variable MC_RPC_PROTOCOL: only `tcp` is in this version".to_owned(),
        ));
    }
    let config = typed::build(&mut resolved, &mut layers, surroundings);
    if !layers.errors.is_empty() {
        return Err(ConfigErrors(layers.errors));
    }
    let shown =
        TABLE.iter().filter(|spec| matches!(spec.status, Status::Active) && spec.name != "check_config");
    let effective = Effective(
        shown
            .map(|spec| {
                let (value, source) = resolved.0[spec.name].clone();
                Setting { spec, value, source }
            })
            .collect(),
    );
    Ok(Loaded { config, effective, warnings: layers.warnings })
}

/// What a given option should be told about.
fn note(warnings: &mut Vec<String>, spec: &Spec, chosen: &str, source: Source) {
    match spec.status {
        _ if chosen != spec.name => {
            warnings.push(format!("`{chosen}` ({source}) is deprecated, use `{}`", spec.name));
        }
        Status::ParameterOf(switch) => {
            warnings.push(format!("`{chosen}` ({source}) has no effect while `{switch}` is off"));
        }
        Status::Ignored(why) => warnings.push(format!("`{chosen}` ({source}) has no effect: {why}")),
        Status::Active | Status::Deprecated { .. } | Status::DefaultOnly => {}
    }
}

/// `rpc_thread_num`, else at most `max_threads` of the cores; in each source the new name comes first.
fn data_threads(layers: &mut Layers, resolved: &mut Resolved, cores: usize) {
    let zero = Value::Count(0);
    let from_cap = layers.sources.iter().find_map(|layer| {
        let exact = layer.values.get("rpc_thread_num").filter(|(value, _)| *value != zero);
        let cap = layer.values.get("max_threads");
        (exact.is_some() || cap.is_some()).then_some((exact.is_some(), cap.cloned()))
    });
    match from_cap {
        Some((false, Some((Value::Count(cap), source)))) => {
            layers.warnings.push(format!("`max_threads` ({source}) is deprecated, use `rpc_thread_num`"));
            resolved.set("rpc_thread_num", Value::Count(cap.min(cores as u64)), Source::Derived);
        }
        Some((true, _)) => {}
        _ => resolved.set("rpc_thread_num", Value::Count(cores.clamp(1, 16) as u64), Source::Derived),
    }
}

/// A client's RPC may take 30 s to time out, and nothing may be offline before it had a chance to call again (design §5).
fn offline_grace(resolved: &mut Resolved) {
    const CLIENT_RPC: Duration = Duration::from_secs(30);
    const MARGIN: Duration = Duration::from_secs(10);
    if resolved.is_given("client_offline_grace_sec") {
        return;
    }
    let ttls = ["client_active_ttl_sec", "client_suspicion_ttl_sec"].map(|name| resolved.value(name).clone());
    let mut longest = CLIENT_RPC;
    for ttl in ttls {
        if let Value::Duration(ttl) = ttl {
            longest = longest.max(ttl);
        }
    }
    if longest > CLIENT_RPC {
        let grace = Value::Duration(longest + MARGIN);
        resolved.set("client_offline_grace_sec", grace, Source::Derived);
    }
}

/// glog's severity and verbosity, where `log_level` says nothing.
fn log_level(resolved: &mut Resolved) {
    if resolved.is_given("log_level") {
        return;
    }
    let level = match (resolved.value("v"), resolved.value("minloglevel")) {
        (Value::Signed(2..), _) => "trace",
        (Value::Signed(1), _) => "debug",
        (_, Value::Count(1)) => "warn",
        (_, Value::Count(2..)) => "error",
        _ => return,
    };
    resolved.set("log_level", Value::Text(level.to_owned()), Source::Derived);
}
