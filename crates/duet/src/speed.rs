//! How fast an answer was, in one line.

use duet_engine::Usage;

/// `31 tokens, 60.0 tok/s, first after 0.25 s (120 prompt tokens, 64 cached)`
///
/// The rate is that of the tokens after the first: the first one's time is the prompt's.
pub(crate) fn line(usage: &Usage) -> String {
    let mut line = format!("{} tokens", usage.generated);
    let decoding = usage.total.saturating_sub(usage.time_to_first_token).as_secs_f64();
    if usage.generated.0 > 1 && decoding > 0.0 {
        line += &format!(", {:.1} tok/s", f64::from(usage.generated.0 - 1) / decoding);
    }
    line += &format!(", first after {:.2} s", usage.time_to_first_token.as_secs_f64());
    line += &format!(" ({} prompt tokens", usage.prompt);
    if usage.cached.0 > 0 {
        line += &format!(", {} cached", usage.cached);
    }
    line += ")";
    if usage.drafts.accepted.0 > 0 {
        line += &format!(", {} drafted tokens were right, {} not", usage.drafts.accepted, usage.drafts.rejected);
    }
    if !usage.drafts.by_model.is_zero() {
        line += &format!(", {:.1} s of the draft model", usage.drafts.by_model.as_secs_f64());
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use duet_engine::DraftCounts;
    use duet_types::Tokens;
    use std::time::Duration;

    #[test]
    fn the_rate_leaves_out_the_prompt() {
        let usage = Usage {
            prompt: Tokens(120),
            cached: Tokens(64),
            generated: Tokens(31),
            drafts: DraftCounts {
                accepted: Tokens(20),
                rejected: Tokens(7),
                by_model: Duration::from_millis(1300),
                ..DraftCounts::default()
            },
            time_to_first_token: Duration::from_millis(250),
            total: Duration::from_millis(750),
            ..Usage::default()
        };
        let expected = "31 tokens, 60.0 tok/s, first after 0.25 s (120 prompt tokens, 64 cached), \
                        20 drafted tokens were right, 7 not, 1.3 s of the draft model";
        assert_eq!(line(&usage), expected);
    }

    #[test]
    fn one_token_has_no_rate() {
        let usage = Usage { generated: Tokens(1), ..Usage::default() };
        assert_eq!(line(&usage), "1 tokens, first after 0.00 s (0 prompt tokens)");
    }
}
