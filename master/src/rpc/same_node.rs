//! `prefer_alloc_in_same_node` in a batch: further keys go where the first one went (facts §1.2).

use crate::types::{Attempt, PutStart, Replicas, ReplicateConfig};
use std::sync::Arc;

/// The Starts of one batch.
#[derive(Debug)]
pub(super) struct SameNode {
    wanted: bool,
    /// The segment of the first replica of the first key that found room.
    segment: Option<Arc<[u8]>>,
}

impl SameNode {
    pub(super) fn new(config: &ReplicateConfig<'_>) -> SameNode {
        SameNode { wanted: config.prefer_alloc_in_same_node, segment: None }
    }

    /// Starts one key of the batch by `call`.
    pub(super) fn start(
        &mut self,
        start: &PutStart<'_>,
        call: impl Fn(&PutStart<'_>) -> Attempt<Replicas>,
    ) -> Attempt<Replicas> {
        if let Some(segment) = &self.segment {
            let config = ReplicateConfig { preferred_segment: segment, ..start.config.clone() };
            return call(&PutStart { config: &config, ..start.clone() });
        }
        let replicas = call(start)?;
        if self.wanted {
            self.segment = replicas.memory.first().map(|replica| replica.segment.name.clone());
        }
        Ok(replicas)
    }
}
