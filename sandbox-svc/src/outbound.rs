//! Who answers a brokered call: the broker over gRPC, the egress door over HTTP (one-shot form), or nobody.

use std::time::Instant;

use crate::{
    broker_client::BrokerClient,
    effect::Whose,
    egress_http::EgressHttp,
    fetch::{self, FetchAsk},
};

/// What bounds one call.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Number of the call within the effect.
    pub ordinal: u32,
    /// Most bytes of the answer's body.
    pub response_bytes: u64,
    /// When it is given up.
    pub ends_at: Instant,
}

/// An answer for the guest, with the broker's audit record of it, encoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// One JSON text.
    pub reply: Vec<u8>,
    /// The record; absent when the broker was not asked or did not say.
    pub record: Option<Vec<u8>>,
}

/// Where calls go.
pub enum Outbound {
    /// Nowhere; the text says why.
    Nobody(String),
    /// To the broker, with the effect's token.
    Broker {
        /// The broker.
        client: BrokerClient,
        /// The effect's token.
        token: Token,
        /// The effect.
        whose: Box<Whose>,
    },
    /// To the HTTP door.
    Http(EgressHttp),
}

/// An egress token. It has no Debug and no Display, so that it gets into no log and no error.
#[derive(Clone)]
pub struct Token(String);

impl Token {
    /// Wraps a token.
    pub fn new(token: String) -> Self {
        Self(token)
    }

    /// The token, for a request to the broker or a child's environment.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl Outbound {
    /// Nowhere.
    pub fn nobody(why: &str) -> Self {
        Self::Nobody(why.to_owned())
    }

    /// Makes one call. Every refusal and failure is an answer: the guest decides what to do with it.
    pub async fn ask(&self, ask: FetchAsk, bounds: &Bounds) -> Answer {
        match self {
            Self::Nobody(why) => Answer::refused(why, Some(fetch::REFUSED)),
            Self::Broker { client, token, whose } => client.fetch((token, whose), ask, bounds).await,
            Self::Http(door) => door.fetch(ask, bounds).await,
        }
    }
}

impl Answer {
    /// A refusal or failure without a record.
    pub fn refused(error: &str, code: Option<&str>) -> Self {
        Self { reply: fetch::refused(error, code), record: None }
    }

    /// What is said of an answer over its bound.
    pub fn too_large(bytes: u64, max: u64) -> Self {
        let error = format!("the answer's body has {bytes} bytes, over the {max} that it may have");
        Self::refused(&error, Some(fetch::REFUSED))
    }
}
