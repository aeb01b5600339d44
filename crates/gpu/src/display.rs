//! Whether a GPU draws a display just now, and so how long a submission may take: a picture is due every 16 ms on most, and what
//! is drawn waits for the submission before it.
//!
//! Linux tells of each connector of a graphics card whether something is plugged in and shown there. Elsewhere an adapter that
//! shares the processor's memory is taken to draw one.

use crate::adapters::Kind;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// How long a submission may take while a display is drawn, and while none is.
const BESIDE_DISPLAY: Duration = Duration::from_millis(4);
const ALONE: Duration = Duration::from_millis(10);

/// How long what was found is believed: displays are plugged in and put to sleep by people.
const BELIEVED: Duration = Duration::from_secs(2);

/// The displays of a GPU.
#[derive(Debug)]
pub(crate) struct Displays {
    kind: Kind,
    /// Its place on the bus, as the system names it: `0000:01:00.0`. Empty if the driver does not tell.
    bus: String,
    /// Where Linux tells of cards.
    cards: Option<PathBuf>,
    found: Mutex<Option<(Instant, Duration)>>,
}

impl Displays {
    pub(crate) fn of(kind: Kind, bus: &str) -> Self {
        let cards = cfg!(target_os = "linux").then(|| PathBuf::from("/sys/class/drm"));
        Self { kind, bus: bus.to_lowercase(), cards, found: Mutex::new(None) }
    }

    /// How long a submission may take.
    pub(crate) fn longest(&self) -> Duration {
        let mut found = self.found.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        match *found {
            Some((when, longest)) if when.elapsed() < BELIEVED => longest,
            _ => {
                let longest = if self.is_drawn() { BESIDE_DISPLAY } else { ALONE };
                *found = Some((Instant::now(), longest));
                longest
            }
        }
    }

    fn is_drawn(&self) -> bool {
        match (self.kind, &self.cards) {
            (Kind::Software, _) => false,
            (_, Some(cards)) => self.has_lit_connector(cards),
            (kind, None) => kind == Kind::Integrated,
        }
    }

    /// Whether a connector of the card is in use; of any card, if nobody says which one this is.
    fn has_lit_connector(&self, cards: &Path) -> bool {
        let Ok(entries) = std::fs::read_dir(cards) else { return false };
        let said = |path: PathBuf| std::fs::read_to_string(path).unwrap_or_default();
        entries.flatten().any(|entry| {
            // `card0-HDMI-A-1`, in the folder of its card.
            let (connector, name) = (entry.path(), entry.file_name());
            let Some((card, _)) = name.to_str().and_then(|name| name.split_once('-')) else { return false };
            let is_ours = self.bus.is_empty()
                || std::fs::canonicalize(cards.join(card).join("device"))
                    .is_ok_and(|device| device.file_name().is_some_and(|name| name.eq_ignore_ascii_case(&self.bus)));
            is_ours
                && said(connector.join("status")).trim() == "connected"
                && said(connector.join("enabled")).trim() == "enabled"
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two cards as Linux tells of them: one with a screen that is on and one that is off, one with nothing.
    fn cards(dir: &Path) {
        for (card, bus) in [("card0", "0000:00:02.0"), ("card1", "0000:01:00.0")] {
            let device = dir.join("devices").join(bus);
            std::fs::create_dir_all(&device).unwrap();
            std::fs::create_dir_all(dir.join(card)).unwrap();
            #[cfg(unix)]
            std::os::unix::fs::symlink(&device, dir.join(card).join("device")).unwrap();
        }
        let connectors = [
            ("card0-eDP-1", "connected", "enabled"),
            ("card0-HDMI-A-1", "disconnected", "disabled"),
            ("card1-DP-1", "connected", "disabled"),
        ];
        for (name, status, enabled) in connectors {
            std::fs::create_dir_all(dir.join(name)).unwrap();
            std::fs::write(dir.join(name).join("status"), format!("{status}\n")).unwrap();
            std::fs::write(dir.join(name).join("enabled"), format!("{enabled}\n")).unwrap();
        }
    }

    #[cfg(unix)]
    #[test]
    fn submissions_are_short_where_a_screen_is_on() {
        let dir = tempfile::tempdir().unwrap();
        cards(dir.path());
        let longest = |kind, bus: &str| {
            let cards = Some(dir.path().to_owned());
            Displays { cards, ..Displays::of(kind, bus) }.longest()
        };
        assert_eq!(longest(Kind::Integrated, "0000:00:02.0"), BESIDE_DISPLAY);
        assert_eq!(longest(Kind::Discrete, "0000:01:00.0"), ALONE);
        assert_eq!(longest(Kind::Discrete, ""), BESIDE_DISPLAY, "it may be any");
        assert_eq!(longest(Kind::Software, ""), ALONE);
    }

    #[test]
    fn elsewhere_what_shares_memory_draws() {
        let longest = |kind| Displays { cards: None, ..Displays::of(kind, "") }.longest();
        assert_eq!(longest(Kind::Integrated), BESIDE_DISPLAY);
        assert_eq!(longest(Kind::Discrete), ALONE);
    }
}
