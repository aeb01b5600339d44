//! Opening the history, beside the load of the model: nothing waits for it, and without it all goes on.

use crate::cli::HistoryPlace;
use crate::progress::eprintln_quiet;
use duet_engine::HistoryStore;
use std::sync::Arc;
use std::thread::JoinHandle;

/// A history that is being opened.
pub(crate) struct Opening {
    thread: Option<JoinHandle<Option<HistoryStore>>>,
}

impl Opening {
    /// Begins to open a history, if there is to be one.
    pub(crate) fn begin(place: Option<HistoryPlace>) -> Self {
        Self { thread: place.map(|place| std::thread::spawn(move || open(&place))) }
    }

    /// The history; absent if there is to be none, or if it cannot be used, which the person is told.
    pub(crate) fn finish(self) -> Option<Arc<HistoryStore>> {
        // A panic has been told.
        self.thread?.join().ok().flatten().map(Arc::new)
    }
}

fn open(place: &HistoryPlace) -> Option<HistoryStore> {
    match HistoryStore::open_or_begin_anew(&place.path, place.limits) {
        Ok((history, aside)) => {
            if let Some(aside) = aside {
                eprintln_quiet(&format!(
                    "warning: the history in {} was damaged; it is {} now, and a new one begins",
                    place.path.display(),
                    aside.display()
                ));
            }
            tracing::info!("answers are kept in {}; --history off keeps none", place.path.display());
            Some(history)
        }
        Err(error) => {
            eprintln_quiet(&format!("warning: going on without a history: {error}"));
            None
        }
    }
}
