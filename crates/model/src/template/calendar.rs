//! Dates for `strftime_now`, in UTC.
//!
//! Templates tell the model today's date. The local time zone is left out: the same prompt at the same instant is the
//! same everywhere. Covers the directives that are about dates and clock times; others stay as they are written.

use std::time::{SystemTime, UNIX_EPOCH};

/// An instant as people write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Calendar {
    year: i64,
    /// 1 to 12.
    month: u32,
    /// 1 to 31.
    day: u32,
    /// 0 is Sunday.
    weekday: u32,
    /// 1 to 366.
    day_of_year: u32,
    /// Since midnight.
    seconds: u32,
}

impl Calendar {
    /// Times before 1970 count as 1970.
    pub(super) fn new(time: SystemTime) -> Self {
        let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let days = i64::try_from(seconds / 86_400).unwrap_or(0);
        let (year, month, day) = civil(days);
        let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let before = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334][month as usize - 1];
        Self {
            year,
            month,
            day,
            // 1970 began on a Thursday.
            weekday: ((days + 4) % 7) as u32,
            day_of_year: before + day + u32::from(leap && month > 2),
            seconds: (seconds % 86_400) as u32,
        }
    }

    /// `format` with its directives replaced, as Python's `strftime` in the C locale.
    pub(super) fn format(&self, format: &str) -> String {
        let mut text = String::new();
        let mut chars = format.chars();
        while let Some(c) = chars.next() {
            if c != '%' {
                text.push(c);
                continue;
            }
            let (bare, directive) = match chars.next() {
                Some('-') => (true, chars.next()),
                other => (false, other),
            };
            match directive.and_then(|directive| self.directive(directive)) {
                Some(value) if bare => {
                    let trimmed = value.trim_start_matches('0');
                    text.push_str(if trimmed.is_empty() { "0" } else { trimmed });
                }
                Some(value) => text.push_str(&value),
                None => {
                    text.push_str(if bare { "%-" } else { "%" });
                    text.extend(directive);
                }
            }
        }
        text
    }

    fn directive(&self, directive: char) -> Option<String> {
        let month = MONTHS[self.month as usize - 1];
        let weekday = WEEKDAYS[self.weekday as usize];
        let (hour, minute, second) = (self.seconds / 3600, self.seconds / 60 % 60, self.seconds % 60);
        let hour12 = if hour % 12 == 0 { 12 } else { hour % 12 };
        Some(match directive {
            'Y' => self.year.to_string(),
            'y' => format!("{:02}", self.year % 100),
            'm' => format!("{:02}", self.month),
            'B' => month.to_owned(),
            'b' | 'h' => month[..3].to_owned(),
            'd' => format!("{:02}", self.day),
            'e' => format!("{:2}", self.day),
            'j' => format!("{:03}", self.day_of_year),
            'A' => weekday.to_owned(),
            'a' => weekday[..3].to_owned(),
            'w' => self.weekday.to_string(),
            'H' => format!("{hour:02}"),
            'I' => format!("{hour12:02}"),
            'M' => format!("{minute:02}"),
            'S' => format!("{second:02}"),
            'p' => if hour < 12 { "AM" } else { "PM" }.to_owned(),
            'F' => self.format("%Y-%m-%d"),
            'T' | 'X' => self.format("%H:%M:%S"),
            'D' | 'x' => self.format("%m/%d/%y"),
            'R' => self.format("%H:%M"),
            'c' => self.format("%a %b %e %H:%M:%S %Y"),
            'n' => "\n".to_owned(),
            't' => "\t".to_owned(),
            '%' => "%".to_owned(),
            _ => return None,
        })
    }
}

/// Year, month and day of a day counted from 1970-01-01, in the Gregorian calendar.
/// Years are counted from March, so that the leap day is the last of its year.
fn civil(days: i64) -> (i64, u32, u32) {
    let days = days + 719_468;
    let era = days / 146_097;
    let day_of_era = days % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month as u32, day as u32)
}

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

const WEEKDAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn template_dates_are_right() {
        let check = |seconds, expected: &str| {
            let calendar = Calendar::new(UNIX_EPOCH + Duration::from_secs(seconds));
            assert_eq!(calendar.format("%A %d %b %Y %j %-d %I:%M:%S %p %% %Q"), expected);
        };
        check(0, "Thursday 01 Jan 1970 001 1 12:00:00 AM % %Q");
        check(951_782_399, "Monday 28 Feb 2000 059 28 11:59:59 PM % %Q");
        check(951_782_400, "Tuesday 29 Feb 2000 060 29 12:00:00 AM % %Q");
        check(1_735_689_599, "Tuesday 31 Dec 2024 366 31 11:59:59 PM % %Q");
        check(1_772_323_200, "Sunday 01 Mar 2026 060 1 12:00:00 AM % %Q");
    }
}
