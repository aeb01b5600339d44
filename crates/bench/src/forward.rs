//! One pass of one sequence through a model, its linear work on a device or by the crew. Nothing falls back: a kernel that
//! the device does not run is an error; but on a device of experts, what it does not take is the crew's, as in serving.

use duet_kernels::crew::{Crew, Solo};
use duet_model::forward::{Activations, ExpertWise, Node, NodeOrder, NotRun, Pass, PassError, Segment, TokenWise};
use duet_model::kv::KvTable;
use duet_model::{ExpertUnread, Model};
use duet_types::TokenId;

/// Who computes.
#[derive(Clone, Copy)]
pub(crate) struct Forward<'a> {
    pub(crate) model: &'a Model,
    /// Absent: the crew does all.
    pub(crate) device: Option<&'a dyn TokenWise>,
    /// Absent: experts are no launches.
    pub(crate) experts: Option<&'a dyn ExpertWise>,
    pub(crate) crew: &'a dyn Crew,
}

/// Why a pass came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum ForwardError {
    /// It was refused.
    #[error(transparent)]
    Pass(#[from] PassError),
    /// The device did not run a kernel.
    #[error(transparent)]
    Device(#[from] NotRun),
    /// An expert that is on disk could not be read.
    #[error(transparent)]
    Disk(#[from] ExpertUnread),
}

/// What a pass leaves: buffers for the next one, and the sequence.
pub(crate) struct Passed {
    pub(crate) activations: Activations,
    pub(crate) kv: KvTable,
}

impl Forward<'_> {
    /// Runs `tokens` after `kv`; `logits` are those of the `chosen` rows, one after the other.
    pub(crate) fn pass(
        &self,
        activations: Activations,
        kv: KvTable,
        tokens: &[TokenId],
        chosen: &[usize],
        logits: &mut Vec<f32>,
    ) -> Result<Passed, ForwardError> {
        let (model, rows) = (self.model, tokens.len());
        let pass = Pass::new(model, activations, vec![Segment::new(kv, tokens.to_vec())]);
        let mut pass = pass.map_err(|refused| refused.error)?;
        for node in self.order().nodes() {
            let run = self.node(&mut pass, node);
            self.or_by_crew(run, || model.try_run_node(&mut pass, node, 0..rows, self.crew))?;
        }
        if !chosen.is_empty() {
            let run = self.device.map(|device| model.logits_on(device, &mut pass, chosen, logits));
            self.or_by_crew(run, || {
                model.logits(&mut pass, chosen, logits, self.crew);
                Ok(())
            })?;
        }
        let (activations, mut tables) = pass.finish();
        let kv = tables.pop().expect("a pass of one segment gives one table back");
        Ok(Passed { activations, kv })
    }

    /// The nodes of a pass: launches of experts are nodes of their own.
    fn order(&self) -> NodeOrder {
        let launches = self.experts.map_or(0, ExpertWise::launches);
        NodeOrder::with_launches(self.model.config().layers, launches)
    }

    /// Runs a node on the device, if there is one.
    fn node(&self, pass: &mut Pass, node: Node) -> Option<Result<(), NotRun>> {
        let rows = 0..pass.rows();
        Some(match (node, self.experts) {
            (Node::Route { layer }, Some(experts)) => {
                self.model.route_on(experts, pass, layer, self.crew).map(|_projected_by| ())
            }
            (Node::Experts { layer, launch }, Some(experts)) => {
                match self.model.launch_on(experts, pass, (layer, launch), self.crew) {
                    // Its group has just left the device; the crew has computed its places.
                    Err(NotRun::Unsupported(_)) => Ok(()),
                    run => run,
                }
            }
            _ => self.model.run_node_on(self.device?, pass, node, rows, self.crew),
        })
    }

    /// The crew's turn, where there is no device, or one of experts that does not take this.
    fn or_by_crew(
        &self,
        run: Option<Result<(), NotRun>>,
        by_crew: impl FnOnce() -> Result<(), ExpertUnread>,
    ) -> Result<(), ForwardError> {
        match run {
            Some(Err(NotRun::Unsupported(_))) if self.experts.is_some() => Ok(by_crew()?),
            Some(run) => Ok(run?),
            None => Ok(by_crew()?),
        }
    }

    /// Reads `tokens` after `kv` in chunks of `chunk` rows; `logits` are those of the last row.
    pub(crate) fn read(
        &self,
        kv: KvTable,
        tokens: &[TokenId],
        chunk: usize,
        logits: &mut Vec<f32>,
    ) -> Result<KvTable, ForwardError> {
        let mut passed = Passed { activations: Activations::new(self.model, chunk.min(tokens.len())), kv };
        let last = tokens.len().div_ceil(chunk).saturating_sub(1);
        for (index, rows) in tokens.chunks(chunk).enumerate() {
            let chosen = if index == last { vec![rows.len() - 1] } else { Vec::new() };
            passed = self.pass(passed.activations, passed.kv, rows, &chosen, logits)?;
        }
        Ok(passed.kv)
    }

    /// The likeliest tokens after `kv` and the `first` token, `count` of them, one pass each; `each` is told of every one.
    pub(crate) fn decode(
        &self,
        kv: KvTable,
        first: TokenId,
        count: usize,
        each: &mut dyn FnMut(),
    ) -> Result<(KvTable, Vec<TokenId>), ForwardError> {
        let mut passed = Passed { activations: Activations::new(self.model, 1), kv };
        let (mut tokens, mut logits, mut next) = (Vec::with_capacity(count), Vec::new(), first);
        for _ in 0..count {
            passed = self.pass(passed.activations, passed.kv, &[next], &[0], &mut logits)?;
            next = likeliest(&logits[..self.model.config().vocabulary]);
            tokens.push(next);
            each();
        }
        Ok((passed.kv, tokens))
    }
}

/// The token of the largest logit; the first of equals.
pub(crate) fn likeliest(logits: &[f32]) -> TokenId {
    likeliest_of_each(logits, logits.len(), &Solo)[0]
}

/// The same for each row of `vocabulary` logits, found as serving finds it.
pub(crate) fn likeliest_of_each(logits: &[f32], vocabulary: usize, crew: &dyn Crew) -> Vec<TokenId> {
    let rows = duet_engine::likeliest(logits, vocabulary, 1, crew);
    rows.iter().map(|row| TokenId(row.first().map_or(0, |&(token, _)| token))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_the_likeliest() {
        assert_eq!(likeliest(&[0.1, 0.4, f32::NAN, 0.4]), TokenId(1));
        assert_eq!(likeliest(&[f32::NAN, f32::NEG_INFINITY]), TokenId(0));
    }
}
