//! What the HTTP door grants its callers of time and connections.

use std::time::Duration;

/// Bounds of the door.
#[derive(Debug, Clone, Copy)]
pub struct DoorBounds {
    /// Connections at once; more wait in the system's own queue.
    pub connections: usize,
    /// Of them those of one address; more are refused.
    pub connections_of_one: usize,
    /// Longest wait for a request's head, the first or the next.
    pub head: Duration,
    /// Longest wait for a request's body.
    pub body: Duration,
    /// Longest time in which a caller takes nothing of what is written to it.
    pub unread: Duration,
    /// Longest life of a connection that has shown no good token.
    pub unknown: Duration,
    /// Longest life of any other; a call that is in flight then may end.
    pub life: Duration,
    /// Longest time that a connection takes to end once it has to, beside a call that is in flight.
    pub ending: Duration,
}

impl Default for DoorBounds {
    fn default() -> Self {
        Self {
            connections: 1024,
            connections_of_one: 512,
            head: Duration::from_secs(10),
            body: Duration::from_secs(30),
            unread: Duration::from_secs(10),
            unknown: Duration::from_secs(20),
            life: Duration::from_secs(15 * 60),
            ending: Duration::from_secs(10),
        }
    }
}
