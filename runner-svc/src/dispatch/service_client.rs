//! What the clients of other services share: the channel, and what a status says about whether a call began.

use std::{error::Error, net::SocketAddr, time::Duration};

use proto::{
    dial::{DialError, HandOn, dial, dial_at},
    fault::{self, Reason},
    tls::TlsMaterial,
};
use tonic::{Code, Status, service::interceptor::InterceptedService, transport::Channel};
use tonic_health::pb::{HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient};

use super::config::DispatchConfigError;

/// A channel that hands request id and trace context on.
pub(super) type Wire = InterceptedService<Channel, HandOn>;

/// Largest message that is read from another service: more than any result may be, so that one over the cap is named with
/// its size.
pub(super) const REPLY_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Longest wait for one short call, such as minting a token.
pub(super) const SHORT_CALL: Duration = Duration::from_secs(5);
/// How much of another service's text is handed on, in bytes.
const TEXT_BYTES_MAX: usize = 1024;

/// Why a call to another service came to nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Trouble {
    /// The service did not take it; nothing began.
    Unavailable(String),
    /// The service is full; nothing began. It may say when to come back.
    Busy(Option<Duration>),
    /// The connection was lost, or nobody says whether it began.
    Lost(String),
    /// The service answered: no.
    Refused {
        /// Why, by the registry.
        reason: Option<Reason>,
        /// Why, for people.
        text: String,
    },
}

impl Trouble {
    /// Reads a status.
    pub(super) fn of(status: &Status) -> Self {
        let text = text_of(status);
        match fault::reason_of(status) {
            Some(Reason::Busy) => Self::Busy(fault::retry_after_of(status)),
            Some(Reason::Draining | Reason::DependencyUnavailable) => Self::Unavailable(text),
            None if never_connected(status) => Self::Unavailable(text),
            None if status.source().is_some() || is_vague(status.code()) => Self::Lost(text),
            reason => Self::Refused { reason, text },
        }
    }

    /// For people.
    pub(super) fn text(&self) -> &str {
        match self {
            Self::Unavailable(text) | Self::Lost(text) | Self::Refused { text, .. } => text,
            Self::Busy(_) => "it is busy",
        }
    }
}

/// Makes a channel for the url in a flag, to one address of it where that is given.
pub(super) fn wire(
    flag: &'static str,
    (url, address): (&str, Option<SocketAddr>),
    tls: Option<&TlsMaterial>,
) -> Result<Wire, DispatchConfigError> {
    let refused = |cause: DialError| DispatchConfigError::Address { flag, cause };
    let channel = match address {
        Some(address) => dial_at(url, address, tls),
        None => dial(url, tls),
    };
    Ok(InterceptedService::new(channel.map_err(refused)?, HandOn))
}

/// Whether anybody answers there who takes calls. A service without health checks answers too: that it has none.
pub(super) async fn answers(wire: &Wire) -> bool {
    let asked = HealthClient::new(wire.clone()).check(HealthCheckRequest { service: String::new() }).await;
    match asked {
        Ok(health) => health.into_inner().status() != ServingStatus::NotServing,
        Err(status) => matches!(Trouble::of(&status), Trouble::Refused { .. } | Trouble::Busy(_)),
    }
}

/// The status's own text and, where the transport failed, its first cause.
pub(super) fn text_of(status: &Status) -> String {
    let mut text = match status.message() {
        "" => format!("status {:?}", status.code()),
        message => message.to_owned(),
    };
    if let Some(cause) = causes(status).last().map(ToString::to_string).filter(|cause| !text.contains(cause.as_str())) {
        text = format!("{text}: {cause}");
    }
    fault::cut(&mut text, TEXT_BYTES_MAX);
    text
}

/// What a server that knows the registry never says without a reason: it comes from the transport or from something between.
fn is_vague(code: Code) -> bool {
    matches!(code, Code::Unavailable | Code::Unknown | Code::Cancelled)
}

fn never_connected(status: &Status) -> bool {
    causes(status).any(|cause| cause.is::<tonic::ConnectError>())
}

fn causes(status: &Status) -> impl Iterator<Item = &(dyn Error + 'static)> {
    std::iter::successors(status.source(), |cause: &&(dyn Error + 'static)| (*cause).source())
}
