//! What is on its way through the layers.

use super::dispatched::Dispatched;
use super::from_disk::Left;
use super::recurrent::Recurrent;
use super::sought::Sought;
use super::span_wise::Brought;
use crate::arch::Extra;
use crate::disk_experts::ExpertReads;
use crate::kv::{KvError, KvTable, PAGE_TOKENS, StateBlock};
use crate::load::Model;
use duet_kernels::attention::PageMemory;
use duet_kernels::fused::{BufferShape, Buffers, ExpertShape};
use duet_types::{Bytes, Class, RequestId, TokenId, Tokens};
use std::ops::Range;

/// One sequence's rows in a pass.
#[derive(Debug)]
pub struct Segment {
    /// Whose they are, for devices that keep copies of the cache.
    pub request: Option<RequestId>,
    /// The sequence's cache; the rows follow its last position.
    pub kv: KvTable,
    /// The rows' tokens.
    pub tokens: Vec<TokenId>,
    /// For a draft tree, each row's parent among the rows, which must come before it; `None` is the context's end.
    /// Absent: each row follows the one before.
    pub parents: Option<Vec<Option<usize>>>,
}

impl Segment {
    /// Rows that follow each other.
    #[must_use]
    pub fn new(kv: KvTable, tokens: Vec<TokenId>) -> Self {
        Self { request: None, kv, tokens, parents: None }
    }
}

/// A segment that is a tree, while a pass is under way.
#[derive(Debug)]
pub(super) struct Tree {
    /// The rows' keys and values: slot `i` is row `i`'s.
    pub(super) page: PageMemory,
    /// For each row the rows on its path, itself last.
    pub(super) paths: Vec<Vec<usize>>,
}

/// The buffers of a pass; reused from pass to pass.
#[derive(Debug)]
pub struct Activations {
    pub(super) buffers: Buffers,
    /// Pages that trees of earlier passes used.
    spare: Vec<PageMemory>,
    /// Blocks of states that earlier passes replaced.
    spare_states: Vec<StateBlock>,
    /// Of each layer, where a device puts the keys and values that it computed.
    pub(super) brought: Vec<Brought>,
}

/// Why a pass could not start.
#[derive(Debug, thiserror::Error)]
pub enum PassError {
    /// More rows than the buffers hold.
    #[error("{rows} rows exceed the activation buffer of {capacity}")]
    Rows {
        /// Rows asked for.
        rows: usize,
        /// Rows the buffer holds.
        capacity: usize,
    },
    /// A sequence would outgrow the model's context.
    #[error("position {position} is beyond the context of {context}")]
    Context {
        /// The position.
        position: usize,
        /// The context length.
        context: usize,
    },
    /// A token outside the vocabulary.
    #[error("token {0} is not in the vocabulary")]
    Token(TokenId),
    /// A text without tokens.
    #[error("a text is empty")]
    Empty,
    /// A parent that is not an earlier row, or not one parent for each row.
    #[error("row {row} of a draft tree names no earlier row as its parent")]
    Parent {
        /// The row.
        row: usize,
    },
    /// A tree with more rows than a page holds.
    #[error("a draft tree of {rows} rows exceeds {PAGE_TOKENS}")]
    Tree {
        /// Its rows.
        rows: usize,
    },
    /// No pages left.
    #[error(transparent)]
    Kv(#[from] KvError),
}

/// A failed [`Pass::new`]: the buffers and tables come back untouched.
#[derive(Debug)]
pub struct PassRefused {
    /// Why.
    pub error: PassError,
    /// The buffers.
    pub activations: Activations,
    /// The segments as given.
    pub segments: Vec<Segment>,
}

/// Rows on their way through the layers.
#[derive(Debug)]
pub struct Pass {
    pub(super) activations: Activations,
    pub(super) segments: Vec<Segment>,
    /// One entry for each segment.
    pub(super) trees: Vec<Option<Tree>>,
    /// Where experts are launched in nodes of their own.
    pub(super) dispatched: Dispatched,
    /// What recurrent layers are to know after the pass, of each segment; none where there are no such layers.
    pub(super) recurrent: Vec<Recurrent>,
    /// Whose it is: experts on disk are read for a person first.
    pub(super) class: Class,
    /// Rows that wait for experts in the middle of a node.
    pub(super) left: Option<Left>,
    /// Of all its rows together.
    pub(super) expert_reads: ExpertReads,
    /// What is going to be asked of its head.
    pub(super) sought: Option<Sought>,
    /// Rows that are read behind the last layer.
    pub(super) head_rows: Range<usize>,
}

impl Activations {
    /// Buffers for up to `rows` rows of `model`.
    #[must_use]
    pub fn new(model: &Model, rows: usize) -> Self {
        let b = model.blueprint();
        let shape = BufferShape {
            hidden: b.hidden,
            qkv: b.projected(),
            queries: b.found(),
            ffn: if b.experts.is_none() || b.dense_layers > 0 { b.ffn } else { 0 },
            experts: b.experts.map(|plan| ExpertShape {
                experts: plan.count,
                chosen: plan.chosen,
                ffn: plan.ffn,
                shared: plan.shared.unwrap_or(0),
                beside: b.has(Extra::BlockBeside),
            }),
            layer_inputs: b.layer_input.map_or(0, |width| width * b.layers.len()),
            angles: b.ropes.iter().map(|rope| rope.frequencies.len()).sum(),
            operands: model.weights().operands(),
        };
        Self { buffers: Buffers::new(shape, rows), spare: Vec::new(), spare_states: Vec::new(), brought: Vec::new() }
    }

    /// Rows there is room for.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.buffers.rows()
    }

    /// Bytes held.
    #[must_use]
    pub fn bytes(&self) -> Bytes {
        let states: usize = self.spare_states.iter().map(|block| size_of_val(block.as_slice())).sum();
        let brought: usize = self.brought.iter().map(Brought::bytes).sum();
        Bytes((self.buffers.bytes() + states + brought) as u64)
    }
}

impl Pass {
    /// Checks the segments and reserves their KV.
    ///
    /// # Errors
    /// [`PassRefused`]; nothing is lost.
    pub fn new(
        model: &Model,
        mut activations: Activations,
        mut segments: Vec<Segment>,
    ) -> Result<Self, Box<PassRefused>> {
        match check(model, &activations, &segments).and_then(|()| reserve(&mut segments)) {
            Ok(()) => {
                let trees = segments.iter().map(|segment| plant(segment, &mut activations.spare)).collect();
                let recurrent = Recurrent::of(model, &segments, &mut activations.spare_states);
                let (dispatched, class, left, expert_reads, sought) = Default::default();
                let head_rows = 0..segments.iter().map(|segment| segment.tokens.len()).sum();
                Ok(Self {
                    activations,
                    segments,
                    trees,
                    dispatched,
                    recurrent,
                    class,
                    left,
                    expert_reads,
                    sought,
                    head_rows,
                })
            }
            Err(error) => Err(Box::new(PassRefused { error, activations, segments })),
        }
    }

    /// Says whose it is; a person's, if nobody says so.
    pub fn set_class(&mut self, class: Class) {
        self.class = class;
    }

    /// Rows of all segments together.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.segments.iter().map(|segment| segment.tokens.len()).sum()
    }

    /// The positions of its rows, if they are of one sequence and follow each other: a chunk of a prompt, or a token.
    #[must_use]
    pub fn chunk(&self) -> Option<Range<Tokens>> {
        let [segment] = self.segments.as_slice() else { return None };
        let (before, rows) = (segment.kv.len(), Tokens(segment.tokens.len() as u32));
        self.trees.iter().all(Option::is_none).then(|| before..before + rows)
    }

    /// Rows of each segment.
    pub fn segment_rows(&self) -> impl Iterator<Item = usize> {
        self.segments.iter().map(|segment| segment.tokens.len())
    }

    /// Ends the pass after the last node: each table has grown by its rows, but for trees, of which nothing is kept.
    #[must_use]
    pub fn finish(self) -> (Activations, Vec<KvTable>) {
        self.end(|_, segment, tree, recurrent| {
            if tree.is_none() {
                let rows: Vec<usize> = (0..segment.tokens.len()).collect();
                if let Some(recurrent) = recurrent {
                    recurrent.advance(&mut segment.kv, &rows);
                }
                segment.kv.grow(rows.len());
            }
        })
    }

    /// Ends the pass after the last node, keeping only some rows of each segment: the first `accepted[i].len()` rows of
    /// a segment without tree, or the rows of the path `accepted[i]` of a tree, which are moved to their positions.
    ///
    /// # Panics
    /// If there is not one list for each segment, or a list is no path from the context's end.
    #[must_use]
    pub fn finish_accepting(self, accepted: &[Vec<usize>]) -> (Activations, Vec<KvTable>) {
        assert!(accepted.len() == self.segments.len());
        self.end(|index, segment, tree, recurrent| {
            let rows = &accepted[index];
            match tree {
                None => assert!(rows.iter().copied().eq(0..rows.len()) && rows.len() <= segment.tokens.len()),
                Some(tree) => {
                    assert!(rows.last().is_none_or(|&last| tree.paths.get(last).is_some_and(|path| path == rows)));
                    segment.kv.write_positions(&tree.page, rows);
                }
            }
            if let Some(recurrent) = recurrent {
                recurrent.advance(&mut segment.kv, rows);
            }
            segment.kv.grow(rows.len());
            segment.kv.truncate(segment.kv.len());
        })
    }

    /// Gives the pass up at any point: the tables are as they were before it.
    #[must_use]
    pub fn abandon(self) -> (Activations, Vec<KvTable>) {
        self.end(|_, segment, _, _| segment.kv.truncate(segment.kv.len()))
    }

    fn end(
        self,
        mut each: impl FnMut(usize, &mut Segment, Option<&Tree>, Option<&mut Recurrent>),
    ) -> (Activations, Vec<KvTable>) {
        let Self { mut activations, segments, trees, mut recurrent, .. } = self;
        let mut tables = Vec::with_capacity(segments.len());
        for (index, (mut segment, tree)) in segments.into_iter().zip(trees).enumerate() {
            each(index, &mut segment, tree.as_ref(), recurrent.get_mut(index));
            activations.spare.extend(tree.map(|tree| tree.page));
            tables.push(segment.kv);
        }
        activations.spare_states.extend(recurrent.into_iter().filter_map(Recurrent::into_spare));
        (activations, tables)
    }
}

fn check(model: &Model, activations: &Activations, segments: &[Segment]) -> Result<(), PassError> {
    let rows = segments.iter().map(|segment| segment.tokens.len()).sum();
    let capacity = activations.rows();
    if rows > capacity {
        return Err(PassError::Rows { rows, capacity });
    }
    let context = model.config().context.as_usize();
    for segment in segments {
        let position = segment.kv.len().as_usize() + segment.tokens.len();
        if position > context {
            return Err(PassError::Context { position, context });
        }
        if let Some(parents) = &segment.parents {
            check_tree(parents, segment.tokens.len())?;
        }
        if let Some(token) = segment.tokens.iter().find(|token| token.0 as usize >= model.config().vocabulary) {
            return Err(PassError::Token(*token));
        }
    }
    Ok(())
}

/// The tree of a checked segment, if it is one.
fn plant(segment: &Segment, spare: &mut Vec<PageMemory>) -> Option<Tree> {
    let parents = segment.parents.as_ref()?;
    let mut paths: Vec<Vec<usize>> = Vec::with_capacity(parents.len());
    for (row, parent) in parents.iter().enumerate() {
        let mut path = parent.map_or_else(Vec::new, |parent| paths[parent].clone());
        path.push(row);
        paths.push(path);
    }
    let layout = *segment.kv.layout();
    let fits = spare.iter().position(|page| *page.layout() == layout);
    let page = fits.map_or_else(|| PageMemory::new(layout), |at| spare.swap_remove(at));
    Some(Tree { page, paths })
}

fn check_tree(parents: &[Option<usize>], rows: usize) -> Result<(), PassError> {
    if rows > PAGE_TOKENS {
        return Err(PassError::Tree { rows });
    }
    let wrong = parents.iter().enumerate().find(|(row, parent)| parent.is_some_and(|parent| parent >= *row));
    match wrong {
        Some((row, _)) => Err(PassError::Parent { row }),
        None if parents.len() != rows => Err(PassError::Parent { row: parents.len().min(rows) }),
        None => Ok(()),
    }
}

fn reserve(segments: &mut [Segment]) -> Result<(), PassError> {
    for index in 0..segments.len() {
        let segment = &mut segments[index];
        if let Err(error) = segment.kv.reserve(Tokens(segment.tokens.len() as u32)) {
            for segment in &mut segments[..index] {
                segment.kv.truncate(segment.kv.len());
            }
            return Err(error.into());
        }
    }
    Ok(())
}
