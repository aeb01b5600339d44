//! A pass of the model that answers, or of the encoder beside it.

use duet_model::encoder::EncoderPass;
use duet_model::forward::Pass;
use duet_model::kv::KvTable;

/// Rows on their way through one of the two.
#[derive(Debug)]
pub(crate) enum ModelPass {
    /// Through the model that answers.
    Decoder(Box<Pass>),
    /// Through the encoder; the table, which is empty, goes back to its sequence.
    Encoder(EncoderPass, KvTable),
}

impl ModelPass {
    /// The pass of the model that answers, if it is one.
    pub(crate) fn decoder(&self) -> Option<&Pass> {
        match self {
            Self::Decoder(pass) => Some(pass),
            Self::Encoder(..) => None,
        }
    }

    /// The same, to go on with it.
    pub(crate) fn decoder_mut(&mut self) -> Option<&mut Pass> {
        match self {
            Self::Decoder(pass) => Some(pass),
            Self::Encoder(..) => None,
        }
    }
}
