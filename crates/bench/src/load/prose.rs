//! Texts of any length, for cases that need a prompt of a certain size. They are not what quality is measured on.

use super::arrivals::Rng;
use super::subject::Subject;
use duet_types::Tokens;

/// At least `wanted` tokens of a household's log, by the subject's own tokenizer. Another seed is another text from its
/// first words on, so that no cache knows it.
pub(crate) fn log(subject: &Subject, wanted: Tokens, seed: u64) -> String {
    let mut rng = Rng::new(seed, LOG_PURPOSE);
    let mut text = String::new();
    let mut tokens = 0;
    let mut minute = 0;
    while tokens < wanted.0 {
        minute += 1 + rng.below(9);
        let what = EVENTS[rng.below(EVENTS.len())];
        let line = format!(
            "{:02}:{:02} {what}, {} of {}\n",
            minute / 60 % 24,
            minute % 60,
            rng.below(500),
            500 + rng.below(500)
        );
        tokens += subject.tokens(&line).0;
        text += &line;
    }
    text
}

/// Apart from the purposes of arrivals.
const LOG_PURPOSE: u64 = 5;

const EVENTS: [&str; 12] = [
    "the mail folder was fetched and sorted",
    "the picture index found new faces",
    "the backup copied changed files",
    "a calendar entry moved to another day",
    "a new device joined the network",
    "the heating paused because a window was open",
    "the camera at the gate saw something move",
    "the parcel service changed its estimate",
    "the music player lost the kitchen speaker",
    "the garden valve opened and closed again",
    "a document was renamed by its owner",
    "the battery of the door sensor reported its charge",
];
