//! The head at the end of a span, where the best logits of rows are wanted with it: one submission, and one wait, in place of two.

use crate::best::{self, BEST_MAX};
use crate::error::GpuError;
use crate::prepared::Chosen;
use crate::room::HEAD_ROWS;
use crate::spans::Way;
use crate::staging::Piece;
use duet_model::forward::BestOfRow;

/// What is to be read of the best logits of rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seeking {
    rows: usize,
    count: usize,
}

impl Seeking {
    /// Floats of it.
    pub(crate) fn floats(self) -> usize {
        best::words_of(self.rows, self.count)
    }

    pub(crate) fn of_rows(self, floats: &[f32]) -> Vec<BestOfRow> {
        best::of_rows(floats, self.count).collect()
    }
}

impl Way<'_, '_> {
    /// Records the head for the rows that are sought, if it is here and takes as many. Others are asked for apart.
    pub(crate) fn seek(&mut self) -> Result<Option<Seeking>, GpuError> {
        let loaded = self.loaded;
        let (Some(sought), Some(head)) = (&self.rows.sought, &loaded.head) else { return Ok(None) };
        let (count, rows) = (sought.count, sought.rows.as_slice());
        if !(1..=BEST_MAX).contains(&count) || !(1..=HEAD_ROWS).contains(&rows.len()) {
            return Ok(None);
        }
        let seeking = Seeking { rows: rows.len(), count };
        let chosen = if rows.iter().copied().eq(0..rows.len()) {
            Chosen::First(rows.len())
        } else {
            let (hidden, room) = (loaded.widths.hidden, &loaded.room);
            for (to, from) in rows.iter().enumerate() {
                self.recording.copy((&room.residual, from * hidden), (&room.normed, to * hidden), hidden);
            }
            Chosen::Copied(rows.len())
        };
        self.room_for(loaded.work.head.macs * seeking.rows as u64)?;
        loaded.best(&mut self.recording, &mut self.spans.kept.prepared, head, (chosen, count))?;
        Ok(Some(seeking))
    }

    /// What is to be read for it.
    pub(crate) fn sought_piece(&self, seeking: Option<Seeking>) -> Piece {
        Piece::beginning(&self.loaded.room.best, seeking.map_or(0, Seeking::floats))
    }
}
