//! Encoders: models that make one vector, or one score, of a text.
//!
//! Two kinds of nets are behind one face ([`Encoder`]): BERTs (`bert`), whose rows see all of their text, and decoders that
//! were trained to say what a text is about with its last token (`causal`). Either way a pass reads some texts at once, goes
//! through the same nodes in the same order as a decoder's, can stop after any of them, and leaves nothing behind.
//!
//! **Invariant:** what a text comes to depends on that text alone: not on the texts beside it, on how the pass was cut, or on
//! the crew.

mod bert;
mod causal;
mod pass;
mod pooling;
mod ranking;
mod text;

pub use pass::EncoderPass;
pub use pooling::Pooling;
pub use text::{Overlong, Text};

use crate::arch::bert::{LAST, NAME as BERT, RANK, pooling_type};
use crate::gguf::GgufFile;
use crate::load::{LoadError, LoadOptions, Model};
use crate::tokenizer::TooManyTokens;
use crate::work::Work;
use bert::Bert;
use causal::Causal;
use duet_types::{Bytes, NodeOrder, TokenId, Tokens};
use ranking::Ranking;
use std::path::Path;
use std::sync::Arc;

/// A loaded encoder. Immutable and shared by all threads.
#[derive(Debug)]
pub struct Encoder {
    name: String,
    net: Net,
}

#[derive(Debug)]
enum Net {
    Bert(Box<Bert>),
    Causal(Box<Causal>),
}

/// Which sort of encoder a file is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EncoderKind {
    /// Its rows see all of their text.
    Bert,
    /// A decoder whose last token counts.
    Decoder,
}

impl EncoderKind {
    /// What a file's metadata say; nothing if it is of another model.
    ///
    /// # Errors
    /// [`LoadError`] if they cannot be read, or name a sort that is not supported.
    pub fn of(file: &GgufFile) -> Result<Option<Self>, LoadError> {
        let architecture = file.metadata().str("general.architecture")?;
        if architecture == BERT {
            return Ok(Some(Self::Bert));
        }
        match pooling_type(file.metadata(), architecture)? {
            Some(LAST | RANK) => Ok(Some(Self::Decoder)),
            Some(0) | None => Ok(None),
            Some(other) => {
                let problem = format!("{other}; of decoders 3 (last) and 4 (rank) are supported");
                Err(LoadError::Setting { key: format!("{architecture}.pooling_type"), problem })
            }
        }
    }
}

/// Why a text has no vector, or a pair of them no score.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TextError {
    /// It does not fit.
    #[error(transparent)]
    TooLong(#[from] TooManyTokens),
    /// There is nothing in it that the model reads.
    #[error("the text is empty")]
    Empty,
    /// A token outside the vocabulary.
    #[error("token {0} is not in the embedding model's vocabulary")]
    Token(TokenId),
}

impl Encoder {
    /// Whether the file is of an encoder, by what its metadata say: of any other, [`Model::load`] knows more.
    ///
    /// # Errors
    /// [`LoadError`] if it cannot be read.
    pub fn is_in(path: &Path) -> Result<bool, LoadError> {
        Ok(EncoderKind::of(&GgufFile::open(path)?)?.is_some())
    }

    /// Reads and packs `path`.
    ///
    /// # Errors
    /// [`LoadError`] names the field, tensor or file at fault.
    pub fn load(path: &Path, options: &LoadOptions) -> Result<Self, LoadError> {
        let file = GgufFile::open(path)?;
        match EncoderKind::of(&file)? {
            Some(EncoderKind::Bert) => Self::load_bert(path, file, options),
            Some(EncoderKind::Decoder) => {
                Self::of_decoder(Arc::new(Model::load_opened(path, file, options, &mut |_| {})?))
            }
            None => {
                let architecture = file.metadata().str("general.architecture")?;
                let problem = "it is not there, or 0: this is no model for embeddings".to_owned();
                Err(LoadError::Setting { key: format!("{architecture}.pooling_type"), problem })
            }
        }
    }

    /// Packs a BERT, whose file was opened from `path`.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub fn load_bert(path: &Path, file: GgufFile, options: &LoadOptions) -> Result<Self, LoadError> {
        let name = crate::load::name(path, file.metadata())?;
        Ok(Self { name, net: Net::Bert(Box::new(Bert::load(file, options)?)) })
    }

    /// A decoder that was loaded, whose last token says what a text is about.
    ///
    /// # Errors
    /// [`LoadError`] if its file does not say how scores are made.
    pub fn of_decoder(model: Arc<Model>) -> Result<Self, LoadError> {
        let kind = pooling_type(model.file().metadata(), &model.config().architecture)?;
        let ranking = (kind == Some(RANK)).then(|| Ranking::of(&model)).transpose()?;
        Ok(Self { name: model.config().name.clone(), net: Net::Causal(Box::new(Causal::new(model, ranking))) })
    }

    /// GGUF `general.name`, or the file's stem.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// GGUF `general.architecture`.
    #[must_use]
    pub fn architecture(&self) -> &str {
        match &self.net {
            Net::Bert(_) => BERT,
            Net::Causal(net) => &net.model().config().architecture,
        }
    }

    /// Longest text, special tokens included.
    #[must_use]
    pub fn context(&self) -> Tokens {
        match &self.net {
            Net::Bert(net) => Tokens(net.blueprint().context as u32),
            Net::Causal(net) => net.context(),
        }
    }

    /// Texts that may be read together, if there is a bound beside their rows.
    #[must_use]
    pub fn texts_max(&self) -> Option<usize> {
        match &self.net {
            Net::Bert(_) => None,
            Net::Causal(net) => Some(net.texts_max()),
        }
    }

    /// How many token ids exist; all smaller ids are valid.
    #[must_use]
    pub fn vocabulary(&self) -> usize {
        match &self.net {
            Net::Bert(net) => net.blueprint().vocabulary,
            Net::Causal(net) => net.model().config().vocabulary,
        }
    }

    /// Floats of a text's vector.
    #[must_use]
    pub fn width(&self) -> usize {
        match &self.net {
            Net::Bert(net) => net.blueprint().hidden,
            Net::Causal(net) => net.model().blueprint().hidden,
        }
    }

    /// What becomes of a text's rows.
    #[must_use]
    pub fn pooling(&self) -> Pooling {
        match &self.net {
            Net::Bert(net) => net.blueprint().pooling,
            Net::Causal(net) if net.ranks() => Pooling::Score,
            Net::Causal(_) => Pooling::Last,
        }
    }

    /// Bytes of packed weights.
    #[must_use]
    pub fn weight_bytes(&self) -> Bytes {
        match &self.net {
            Net::Bert(net) => net.weight_bytes(),
            Net::Causal(net) => net.model().weight_bytes(),
        }
    }

    /// Tensors of the file that nothing is computed with. A head for scores is read behind the model that it is on.
    pub fn unread(&self) -> impl Iterator<Item = &str> {
        match &self.net {
            Net::Bert(net) => net.file().unread(),
            Net::Causal(net) => net.model().file().unread(),
        }
    }

    /// What the nodes of a layer compute and read; there is no head.
    #[must_use]
    pub fn work(&self) -> Work {
        match &self.net {
            Net::Bert(net) => net.work(),
            Net::Causal(net) => net.model().work(),
        }
    }

    /// Multiply-accumulates of attention in a layer for a row and a position that it sees, as if rows saw those before them
    /// only: where they see all, it is as if each cost twice as much.
    #[must_use]
    pub fn attention_macs(&self) -> u64 {
        match &self.net {
            Net::Bert(net) => 4 * net.blueprint().hidden as u64,
            Net::Causal(net) => 2 * (net.model().blueprint().heads * net.model().blueprint().head_dim) as u64,
        }
    }

    /// The nodes of a pass.
    #[must_use]
    pub fn order(&self) -> NodeOrder {
        NodeOrder::fused(self.work().layers)
    }

    /// A text as the model reads it, with its special tokens.
    ///
    /// # Errors
    /// [`TextError`]; none for its length if what is too long is cut.
    pub fn text(&self, text: &str, overlong: Overlong) -> Result<Text, TextError> {
        match &self.net {
            Net::Bert(net) => net.text(text, overlong),
            Net::Causal(net) => net.text(text, overlong),
        }
    }

    /// A query and a document as a model for scores reads them. Where that is too long, and may be cut, it is the document
    /// that is.
    ///
    /// # Errors
    /// [`TextError`].
    pub fn pair(&self, query: &str, document: &str, overlong: Overlong) -> Result<Text, TextError> {
        match &self.net {
            Net::Bert(net) => net.pair(query, document, overlong),
            Net::Causal(net) => net.pair(query, document, overlong),
        }
    }

    /// Tokens that somebody else made of a text, special ones included.
    ///
    /// # Errors
    /// [`TextError`].
    pub fn tokens(&self, tokens: Vec<TokenId>, overlong: Overlong) -> Result<Text, TextError> {
        if let Some(token) = tokens.iter().find(|token| token.0 as usize >= self.vocabulary()) {
            return Err(TextError::Token(*token));
        }
        Text::new(tokens, self.context(), overlong)
    }
}
