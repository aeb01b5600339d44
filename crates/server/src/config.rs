//! How the server behaves.

use crate::keys::ApiKeys;
use duet_types::Class;
use std::time::Duration;

/// How the server behaves.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Largest request body in bytes; a longer one is answered 413. Each request in flight may hold this much.
    pub body_bytes_max: usize,
    /// Further names by which clients may ask for the loaded model.
    pub aliases: Vec<String>,
    /// Who may ask; with no keys, everyone.
    pub keys: ApiKeys,
    /// The class of requests that do not say theirs.
    pub class_default: Class,
    /// The listener is bound to loopback: refuse requests that name another host or come from another site's page,
    /// so that no web page can reach the model through the user's browser (DNS rebinding).
    pub loopback_only: bool,
    /// After the shutdown signal, how long generations under way may still run.
    pub shutdown_grace: Duration,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            body_bytes_max: 10 << 20,
            aliases: Vec::new(),
            keys: ApiKeys::default(),
            class_default: Class::Reactive,
            loopback_only: false,
            shutdown_grace: Duration::from_secs(10),
        }
    }
}
