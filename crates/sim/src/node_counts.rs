//! How many nodes there are to a pass, by the model that its rows go through.

use duet_scheduler::SchedulerConfig;
use duet_types::Net;

/// Of the model that answers and of the encoder beside it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeCounts {
    decoder: usize,
    encoder: usize,
}

impl NodeCounts {
    pub(crate) fn of(config: &SchedulerConfig) -> Self {
        let nodes = |net| config.graph(net).nodes();
        Self { decoder: nodes(Net::Decoder), encoder: nodes(Net::Encoder) }
    }

    pub(crate) fn in_pass_of(self, net: Net) -> usize {
        match net {
            Net::Decoder => self.decoder,
            Net::Encoder => self.encoder,
        }
    }
}
