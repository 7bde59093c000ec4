//! What diagnostic pages show of segments.

use super::Core;
use crate::types::{ClientId, LivenessState, SegmentSpec, SegmentStatus};
use std::sync::Arc;

/// A segment as it stands.
#[derive(Clone, Debug)]
pub struct SegmentInfo {
    /// As its client described it.
    pub spec: Arc<SegmentSpec>,
    /// Whose it is.
    pub client: ClientId,
    /// The liveness of that incarnation; nothing new depends on a segment unless it is Active (B7).
    pub client_state: LivenessState,
    /// Where it stands in its own life.
    pub status: SegmentStatus,
    /// Bytes that were asked for and are not free again.
    pub allocated_bytes: u64,
}

impl Core {
    /// Whether somebody has mounted memory under that name. Waits for nothing.
    pub fn has_segment_named(&self, name: &[u8]) -> bool {
        self.placement.load().has_name(name)
    }

    /// Every segment there is, those on their way out included. Takes the mutex of mounts for the time of the copy.
    pub fn segment_infos(&self) -> Vec<SegmentInfo> {
        let registry = self.registry.lock();
        let info = |segment: &Arc<super::segments::Segment>| SegmentInfo {
            spec: segment.spec().clone(),
            client: segment.owner().id(),
            client_state: segment.owner().state(),
            status: segment.status(),
            allocated_bytes: segment.usage().0,
        };
        registry.segments().map(info).collect()
    }
}
