//! What an event log begins with.

use crate::probe::Rates;
use duet_scheduler::SchedulerConfig;
use duet_scheduler::policy::PolicyName;
use serde::{Deserialize, Serialize};

/// The first line of a log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// The policy.
    pub policy: PolicyName,
    /// What the scheduler was told.
    pub config: SchedulerConfig,
    /// What a probe found when the machine was profiled; absent in logs of worlds that have no profile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profiled: Option<Rates>,
}
