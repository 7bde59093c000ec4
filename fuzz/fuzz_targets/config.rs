//! The configuration: command line, file and environment to a valid configuration or to refusals that say what to change.
//!
//! Three parts with a zero byte between them: arguments, one a line; the file, whose first byte tells YAML from JSON; the
//! environment, one NAME=value a line.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mooncake_fuzz::config::{Command, Config, ConfigError, ConfigErrors, Loaded, Surroundings, TABLE, load};
use std::net::{IpAddr, Ipv4Addr};

fuzz_target!(|input: &[u8]| {
    let mut parts = input.splitn(3, |byte| *byte == 0);
    let mut part = || parts.next().unwrap_or_default();
    let (arguments, file, environment) = (part(), part(), part());
    let mut args: Vec<String> = String::from_utf8_lossy(arguments).lines().map(str::to_owned).collect();
    let file = file.split_first().map(|(kind, text)| {
        let path = if kind % 2 == 0 { "/c.json" } else { "/c.yaml" };
        args.insert(0, format!("--config_path={path}"));
        text
    });
    let environment = String::from_utf8_lossy(environment);
    let variable = |name: &str| {
        let mut all = environment.lines().filter_map(|line| line.split_once('='));
        all.find(|(key, value)| *key == name && !value.is_empty()).map(|(_, value)| value.to_owned())
    };
    let text = |_: &str| {
        let text = file.ok_or("no such file")?;
        String::from_utf8(text.to_vec()).map_err(|e| e.to_string())
    };
    match load(&args, &surroundings(&variable, &text)) {
        Ok(Command::Run(loaded) | Command::Check(loaded)) => is_a_file_of_its_own(&loaded),
        Ok(Command::Print(text)) => assert!(!text.is_empty()),
        Err(errors) => names_what_is_wrong(&errors),
    }
});

fn surroundings<'a>(
    env: &'a dyn Fn(&str) -> Option<String>,
    read_file: &'a dyn Fn(&str) -> Result<String, String>,
) -> Surroundings<'a> {
    let interface_address: &dyn Fn(&str) -> Result<IpAddr, String> = &|name| match name {
        "eth7" => Ok(Ipv4Addr::new(10, 1, 2, 3).into()),
        _ => Err("eth7".to_owned()),
    };
    Surroundings { env, read_file, interface_address, cores: 8 }
}

/// The effective configuration, as a file, gives itself.
fn is_a_file_of_its_own(loaded: &Loaded) {
    let json = loaded.effective.to_json();
    let text = json.to_string();
    let again = load(&["--config_path=/e.json".to_owned()], &surroundings(&|_| None, &|_| Ok(text.clone())));
    match again {
        Ok(Command::Run(again)) => {
            // All but the path of the file itself.
            let others = |json: serde_json::Value| {
                let mut json = json;
                json.as_object_mut().map(|options| options.remove("config_path"));
                json
            };
            assert_eq!(others(again.effective.to_json()), others(json));
            assert_eq!(again.config.rpc, loaded.config.rpc);
            assert_eq!(all_but_rpc(&again.config), all_but_rpc(&loaded.config));
        }
        other => panic!("{other:?} from {json}"),
    }
}

/// As text. The RPC server's part would be long, since it shows the type tables of generations.
fn all_but_rpc(config: &Config) -> String {
    let Config {
        cluster_id,
        rpc: _,
        heartbeat,
        admin,
        probe,
        ha,
        storage,
        metadata,
        metadata_elsewhere,
        core,
        log,
        termination_log,
        enable_fault_injection,
    } = config;
    let servers = (heartbeat, admin, probe, metadata, metadata_elsewhere);
    let rest = (cluster_id, ha, storage, core, log, termination_log, enable_fault_injection);
    format!("{servers:?} {rest:?}")
}

fn names_what_is_wrong(errors: &ConfigErrors) {
    assert!(!errors.0.is_empty());
    let is_option = |name: &str| TABLE.iter().any(|spec| spec.name == name);
    let text = errors.to_string();
    for error in &errors.0 {
        let said = error.to_string();
        assert!(text.contains(&said));
        let names_it = match error {
            ConfigError::Unknown { name, nearest, .. } => said.contains(name) && is_option(nearest),
            ConfigError::BadValue { option, .. }
            | ConfigError::NoValue { option, .. }
            | ConfigError::NotInThisVersion { option, .. } => is_option(option) && said.contains(option),
            ConfigError::File { path, .. } => said.contains(path),
            ConfigError::Conflict(_) => {
                said.contains("MC_RPC_PROTOCOL") || TABLE.iter().any(|spec| said.contains(spec.name))
            }
        };
        assert!(names_it, "{said}");
    }
}
