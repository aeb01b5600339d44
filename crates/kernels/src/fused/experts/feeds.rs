//! The blocks of a layer's experts: all in memory, or those that are there just now.

use super::Feed;
use std::sync::Arc;

/// The blocks of a layer's experts, all of one shape.
#[derive(Clone, Copy, Debug)]
pub enum Feeds<'a> {
    /// All of them.
    All(&'a [Feed]),
    /// Some of them.
    Present(&'a PresentFeeds),
}

/// Those of a layer's experts that are in memory.
#[derive(Clone, Debug)]
pub struct PresentFeeds {
    /// By their numbers; there is a place for each expert of the layer.
    feeds: Vec<Option<Arc<Feed>>>,
    width: usize,
}

impl<'a> Feeds<'a> {
    /// How many experts the layer has.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::All(feeds) => feeds.len(),
            Self::Present(present) => present.feeds.len(),
        }
    }

    /// Whether the layer has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// An expert, if it is in memory.
    #[must_use]
    pub fn get(&self, expert: usize) -> Option<&'a Feed> {
        match self {
            Self::All(feeds) => feeds.get(expert),
            Self::Present(present) => present.feeds.get(expert)?.as_deref(),
        }
    }

    /// Neurons of each.
    pub(super) fn width(&self) -> usize {
        match self {
            Self::All(feeds) => feeds.first().map_or(0, |feed| feed.down.inputs()),
            Self::Present(present) => present.width,
        }
    }

    pub(super) fn present(self) -> impl Iterator<Item = &'a Feed> {
        (0..self.len()).filter_map(move |expert| self.get(expert))
    }
}

impl PresentFeeds {
    /// None of `count` experts of `width` neurons each.
    #[must_use]
    pub fn none(count: usize, width: usize) -> Self {
        Self { feeds: vec![None; count], width }
    }

    /// An expert has come.
    ///
    /// # Panics
    /// If there is no such expert, or it is of another width.
    pub fn set(&mut self, expert: usize, feed: Arc<Feed>) {
        assert!(feed.down.inputs() == self.width);
        self.feeds[expert] = Some(feed);
    }

    /// All are gone.
    pub fn clear(&mut self) {
        self.feeds.fill(None);
    }
}
