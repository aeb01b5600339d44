//! A background of which so many requests were always under way: each comes when one before it has ended.
//!
//! The log has the times at which they came. In a simulation that is slower or faster, others would have come at other
//! times; with the recorded ones a simulation that is a little too slow would fall behind more and more. The log cannot say
//! that requests were kept in flight: whoever recorded it knows.

use super::Recorded;
use crate::client::Follows;
use duet_types::{Class, Instant, RequestId};
use std::collections::VecDeque;

impl Recorded {
    /// The same run, where every request of `class` that came after the end of others follows the one that had ended first
    /// and that nobody follows yet, as long after it as in the log.
    #[must_use]
    pub fn kept_in_flight(mut self, class: Class) -> Self {
        let mut ends: Vec<(Instant, usize)> = Vec::new();
        for (index, client) in self.clients.iter().enumerate().filter(|(_, client)| client.class == class) {
            let latency = self.counters.metrics.latency(RequestId(index as u64));
            ends.extend(latency.map(|latency| (client.arrives + latency, index)));
        }
        ends.sort_unstable();
        let mut ends = VecDeque::from(ends);
        for client in self.clients.iter_mut().filter(|client| client.class == class) {
            if let Some((end, before)) = ends.pop_front_if(|(end, _)| *end <= client.arrives) {
                client.follows = Some(Follows { client: before, gap: client.arrives - end });
            }
        }
        self
    }
}
