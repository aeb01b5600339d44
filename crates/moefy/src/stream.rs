//! Texts on their way through a model, all of them layer by layer, with what comes after attention in our own hands.
//!
//! A layer's experts are carved out of what all texts bring to it, and the next layer sees what those experts made: so
//! each layer is fitted to what it will be given. Attention and projections run on the model's own kernels.

use crate::MoefyError;
use crate::matrix::Matrix;
use crate::router::Chosen;
use duet_kernels::crew::{Crew, Scoped};
use duet_model::Model;
use duet_model::forward::{Activations, Node, NotRun, Pass, Segment, TokenWise};
use duet_model::kv::KvFormat;
use duet_types::{TokenId, Tokens};
use std::sync::{Mutex, PoisonError};

/// The texts, before some layer.
#[derive(Debug)]
pub(crate) struct Stream<'a> {
    model: &'a Model,
    crew: Scoped,
    passes: Vec<Pass>,
}

/// What all texts bring to a layer's second half, row by row.
#[derive(Debug)]
pub(crate) struct Brought {
    pub(crate) attended: Matrix,
    pub(crate) residual: Matrix,
}

impl<'a> Stream<'a> {
    pub(crate) fn new(model: &'a Model, texts: &[Vec<TokenId>], threads: usize) -> Result<Self, MoefyError> {
        let crew = Scoped { threads };
        let passes: Result<Vec<Pass>, MoefyError> = texts
            .iter()
            .map(|text| {
                let kv = model.kv_pool(KvFormat::F16, Tokens(text.len() as u32)).table();
                let segments = vec![Segment::new(kv, text.clone())];
                let pass = Pass::new(model, Activations::new(model, text.len()), segments);
                let mut pass = pass.map_err(|refused| refused.error)?;
                model.run_node(&mut pass, Node::Embed, 0..text.len(), &crew);
                Ok(pass)
            })
            .collect();
        Ok(Self { model, crew, passes: passes? })
    }

    /// Runs a layer up to the end of its attention.
    pub(crate) fn bring(&mut self, layer: usize) -> Result<Brought, MoefyError> {
        let tap = Tap::default();
        for pass in &mut self.passes {
            let rows = 0..pass.rows();
            self.model.run_node(pass, Node::Qkv { layer }, rows.clone(), &self.crew);
            self.model.run_node(pass, Node::Attention { layer }, rows.clone(), &self.crew);
            // It has run nothing, only looked.
            let looked = self.model.run_node_on(&tap, pass, Node::Ffn { layer }, rows, &self.crew);
            if looked != Err(only_looked()) {
                return Err(MoefyError::Width(self.model.blueprint().hidden));
            }
        }
        let blueprint = self.model.blueprint();
        let State { attended, residual, .. } = tap.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        Ok(Brought {
            attended: Matrix::of(blueprint.heads * blueprint.head_dim, attended),
            residual: Matrix::of(blueprint.hidden, residual),
        })
    }

    /// Ends a layer with the model's own block, and says where its router sent the rows, if it has one.
    pub(crate) fn run(&mut self, layer: usize) -> Option<Chosen> {
        let count = self.model.blueprint().experts.map(|plan| plan.chosen);
        let mut experts = Vec::new();
        for pass in &mut self.passes {
            self.model.run_node(pass, Node::Ffn { layer }, 0..pass.rows(), &self.crew);
            let routes = (0..pass.rows()).filter_map(|row| pass.routes(row));
            routes.for_each(|routes| experts.extend_from_slice(routes.experts));
        }
        count.map(|count| Chosen { count, experts })
    }

    /// Ends a layer: `residual` is what all texts go on with.
    pub(crate) fn go_on(&mut self, layer: usize, residual: Matrix) -> Result<(), MoefyError> {
        let tap = Tap { state: Mutex::new(State { giving: Some((residual, 0)), ..State::default() }) };
        for pass in &mut self.passes {
            let rows = 0..pass.rows();
            let given = self.model.run_node_on(&tap, pass, Node::Ffn { layer }, rows, &self.crew as &dyn Crew);
            given.map_err(|_| MoefyError::Width(self.model.blueprint().hidden))?;
        }
        Ok(())
    }
}

/// Stands in a device's place: looks at what a layer's second half is given, or gives what it should come to.
#[derive(Debug, Default)]
struct Tap {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    attended: Vec<f32>,
    residual: Vec<f32>,
    /// And how many of its values were given.
    giving: Option<(Matrix, usize)>,
}

fn only_looked() -> NotRun {
    NotRun::Unsupported("only looked at".to_owned())
}

impl TokenWise for Tap {
    fn qkv(&self, _: usize, _: &[f32], _: &mut [f32]) -> Result<(), NotRun> {
        Err(only_looked())
    }

    fn feed_forward(&self, _: usize, attended: &[f32], residual: &[f32], fed: &mut [f32]) -> Result<(), NotRun> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let State { attended: all_attended, residual: all_residual, giving } = &mut *state;
        if let Some((values, given)) = giving {
            fed.copy_from_slice(&values.values()[*given..*given + fed.len()]);
            *given += fed.len();
            return Ok(());
        }
        all_attended.extend_from_slice(attended);
        all_residual.extend_from_slice(residual);
        Err(only_looked())
    }

    fn head(&self, _: &[f32], _: &mut [f32]) -> Result<(), NotRun> {
        Err(only_looked())
    }
}
