//! How likely a model holds a text, and what may follow it.
//!
//! A context is read in chunks, as a prompt is in serving: experts have their capacities for each chunk, the last one,
//! which is shorter, as well. Each option is then read after it, on a fork of its keys and values, by the crew alone: few
//! rows are the CPU's wherever experts are placed. So options bear what was dropped of their context, and nothing else.
//!
//! Invariant: with the crew alone, what is said of a row does not depend on the chunks.

use super::AccuracyError;
use super::data_set::{Encoded, EncodedQuestion};
use crate::agreement::surprise;
use duet_kernels::crew::Crew;
use duet_model::Model;
use duet_model::forward::{Activations, ExpertWise, Node, NodeOrder, NotRun, Pass, Segment, TokenWise};
use duet_model::kv::{KvFormat, KvTable};
use duet_types::{TokenId, Tokens};

/// Who reads.
#[derive(Clone, Copy)]
pub(super) struct Reader<'a> {
    pub(super) model: &'a Model,
    /// Absent: the crew does all but what launches of experts are.
    pub(super) device: Option<&'a dyn TokenWise>,
    /// Absent: experts are no launches.
    pub(super) experts: Option<&'a dyn ExpertWise>,
    pub(super) crew: &'a dyn Crew,
}

/// What a reader says of an item.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Said {
    /// The negative logarithms of the chances of the context's tokens, summed up; the first one has none.
    pub(super) surprise: f64,
    /// How many these are.
    pub(super) positions: usize,
    pub(super) answer: Option<Answer>,
}

/// What it answers to a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    /// The likeliest option, the first of equals.
    pub(super) chosen: usize,
    pub(super) right: bool,
}

/// A text that was read.
struct Read {
    table: KvTable,
    /// Of each token but the first.
    surprise: f64,
    /// Behind the last token.
    logits: Vec<f32>,
}

impl Reader<'_> {
    /// Reads an item.
    ///
    /// # Errors
    /// If the model cannot read it, or the device fails.
    pub(super) fn say(&self, item: &Encoded) -> Result<Said, AccuracyError> {
        let read = self.context(&item.context)?;
        let answer = item.question.as_ref().map(|question| self.answer(&read, question)).transpose()?;
        Ok(Said { surprise: read.surprise, positions: item.context.len() - 1, answer })
    }

    fn answer(&self, read: &Read, question: &EncodedQuestion) -> Result<Answer, AccuracyError> {
        let mut best = (0, f64::NEG_INFINITY);
        for (index, option) in question.options.iter().enumerate() {
            let score = -self.option(read, &option.tokens)? / option.length as f64;
            if score > best.1 {
                best = (index, score);
            }
        }
        Ok(Answer { chosen: best.0, right: best.0 == question.right })
    }

    fn context(&self, tokens: &[TokenId]) -> Result<Read, AccuracyError> {
        // Forks copy a page each, beside what an option takes.
        let room = Tokens(self.model.config().context.0.saturating_mul(2));
        let mut read =
            Read { table: self.model.kv_pool(KvFormat::F16, room).table(), surprise: 0.0, logits: Vec::new() };
        for start in (0..tokens.len()).step_by(CHUNK) {
            let rows = start..tokens.len().min(start + CHUNK);
            read = self.rows(read, &tokens[rows.clone()], &tokens[rows.start + 1..(rows.end + 1).min(tokens.len())])?;
        }
        Ok(read)
    }

    /// How surprising an option is after a context.
    fn option(&self, read: &Read, tokens: &[TokenId]) -> Result<f64, AccuracyError> {
        let Some((&first, following)) = tokens.split_first() else { return Ok(0.0) };
        let begun = surprise(&read.logits, first);
        if following.is_empty() {
            return Ok(begun);
        }
        let table = read.table.fork(read.table.len())?;
        let after = Read { table, surprise: begun, logits: Vec::new() };
        let crew = Self { device: None, experts: None, ..*self };
        Ok(crew.rows(after, &tokens[..tokens.len() - 1], following)?.surprise)
    }

    /// Reads rows, whose `next` tokens are known but for the last row, perhaps.
    fn rows(&self, read: Read, tokens: &[TokenId], next: &[TokenId]) -> Result<Read, AccuracyError> {
        let activations = Activations::new(self.model, tokens.len());
        let pass = Pass::new(self.model, activations, vec![Segment::new(read.table, tokens.to_vec())]);
        let mut pass = pass.map_err(|refused| refused.error)?;
        self.run(&mut pass)?;
        let (mut sum, mut logits, mut last) = (read.surprise, Vec::new(), Vec::new());
        let all: Vec<usize> = (0..tokens.len()).collect();
        for rows in all.chunks(LOGIT_ROWS) {
            self.head(&mut pass, rows, &mut logits)?;
            for (row, logits) in rows.iter().zip(logits.chunks_exact(self.model.config().vocabulary)) {
                sum += next.get(*row).map_or(0.0, |&token| surprise(logits, token));
                if row + 1 == tokens.len() {
                    last = logits.to_vec();
                }
            }
        }
        let (_, mut tables) = pass.finish();
        let table = tables.pop().expect("a pass of one segment gives one table back");
        Ok(Read { table, surprise: sum, logits: last })
    }

    /// Runs all nodes; what the device does not take is the crew's.
    fn run(&self, pass: &mut Pass) -> Result<(), NotRun> {
        let launches = self.experts.map_or(0, ExpertWise::launches);
        let mut nodes = NodeOrder::with_launches(self.model.config().layers, launches).nodes();
        nodes.try_for_each(|node| self.run_node(pass, node))
    }

    fn run_node(&self, pass: &mut Pass, node: Node) -> Result<(), NotRun> {
        let (model, crew, rows) = (self.model, self.crew, pass.rows());
        match (node, self.experts) {
            (Node::Route { layer }, Some(experts)) => model.route_on(experts, pass, layer, crew).map(|_| ()),
            // What did not run the crew has computed.
            (Node::Experts { layer, launch }, Some(experts)) => {
                refused(model.launch_on(experts, pass, (layer, launch), crew)).map(|_| ())
            }
            _ => {
                let on = |device| refused(model.run_node_on(device, &mut *pass, node, 0..rows, crew));
                if self.device.map_or(Ok(Ran::Not), on)? == Ran::Not {
                    model.run_node(pass, node, 0..rows, crew);
                }
                Ok(())
            }
        }
    }

    fn head(&self, pass: &mut Pass, rows: &[usize], logits: &mut Vec<f32>) -> Result<(), NotRun> {
        let on = |device| refused(self.model.logits_on(device, &mut *pass, rows, &mut *logits));
        if self.device.map_or(Ok(Ran::Not), on)? == Ran::Not {
            self.model.logits(pass, rows, logits, self.crew);
        }
        Ok(())
    }
}

/// Whether a device ran something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ran {
    Device,
    Not,
}

/// A device may refuse a kernel, but not fail.
fn refused(ran: Result<(), NotRun>) -> Result<Ran, NotRun> {
    match ran {
        Ok(()) => Ok(Ran::Device),
        Err(NotRun::Unsupported(_)) => Ok(Ran::Not),
        Err(failed) => Err(failed),
    }
}

/// Rows of a chunk: what capacities are for, and what the scheduler cuts prompts into.
pub(super) const CHUNK: usize = 256;
/// Rows whose whole logits are in memory at once.
const LOGIT_ROWS: usize = 64;
