//! The methods by name: which drafters work together.

use crate::calibration::Calibration;
use crate::draft_model::DraftModel;
use crate::drafter::Drafter;
use crate::extension::Extension;
use crate::history::History;
use crate::prompt_lookup::PromptLookup;
use crate::recycling::{Recycled, Recycling};
use crate::sam::{Breadth, Context};
use crate::suffix_automaton::SuffixAutomaton;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// A way to draft.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Method {
    /// Not at all.
    None,
    /// Prompt lookup.
    Pld,
    /// Prompt lookup with calibration and extension. (CoordGen Table 4: PLD + Ours)
    PldDuet,
    /// Suffix automata over the context and the history.
    Sam,
    /// SAM with calibration. (§3.3)
    Calibrated,
    /// CoordGen: SAM with calibration from the prompt and draft extension. (§3.3-3.4)
    CoordGen,
    /// Token recycling, alone.
    Recycling,
    /// Ours: SAM with several candidates a place, calibrated from every pass, and token recycling.
    #[default]
    Duet,
    /// A draft model, alone.
    DraftModel,
    /// Ours and a draft model.
    DuetDraft,
}

/// What is known before a request begins.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// Finished interactions, the oldest first.
    pub history: Vec<Arc<SuffixAutomaton>>,
    /// What the model would have said in earlier requests.
    pub recycled: Arc<Recycled>,
}

/// Which rows of logits a method learns from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Learns {
    /// Those of the prompt.
    pub prompt: bool,
    /// Those of decode and verify passes.
    pub answer: bool,
    /// What the model would have said in the places of rejected rows.
    pub rejected: bool,
}

impl Method {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::None,
        Self::Pld,
        Self::PldDuet,
        Self::Sam,
        Self::Calibrated,
        Self::CoordGen,
        Self::Recycling,
        Self::Duet,
        Self::DraftModel,
        Self::DuetDraft,
    ];

    /// Its drafters, over what is known of earlier requests.
    #[must_use]
    pub fn drafters(self, known: &Known) -> Vec<Box<dyn Drafter>> {
        let breadth = if matches!(self, Self::Duet | Self::DuetDraft) { Breadth::Several } else { Breadth::Single };
        let mut drafters: Vec<Box<dyn Drafter>> = Vec::new();
        match self {
            Self::None => return drafters,
            Self::Recycling | Self::DraftModel => {}
            Self::Pld | Self::PldDuet => drafters.push(Box::<PromptLookup>::default()),
            Self::Sam | Self::Calibrated | Self::CoordGen | Self::Duet | Self::DuetDraft => {
                drafters.push(Box::new(Context::new(breadth)));
                let past = known.history.iter().map(|past| History::new(Arc::clone(past), breadth));
                drafters.extend(past.map(|past| Box::new(past) as Box<dyn Drafter>));
            }
        }
        if self.recycles() {
            drafters.push(Box::new(Recycling::of(Arc::clone(&known.recycled))));
        }
        if self.learns().prompt || self.learns().answer {
            drafters.push(Box::<Calibration>::default());
        }
        if self.learns().rejected {
            drafters.push(Box::<Extension>::default());
        }
        if self.has_model() {
            drafters.push(Box::<DraftModel>::default());
        }
        drafters
    }

    /// Whether it drafts from finished interactions.
    #[must_use]
    pub fn has_history(self) -> bool {
        !matches!(self, Self::None | Self::Pld | Self::PldDuet | Self::Recycling | Self::DraftModel)
    }

    /// Whether it drafts from what the model would have said in earlier requests.
    #[must_use]
    pub fn recycles(self) -> bool {
        matches!(self, Self::Recycling | Self::Duet | Self::DuetDraft)
    }

    /// Whether a draft model is one of its drafters.
    #[must_use]
    pub fn has_model(self) -> bool {
        matches!(self, Self::DraftModel | Self::DuetDraft)
    }

    /// What it learns from.
    #[must_use]
    pub fn learns(self) -> Learns {
        let (prompt, answer, rejected) = match self {
            Self::None | Self::Pld | Self::Sam | Self::DraftModel => (false, false, false),
            Self::Recycling => (false, true, false),
            Self::Calibrated => (true, false, false),
            Self::CoordGen => (true, false, true),
            Self::PldDuet => (true, true, true),
            // What was rejected earns less than it costs to ask for the model's tokens in its places.
            Self::Duet | Self::DuetDraft => (true, true, false),
        };
        Learns { prompt, answer, rejected }
    }

    fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Pld => "pld",
            Self::PldDuet => "pld+duet",
            Self::Sam => "sam",
            Self::Calibrated => "calibrated",
            Self::CoordGen => "coordgen",
            Self::Recycling => "recycling",
            Self::Duet => "duet",
            Self::DraftModel => "draft-model",
            Self::DuetDraft => "duet+draft",
        }
    }
}

/// A name that no method has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownMethod(String);

impl FromStr for Method {
    type Err = UnknownMethod;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|method| method.name() == name).ok_or_else(|| UnknownMethod(name.to_owned()))
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for UnknownMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = Method::ALL.into_iter().map(Method::name).collect();
        write!(f, "there is no drafting method `{}`; there are {}", self.0, names.join(", "))
    }
}

impl std::error::Error for UnknownMethod {}
