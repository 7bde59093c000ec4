//! The HTTP metadata server, and where lost clients' entries are removed.

use super::Resolved;
use crate::config::{
    Surroundings,
    errors::{ConfigError, Source},
    resolve::Layers,
    value::Value,
};
use http::Uri;
use std::net::IpAddr;

const CLEAN_UP: &str = "enable_metadata_cleanup_on_timeout";
const URL: &str = "metadata_server_url";

/// The HTTP metadata server of transfer engines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetadataConfig {
    /// Address to bind.
    pub host: IpAddr,
    /// Port to bind.
    pub port: u16,
    /// Whether the entries of a client go when it goes offline.
    pub clean_up: bool,
    /// `MC_METADATA_CLUSTER_ID` of the clients; part of their keys.
    pub cluster: String,
}

/// An HTTP metadata server that another process is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteMetadataConfig {
    /// `http://host:port/metadata`.
    pub server: Uri,
    /// `metadata_cluster_id`, a part of the keys.
    pub cluster: String,
}

/// The server of this process.
pub(super) fn own(r: &Resolved) -> Option<MetadataConfig> {
    r.flag("enable_http_metadata_server").then(|| MetadataConfig {
        host: r.address("http_metadata_server_host"),
        port: r.port("http_metadata_server_port"),
        clean_up: r.flag(CLEAN_UP),
        cluster: r.text("metadata_cluster_id").to_owned(),
    })
}

/// One that runs elsewhere, if entries are to be removed there. What only the environment says is meant for clients in the
/// first place, which may find each other in other ways: that is no mistake of the master's configuration.
pub(super) fn elsewhere(
    r: &mut Resolved,
    layers: &mut Layers,
    surroundings: &Surroundings<'_>,
) -> Option<RemoteMetadataConfig> {
    if !r.flag(CLEAN_UP) || r.flag("enable_http_metadata_server") {
        return None;
    }
    if r.text(URL).is_empty()
        && let Some(url) = of_the_clients(surroundings)
    {
        r.set(URL, Value::Text(url), Source::Derived);
    }
    let given = r.text(URL).to_owned();
    if let Some(server) = http_url(&given) {
        return Some(RemoteMetadataConfig { server, cluster: r.text("metadata_cluster_id").to_owned() });
    }
    if matches!(r.source(URL), Source::CommandLine | Source::File) && !given.is_empty() {
        layers.errors.push(ConfigError::BadValue {
            option: URL,
            from: r.source(URL),
            value: given,
            expected: "http://host:port/metadata".to_owned(),
        });
        return None;
    }
    layers.warnings.push(format!(
        "`{CLEAN_UP}` has no effect: `enable_http_metadata_server` is off, and `{URL}` ({}) is no http:// URL: {given:?}",
        r.source(URL)
    ));
    // It has no effect, so the effective configuration does not have it.
    r.set(URL, Value::Text(String::new()), Source::Derived);
    None
}

/// What the clients' own configuration file says, if there is one.
fn of_the_clients(surroundings: &Surroundings<'_>) -> Option<String> {
    let text = (surroundings.read_file)(&(surroundings.env)("MOONCAKE_CONFIG_PATH")?).ok()?;
    let file: serde_json::Value = serde_json::from_str(&text).ok()?;
    file["metadata_server"].as_str().map(str::to_owned)
}

fn http_url(given: &str) -> Option<Uri> {
    let uri: Uri = given.parse().ok()?;
    (uri.scheme_str() == Some("http") && uri.host().is_some_and(|host| !host.is_empty())).then_some(uri)
}
