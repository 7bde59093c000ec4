//! The address of a network interface.

use std::net::{IpAddr, Ipv6Addr};

/// The first IPv4 address of an interface, else its first IPv6 address that is not link-local.
pub(super) fn address_of(name: &str) -> Result<IpAddr, String> {
    let all = if_addrs::get_if_addrs().map_err(|e| format!("network interfaces cannot be listed: {e}"))?;
    let of_it: Vec<IpAddr> = all.iter().filter(|i| i.name == name).map(if_addrs::Interface::ip).collect();
    let chosen =
        of_it.iter().find(|ip| ip.is_ipv4()).or_else(|| of_it.iter().find(|ip| !is_link_local(**ip)));
    chosen.copied().ok_or_else(|| {
        let mut names: Vec<&str> = all.iter().map(|i| i.name.as_str()).collect();
        names.dedup();
        format!("an interface with an address, one of {}", names.join(", "))
    })
}

fn is_link_local(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(v6) if Ipv6Addr::is_unicast_link_local(&v6))
}
