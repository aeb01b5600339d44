//! Times as Ollama writes them: RFC 3339, in UTC.

use std::time::{SystemTime, UNIX_EPOCH};

/// The time now, to the microsecond: more digits are too many for some clients.
pub(super) fn now() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    written(since.as_secs(), Some(since.subsec_micros()))
}

/// So many seconds after 1970.
pub(super) fn at(seconds: u64) -> String {
    written(seconds, None)
}

fn written(seconds: u64, micros: Option<u32>) -> String {
    let (year, month, day) = date(seconds / DAY);
    let (hour, minute, second) = (seconds % DAY / 3600, seconds % 3600 / 60, seconds % 60);
    let fraction = micros.map(|micros| format!(".{micros:06}")).unwrap_or_default();
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{fraction}Z")
}

/// Year, month and day, so many days after 1970-01-01. The year is counted from March, so that the day which only some
/// years have is their last.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + DAYS_BEFORE_1970;
    let (era, of_era) = (days / ERA, days % ERA);
    // Take out the days that leap years have more, to have years of one length.
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let year = year + era * 400;
    if month < 10 { (year, month + 3, day) } else { (year + 1, month - 9, day) }
}

const DAY: u64 = 24 * 3600;
/// Days of 400 years, after which the calendar repeats.
const ERA: u64 = 146_097;
/// From 0000-03-01.
const DAYS_BEFORE_1970: u64 = 719_468;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_the_calendar_has_them() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_704_067_199, "2023-12-31T23:59:59Z"),
            (1_709_164_800, "2024-02-29T00:00:00Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(at(seconds), text);
        }
        assert_eq!(written(1_700_000_000, Some(1234)), "2023-11-14T22:13:20.001234Z");
    }
}
