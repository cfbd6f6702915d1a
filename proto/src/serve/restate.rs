//! What the transport refuses by itself, said as every other refusal is: with a reason, a text and what to do.

use axum::response::Response;
use tonic::{Code, Status};

use crate::fault::{Domain, Fault, Reason};

/// The reply as it is, unless it is the transport's own refusal of a request: those carry no details.
pub(super) fn restated(method: &str, response: Response) -> Response {
    let Some(status) = Status::from_header_map(response.headers()) else { return response };
    if !status.details().is_empty() {
        return response;
    }
    match fault(method, &status) {
        Some(fault) => fault.into_status(domain_of(method)).into_http(),
        None => response,
    }
}

/// The service that answers for a method.
pub(super) fn domain_of(method: &str) -> Domain {
    match method {
        _ if method.starts_with("/areev.broker.") => Domain::Broker,
        _ if method.starts_with("/areev.sandbox.") => Domain::Sandbox,
        _ => Domain::Runner,
    }
}

/// A service's own statuses always carry details, so one of these codes without them is of the transport.
fn fault(method: &str, status: &Status) -> Option<Fault> {
    let name = method.trim_start_matches('/');
    let said = status.message();
    match status.code() {
        Code::Internal => {
            let text = format!("{name}: the request cannot be read: {said}; encode it as its .proto file says");
            Some(Fault::new(Reason::InvalidArgument, text).with("method", name))
        }
        Code::OutOfRange | Code::ResourceExhausted => {
            let text = format!("{name}: {said}; send less in one message: large data goes in as a blob, by digest");
            Some(Fault::new(Reason::TooLarge, text).with("method", name))
        }
        Code::Unimplemented if said.is_empty() => {
            let text = format!("{name} is not served here: list what is by reflection, or upgrade this service");
            Some(Fault::new(Reason::NotImplemented, text).with("method", name))
        }
        Code::Unimplemented => {
            let text = format!("{name}: {said}; send it uncompressed");
            Some(Fault::new(Reason::NotImplemented, text).with("method", name))
        }
        _ => None,
    }
}
