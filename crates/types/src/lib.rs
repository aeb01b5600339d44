//! Ids, units and the order of a pass's nodes: what every duet crate shares, and nothing else.
//!
//! A number that crosses a crate border is one of these types, never a bare integer. Only the arithmetic that
//! means something exists: `Instant - Instant = Nanos`, `Tokens + Tokens = Tokens`.

mod ids;
mod lane_set;
mod nodes;
mod units;
mod work;

pub use ids::{FlowId, KernelId, LaneId, RequestId, TenantId, TokenId};
pub use lane_set::LaneSet;
pub use nodes::{Node, NodeKind, NodeOrder};
pub use units::{Bytes, Instant, Nanos, Tokens};
pub use work::{Class, FinishReason, Net, Stage};
