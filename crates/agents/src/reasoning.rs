//! How families of models mark their reasoning.

/// How a family of models marks its reasoning, which stands before everything else of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReasoningFormat {
    /// `<think>…</think>`: Qwen 3, DeepSeek R1, SmolLM 3 and most others.
    Think,
    /// `[THINK]…[/THINK]`: Magistral.
    BracketThink,
    /// `<reasoning>…</reasoning>`.
    Reasoning,
    /// `<|channel|>analysis<|message|>…<|end|><|start|>assistant<|channel|>final<|message|>`: gpt-oss.
    Channel,
}

/// Where a turn begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Begins {
    /// The model opens its reasoning itself, if it reasons.
    #[default]
    Outside,
    /// The prompt ends inside reasoning.
    Inside,
}

impl ReasoningFormat {
    const ALL: [Self; 4] = [Self::Channel, Self::BracketThink, Self::Reasoning, Self::Think];

    /// The family of a chat template, by the template's source; absent if it knows of no reasoning.
    #[must_use]
    pub fn of_template(source: &str) -> Option<Self> {
        let told = |format: &Self| match format {
            // Templates write the parts apart.
            Self::Channel => source.contains("<|channel|>analysis"),
            // R1's template cuts at the closing mark and never writes the opening one.
            _ => source.contains(format.opening()) || source.contains(format.closing()),
        };
        Self::ALL.into_iter().find(told)
    }

    /// Where a turn begins after this prompt.
    #[must_use]
    pub fn begins(self, prompt: &str) -> Begins {
        if prompt.trim_end().ends_with(self.opening()) { Begins::Inside } else { Begins::Outside }
    }

    /// Marks that are special tokens in some vocabularies: their text is to reach the parser all the same.
    #[must_use]
    pub fn marks(self) -> &'static [&'static str] {
        match self {
            Self::Think => &["<think>", "</think>"],
            Self::BracketThink => &["[THINK]", "[/THINK]"],
            Self::Reasoning => &["<reasoning>", "</reasoning>"],
            Self::Channel => &["<|channel|>", "<|message|>", "<|end|>", "<|start|>", "<|constrain|>"],
        }
    }

    pub(crate) fn opening(self) -> &'static str {
        match self {
            Self::Think => "<think>",
            Self::BracketThink => "[THINK]",
            Self::Reasoning => "<reasoning>",
            Self::Channel => "<|channel|>analysis<|message|>",
        }
    }

    /// What ends the reasoning, and begins the answer.
    #[must_use]
    pub fn closing(self) -> &'static str {
        match self {
            Self::Think => "</think>",
            Self::BracketThink => "[/THINK]",
            Self::Reasoning => "</reasoning>",
            Self::Channel => "<|end|><|start|>assistant<|channel|>final<|message|>",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_are_recognised() {
        let of = ReasoningFormat::of_template;
        let qwen3 = include_str!("../../model/tests/fixtures/templates/qwen3.jinja");
        assert_eq!(of(qwen3), Some(ReasoningFormat::Think));
        assert_eq!(of(include_str!("../../model/tests/fixtures/templates/qwen25.jinja")), None);
        assert_eq!(of("{{ content.split('</think>')[-1] }}"), Some(ReasoningFormat::Think));
        assert_eq!(of("[THINK]"), Some(ReasoningFormat::BracketThink));
        assert_eq!(of("<|channel|>analysis<|message|>"), Some(ReasoningFormat::Channel));
    }

    #[test]
    fn a_prompt_may_end_inside() {
        let begins = |prompt| ReasoningFormat::Think.begins(prompt);
        assert_eq!(begins("<|im_start|>assistant\n<think>\n"), Begins::Inside);
        assert_eq!(begins("<|im_start|>assistant\n<think>\n\n</think>\n\n"), Begins::Outside);
        assert_eq!(begins("<|im_start|>assistant\n"), Begins::Outside);
    }
}
