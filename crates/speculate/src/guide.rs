//! What rules drafts out and what makes them certain: a grammar that the answer is held to, for example.
//!
//! The tree grows by its likeliest token, whoever says that it is likely; a guide has the last word on that. What cannot
//! come is not drafted, and a token that must come costs a draft nothing of its worth, so that whole runs of such tokens
//! are verified in one pass.

use duet_types::TokenId;
use std::fmt::Debug;

/// Whoever knows which tokens can follow.
pub trait Guide: Debug {
    /// Takes out the tokens that cannot follow the drafted tokens of `path`, and puts in those that must or may, each with
    /// its chance.
    fn rule(&mut self, path: &dyn Fn() -> Vec<TokenId>, chances: &mut Vec<(TokenId, f32)>);
}

/// Every token can follow.
#[derive(Debug)]
pub struct Unguided;

impl Guide for Unguided {
    fn rule(&mut self, _path: &dyn Fn() -> Vec<TokenId>, _chances: &mut Vec<(TokenId, f32)>) {}
}
