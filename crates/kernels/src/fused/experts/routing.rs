//! Which experts a row goes to, and with what weights.
//!
//! A row's choice depends on its own scores alone. Equal scores go to the expert that comes first; scores that are not
//! numbers come last, so that every row goes to as many experts as it should, whatever is in it.

use crate::isa::Isa;
use crate::rows::exponentials;

/// How scores become weights.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Routing {
    /// Softmax over all experts; the largest are taken with the weights they have.
    Softmax,
    /// The same, divided by the sum of those that are taken: softmax over the chosen.
    SoftmaxOfChosen,
    /// Phi's sparse mixer: one expert after the other, each with its weight in a softmax over those that are left and
    /// whose scores are near the best one's.
    SparseMixer {
        /// Scores that are farther from the best than twice this share of the larger of both count for nothing.
        jitter: f32,
    },
    /// The logistic function of each score, and of these the largest, an expert's bias added.
    Sigmoid {
        /// Weights are divided by their sum; none: they are as they are. The sum has this added to it.
        divided: Option<f32>,
        /// Then they are multiplied with this.
        scale: f32,
    },
}

/// Chooses for one row after the other.
#[derive(Debug)]
pub(super) struct Chooser<'a> {
    isa: Isa,
    routing: Routing,
    /// Of each expert, where the rule knows one.
    bias: Option<&'a [f32]>,
    scratch: Vec<f32>,
}

impl<'a> Chooser<'a> {
    pub(super) fn new(isa: Isa, routing: Routing, bias: Option<&'a [f32]>) -> Self {
        Self { isa, routing, bias, scratch: Vec::new() }
    }

    /// Fills `chosen` with the experts of the largest scores, best first, and `weights` with what each counts.
    pub(super) fn choose(&mut self, scores: &[f32], chosen: &mut [u32], weights: &mut [f32]) {
        if let Routing::Sigmoid { divided, scale } = self.routing {
            return self.choose_by_sigmoids(scores, chosen, weights, (divided, scale));
        }
        largest(scores, chosen);
        let Some(&best) = chosen.first() else { return };
        let best = scores[best as usize];
        match self.routing {
            Routing::Softmax => {
                let sum = self.exponentials(scores.iter().copied(), best);
                let exponentials = chosen.iter().map(|&expert| self.scratch[expert as usize]);
                weights.iter_mut().zip(exponentials).for_each(|(weight, exponential)| *weight = exponential / sum);
            }
            Routing::SoftmaxOfChosen => {
                let sum = self.exponentials(chosen.iter().map(|&expert| scores[expert as usize]), best);
                weights.iter_mut().zip(&self.scratch).for_each(|(weight, exponential)| *weight = exponential / sum);
            }
            Routing::SparseMixer { jitter } => {
                for place in 0..chosen.len() {
                    weights[place] = self.mixed(scores, &chosen[..=place], jitter);
                }
            }
            Routing::Sigmoid { .. } => {}
        }
    }

    fn choose_by_sigmoids(
        &mut self,
        scores: &[f32],
        chosen: &mut [u32],
        weights: &mut [f32],
        (divided, scale): (Option<f32>, f32),
    ) {
        self.scratch.clear();
        self.scratch.extend(scores.iter().map(|score| -score));
        exponentials(self.isa, &mut self.scratch, 0.0);
        // Exponentials are numbers, whatever of: what is none stays none, and comes last.
        let all = self.scratch.iter_mut().zip(scores);
        all.for_each(|(x, score)| *x = if score.is_nan() { *score } else { 1.0 / (1.0 + *x) });
        match self.bias {
            None => largest(&self.scratch, chosen),
            Some(bias) => {
                let biased: Vec<f32> = self.scratch.iter().zip(bias).map(|(x, bias)| x + bias).collect();
                largest(&biased, chosen);
            }
        }
        let of_chosen = chosen.iter().map(|&expert| self.scratch[expert as usize]);
        weights.iter_mut().zip(of_chosen).for_each(|(weight, x)| *weight = x);
        let sum = divided.map_or(1.0, |least| weights.iter().sum::<f32>() + least);
        weights.iter_mut().for_each(|weight| *weight = *weight / sum * scale);
    }

    /// The logistic function, by the same exponentials.
    pub(super) fn sigmoid(&self, score: f32) -> f32 {
        let mut exponential = [-score];
        exponentials(self.isa, &mut exponential, 0.0);
        1.0 / (1.0 + exponential[0])
    }

    /// Fills the scratch with `e` to the power of each score less the best one; returns their sum.
    fn exponentials(&mut self, scores: impl Iterator<Item = f32>, best: f32) -> f32 {
        self.scratch.clear();
        self.scratch.extend(scores);
        exponentials(self.isa, &mut self.scratch, best);
        self.scratch.iter().sum()
    }

    /// The weight of the last of `chosen`, those before it being taken.
    fn mixed(&mut self, scores: &[f32], chosen: &[u32], jitter: f32) -> f32 {
        let Some((&expert, taken)) = chosen.split_last() else { return 0.0 };
        let best = scores[expert as usize];
        let near = |&(index, &score): &(usize, &f32)| {
            let far = (best - score) / score.abs().max(best) > 2.0 * jitter;
            !far && !taken.contains(&(index as u32))
        };
        1.0 / self.exponentials(scores.iter().enumerate().filter(near).map(|(_, &score)| score), best)
    }
}

/// The places of the largest scores, best first.
fn largest(scores: &[f32], chosen: &mut [u32]) {
    let score = |expert: u32| scores[expert as usize];
    // Numbers before what is none; then the larger; then the first.
    let better = |a: f32, b: f32| a > b || (b.is_nan() && !a.is_nan());
    let mut count = 0;
    for (expert, &candidate) in scores.iter().enumerate() {
        if count == chosen.len() && !chosen.last().is_some_and(|&last| better(candidate, score(last))) {
            continue;
        }
        let at = chosen[..count].partition_point(|&other| !better(candidate, score(other)));
        count = (count + 1).min(chosen.len());
        chosen[at..count].rotate_right(1);
        chosen[at] = expert as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn choose(routing: Routing, scores: &[f32], count: usize) -> (Vec<u32>, Vec<f32>) {
        let (mut chosen, mut weights) = (vec![u32::MAX; count], vec![f32::NAN; count]);
        Chooser::new(Isa::Portable, routing, None).choose(scores, &mut chosen, &mut weights);
        (chosen, weights)
    }

    fn close(a: &[f32], b: &[f32]) {
        assert!(a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-6), "{a:?} {b:?}");
    }

    #[test]
    fn equal_scores_go_to_the_first() {
        let (chosen, weights) = choose(Routing::Softmax, &[1.0, 2.0, 2.0, 1.0], 3);
        assert_eq!(chosen, [1, 2, 0]);
        let e = std::f32::consts::E;
        close(&weights, &[e / (2.0 * e + 2.0), e / (2.0 * e + 2.0), 1.0 / (2.0 * e + 2.0)]);
    }

    #[test]
    fn the_weights_of_the_chosen_may_be_made_to_sum_to_one() {
        let (chosen, weights) = choose(Routing::SoftmaxOfChosen, &[0.0, 3.0, -1.0, 1.0], 2);
        assert_eq!(chosen, [1, 3]);
        let share = 1.0 / (1.0 + (-2.0_f32).exp());
        close(&weights, &[share, 1.0 - share]);
    }

    #[test]
    fn the_sparse_mixer_forgets_what_is_far_and_what_is_taken() {
        let routing = Routing::SparseMixer { jitter: 0.01 };
        // 0.99 is near 1, 0.9 is not; once 1 is taken, 0.98 is near 0.99.
        let (chosen, weights) = choose(routing, &[0.9, 1.0, 0.99, 0.98], 2);
        assert_eq!(chosen, [1, 2]);
        let first = 1.0 / (1.0 + (-0.01_f32).exp() + (-0.02_f32).exp());
        close(&weights, &[first, 1.0 / (1.0 + (-0.01_f32).exp())]);
        close(&choose(routing, &[-5.0, 4.0, -6.0], 2).1, &[1.0, 1.0]);
    }

    #[test]
    fn a_bias_chooses_and_counts_nothing() {
        let routing = Routing::Sigmoid { divided: Some(0.0), scale: 1.5 };
        let (mut chosen, mut weights) = (vec![0; 2], vec![0.0; 2]);
        let bias = [0.0, 1.0, 0.0, -1.0];
        Chooser::new(Isa::Portable, routing, Some(&bias)).choose(&[0.0, -2.0, 1.0, 3.0], &mut chosen, &mut weights);
        assert_eq!(chosen, [1, 2]);
        let sigmoid = |x: f32| 1.0 / (1.0 + (-x).exp());
        let sum = sigmoid(-2.0) + sigmoid(1.0);
        close(&weights, &[1.5 * sigmoid(-2.0) / sum, 1.5 * sigmoid(1.0) / sum]);
        let (chosen, weights) = choose(Routing::Sigmoid { divided: None, scale: 1.0 }, &[0.0, -2.0, 1.0, 3.0], 2);
        assert_eq!(chosen, [3, 2]);
        close(&weights, &[sigmoid(3.0), sigmoid(1.0)]);
    }

    proptest! {
        #[test]
        fn the_chosen_are_the_best_and_differ(
            scores in prop::collection::vec(prop_oneof![9 => -4.0..4.0_f32, 1 => Just(f32::NAN)], 1..20),
            count in any::<prop::sample::Index>(),
        ) {
            let count = count.index(scores.len()) + 1;
            let sigmoid = Routing::Sigmoid { divided: Some(1e-20), scale: 1.0 };
            for routing in [Routing::Softmax, Routing::SoftmaxOfChosen, Routing::SparseMixer { jitter: 0.01 }, sigmoid] {
                let (chosen, weights) = choose(routing, &scores, count);
                let rest = (0..scores.len() as u32).filter(|expert| !chosen.contains(expert));
                prop_assert_eq!(rest.clone().count() + count, scores.len());
                let score = |expert: u32| scores[expert as usize];
                for other in rest {
                    prop_assert!(chosen.iter().all(|&expert| score(expert) >= score(other) || score(other).is_nan()));
                }
                if scores.iter().all(|score| !score.is_nan()) {
                    prop_assert!(weights.iter().all(|weight| (0.0..=1.0).contains(weight)), "{:?}", weights);
                }
            }
        }
    }
}
