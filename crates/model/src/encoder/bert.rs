//! BERTs: their weights, and their nodes on some rows. [`duet_kernels::encoder`] computes.

use super::text::rows_of;
use super::{Overlong, Pooling, Text, TextError};
use crate::arch::{EncoderBlueprint, bert};
use crate::gguf::GgufFile;
use crate::load::{LoadError, LoadOptions};
use crate::tokenizer::{EncoderTokenizer, TooManyTokens};
use crate::weights::Stacker;
use crate::work::{Linear, Work};
use duet_kernels::crew::Crew;
use duet_kernels::encoder::{Affine, EncoderBuffers, EncoderShape, FeedForward, LayerNorm, attend, feed, project};
use duet_kernels::isa::Isa;
use duet_kernels::packed::PackedMatrix;
use duet_kernels::quantize::Operands;
use duet_kernels::rows::dots;
use duet_types::{Bytes, Node, TokenId, Tokens};
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// A loaded BERT.
#[derive(Debug)]
pub(super) struct Bert {
    file: GgufFile,
    blueprint: EncoderBlueprint,
    tokenizer: EncoderTokenizer,
    embedding_norm: NormOf,
    layers: Vec<Layer>,
    scoring: Option<Scoring>,
    isa: Isa,
    /// Buffers of a pass that ended.
    spare: Mutex<Option<EncoderBuffers>>,
}

#[derive(Debug)]
struct Layer {
    projection: AffineOf,
    output: AffineOf,
    output_norm: NormOf,
    up: AffineOf,
    down: AffineOf,
    norm: NormOf,
}

/// A matrix and its bias.
#[derive(Debug)]
struct AffineOf {
    matrix: PackedMatrix,
    bias: Vec<f32>,
}

#[derive(Debug)]
struct NormOf {
    weight: Vec<f32>,
    bias: Vec<f32>,
    epsilon: f32,
}

/// The head that makes a score of a text's first row: a layer with a hyperbolic tangent, and one number of it.
#[derive(Debug)]
struct Scoring {
    dense: Plain,
    /// Absent where the first layer's first output is the score.
    out: Option<Plain>,
}

/// A matrix of floats, of which a text needs one product.
#[derive(Debug)]
struct Plain {
    matrix: Vec<f32>,
    bias: Vec<f32>,
}

/// Rows on their way.
#[derive(Debug)]
pub(super) struct Rows {
    buffers: EncoderBuffers,
    /// Of each text.
    texts: Vec<Range<usize>>,
}

impl Bert {
    pub(super) fn load(file: GgufFile, options: &LoadOptions) -> Result<Self, LoadError> {
        let isa = options.isa.map_or_else(Isa::chosen, Ok)?;
        let blueprint = bert::blueprint(&file)?;
        let tokenizer = EncoderTokenizer::from_metadata(file.metadata())?;
        if tokenizer.vocabulary() > blueprint.vocabulary {
            let (tokens, embeddings) = (tokenizer.vocabulary(), blueprint.vocabulary);
            return Err(LoadError::Vocabulary { tokens, embeddings });
        }
        let reader = Reader { of: Stacker(&file), blueprint: &blueprint };
        let layers = (0..blueprint.layers).map(|index| reader.layer(index)).collect::<Result<_, _>>()?;
        let scoring = (blueprint.pooling == Pooling::Score).then(|| reader.scoring()).transpose()?;
        let embedding_norm = reader.norm("token_embd_norm")?;
        Ok(Self { blueprint, tokenizer, embedding_norm, layers, scoring, isa, spare: Mutex::default(), file })
    }

    pub(super) fn file(&self) -> &GgufFile {
        &self.file
    }

    pub(super) fn blueprint(&self) -> &EncoderBlueprint {
        &self.blueprint
    }

    pub(super) fn weight_bytes(&self) -> Bytes {
        let work = self.work();
        Bytes((work.qkv.bytes.0 + work.ffn.bytes.0) * work.layers as u64)
    }

    pub(super) fn work(&self) -> Work {
        let of = |matrices: &[&PackedMatrix]| Linear {
            macs: matrices.iter().map(|matrix| matrix.macs() as u64).sum(),
            bytes: Bytes(matrices.iter().map(|matrix| matrix.bytes() as u64).sum()),
            routed: None,
        };
        let layer = self.layers.first();
        Work {
            layers: self.layers.len(),
            qkv: layer.map_or(Linear::NOTHING, |layer| of(&[&layer.projection.matrix])),
            ffn: layer.map_or(Linear::NOTHING, |Layer { output, up, down, .. }| {
                of(&[&output.matrix, &up.matrix, &down.matrix])
            }),
            head: Linear::NOTHING,
            experts: None,
        }
    }

    pub(super) fn text(&self, text: &str, overlong: Overlong) -> Result<Text, TextError> {
        let room = self.room(2);
        let within = self.words(text, room, overlong)?;
        Text::new(self.with_ends(within), self.most(), Overlong::Refused)
    }

    pub(super) fn pair(&self, query: &str, document: &str, overlong: Overlong) -> Result<Text, TextError> {
        let between = self.tokenizer.before_second();
        let room = self.room(3 + u32::from(between.is_some()));
        let query = self.words(query, room, Overlong::Refused)?;
        let left = Tokens(room.0 - query.len() as u32);
        let too_many = |error| match error {
            // Of both together there are more than that.
            TextError::TooLong(_) => TextError::TooLong(TooManyTokens { most: self.most() }),
            other => other,
        };
        let mut second = self.words(document, left, overlong).map_err(too_many)?;
        second.splice(0..0, between);
        second.push(self.tokenizer.separator());
        Ok(Text::pair(self.with_ends(query), second))
    }

    fn words(&self, text: &str, room: Tokens, overlong: Overlong) -> Result<Vec<TokenId>, TextError> {
        match overlong {
            Overlong::Cut => Ok(self.tokenizer.beginning(text, room.as_usize())),
            Overlong::Refused => {
                // What the client has to keep to has its special tokens in it.
                let too_many = |_| TextError::TooLong(TooManyTokens { most: self.most() });
                self.tokenizer.encode_within(text, room).map_err(too_many)
            }
        }
    }

    fn with_ends(&self, mut tokens: Vec<TokenId>) -> Vec<TokenId> {
        tokens.insert(0, self.tokenizer.begin());
        tokens.push(self.tokenizer.separator());
        tokens
    }

    fn most(&self) -> Tokens {
        Tokens(self.blueprint.context as u32)
    }

    /// Room beside so many special tokens.
    fn room(&self, special: u32) -> Tokens {
        self.most().saturating_sub(Tokens(special))
    }

    pub(super) fn begin(&self, texts: &[Text]) -> Rows {
        let texts = rows_of(texts);
        let rows = texts.last().map_or(0, |text| text.end);
        let spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner).take();
        let fits = spare.filter(|buffers| buffers.rows() >= rows);
        let buffers = fits.unwrap_or_else(|| EncoderBuffers::new(self.shape(), rows.next_multiple_of(ROWS_STEP)));
        Rows { buffers, texts }
    }

    fn shape(&self) -> EncoderShape {
        let EncoderBlueprint { hidden, ffn, heads, .. } = self.blueprint;
        let floats = self.layers.iter().any(Layer::has_floats);
        let operands = if floats { Operands::BytesAndFloats } else { Operands::Bytes };
        EncoderShape { hidden, ffn, heads, operands }
    }

    pub(super) fn run(&self, of: &mut Rows, texts: &[Text], node: Node, rows: Range<usize>, crew: &dyn Crew) {
        match node {
            Node::Embed => self.embed(of, texts, rows),
            Node::Qkv { layer } => project(self.isa, crew, &self.layers[layer].projection.get(), &mut of.buffers, rows),
            Node::Attention { .. } => attend(self.isa, crew, &mut of.buffers, &of.texts, rows),
            Node::Ffn { layer } => feed(self.isa, crew, &self.layers[layer].feed(), &mut of.buffers, rows),
            Node::Route { .. } | Node::Experts { .. } => {}
        }
    }

    /// Token, position and segment, added up and normed.
    fn embed(&self, of: &mut Rows, texts: &[Text], rows: Range<usize>) {
        let table = |name: &str| self.file.tensor(name);
        let tables = (table("token_embd.weight"), table("position_embd.weight"), table("token_types.weight"));
        let (Some(tokens), Some(positions), Some(segments)) = tables else { return };
        let hidden = self.blueprint.hidden;
        let (mut sum, mut other) = (vec![0.0; hidden], vec![0.0; hidden]);
        for (text, all) in texts.iter().zip(&of.texts) {
            for row in all.start.max(rows.start)..all.end.min(rows.end) {
                let position = row - all.start;
                tokens.dequantize_row(text.tokens()[position].0 as usize, &mut sum);
                // A file with one kind of segment has no second one.
                let segment = text.segment(position).min(self.blueprint.segments - 1);
                for (table, index) in [(&segments, segment), (&positions, position)] {
                    table.dequantize_row(index, &mut other);
                    sum.iter_mut().zip(&other).for_each(|(sum, x)| *sum += x);
                }
                self.embedding_norm.get().row(self.isa, &sum, of.buffers.stream_mut(row));
            }
        }
    }

    pub(super) fn results(&self, of: &Rows) -> Vec<Vec<f32>> {
        let Rows { buffers, texts } = of;
        let result = |text: &Range<usize>| match &self.scoring {
            Some(scoring) => vec![scoring.score(self.isa, buffers.stream(text.start))],
            None => {
                let rows = text.clone().map(|row| buffers.stream(row));
                self.blueprint.pooling.vector(rows, self.blueprint.hidden)
            }
        };
        texts.iter().map(result).collect()
    }

    pub(super) fn end(&self, of: Rows) {
        *self.spare.lock().unwrap_or_else(PoisonError::into_inner) = Some(of.buffers);
    }
}

/// Buffers are made for some rows more, so that the next pass fits them.
const ROWS_STEP: usize = 256;

impl Layer {
    fn has_floats(&self) -> bool {
        [&self.projection, &self.output, &self.up, &self.down].iter().any(|affine| affine.matrix.has_floats())
    }

    fn feed(&self) -> FeedForward<'_> {
        FeedForward {
            output: self.output.get(),
            output_norm: self.output_norm.get(),
            up: self.up.get(),
            down: self.down.get(),
            norm: self.norm.get(),
        }
    }
}

impl AffineOf {
    fn get(&self) -> Affine<'_> {
        Affine { matrix: &self.matrix, bias: &self.bias }
    }
}

impl NormOf {
    fn get(&self) -> LayerNorm<'_> {
        LayerNorm { weight: &self.weight, bias: &self.bias, epsilon: self.epsilon }
    }
}

impl Scoring {
    fn score(&self, isa: Isa, first: &[f32]) -> f32 {
        let mut pooled = self.dense.product(isa, first);
        pooled.iter_mut().for_each(|x| *x = x.tanh());
        let scores = self.out.as_ref().map_or(pooled.clone(), |out| out.product(isa, &pooled));
        scores.first().copied().unwrap_or(0.0)
    }
}

impl Plain {
    fn product(&self, isa: Isa, x: &[f32]) -> Vec<f32> {
        let mut out = vec![0.0; self.bias.len()];
        dots(isa, x, &self.matrix, &mut out);
        out.iter_mut().zip(&self.bias).for_each(|(out, bias)| *out += bias);
        out
    }
}

/// Reads the weights of one file.
struct Reader<'a> {
    of: Stacker<'a>,
    blueprint: &'a EncoderBlueprint,
}

impl Reader<'_> {
    fn layer(&self, index: usize) -> Result<Layer, LoadError> {
        let EncoderBlueprint { hidden, ffn, .. } = *self.blueprint;
        let name = |part: &str| format!("blk.{index}.{part}");
        let affine = |part: &str, outputs, inputs| self.affine(&[name(part)], outputs, inputs);
        let layer = Layer {
            projection: self.affine(&["attn_q", "attn_k", "attn_v"].map(name), hidden, hidden)?,
            output: affine("attn_output", hidden, hidden)?,
            output_norm: self.norm(&name("attn_output_norm"))?,
            up: affine("ffn_up", ffn, hidden)?,
            down: affine("ffn_down", hidden, ffn)?,
            norm: self.norm(&name("layer_output_norm"))?,
        };
        Ok(layer)
    }

    /// Matrices of `outputs` each, one below the other.
    fn affine(&self, names: &[String], outputs: usize, inputs: usize) -> Result<AffineOf, LoadError> {
        let weights: Vec<_> = names.iter().map(|name| (format!("{name}.weight"), outputs)).collect();
        let bias = names.iter().map(|name| self.of.vector(&format!("{name}.bias"), outputs));
        let bias: Vec<Vec<f32>> = bias.collect::<Result<_, _>>()?;
        Ok(AffineOf { matrix: self.of.matrix(&weights, inputs)?, bias: bias.concat() })
    }

    fn norm(&self, name: &str) -> Result<NormOf, LoadError> {
        let EncoderBlueprint { hidden, epsilon, .. } = *self.blueprint;
        let vector = |part: &str| self.of.vector(&format!("{name}.{part}"), hidden);
        Ok(NormOf { weight: vector("weight")?, bias: vector("bias")?, epsilon })
    }

    fn scoring(&self) -> Result<Scoring, LoadError> {
        let hidden = self.blueprint.hidden;
        let dense = self.of.plain("cls", hidden)?;
        let out =
            if self.of.has("cls.output.weight") { Some(self.of.plain("cls.output", dense.1.len())?) } else { None };
        let plain = |(matrix, bias)| Plain { matrix, bias };
        Ok(Scoring { dense: plain(dense), out: out.map(plain) })
    }
}
