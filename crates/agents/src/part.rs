//! Parts of a turn, and where in them it is.

/// A part of a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// What the turn says.
    Text(String),
    /// What the model thought before.
    Reasoning(String),
    /// A call, where a family's channels tell that it is one.
    Call {
        /// Of this function.
        name: String,
        /// What the model wrote of its arguments.
        arguments: String,
        /// All that it wrote.
        written: String,
    },
}

/// Where a turn is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Nothing but whitespace, or a part of the opening mark.
    Beginning,
    /// In the reasoning.
    Reasoning,
    /// There too, and what came last may become the closing mark.
    Closing,
    /// Behind it, or in a turn without any.
    Answer,
}

/// Adds a part, to the last one where it is of the same kind.
pub(crate) fn emit(parts: &mut Vec<Part>, part: Part) {
    match (parts.last_mut(), part) {
        (Some(Part::Text(last)), Part::Text(text)) | (Some(Part::Reasoning(last)), Part::Reasoning(text)) => {
            last.push_str(&text);
        }
        (_, Part::Text(text)) if text.is_empty() => {}
        (_, Part::Reasoning(text)) if text.is_empty() => {}
        (_, part) => parts.push(part),
    }
}
