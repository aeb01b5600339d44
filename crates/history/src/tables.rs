//! The tables of the file, and a transaction's changes to them.
//!
//! `tasks` has a row for each key that has texts; `texts` has them by task and sequence number; `order` has all sequence
//! numbers, so that the oldest text of all is found at once. Sequence numbers only grow.
//! **Invariant:** a text is in `texts` and `order` or in neither, and the row of its task counts it; [`Rows`] is what
//! `tasks` says, as long as every change that was made to it is committed.

use crate::interaction::{Interaction, Text};
use crate::key::{ModelFingerprint, TaskKey, TaskName, UserName};
use crate::limits::Limits;
use crate::varint;
use redb::{ReadableTable, StorageError, Table, TableDefinition, TableError, WriteTransaction};
use std::collections::{BTreeMap, BTreeSet};

/// The format of the rest, under [`FORMAT_KEY`]; its name tells a history from other databases.
pub(crate) const META: TableDefinition<'_, &str, u64> = TableDefinition::new("duet-history");
pub(crate) const FORMAT_KEY: &str = "format";
/// Encoded keys and [`Row`]s by number.
pub(crate) const TASKS: TableDefinition<'_, u32, &[u8]> = TableDefinition::new("tasks");
/// Encoded texts by task and sequence number.
pub(crate) const TEXTS: TableDefinition<'_, (u32, u64), &[u8]> = TableDefinition::new("texts");
/// Task, tokens and bytes of each text.
pub(crate) const ORDER: TableDefinition<'_, u64, (u32, u32, u32)> = TableDefinition::new("order");

/// What there is of a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) id: u32,
    pub(crate) texts: u64,
    pub(crate) tokens: u64,
    pub(crate) bytes: u64,
}

/// The rows of all tasks.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rows {
    by_key: BTreeMap<TaskKey, Row>,
    keys: BTreeMap<u32, TaskKey>,
    stored: u64,
}

/// The tables within a transaction.
pub(crate) struct Tables<'txn> {
    tasks: Table<'txn, u32, &'static [u8]>,
    texts: Table<'txn, (u32, u64), &'static [u8]>,
    order: Table<'txn, u64, (u32, u32, u32)>,
    /// Tasks whose rows are not yet in `tasks`.
    changed: BTreeSet<u32>,
}

impl Rows {
    /// All, by their keys.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&TaskKey, &Row)> {
        self.by_key.iter()
    }

    pub(crate) fn get(&self, key: &TaskKey) -> Option<Row> {
        self.by_key.get(key).copied()
    }

    pub(crate) fn key(&self, id: u32) -> Option<&TaskKey> {
        self.keys.get(&id)
    }

    /// What all texts and rows take of the file.
    pub(crate) fn stored(&self) -> u64 {
        self.stored
    }

    /// Adds a row that was read or is new.
    pub(crate) fn add(&mut self, key: TaskKey, row: Row) {
        self.stored += row.bytes + row_bytes(&key);
        self.keys.insert(row.id, key.clone());
        self.by_key.insert(key, row);
    }

    /// The row of a key, which is new if it had none.
    fn row_of(&mut self, key: &TaskKey) -> u32 {
        if let Some(row) = self.by_key.get(key) {
            return row.id;
        }
        let id = self.keys.last_key_value().map_or(0, |(&last, _)| last + 1);
        self.add(key.clone(), Row { id, ..Row::default() });
        id
    }

    /// Counts a text more.
    fn grow(&mut self, id: u32, tokens: u32, bytes: u32) {
        if let Some(row) = self.row_mut(id) {
            row.texts += 1;
            row.tokens += u64::from(tokens);
            row.bytes += u64::from(bytes);
            self.stored += u64::from(bytes);
        }
    }

    /// Counts a text less. Returns whether the task still has any; without, its row is gone.
    fn shrink(&mut self, id: u32, tokens: u32, bytes: u32) -> bool {
        let Some(row) = self.row_mut(id) else { return false };
        row.texts = row.texts.saturating_sub(1);
        row.tokens = row.tokens.saturating_sub(tokens.into());
        row.bytes = row.bytes.saturating_sub(bytes.into());
        let is_left = row.texts > 0;
        self.stored = self.stored.saturating_sub(bytes.into());
        if !is_left && let Some(key) = self.keys.remove(&id) {
            self.stored = self.stored.saturating_sub(row_bytes(&key));
            self.by_key.remove(&key);
        }
        is_left
    }

    fn row_mut(&mut self, id: u32) -> Option<&mut Row> {
        self.by_key.get_mut(self.keys.get(&id)?)
    }

    fn tokens(&self, id: u32) -> u64 {
        self.keys.get(&id).and_then(|key| self.by_key.get(key)).map_or(0, |row| row.tokens)
    }
}

impl<'txn> Tables<'txn> {
    /// Creates the tables that are not there.
    pub(crate) fn open(transaction: &'txn WriteTransaction) -> Result<Self, TableError> {
        Ok(Self {
            tasks: transaction.open_table(TASKS)?,
            texts: transaction.open_table(TEXTS)?,
            order: transaction.open_table(ORDER)?,
            changed: BTreeSet::new(),
        })
    }

    /// Adds an interaction, and removes what its task has too much then. Returns what it takes of the file.
    pub(crate) fn append(&mut self, rows: &mut Rows, new: &Interaction, limits: &Limits) -> Result<u64, StorageError> {
        let sequence = self.order.last()?.map_or(0, |(sequence, _)| sequence.value() + 1);
        let id = rows.row_of(&new.key);
        let text = new.text.encode();
        self.insert(rows, id, sequence, &text, new.text.tokens().0)?;
        while rows.tokens(id) > u64::from(limits.task.0) {
            let oldest = self.texts.range((id, 0)..=(id, u64::MAX))?.next().transpose()?;
            let Some(sequence) = oldest.map(|(key, _)| key.value().1) else { break };
            let Some(entry) = self.order.remove(sequence)?.map(|entry| entry.value()) else { break };
            self.remove(rows, sequence, entry)?;
        }
        Ok(stored_bytes(text.len()))
    }

    /// Adds a text whose task has a row.
    pub(crate) fn insert(
        &mut self,
        rows: &mut Rows,
        id: u32,
        sequence: u64,
        text: &[u8],
        tokens: u32,
    ) -> Result<(), StorageError> {
        let bytes = u32::try_from(stored_bytes(text.len())).unwrap_or(u32::MAX);
        self.texts.insert((id, sequence), text)?;
        self.order.insert(sequence, (id, tokens, bytes))?;
        rows.grow(id, tokens, bytes);
        self.changed.insert(id);
        Ok(())
    }

    /// Removes the oldest texts of all until the rest fits.
    pub(crate) fn evict(&mut self, rows: &mut Rows, limits: &Limits) -> Result<(), StorageError> {
        while rows.stored() > limits.stored().0 {
            let oldest = self.order.pop_first()?.map(|(sequence, entry)| (sequence.value(), entry.value()));
            let Some((sequence, entry)) = oldest else { break };
            self.remove(rows, sequence, entry)?;
        }
        Ok(())
    }

    /// Writes the rows that have changed.
    pub(crate) fn write_rows(mut self, rows: &Rows) -> Result<(), StorageError> {
        for id in std::mem::take(&mut self.changed) {
            if let Some((key, row)) = rows.key(id).and_then(|key| Some((key, rows.get(key)?))) {
                self.tasks.insert(id, &*encode(key, &row))?;
            }
        }
        Ok(())
    }

    /// Removes a text that is no more in `order`.
    fn remove(
        &mut self,
        rows: &mut Rows,
        sequence: u64,
        (id, tokens, bytes): (u32, u32, u32),
    ) -> Result<(), StorageError> {
        self.texts.remove((id, sequence))?;
        self.changed.insert(id);
        if !rows.shrink(id, tokens, bytes) {
            self.tasks.remove(id)?;
            self.changed.remove(&id);
        }
        Ok(())
    }
}

/// A row as it is stored. Its number is its key.
fn encode(key: &TaskKey, row: &Row) -> Vec<u8> {
    let mut bytes = Vec::new();
    varint::put_text(&mut bytes, key.user.as_str());
    varint::put_text(&mut bytes, key.task.as_str());
    for number in [key.model.0, row.texts, row.tokens, row.bytes] {
        varint::put(&mut bytes, number);
    }
    bytes
}

/// Reads what [`encode`] wrote; nothing from other bytes.
pub(crate) fn decode(id: u32, mut bytes: &[u8]) -> Option<(TaskKey, Row)> {
    let user = UserName::named(varint::take_text(&mut bytes)?);
    let task = TaskName::named(varint::take_text(&mut bytes)?);
    let model = ModelFingerprint(varint::take(&mut bytes)?);
    let texts = varint::take(&mut bytes)?;
    let tokens = varint::take(&mut bytes)?;
    let row = Row { id, texts, tokens, bytes: varint::take(&mut bytes)? };
    bytes.is_empty().then_some((TaskKey { user, task, model }, row))
}

/// Reads a text; an error names it.
pub(crate) fn decode_text(key: (u32, u64), bytes: &[u8]) -> Result<Text, String> {
    Text::decode(bytes).ok_or_else(|| format!("text {} of task {} makes no sense", key.1, key.0))
}

/// What a text takes of the file: its pages are powers of two, and smaller texts share one.
fn stored_bytes(len: usize) -> u64 {
    (len as u64 + ENTRY_BYTES).next_power_of_two()
}

fn row_bytes(key: &TaskKey) -> u64 {
    (key.user.as_str().len() + key.task.as_str().len()) as u64 + ENTRY_BYTES
}

/// What the database takes beside a text or a row: keys, an entry in `order`, offsets.
const ENTRY_BYTES: u64 = 48;
