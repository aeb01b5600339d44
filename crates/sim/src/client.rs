//! Clients: what is true of a request and hidden from the scheduler.

use duet_scheduler::{Chance, HeadRows};
use duet_types::{Class, Instant, Nanos, Net, Tokens};

/// One request as its client knows it. Its id is its place in the list of clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client {
    /// What timelines call it.
    pub name: String,
    /// When it is submitted, if it does not follow another.
    pub arrives: Instant,
    /// Who waits for it.
    pub class: Class,
    /// Length of its prompt.
    pub prompt: Tokens,
    /// Length of its answer.
    pub output: Tokens,
    /// Which model reads it. What an encoder makes of a prompt counts as an answer of one token.
    pub net: Net,
    /// Which rows of its prompt go through the head.
    pub head: HeadRows,
    /// The request whose tokens its prompt begins with.
    pub continues: Option<Continues>,
    /// Whose end it waits for before it is submitted. Absent: it waits for nobody.
    pub follows: Option<Follows>,
    /// When its client gives it up; also before it arrives, or after its end. One that would follow another after that does
    /// not come.
    pub cancelled: Option<Instant>,
    /// Which of its kernels fail.
    pub failing: Failing,
    /// Which of its kernels never end.
    pub hanging: Failing,
    /// Whether its graphs can be compiled.
    pub graph: Graphs,
    /// The chance of each token that is drafted for it; absent if none is.
    pub drafts: Option<Chance>,
    /// How long the masks of each of its passes take to make, while the pass runs.
    pub masks: Nanos,
}

/// The request whose tokens a prompt begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Continues {
    /// Which client.
    pub client: usize,
    /// How many tokens are the same at most; the rest differs.
    pub shared: Tokens,
}

/// A request that comes after another's end: a person has read the answer, a tool has run, or so many are kept in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Follows {
    /// Which client's.
    pub client: usize,
    /// How long after it.
    pub gap: Nanos,
}

/// Which of a request's kernels go wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Failing {
    /// None.
    #[default]
    Never,
    /// Only this one, counted from 0.
    Once(u32),
    /// All from this one on.
    From(u32),
}

/// Whether graphs for a request can be compiled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Graphs {
    /// They can.
    #[default]
    Compile,
    /// It takes this many times as long as it should.
    Slow(u32),
    /// The compiler gives up on them.
    Fail,
}

impl Client {
    /// A client who arrives at the beginning and wants nothing special.
    #[must_use]
    pub fn new(class: Class, prompt: u32, output: u32) -> Self {
        Self {
            name: String::new(),
            arrives: Instant(0),
            class,
            prompt: Tokens(prompt),
            output: Tokens(output),
            net: Net::Decoder,
            head: HeadRows::Last,
            continues: None,
            follows: None,
            cancelled: None,
            failing: Failing::Never,
            hanging: Failing::Never,
            graph: Graphs::Compile,
            drafts: None,
            masks: Nanos::ZERO,
        }
    }
}

impl Graphs {
    /// How long a graph is compiled that should take `time`.
    pub(crate) fn compile_time(self, time: Nanos) -> Nanos {
        match self {
            Self::Compile | Self::Fail => time,
            Self::Slow(factor) => Nanos(time.0.saturating_mul(u64::from(factor))),
        }
    }
}

impl Failing {
    /// Whether the kernel of this number does, counted from 0.
    pub(crate) fn affects(self, ordinal: u32) -> bool {
        match self {
            Self::Never => false,
            Self::Once(which) => ordinal == which,
            Self::From(first) => ordinal >= first,
        }
    }
}
