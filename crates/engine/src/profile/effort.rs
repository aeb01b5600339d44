//! How long a measurement of the machine may take.

/// How much time to take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// A second or two, at the first start.
    Quick,
    /// Some tens of seconds.
    Thorough,
}
