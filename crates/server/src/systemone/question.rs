//! Questions, as clients write them.
//!
//! `questions` is an object of named ones, or a list of such with an `id`. The types are `choice`, `noul` (yes or no, also
//! `yes_no`) and `score`. What is asked is `instructions` (or `question`); the possible answers are `criteria`: of a choice
//! an object from answers to descriptions or a list (also `choices`), of a score a list from the lowest level up (or `min`
//! and `max`), of yes and no an object that describes `true` and `false`.

use crate::error::ApiError;
use crate::fields::Fields;
use serde_json::Value;

/// One question.
#[derive(Debug)]
pub(super) struct Question {
    pub(super) name: String,
    pub(super) kind: Kind,
    asked: String,
    /// At least two; each label is another one.
    pub(super) options: Vec<Answer>,
}

/// What its answer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// How likely yes is. Yes is the first option.
    Noul,
    /// One of the options.
    Choice,
    /// A place on a scale that begins here. The options are its levels, lowest first.
    Score { lowest: i64 },
}

/// A possible answer.
#[derive(Debug)]
pub(super) struct Answer {
    /// What the model would write.
    pub(super) label: String,
    /// What it means, where that was said.
    pub(super) means: Option<String>,
}

impl Question {
    /// The question as the model is asked.
    pub(super) fn text(&self) -> String {
        let option = |answer: &Answer| match &answer.means {
            Some(means) => format!("- {}: {means}\n", answer.label),
            None => format!("- {}\n", answer.label),
        };
        let options: String = self.options.iter().map(option).collect();
        format!(
            "Question: {}\nPossible answers:\n{options}Answer with one of them, exactly as it is written.",
            self.asked
        )
    }
}

/// Takes `questions`.
pub(super) fn take_all(fields: &mut Fields, ignored: &mut Vec<String>) -> Result<Vec<Question>, ApiError> {
    let questions = fields.take("questions").ok_or_else(|| ApiError::Missing { param: "questions".to_owned() })?;
    let count = questions.as_object().map(|map| map.len()).or(questions.as_array().map(Vec::len));
    if count.is_some_and(|count| count == 0 || count > QUESTIONS_MAX) {
        return Err(fields.out_of_range("questions", format!("1 to {QUESTIONS_MAX} questions"), &questions));
    }
    match questions {
        Value::Object(named) => {
            let read = |(name, value): (String, Value)| {
                let within = Fields::nested(fields.path_of(&format!("questions.{name}")), value)?;
                take(name, within, ignored)
            };
            named.into_iter().map(read).collect()
        }
        Value::Array(listed) => {
            let mut questions: Vec<Question> = Vec::with_capacity(listed.len());
            for (index, value) in listed.into_iter().enumerate() {
                let mut within = Fields::nested(fields.path_of(&format!("questions[{index}]")), value)?;
                let name = within.string("id")?.ok_or_else(|| ApiError::Missing { param: within.path_of("id") })?;
                if questions.iter().any(|question| question.name == name) {
                    return Err(within.out_of_range("id", "an id of its own", &Value::String(name)));
                }
                questions.push(take(name, within, ignored)?);
            }
            Ok(questions)
        }
        other => Err(fields.wrong_type("questions", "an object of questions, or a list", &other)),
    }
}

fn take(name: String, mut fields: Fields, ignored: &mut Vec<String>) -> Result<Question, ApiError> {
    let kind = fields.string("type")?.ok_or_else(|| ApiError::Missing { param: fields.path_of("type") })?;
    let asked = fields.take("instructions").or(fields.take("question")).map(text_of);
    let asked = asked.ok_or_else(|| ApiError::Missing { param: fields.path_of("instructions") })?;
    let (kind, options) = match kind.as_str() {
        "noul" | "yes_no" => (Kind::Noul, yes_and_no(&mut fields)?),
        "choice" => (Kind::Choice, choices(&mut fields)?),
        "score" => levels(&mut fields)?,
        _ => return Err(fields.out_of_range("type", "one of choice, noul, score", &Value::String(kind))),
    };
    ignored.extend(fields.rest());
    Ok(Question { name, kind, asked, options })
}

fn yes_and_no(fields: &mut Fields) -> Result<Vec<Answer>, ApiError> {
    let mut means = match fields.take("criteria") {
        None => Default::default(),
        Some(Value::Object(means)) => means,
        Some(other) => return Err(fields.wrong_type("criteria", "an object", &other)),
    };
    let mut answer = |label: &str, key: &str| Answer {
        label: label.to_owned(),
        means: means.remove(key).filter(|means| !means.is_null()).map(text_of),
    };
    Ok(vec![answer("yes", "true"), answer("no", "false")])
}

fn choices(fields: &mut Fields) -> Result<Vec<Answer>, ApiError> {
    let name = if fields.has("criteria") { "criteria" } else { "choices" };
    let options: Vec<(String, Value)> = match fields.take(name) {
        None => return Err(ApiError::Missing { param: fields.path_of("criteria") }),
        Some(Value::Object(means)) => means.into_iter().collect(),
        Some(Value::Array(labels)) => labels.into_iter().map(|label| (text_of(label), Value::Null)).collect(),
        Some(other) => return Err(fields.wrong_type(name, "an object of answers, or a list", &other)),
    };
    if !(2..=CHOICES_MAX).contains(&options.len()) {
        return Err(fields.out_of_range(name, format!("2 to {CHOICES_MAX} answers"), &options.len().into()));
    }
    let mut answers: Vec<Answer> = Vec::with_capacity(options.len());
    for (label, means) in options {
        let is_known = answers.iter().any(|answer| answer.label == label);
        if label.trim() != label || label.is_empty() || label.len() > LABEL_BYTES_MAX || is_known {
            let expected = format!("different answers of 1 to {LABEL_BYTES_MAX} bytes, without spaces around them");
            return Err(fields.out_of_range(name, expected, &Value::String(label)));
        }
        answers.push(Answer { label, means: (!means.is_null()).then(|| text_of(means)) });
    }
    Ok(answers)
}

fn levels(fields: &mut Fields) -> Result<(Kind, Vec<Answer>), ApiError> {
    let (lowest, means): (i64, Vec<Option<String>>) = match fields.take("criteria") {
        Some(Value::Array(levels)) => (0, levels.into_iter().map(|level| Some(text_of(level))).collect()),
        Some(other) => return Err(fields.wrong_type("criteria", "an array", &other)),
        None => {
            let bound = |fields: &mut Fields, name: &str| {
                let bound = fields.integer(name, -SCALE_MAX..=SCALE_MAX)?;
                bound.ok_or_else(|| ApiError::Missing { param: fields.path_of("criteria") })
            };
            let (lowest, highest) = (bound(fields, "min")?, bound(fields, "max")?);
            (lowest, (lowest..=highest).map(|_| None).collect())
        }
    };
    if !(2..=LEVELS_MAX).contains(&means.len()) {
        return Err(fields.out_of_range("criteria", format!("2 to {LEVELS_MAX} levels"), &means.len().into()));
    }
    let answer = |(level, means): (i64, Option<String>)| Answer { label: level.to_string(), means };
    Ok((Kind::Score { lowest }, (lowest..).zip(means).map(answer).collect()))
}

/// Texts are taken as they are; all else is shown as JSON.
pub(super) fn text_of(value: Value) -> String {
    match value {
        Value::String(text) => text,
        other => other.to_string(),
    }
}

/// Each is a prompt of its own.
const QUESTIONS_MAX: usize = 64;
/// Each may cost a step.
const CHOICES_MAX: usize = 64;
/// The convention's bound.
const LEVELS_MAX: usize = 11;
const SCALE_MAX: i64 = 1000;
/// An answer is a word or a few.
pub(super) const LABEL_BYTES_MAX: usize = 128;
