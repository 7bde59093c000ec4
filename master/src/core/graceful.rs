//! Unmounting with a grace period, and what can be asked about segments (facts §4.5, §4.7, §1.2).

use super::{Core, segments::Segment};
use crate::{
    clock::Instant,
    error::ErrorCode,
    lock::Mutex,
    types::{ClientId, SegmentId, SegmentStatus},
};
use hashbrown::HashSet;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

/// Clients, each with its hosts.
pub type HostsByClient = Vec<(ClientId, Vec<Box<[u8]>>)>;

/// Segments whose grace period runs, each once.
#[derive(Debug, Default)]
pub(crate) struct Graceful(Mutex<Vec<(Instant, Arc<Segment>)>>);

impl Core {
    /// Unmounts a segment after `grace`: until then it is readable but takes no allocations. Again for the same segment
    /// it is a success, and the first deadline stays.
    ///
    /// # Errors
    /// `SegmentNotFound`: the client has none; `InvalidParams`: not this one; `UnavailableInCurrentStatus`: it is being
    /// taken out already.
    pub fn graceful_unmount_segment(
        &self,
        segment: SegmentId,
        client: ClientId,
        grace: Duration,
    ) -> Result<(), ErrorCode> {
        let registry = self.registry.lock();
        let Some(mounted) = registry.get(segment).filter(|segment| segment.owner().id() == client) else {
            let has_others = registry.of_client(client).next().is_some();
            return Err(if has_others { ErrorCode::InvalidParams } else { ErrorCode::SegmentNotFound });
        };
        match mounted.status() {
            SegmentStatus::Unmounting => return Err(ErrorCode::UnavailableInCurrentStatus),
            SegmentStatus::GracefullyUnmounting => return Ok(()),
            SegmentStatus::Ok => {}
        }
        mounted.begin_graceful();
        let due = self.clock.now().saturating_add(grace);
        self.graceful.0.lock().push((due, mounted.clone()));
        Ok(())
    }

    /// Unmounts what is due. Segments that went earlier, by an unmount or with their client, are forgotten.
    pub(crate) fn graceful_tick(&self, now: Instant) {
        let due: Vec<Arc<Segment>> = {
            let mut waiting = self.graceful.0.lock();
            if waiting.is_empty() {
                return;
            }
            let mut due = Vec::new();
            waiting.retain(|(at, segment)| {
                let is_due = *at <= now && !segment.is_unmounting();
                if is_due {
                    due.push(segment.clone());
                }
                *at > now && !segment.is_unmounting()
            });
            due
        };
        for segment in due {
            let unmounted = self.unmount_segment(segment.spec().id, segment.owner().id());
            if unmounted.is_err() && !segment.is_unmounting() {
                // There is no room among the jobs that wait; it keeps its turn.
                self.graceful.0.lock().push((now, segment));
            }
        }
    }

    /// Where a segment stands, whatever its owner's liveness (B13); `None` if it is not known.
    pub fn segment_status(&self, segment: SegmentId) -> Option<SegmentStatus> {
        self.registry.lock().get(segment).map(|segment| segment.status())
    }

    /// The same by name. Of several segments with that name the one counts that is furthest from its end.
    pub fn segment_status_by_name(&self, name: &[u8]) -> Option<SegmentStatus> {
        let registry = self.registry.lock();
        let named = registry.segments().filter(|segment| *segment.spec().name == *name);
        named.map(|segment| segment.status()).min_by_key(|status| *status as u8)
    }

    /// For each of these clients that has mounted memory, the hosts of its endpoints, each once: addresses as a rule, names
    /// where clients use these. One pass over the mounted segments, however many are asked for.
    pub fn hosts_of(&self, clients: impl IntoIterator<Item = ClientId>) -> HostsByClient {
        let asked: HashSet<ClientId> = clients.into_iter().collect();
        let mut found: BTreeMap<ClientId, BTreeSet<Box<[u8]>>> = BTreeMap::new();
        let placement = self.placement.load();
        for segment in placement.segments().filter(|segment| asked.contains(&segment.owner().id())) {
            let hosts = found.entry(segment.owner().id()).or_default();
            let host = host_of(&segment.spec().te_endpoint);
            if !host.is_empty() {
                hosts.insert(host.into());
            }
        }
        found.into_iter().map(|(client, hosts)| (client, hosts.into_iter().collect())).collect()
    }
}

/// The host in `host:port`, `[address]:port`, or alone; the scope of an address stays.
fn host_of(endpoint: &[u8]) -> &[u8] {
    if let [b'[', bracketed @ ..] = endpoint {
        let end = bracketed.iter().position(|&byte| byte == b']').unwrap_or(bracketed.len());
        return &bracketed[..end];
    }
    let mut colons = endpoint.iter().enumerate().filter(|(_, byte)| **byte == b':').map(|(at, _)| at);
    match (colons.next(), colons.next()) {
        (Some(colon), None) => &endpoint[..colon],
        // None, or those of a bare IPv6 address.
        _ => endpoint,
    }
}

#[cfg(test)]
mod tests {
    use super::host_of;

    #[test]
    fn hosts_are_found_in_every_form_of_an_endpoint() {
        for (endpoint, host) in [
            ("10.0.0.7:12345", "10.0.0.7"),
            ("10.0.0.7", "10.0.0.7"),
            ("[2001:db8::1]:12345", "2001:db8::1"),
            ("[fe80::1%eth0]:1", "fe80::1%eth0"),
            ("fe80::1%eth0", "fe80::1%eth0"),
            ("2001:db8::1", "2001:db8::1"),
            ("host-1:12345", "host-1"),
            ("[2001:db8::1", "2001:db8::1"),
            (":1", ""),
            ("", ""),
        ] {
            assert_eq!(String::from_utf8_lossy(host_of(endpoint.as_bytes())), host, "{endpoint}");
        }
    }
}
