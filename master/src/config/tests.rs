use super::{option::Unit, *};
use std::{collections::BTreeMap, net::IpAddr, path::Path, time::Duration};

/// A machine of the test's own: files, environment, one interface, eight cores.
#[derive(Default)]
struct Machine {
    files: BTreeMap<String, String>,
    env: BTreeMap<String, String>,
}

impl Machine {
    fn file(name: &str, text: &str) -> Machine {
        Machine { files: BTreeMap::from([(name.to_owned(), text.to_owned())]), ..Machine::default() }
    }

    fn with_env(mut self, name: &str, value: &str) -> Machine {
        self.env.insert(name.to_owned(), value.to_owned());
        self
    }

    fn load(&self, args: &[&str]) -> Result<Command, ConfigErrors> {
        let args: Vec<String> = args.iter().map(|a| (*a).to_owned()).collect();
        let surroundings = Surroundings {
            env: &|name| self.env.get(name).cloned(),
            read_file: &|path| self.files.get(path).cloned().ok_or_else(|| "no such file".to_owned()),
            interface_address: &|name| match name {
                "eth7" => Ok(IpAddr::from([10, 1, 2, 3])),
                _ => Err("an interface with an address, one of eth7".to_owned()),
            },
            cores: 8,
        };
        load(&args, &surroundings)
    }

    fn run(&self, args: &[&str]) -> Loaded {
        match self.load(args).expect("valid") {
            Command::Run(loaded) => *loaded,
            other => panic!("{other:?}"),
        }
    }

    fn fail(&self, args: &[&str]) -> Vec<String> {
        self.load(args).expect_err("not valid").0.iter().map(ToString::to_string).collect()
    }
}

fn run(args: &[&str]) -> Config {
    Machine::default().run(args).config
}

fn fail(args: &[&str]) -> Vec<String> {
    Machine::default().fail(args)
}

fn setting<'a>(loaded: &'a Loaded, name: &str) -> &'a Setting {
    loaded.effective.0.iter().find(|s| s.spec.name == name).expect("an active option")
}

#[test]
fn names_are_unique_and_every_default_is_a_value() {
    for (i, spec) in TABLE.iter().enumerate() {
        assert!(TABLE[..i].iter().all(|other| other.name != spec.name), "{} is there twice", spec.name);
        assert!(spec.name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_'));
        let _ = spec.default_value();
        if let Status::Deprecated { instead } | Status::ParameterOf(instead) = spec.status {
            assert!(TABLE.iter().any(|other| other.name == instead), "{} names {instead}", spec.name);
        }
        if !matches!(spec.status, Status::Ignored(_)) {
            assert!(!spec.help.is_empty(), "{} has no help", spec.name);
        }
    }
}

#[test]
fn the_defaults_are_the_documented_ones() {
    let config = run(&[]);
    assert_eq!((config.rpc.port, config.admin.port, config.heartbeat.port), (50051, 9003, None));
    assert_eq!(config.rpc.threads, 8);
    assert_eq!(config.rpc.advertised, "0.0.0.0:50051");
    assert_eq!(config.rpc.max_frame_bytes, 64 << 20);
    assert_eq!(config.probe.health_check_budget(), Duration::from_secs(2));
    assert!(config.ha.is_none() && config.heartbeat.keep_on_main && !config.enable_fault_injection);
    assert_eq!(format!("{:?}", config.core), format!("{:?}", crate::types::CoreOptions::default()));
}

#[test]
fn the_syntax_of_gflags() {
    for args in [
        &["--rpc_port=6000", "--enable_rpc_health_probe=false"][..],
        &["--rpc_port", "6000", "--noenable_rpc_health_probe"],
        &["-rpc_port=6000", "-enable_rpc_health_probe=no"],
        &["-rpc_port", "6000", "-noenable_rpc_health_probe"],
        &["--rpc-port=6000", "--enable-rpc-health-probe=0"],
        &["--rpc-port", "0x1770", "--noenable-rpc-health-probe"],
        &["--rpc_port=1", "--rpc_port=6000", "--enable_rpc_health_probe", "--enable_rpc_health_probe=F"],
    ] {
        let config = run(args);
        assert_eq!((config.rpc.port, config.probe.enabled), (6000, false), "{args:?}");
    }
    assert!(run(&["--enable_fault_injection", "true"]).enable_fault_injection);
    assert!(run(&["-enable_fault_injection"]).enable_fault_injection);
    assert_eq!(run(&["--", "--rpc_port=6000"]).rpc.port, 50051);
    assert_eq!(
        Machine::default().run(&["serve"]).warnings,
        ["argument `serve` is not a flag and is ignored"]
    );
}

#[test]
fn wrong_syntax_is_named() {
    assert_eq!(
        fail(&[
            "--rpc_prot=1",
            "--nometrics_port",
            "--noenable_ha=true",
            "--enable_fault_injection",
            "false",
            "--rpc_port"
        ]),
        [
            "unknown option `rpc_prot` (command line); did you mean `rpc_port`?",
            "unknown option `nometrics_port` (command line); did you mean `metrics_port`?",
            "option `enable_ha` (command line): `--noenable_ha=true` is not valid, expected --enable_ha, --noenable_ha, \
             or --enable_ha=true or false",
            "option `enable_fault_injection` (command line): `--enable_fault_injection false` is not valid, expected \
             --enable_fault_injection=false or --noenable_fault_injection (a word behind a boolean flag is not its value)",
            "option `rpc_port` (command line) has no value, expected `--rpc_port=` a whole number from 0 to 65535",
        ]
    );
    assert!(fail(&["--cluster_id", "--rpc_port=1"])[0].contains("`cluster_id` (command line) has no value"));
}

/// Two valid values of an option other than its default, as text.
fn samples(spec: &Spec) -> Option<[String; 2]> {
    let number = |text: &str| text.parse::<u64>().unwrap_or(0);
    Some(match (spec.name, spec.kind) {
        ("log_level", _) => ["debug".to_owned(), "warn".to_owned()],
        ("rpc_interface", _) => return None,
        ("wire_generation_ports", _) => ["0.3.9=6003".to_owned(), "0.3.9=6003,0.3.12=6004".to_owned()],
        ("rpc_port" | "metrics_port" | "heartbeat_rpc_port", _) => ["6001".to_owned(), "6002".to_owned()],
        (_, Kind::Bool) => {
            let default = spec.default == "true";
            [(!default).to_string(), default.to_string()]
        }
        (_, Kind::Count { .. } | Kind::Duration { .. }) => {
            [(number(spec.default) + 1).to_string(), (number(spec.default) + 2).to_string()]
        }
        (_, Kind::Bytes { .. }) => ["128Mi".to_owned(), "268435456".to_owned()],
        (_, Kind::Address) => ["10.0.0.1".to_owned(), "::1".to_owned()],
        (_, Kind::Text) => ["some-text".to_owned(), "other-text".to_owned()],
        (_, Kind::Choice(words)) => {
            let mut others = words.iter().filter(|w| **w != spec.default).map(|w| (*w).to_owned());
            [others.next()?, spec.default.to_owned()]
        }
        (_, Kind::Number { .. }) => ["0.33".to_owned(), "0.5".to_owned()],
        (_, Kind::Signed) => return None,
    })
}

#[test]
fn every_active_option_works_from_every_source_and_the_command_line_wins() {
    let ha = ["--ha_backend_type=k8s", "--ha_backend_connstring=ns/name", "--rpc_advertise_address=host"];
    let mut seen = 0;
    for spec in TABLE.iter().filter(|s| s.status == Status::Active) {
        if matches!(spec.name, "config_path" | "check_config") {
            continue;
        }
        let Some([a, b]) = samples(spec) else { continue };
        let name = spec.name;
        let others: Vec<&str> = match name {
            "enable_ha" => ha.to_vec(),
            "max_frame_bytes" => vec!["--rpc_byte_budget=1Gi"],
            _ => vec![],
        };
        let (value_a, value_b) = (spec.kind.parse(&a).expect("a"), spec.kind.parse(&b).expect("b"));
        let expect = |machine: &Machine, args: &[&str], value: &Value, source: Source| {
            let args: Vec<&str> = others.iter().chain(args).copied().collect();
            let loaded = machine.run(&args);
            let found = setting(&loaded, name);
            assert_eq!((&found.value, found.source), (value, source), "{name} from {args:?}");
        };
        let default = match name {
            "rpc_thread_num" => Value::Count(8),
            _ => spec.default_value(),
        };
        let default_source = if name == "rpc_thread_num" { Source::Derived } else { Source::Default };
        if name != "rpc_advertise_address" {
            expect(&Machine::default(), &[], &default, default_source);
        }
        let on_line = format!("--{name}={b}");
        expect(&Machine::default(), &[&on_line], &value_b, Source::CommandLine);
        for file in ["/c.json", "/c.yaml"] {
            let machine = Machine::file(file, &format!("{{\"{name}\": \"{a}\"}}"));
            expect(&machine, &["--config_path", file], &value_a, Source::File);
            expect(&machine, &["--config_path", file, &on_line], &value_b, Source::CommandLine);
            if let Some(variable) = spec.env {
                let machine = machine.with_env(variable, &b);
                expect(&machine, &["--config_path", file], &value_b, Source::Environment(variable));
                let on_line = format!("--{name}={a}");
                expect(&machine, &["--config_path", file, &on_line], &value_a, Source::CommandLine);
            }
        }
        seen += 1;
    }
    assert!(seen > 40, "{seen}");
}

#[test]
fn units_of_every_time() {
    for spec in TABLE {
        let Kind::Duration { unit, min } = spec.kind else { continue };
        let plain = if unit == Unit::Seconds { 5000 } else { 5 };
        let parse = |text: &str| spec.kind.parse(text);
        let millis = |n| Some(Value::Duration(Duration::from_millis(n)));
        assert_eq!(parse("5"), millis(plain), "{}", spec.name);
        assert_eq!(parse("5s"), millis(5000));
        assert_eq!(parse("5000ms"), millis(5000));
        assert_eq!(parse("2m"), millis(120_000));
        assert_eq!(parse("1h"), millis(3_600_000));
        for bad in ["-1", "10x", "", "s", "1.5s", "5 s", "99999999999999999999"] {
            assert_eq!(parse(bad), None, "{} `{bad}`", spec.name);
        }
        assert_eq!(parse("0").is_none(), min > 0, "{}", spec.name);
    }
    assert_eq!(Kind::Bytes { min: 0, max: u64::MAX }.parse("3KiB"), Some(Value::Count(3072)));
    assert_eq!(Kind::Bytes { min: 0, max: u64::MAX }.parse("3kb"), None);
    assert_eq!(Kind::Bytes { min: 0, max: u64::MAX }.parse("99999999Ti"), None);
}

#[test]
fn what_is_not_in_this_version_stops_the_start() {
    for spec in TABLE.iter().filter(|s| s.status == Status::DefaultOnly) {
        let name = spec.name;
        assert!(
            Machine::default().load(&[&format!("--{name}={}", spec.default)]).is_ok(),
            "{name} at its default"
        );
        let other =
            samples(spec).expect("a sample").into_iter().find(|s| s != spec.default).expect("another");
        let errors = fail(&[&format!("--{name}={other}")]);
        assert_eq!(errors.len(), 1);
        assert!(errors[0].contains("is not in this version") && errors[0].contains(name), "{}", errors[0]);
    }
    assert!(fail(&["--allocation_strategy=cxl"])[0].contains("is not in this version"));
    // What only shapes such a feature does not: the feature itself is off.
    let loaded = Machine::default().run(&["--snapshot_interval_seconds=60", "--log_dir=/var/log", "--v=1"]);
    assert_eq!(loaded.warnings.len(), 2);
    assert_eq!(loaded.config.log.filter, "debug");
    assert!(Machine::default().with_env("MC_RPC_PROTOCOL", "rdma").fail(&[])[0].contains("MC_RPC_PROTOCOL"));
}

#[test]
fn ttls_take_the_documented_precedence() {
    let ttls = |machine: &Machine, args: &[&str]| {
        let core = machine.run(args).config.core;
        (core.client_active_ttl.as_secs(), core.client_suspicion_ttl.as_secs())
    };
    let none = Machine::default();
    assert_eq!(ttls(&none, &[]), (10, 20));
    assert_eq!(ttls(&none, &["--client_ttl=7"]), (7, 7));
    assert_eq!(ttls(&none, &["--client_live_ttl_sec=7", "--client_suspicion_ttl_sec=3"]), (7, 3));
    assert_eq!(ttls(&none, &["--client_ttl=7", "--client_active_ttl_sec=8"]), (8, 8));
    let file = Machine::file("/c.yaml", "client_active_ttl_sec: 5\nclient_live_ttl_sec: 6\n");
    let c = "--config_path=/c.yaml";
    assert_eq!(ttls(&file, &[c]), (5, 5));
    assert_eq!(ttls(&file, &[c, "--client_ttl=7"]), (7, 7));
    let legacy = Machine::file("/c.yaml", "client_live_ttl_sec: 60\nclient_suspicion_ttl_sec: 9\n");
    assert_eq!(ttls(&legacy, &[c]), (60, 9));
    assert_eq!(ttls(&legacy, &[c, "--client_active_ttl_sec=4"]), (4, 9));
    assert_eq!(ttls(&legacy, &[c, "--client_suspicion_ttl_sec=2"]), (60, 2));
    let grace = |args: &[&str]| none.run(args).config.core.offline_grace.as_secs();
    assert_eq!((grace(&["--client_ttl=2"]), grace(&["--client_ttl=50"])), (40, 60));
    assert_eq!(grace(&["--client_ttl=50", "--client_offline_grace_sec=0"]), 0);
    for name in ["client_active_ttl_sec", "client_suspicion_ttl_sec", "client_ttl", "client_live_ttl_sec"] {
        assert!(fail(&[&format!("--{name}=0")])[0].contains(name));
        assert!(fail(&[&format!("--{name}=-1")])[0].contains(name));
    }
}

#[test]
fn old_names_of_port_and_threads() {
    assert_eq!(run(&["--port=7000"]).rpc.port, 7000);
    assert_eq!(run(&["--port=7000", "--rpc_port=7001"]).rpc.port, 7001);
    assert_eq!(run(&["--port=7000", "--rpc_port=0"]).rpc.port, 7000);
    assert_eq!(run(&["--max_threads=2"]).rpc.threads, 2);
    assert_eq!(run(&["--max_threads=32"]).rpc.threads, 8);
    assert_eq!(run(&["--max_threads=2", "--rpc_thread_num=5"]).rpc.threads, 5);
    let file = Machine::file("/c.json", r#"{"rpc_port": 7001, "rpc_thread_num": 3}"#);
    let config = file.run(&["--config_path=/c.json", "--port=7000", "--max_threads=2"]).config;
    assert_eq!((config.rpc.port, config.rpc.threads), (7000, 2));
}

#[test]
fn options_that_do_not_fit_together_are_all_named() {
    let errors = fail(&[
        "--put_start_release_timeout_sec=30",
        "--metrics_port=50051",
        "--heartbeat_rpc_port=50051",
        "--lease_duration_ms=3s",
        "--cluster_id=a/b",
        "--max_frame_bytes=1Gi",
        "--rpc_probe_interval_seconds=0",
        "--rpc_advertise_address=a:b:c",
    ]);
    for part in [
        "expected put_start_release_timeout_sec > put_start_discard_timeout_sec",
        "`rpc_port` = 50051 (default) and `metrics_port` = 50051 (command line) must be different ports",
        "`heartbeat_rpc_port` = 50051 (command line) and `metrics_port`",
        "`rpc_port` = 50051 (default) and `heartbeat_rpc_port`",
        "expected lease_duration_ms > lease_renew_deadline_ms >= 2 x lease_retry_period_ms",
        "`cluster_id` = a/b (command line): expected 1 to 128 of",
        "expected rpc_byte_budget >= 4/3 of max_frame_bytes",
        "option `rpc_probe_interval_seconds` (command line): `0` is not valid",
        "option `rpc_advertise_address` (command line): `a:b:c` is not valid",
    ] {
        assert!(errors.iter().any(|e| e.contains(part)), "{part} in {errors:#?}");
    }
    assert_eq!(errors.len(), 9);
    assert!(fail(&["--lease_renew_deadline_ms=1900"])[0].contains("`lease_renew_deadline_ms` = 1.9s"));
    assert!(fail(&["--log_level=a=b=c"])[0].contains("log_level"));
}

#[test]
fn high_availability_needs_a_lease_and_a_reachable_address() {
    let errors = fail(&["--enable_ha"]);
    assert_eq!(errors.len(), 3, "{errors:#?}");
    assert!(errors.iter().any(|e| e.contains("`ha_backend_type` (default): `etcd` is not in this version")));
    assert!(errors.iter().any(|e| e.contains("ha_backend_connstring")));
    assert!(errors.iter().any(|e| e.contains("`rpc_address` = 0.0.0.0 (default) is a wildcard")));

    let pod = Machine::default()
        .with_env("POD_NAME", "mc-3")
        .with_env("POD_NAMESPACE", "prod")
        .with_env("POD_UID", "u");
    let args =
        ["--enable_ha", "--ha_backend_type=k8s", "--ha_backend_connstring=prod/mc", "--rpc_address=10.0.0.5"];
    let config = pod.run(&args).config;
    assert_eq!(config.rpc.advertised, "10.0.0.5:50051");
    let ha = config.ha.expect("on");
    assert_eq!((ha.lease_namespace.as_str(), ha.lease_name.as_str()), ("prod", "mc"));
    assert_eq!((ha.lease_duration, ha.renew_deadline), (Duration::from_secs(5), Duration::from_secs(3)));
    let identity = ha.pod.expect("a pod");
    assert_eq!((identity.statefulset.as_str(), identity.max_ordinal), ("mc", 9));
    assert!(
        Machine::default().with_env("POD_NAME", "mc-3").fail(&args)[0].contains("`pod_namespace` is empty")
    );
}

#[test]
fn ports_for_one_generation() {
    let ports = |text: &str| {
        let config = run(&[&format!("--wire_generation_ports={text}")]);
        let pairs = config.rpc.generation_ports.iter().map(|(g, port)| format!("{} {port}", g.name()));
        pairs.collect::<Vec<_>>()
    };
    assert_eq!(ports(""), [""; 0]);
    assert_eq!(ports("0.3.9=50061, 0.3.12 = 50062"), ["0.3.9 50061", "0.3.12 50062"]);
    for bad in ["0.3.9", "0.3.8=50061", "0.3.9=0", "0.3.9=65536", "0.3.9=1,0.3.9=2", "0.3.9=1,0.3.11=1"] {
        let errors = fail(&[&format!("--wire_generation_ports={bad}")]);
        assert!(
            errors.len() == 1
                && errors[0].contains("`wire_generation_ports` (command line)")
                && errors[0].contains("one of 0.3.9, 0.3.11, 0.3.12, 0.3.13"),
            "{bad}: {errors:?}"
        );
    }
    assert!(fail(&["--wire_generation_ports=0.3.9=9003"])[0].contains("`metrics_port` = 9003"));
    assert_eq!(run(&["--wire_default_generation=0.3.9"]).rpc.default_generation.name(), "0.3.9");
    assert!(fail(&["--wire_default_generation=0.3.10"])[0].contains("one of 0.3.9, 0.3.11, 0.3.12, 0.3.13"));
}

#[test]
fn addresses() {
    assert_eq!(run(&["--rpc_interface=eth7"]).rpc.advertised, "10.1.2.3:50051");
    assert!(fail(&["--rpc_interface=eth8"])[0].contains("one of eth7"));
    assert_eq!(run(&["--rpc_address=[::1]"]).rpc.advertised, "[::1]:50051");
    for (given, advertised) in [
        ("mc-0.mc-pods.ns.svc", "mc-0.mc-pods.ns.svc:50051"),
        ("h:1", "h:1"),
        ("fd00::1", "[fd00::1]:50051"),
        ("[fd00::1]:9", "[fd00::1]:9"),
    ] {
        assert_eq!(run(&[&format!("--rpc_advertise_address={given}")]).rpc.advertised, advertised);
    }
    assert!(super::interface::address_of("lo").is_ok_and(|ip| ip.is_loopback()));
    assert!(super::interface::address_of("no such").is_err_and(|e| e.contains("lo")));
}

#[test]
fn files_with_faults() {
    let machine = Machine::file(
        "/c.yaml",
        "rpc_port: [1]\nmetrics_prt: 9\nmetrics_host:\nrpc_thread_num: 2.5\nrpc_address: 1.2.3\n",
    );
    let errors = machine.fail(&["--config_path=/c.yaml"]);
    assert_eq!(errors.len(), 5, "{errors:#?}");
    for part in [
        "config file `/c.yaml`: key `rpc_port` has a nested value",
        "unknown option `metrics_prt` (config file); did you mean `metrics_port`?",
        "key `metrics_host` has no value",
        "option `rpc_thread_num` (config file): `2.5` is not valid",
        "option `rpc_address` (config file): `1.2.3` is not valid, expected an IPv4 or IPv6 address",
    ] {
        assert!(errors.iter().any(|e| e.contains(part)), "{part}");
    }
    assert!(
        Machine::file("/c.json", r#"{"v":1,"v":2}"#).fail(&["--config_path=/c.json"])[0].contains("twice")
    );
    assert!(
        Machine::file("/c.toml", "").fail(&["--config_path=/c.toml"])[0].contains(".yaml, .yml or .json")
    );
    assert!(Machine::file("/c.json", "{").fail(&["--config_path=/c.json"])[0].contains("EOF"));
    assert!(Machine::file("/c.json", "[1]").fail(&["--config_path=/c.json"])[0].contains("option names"));
    assert_eq!(fail(&["--config_path=/none.yaml"]), ["config file `/none.yaml`: no such file"]);
    assert_eq!(Machine::file("/c.yaml", "").run(&["--config_path=/c.yaml"]).config.rpc.port, 50051);
}

#[test]
fn the_effective_configuration_is_a_configuration_file() {
    let args =
        ["--client_ttl=1500ms", "--rpc_port=6000", "--noenable_metric_reporting", "--max_frame_bytes=1Mi"];
    let first = Machine::default().run(&args);
    let json = first.effective.to_json().to_string();
    let second = Machine::file("/e.json", &json).run(&["--config_path=/e.json"]);
    assert_eq!(format!("{:?}", first.config), format!("{:?}", second.config));
    assert_eq!(first.effective.to_json()["client_suspicion_ttl_sec"], "1500ms");
    assert_eq!(first.effective.sources()["rpc_port"], "command line");
    assert!(first.effective.lines().any(|line| line == "rpc_port = 6000 (command line)"));
    assert!(matches!(Machine::default().load(&["--check_config"]), Ok(Command::Check(_))));
}

#[test]
fn help_teaches_every_option() {
    let Ok(Command::Print(help)) = Machine::default().load(&["--rpc_port=bad", "--help"]) else { panic!() };
    for spec in TABLE {
        assert!(help.contains(spec.name), "{}", spec.name);
    }
    assert!(help.lines().all(|line| line.len() <= 130), "{:?}", help.lines().find(|line| line.len() > 130));
}

#[test]
fn docs_are_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/flags.md");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, markdown()).expect("written");
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(found == markdown(), "docs/flags.md is old: run the tests with UPDATE_DOCS=1");
}

#[test]
fn where_the_entries_of_lost_clients_are_removed() {
    let clean_up = "--enable_metadata_cleanup_on_timeout";
    let server = |machine: &Machine, args: &[&str]| {
        let loaded = machine.run(args);
        let server = loaded.config.metadata_elsewhere.map(|elsewhere| elsewhere.server.to_string());
        (server, loaded.warnings.iter().any(|warning| warning.contains("metadata_server_url")))
    };
    let url = "http://h:1/metadata";
    let variable = Machine::default().with_env("MOONCAKE_TE_META_DATA_SERVER", url);
    assert_eq!(server(&variable, &[clean_up]), (Some(url.to_owned()), false));
    assert_eq!(server(&variable, &[]), (None, false), "nothing is to be removed");
    assert_eq!(server(&variable, &[clean_up, "--enable_http_metadata_server"]), (None, false), "its own");
    let other = "--metadata_server_url=http://[::1]:2/m";
    assert_eq!(server(&variable, &[clean_up, other]).0.as_deref(), Some("http://[::1]:2/m"));

    let file = format!("{{\"metadata_server\": \"{url}\"}}");
    let of_clients =
        Machine::file("/mooncake.json", &file).with_env("MOONCAKE_CONFIG_PATH", "/mooncake.json");
    assert_eq!(server(&of_clients, &[clean_up]), (Some(url.to_owned()), false));

    // What clients use may be no such server; what the master is told must be one.
    let peers = Machine::default().with_env("MOONCAKE_TE_META_DATA_SERVER", "P2PHANDSHAKE");
    for machine in [&peers, &Machine::default()] {
        assert_eq!(server(machine, &[clean_up]), (None, true));
    }
    for bad in ["etcd://h:1", "https://h:1/metadata", "h:1", "http:///metadata"] {
        let errors = fail(&[clean_up, &format!("--metadata_server_url={bad}")]);
        assert!(errors.len() == 1 && errors[0].contains("metadata_server_url"), "{bad}: {errors:?}");
    }
}
