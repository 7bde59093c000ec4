//! What a lost client has left with an HTTP metadata server that is not this master's.

use crate::support::{Beating, Way, endpoint, id, mount, native, wait_liveness};
use mooncake_tests::{
    MasterBuilder,
    master::{free_ports, http},
    wait_for,
};
use std::net::Ipv4Addr;

#[test]
fn the_entries_of_a_lost_client_are_removed_elsewhere_and_those_of_others_stay() {
    let [port] = free_ports();
    // The other server is that of another master, since ours is one that can be had.
    let _elsewhere = MasterBuilder::default()
        .arg("--enable_http_metadata_server")
        .arg("--http_metadata_server_host=127.0.0.1")
        .arg(format!("--http_metadata_server_port={port}"))
        .start();
    let ask = |method: &str, kind: &str, n: u64| {
        let path = format!("/metadata?key=mooncake%2Fblue%2F{kind}%2F{}", endpoint(n));
        http((Ipv4Addr::LOCALHOST, port).into(), method, &path).0
    };
    let master = MasterBuilder::default()
        .arg("--client_active_ttl_sec=5")
        .arg("--client_suspicion_ttl_sec=1")
        .arg("--client_offline_grace_sec=0")
        .arg("--enable_metadata_cleanup_on_timeout")
        .env("MC_METADATA_CLUSTER_ID", "blue")
        .env("MOONCAKE_TE_META_DATA_SERVER", format!("http://127.0.0.1:{port}/metadata"))
        .start();
    let mut client = native(&master);
    for n in [0, 1] {
        for kind in ["ram", "rpc_meta"] {
            assert_eq!(ask("PUT", kind, n), 200);
        }
        mount(&mut client, n);
    }
    let _lives = Beating::start(&master, 0, Way::Patient);
    wait_liveness(&master, "offline_transitions_total", 1, 30);
    wait_for("its entries are gone", 15, || {
        (["ram", "rpc_meta"].map(|kind| ask("GET", kind, 1)) == [404, 404]).then_some(())
    });
    assert_eq!(["ram", "rpc_meta"].map(|kind| ask("GET", kind, 0)), [200, 200]);
    assert_eq!(client.ping(id(0)).expect("an answer"), Ok((0, true)));
}
