//! Under which keys transfer engines keep what they say about a segment.

/// What of a segment there is an entry for.
const KINDS: [&str; 2] = ["ram/", "rpc_meta/"];

/// What the keys of one cluster begin with: `mooncake/`, or `mooncake/<cluster>/` if the clients have
/// `MC_METADATA_CLUSTER_ID`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Prefix(String);

impl Prefix {
    /// `cluster`: what the clients have as `MC_METADATA_CLUSTER_ID`, or empty.
    pub(super) fn new(cluster: &str) -> Prefix {
        let slash = if cluster.is_empty() || cluster.ends_with('/') { "" } else { "/" };
        Prefix(format!("mooncake/{cluster}{slash}"))
    }

    /// The keys of a segment.
    pub(super) fn keys_of(&self, segment_name: &[u8]) -> [Vec<u8>; 2] {
        KINDS.map(|kind| [self.0.as_bytes(), kind.as_bytes(), segment_name].concat())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cluster_is_a_part_of_every_key() {
        for (cluster, ram, rpc) in [
            ("", "mooncake/ram/h:1", "mooncake/rpc_meta/h:1"),
            ("blue", "mooncake/blue/ram/h:1", "mooncake/blue/rpc_meta/h:1"),
            ("blue/", "mooncake/blue/ram/h:1", "mooncake/blue/rpc_meta/h:1"),
        ] {
            assert_eq!(Prefix::new(cluster).keys_of(b"h:1"), [ram.as_bytes(), rpc.as_bytes()]);
        }
    }
}
