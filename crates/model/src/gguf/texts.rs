//! Many short strings in one allocation: vocabularies have hundreds of thousands of them, and a start reads them all.

use std::fmt;
use std::ops::Index;

/// Strings, one behind the other.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Texts {
    all: String,
    /// Where each ends in `all`; it begins where the one before it ends.
    ends: Vec<usize>,
}

impl Texts {
    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Bytes of all together.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.all.len()
    }

    /// Adds one at the end.
    pub fn push(&mut self, text: impl AsRef<str>) {
        self.all.push_str(text.as_ref());
        self.ends.push(self.all.len());
    }

    /// The one at `index`, if there is one.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<&str> {
        let &end = self.ends.get(index)?;
        let begin = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        Some(&self.all[begin..end])
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &str> + Clone {
        (0..self.len()).map(|index| &self[index])
    }
}

impl fmt::Debug for Texts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl Index<usize> for Texts {
    type Output = str;

    fn index(&self, index: usize) -> &str {
        self.get(index).unwrap_or_else(|| panic!("there are {} texts, and none at {index}", self.len()))
    }
}

impl<T: AsRef<str>> Extend<T> for Texts {
    fn extend<I: IntoIterator<Item = T>>(&mut self, texts: I) {
        texts.into_iter().for_each(|text| self.push(text));
    }
}

impl<T: AsRef<str>> FromIterator<T> for Texts {
    fn from_iter<I: IntoIterator<Item = T>>(texts: I) -> Self {
        let mut all = Self::default();
        all.extend(texts);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_come_back_as_they_were_given() {
        let given = ["duet", "", "Ġé", ""];
        let mut texts: Texts = given.into_iter().collect();
        assert_eq!(texts.iter().collect::<Vec<_>>(), given);
        assert_eq!((texts.len(), texts.bytes(), &texts[2], texts.get(4)), (4, 8, "Ġé", None));
        assert_eq!(format!("{texts:?}"), format!("{given:?}"));
        texts.push("b");
        assert_eq!((texts.len(), &texts[4]), (5, "b"));
        assert!(Texts::default().is_empty() && !texts.is_empty());
    }
}
