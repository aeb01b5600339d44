//! Lengths of prompts and answers, as the samples of real data sets have them. (Agent.xpu §6.1)
//!
//! A table has one sample a line, `data-set class input output`, and comments from `#` on. One comes with the crate; the
//! example `lengths` of `duet-model` makes others. Lengths go in pairs: a long prompt does not make a long answer.
//!
//! **Invariants.** A data set has a sample, and all its samples are of one class. A length is in `1..=`[`LENGTH_MAX`].

use crate::random::Random;
use duet_types::{Class, Tokens};
use std::fmt;
use std::str::FromStr;

/// The data sets of a table, in the order in which they begin there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lengths {
    data_sets: Vec<DataSet>,
}

/// The samples of one origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataSet {
    name: String,
    class: Class,
    samples: Vec<Sample>,
}

/// A prompt and its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sample {
    /// Tokens of the prompt.
    pub input: Tokens,
    /// Tokens of the answer, its end among them.
    pub output: Tokens,
}

/// Data sets of one class, of which each is drawn from as often as any other, however many samples it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mix {
    class: Class,
    data_sets: Vec<DataSet>,
}

/// How some lengths are spread. Each is one of them (nearest rank).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spread {
    /// A tenth of them are at most this long.
    pub p10: Tokens,
    /// Half.
    pub p50: Tokens,
    /// Nine tenths.
    pub p90: Tokens,
}

/// Longer than any context that is served: sums of lengths stay far from the end of their numbers.
pub const LENGTH_MAX: u32 = 1 << 20;

/// Why a table cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LengthsError {
    /// A line does not have its four words.
    Columns {
        /// Which line, from 1.
        line: usize,
        /// How many words it has.
        found: usize,
    },
    /// A class that there is not.
    Class {
        /// Which line, from 1.
        line: usize,
        /// As in the line.
        found: String,
    },
    /// A length that is no number, or out of range.
    Length {
        /// Which line, from 1.
        line: usize,
        /// `input` or `output`.
        column: &'static str,
        /// As in the line.
        found: String,
    },
    /// A data set that is of one class here and was of the other above.
    TwoClasses {
        /// Which line, from 1.
        line: usize,
        /// Which data set.
        data_set: String,
    },
    /// There is no sample at all.
    Empty,
    /// A mix of a class that no data set has.
    NoDataSet {
        /// Which class.
        class: Class,
    },
}

impl Lengths {
    /// The table that comes with the crate: the data sets of Agent.xpu's evaluation, or what stands for them.
    #[must_use]
    pub fn shipped() -> Self {
        // A constant that the tests parse.
        SHIPPED.parse().expect("the table is one")
    }

    /// All data sets.
    #[must_use]
    pub fn data_sets(&self) -> &[DataSet] {
        &self.data_sets
    }

    /// The data set of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&DataSet> {
        self.data_sets.iter().find(|data_set| data_set.name == name)
    }

    /// All data sets of a class.
    ///
    /// # Errors
    /// If there is none.
    pub fn mix(&self, class: Class) -> Result<Mix, LengthsError> {
        let of_class = self.data_sets.iter().filter(|data_set| data_set.class == class);
        let data_sets: Vec<_> = of_class.cloned().collect();
        if data_sets.is_empty() { Err(LengthsError::NoDataSet { class }) } else { Ok(Mix { class, data_sets }) }
    }

    fn add(&mut self, line: usize, name: &str, class: Class, sample: Sample) -> Result<(), LengthsError> {
        match self.data_sets.iter_mut().find(|data_set| data_set.name == name) {
            Some(known) if known.class != class => {
                return Err(LengthsError::TwoClasses { line, data_set: name.to_owned() });
            }
            Some(known) => known.samples.push(sample),
            None => self.data_sets.push(DataSet { name: name.to_owned(), class, samples: vec![sample] }),
        }
        Ok(())
    }
}

impl DataSet {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Who waits for its answers.
    #[must_use]
    pub fn class(&self) -> Class {
        self.class
    }

    /// Its samples, one at least.
    #[must_use]
    pub fn samples(&self) -> &[Sample] {
        &self.samples
    }

    /// How long its prompts are.
    #[must_use]
    pub fn inputs(&self) -> Spread {
        Spread::of(self.samples.iter().map(|sample| sample.input).collect())
    }

    /// How long its answers are.
    #[must_use]
    pub fn outputs(&self) -> Spread {
        Spread::of(self.samples.iter().map(|sample| sample.output).collect())
    }
}

impl Mix {
    /// Who waits for its answers.
    #[must_use]
    pub fn class(&self) -> Class {
        self.class
    }

    /// Its data sets, one at least.
    #[must_use]
    pub fn data_sets(&self) -> &[DataSet] {
        &self.data_sets
    }

    /// Only the data sets of these names, if there are any.
    #[must_use]
    pub fn only(&self, names: &[String]) -> Option<Self> {
        let data_sets = self.data_sets.iter().filter(|data_set| names.iter().any(|name| name == data_set.name()));
        let data_sets: Vec<_> = data_sets.cloned().collect();
        (!data_sets.is_empty()).then_some(Self { class: self.class, data_sets })
    }

    /// A sample: first a data set, then one of its samples, each as likely as the others.
    pub fn draw(&self, random: &mut Random) -> Sample {
        let data_set = &self.data_sets[place(random, self.data_sets.len())];
        data_set.samples[place(random, data_set.samples.len())]
    }

    /// Joins the shipped files that stand for one data set.
    fn joined(class: Class, groups: &[(&str, &[&str])]) -> Self {
        let shipped = Lengths::shipped();
        let samples = |file: &&str| shipped.get(file).map_or(&[][..], DataSet::samples).to_vec();
        let join = |(name, files): &(&str, &[&str])| DataSet {
            name: (*name).to_owned(),
            class,
            samples: files.iter().flat_map(samples).collect(),
        };
        Self { class, data_sets: groups.iter().map(join).collect() }
    }
}

impl Spread {
    /// Of one length at least.
    fn of(mut lengths: Vec<Tokens>) -> Self {
        lengths.sort_unstable();
        let reached = |tenths: usize| lengths[(lengths.len() * tenths).div_ceil(10) - 1];
        Self { p10: reached(1), p50: reached(5), p90: reached(9) }
    }
}

/// What persons ask in the paper's evaluation: chats, questions with retrieved passages, function calls.
#[must_use]
pub fn reactive_mix() -> Mix {
    Mix::joined(Class::Reactive, &REACTIVE)
}

/// What agents ask in the paper's evaluation: what to do about events, summaries and replies in chats, and of news.
#[must_use]
pub fn proactive_mix() -> Mix {
    Mix::joined(Class::Proactive, &PROACTIVE)
}

/// The paper's data sets, and the shipped ones that are them or stand for them: LMSYS-Chat-1M is not public, and four
/// sets of chats are in its place.
const REACTIVE: [(&str, &[&str]); 3] = [
    ("lmsys-chat", &["chat_mtbench", "chat_arena", "chat_sharegpt", "chat_oasst"]),
    ("mtrag", &["rag_mtrag"]),
    ("bfcl", &["func_bfcl"]),
];
const PROACTIVE: [(&str, &[&str]); 3] = [
    ("proactive-bench", &["proactive_bench"]),
    ("samsum", &["summ_samsum", "reply_samsum"]),
    ("cnn-dailymail", &["summ_cnndm"]),
];

const SHIPPED: &str = include_str!("../data/lengths.txt");

/// One of `count` places, evenly.
fn place(random: &mut Random, count: usize) -> usize {
    random.between(0, count as u32) as usize
}

impl FromStr for Lengths {
    type Err = LengthsError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut lengths = Self { data_sets: Vec::new() };
        for (index, text) in text.lines().enumerate() {
            let (line, text) = (index + 1, text.split('#').next().unwrap_or_default());
            let words: Vec<&str> = text.split_whitespace().collect();
            match words[..] {
                [] => {}
                [name, class, input, output] => {
                    let (class, input) = (parse_class(line, class)?, length(line, "input", input)?);
                    lengths.add(line, name, class, Sample { input, output: length(line, "output", output)? })?;
                }
                _ => return Err(LengthsError::Columns { line, found: words.len() }),
            }
        }
        if lengths.data_sets.is_empty() { Err(LengthsError::Empty) } else { Ok(lengths) }
    }
}

fn parse_class(line: usize, word: &str) -> Result<Class, LengthsError> {
    match word {
        "reactive" => Ok(Class::Reactive),
        "proactive" => Ok(Class::Proactive),
        _ => Err(LengthsError::Class { line, found: word.to_owned() }),
    }
}

fn length(line: usize, column: &'static str, word: &str) -> Result<Tokens, LengthsError> {
    let length = word.parse().ok().filter(|length| (1..=LENGTH_MAX).contains(length));
    length.map(Tokens).ok_or_else(|| LengthsError::Length { line, column, found: word.to_owned() })
}

impl fmt::Display for LengthsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Columns { line, found } => {
                write!(f, "line {line}: expected `data-set class input output`, found {found} words")
            }
            Self::Class { line, found } => {
                write!(f, "line {line}, class: `{found}` is neither `reactive` nor `proactive`")
            }
            Self::Length { line, column, found } => {
                write!(f, "line {line}, {column}: `{found}` is no length from 1 to {LENGTH_MAX}")
            }
            Self::TwoClasses { line, data_set } => {
                write!(f, "line {line}, class: `{data_set}` has the other class above; give it another name here")
            }
            Self::Empty => write!(f, "there is no sample; a line is `data-set class input output`"),
            Self::NoDataSet { class: Class::Reactive } => write!(f, "no data set is reactive"),
            Self::NoDataSet { class: Class::Proactive } => write!(f, "no data set is proactive"),
        }
    }
}

impl std::error::Error for LengthsError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        text.parse::<Lengths>().unwrap_err().to_string()
    }

    #[test]
    fn a_table_is_read_back_as_it_is() {
        let lengths: Lengths = "# a head\nb reactive 3 4\n\na proactive 5 6 # odd\nb reactive 1 2\n".parse().unwrap();
        let names: Vec<&str> = lengths.data_sets().iter().map(DataSet::name).collect();
        assert_eq!(names, ["b", "a"]);
        let b = lengths.get("b").unwrap();
        let sample = |input, output| Sample { input: Tokens(input), output: Tokens(output) };
        assert_eq!((b.class(), b.samples()), (Class::Reactive, &[sample(3, 4), sample(1, 2)][..]));
        assert!(lengths.get("c").is_none());
        assert_eq!(lengths.mix(Class::Proactive).unwrap().data_sets(), [lengths.get("a").unwrap().clone()]);
    }

    #[test]
    fn what_is_wrong_is_named_by_line_and_column() {
        let expected = "line 2: expected `data-set class input output`, found 3 words";
        assert_eq!(error("# x\na reactive 3"), expected);
        assert_eq!(error("a urgent 3 4"), "line 1, class: `urgent` is neither `reactive` nor `proactive`");
        assert_eq!(error("a reactive 0 4"), "line 1, input: `0` is no length from 1 to 1048576");
        assert_eq!(error("a reactive 4 1048577"), "line 1, output: `1048577` is no length from 1 to 1048576");
        assert_eq!(error("a reactive 4 -1"), "line 1, output: `-1` is no length from 1 to 1048576");
        assert!(error("a reactive 1 1\na proactive 1 1").starts_with("line 2, class: `a` has the other class above"));
        assert!(error("# nothing\n").starts_with("there is no sample"));
        let reactive: Lengths = "a reactive 1 1".parse().unwrap();
        assert_eq!(reactive.mix(Class::Proactive), Err(LengthsError::NoDataSet { class: Class::Proactive }));
    }

    #[test]
    fn a_spread_is_of_lengths_that_there_are() {
        let table: String = (1..=20).rev().map(|length| format!("a reactive {length} 7\n")).collect();
        let lengths: Lengths = table.parse().unwrap();
        let data_set = lengths.get("a").unwrap();
        assert_eq!(data_set.inputs(), Spread { p10: Tokens(2), p50: Tokens(10), p90: Tokens(18) });
        assert_eq!(data_set.outputs(), Spread { p10: Tokens(7), p50: Tokens(7), p90: Tokens(7) });
    }

    #[test]
    fn the_mixes_take_every_shipped_sample_once_and_nothing_else() {
        let shipped = Lengths::shipped();
        for (class, mix) in [(Class::Reactive, reactive_mix()), (Class::Proactive, proactive_mix())] {
            let of_class = shipped.data_sets().iter().filter(|data_set| data_set.class() == class);
            let mut expected: Vec<Sample> = of_class.flat_map(DataSet::samples).copied().collect();
            let mut mixed: Vec<Sample> = mix.data_sets().iter().flat_map(DataSet::samples).copied().collect();
            expected.sort_unstable();
            mixed.sort_unstable();
            assert_eq!(mixed, expected, "{class:?}");
            assert!(mix.data_sets().iter().all(|data_set| data_set.samples().len() >= 100), "{class:?}");
        }
    }

    #[test]
    fn a_data_set_of_a_mix_is_a_mix() {
        let samsum = proactive_mix().only(&["samsum".to_owned()]).unwrap();
        assert_eq!(samsum.data_sets().iter().map(DataSet::name).collect::<Vec<_>>(), ["samsum"]);
        assert_eq!(samsum.class(), Class::Proactive);
        assert_eq!(proactive_mix().only(&["mtrag".to_owned()]), None);
    }

    #[test]
    fn a_small_data_set_is_drawn_as_often_as_a_large_one() {
        let large: String = (0..99).map(|_| "large reactive 1 1\n").collect();
        let mix = format!("{large}small reactive 2 2").parse::<Lengths>().unwrap().mix(Class::Reactive).unwrap();
        let mut random = Random::new(7);
        let small = (0..1000).filter(|_| mix.draw(&mut random).input == Tokens(2)).count();
        assert!((450..550).contains(&small), "{small} of 1000 were of the small one");
    }
}
