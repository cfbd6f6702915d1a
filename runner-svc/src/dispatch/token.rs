//! The right to call out for one effect. It is never shown.

/// A token and where it is spent. Without Debug, Display and Clone: neither logs nor errors can hold it.
pub(super) struct Egress {
    url: String,
    token: String,
    broker_url: String,
}

impl Egress {
    /// Takes what the broker minted.
    pub(super) fn new(url: String, token: String, broker_url: String) -> Self {
        Self { url, token, broker_url }
    }

    /// The broker's HTTP door, for child processes.
    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// The one of several brokers that minted it, by the runner's `--broker-url`; empty where there is but one.
    pub(super) fn broker_url(&self) -> &str {
        &self.broker_url
    }

    /// The token itself: for the one executor of the effect.
    pub(super) fn expose_token(&self) -> &str {
        &self.token
    }
}
