//! Identifiers. Each is unique within one engine for its whole life and never reused.

use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id! {
    /// One agent's stateful sequence of requests; its KV cache survives between turns.
    FlowId(u64)
}
id! {
    /// One generation.
    RequestId(u64)
}
id! {
    /// One launched kernel; completions name it.
    KernelId(u64)
}
id! {
    /// One serial execution queue of one device.
    LaneId(u8)
}
id! {
    /// An index into a model's vocabulary.
    #[derive(Default)]
    TokenId(u32)
}
id! {
    /// Whose data it is: nothing that is cached for one tenant is ever seen by another.
    #[derive(Default)]
    TenantId(u32)
}
