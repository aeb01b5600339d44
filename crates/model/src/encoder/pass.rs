//! Texts on their way through the layers.
//!
//! A pass has all state between its nodes: it may stop after any of them, and go on later, on any crew.

use super::{Encoder, Net, Text, bert, causal};
use crate::forward::PassError;
use duet_kernels::crew::{Crew, Solo};
use std::ops::Range;
use std::sync::Arc;

/// Some texts on their way.
#[derive(Debug)]
pub struct EncoderPass {
    texts: Arc<[Text]>,
    state: State,
}

#[derive(Debug)]
enum State {
    Bert(Box<bert::Rows>),
    Causal(Box<causal::Rows>),
}

impl EncoderPass {
    /// Its texts.
    #[must_use]
    pub fn texts(&self) -> &[Text] {
        &self.texts
    }

    /// Rows of all texts together.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.texts.iter().map(|text| text.tokens().len()).sum()
    }
}

impl Encoder {
    /// Begins a pass over some texts, which were made by this encoder.
    ///
    /// # Errors
    /// [`PassError`] if they were not.
    pub fn begin(&self, texts: Arc<[Text]>) -> Result<EncoderPass, PassError> {
        let context = self.context().as_usize();
        for text in texts.iter() {
            if text.is_empty() {
                return Err(PassError::Empty);
            }
            if text.tokens().len() > context {
                return Err(PassError::Context { position: text.tokens().len(), context });
            }
            if let Some(token) = text.tokens().iter().find(|token| token.0 as usize >= self.vocabulary()) {
                return Err(PassError::Token(*token));
            }
        }
        let state = match &self.net {
            Net::Bert(net) => State::Bert(Box::new(net.begin(&texts))),
            Net::Causal(net) => State::Causal(Box::new(net.begin(&texts)?)),
        };
        Ok(EncoderPass { texts, state })
    }

    /// Runs a span of nodes on some rows. The nodes of a row are run in order; attention of a row needs the node before it of
    /// all rows of its text.
    ///
    /// # Panics
    /// If there are no such nodes or rows, or the pass is another encoder's.
    pub fn run(&self, pass: &mut EncoderPass, nodes: Range<usize>, rows: Range<usize>, crew: &dyn Crew) {
        assert!(rows.end <= pass.rows());
        let EncoderPass { texts, state } = pass;
        for index in nodes {
            let node = self.order().node(index);
            match (&self.net, &mut *state) {
                (Net::Bert(net), State::Bert(of)) => net.run(of, texts, node, rows.clone(), crew),
                (Net::Causal(net), State::Causal(of)) => net.run(of, node, rows.clone(), crew),
                _ => panic!("a pass of another encoder"),
            }
        }
    }

    /// Begins, runs and ends a pass on the calling thread alone: for tools and tests.
    ///
    /// # Errors
    /// As [`Self::begin`].
    pub fn encode_alone(&self, texts: Arc<[Text]>) -> Result<Vec<Vec<f32>>, PassError> {
        let mut pass = self.begin(texts)?;
        let rows = 0..pass.rows();
        self.run(&mut pass, 0..self.order().count(), rows, &Solo);
        let results = self.results(&pass);
        self.end(pass);
        Ok(results)
    }

    /// What the texts came to, after all nodes: the vector of each, or a list of the one score of each.
    ///
    /// # Panics
    /// If the pass is another encoder's.
    #[must_use]
    pub fn results(&self, pass: &EncoderPass) -> Vec<Vec<f32>> {
        match (&self.net, &pass.state) {
            (Net::Bert(net), State::Bert(rows)) => net.results(rows),
            (Net::Causal(net), State::Causal(rows)) => net.results(rows),
            _ => panic!("a pass of another encoder"),
        }
    }

    /// Ends a pass, at any point: its memory is the next one's.
    pub fn end(&self, pass: EncoderPass) {
        if let (Net::Bert(net), State::Bert(rows)) = (&self.net, pass.state) {
            net.end(*rows);
        }
    }
}
