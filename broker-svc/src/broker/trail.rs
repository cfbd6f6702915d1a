//! What is known of a call while it is under way. Whatever becomes of it, one record comes of it.

use std::{sync::Arc, time::Instant};

use content_digest::Digest;

use super::{Broker, Denied, Request};
use crate::{
    audit::{Door, Record},
    refusal::{Refusal, Why},
    target::Target,
    token::Binding,
};

/// A record in the making. Dropped without an end, the caller went away.
pub struct Trail<'b> {
    broker: &'b Broker,
    started: Instant,
    record: Option<Record>,
    /// The stream that is told where nobody is there to be answered.
    watcher: String,
}

impl<'b> Trail<'b> {
    /// A call begins.
    pub fn new(broker: &'b Broker, binding: Option<Arc<Binding>>, door: Door) -> Self {
        let record = Record {
            sequence: 0,
            at: broker.now(),
            binding,
            ordinal: 0,
            credential: String::new(),
            method: String::new(),
            scheme: "",
            host: String::new(),
            path: String::new(),
            status: 0,
            request_bytes: 0,
            response_bytes: 0,
            request_digest: None,
            response_digest: None,
            redirects: Vec::new(),
            went_out: false,
            why: None,
            policy_digest: broker.in_force().digest,
            duration: std::time::Duration::ZERO,
            door,
            acknowledged: Arc::default(),
        };
        Self { broker, started: Instant::now(), record: Some(record), watcher: String::new() }
    }

    /// The stream that takes the record.
    pub fn watched_by(&mut self, watcher: &str) {
        self.watcher = watcher.to_owned();
    }

    /// What is asked for, in the caller's own words.
    pub fn asked(&mut self, request: &Request, ordinal: u32) {
        let Some(record) = &mut self.record else { return };
        record.ordinal = ordinal;
        record.method = if request.method.is_empty() { "GET".to_owned() } else { request.method.clone() };
        record.credential = request.credential.clone().unwrap_or_default();
        // What is still to come is sent only if it is what it is named for.
        (record.request_bytes, record.request_digest) = match &request.coming {
            Some(coming) => (coming.bytes, Some(coming.digest)),
            None => (request.body.len() as u64, Some(Digest::of(&request.body))),
        };
    }

    /// Where it goes, once the URL is understood.
    pub fn aimed(&mut self, target: &Target) {
        let Some(record) = &mut self.record else { return };
        record.scheme = target.origin().scheme.as_str();
        record.host = target.origin().authority();
        record.path = target.path().to_owned();
    }

    /// The policy that decides.
    pub fn under(&mut self, policy_digest: Digest) {
        if let Some(record) = &mut self.record {
            record.policy_digest = policy_digest;
        }
    }

    /// A request is about to be sent: from here on, whatever becomes of the call, something may have reached its upstream.
    /// Answers whether one was sent before.
    pub fn goes_out(&mut self) -> bool {
        self.record.as_mut().is_some_and(|record| std::mem::replace(&mut record.went_out, true))
    }

    /// There was no connection to send the first request over.
    pub fn stayed(&mut self) {
        if let Some(record) = &mut self.record {
            record.went_out = false;
        }
    }

    /// Whether something may have reached an upstream.
    pub fn went_out(&self) -> bool {
        self.record.as_ref().is_some_and(|record| record.went_out)
    }

    /// An answer leads on.
    pub fn redirected(&mut self, target: &Target) {
        if let Some(record) = &mut self.record {
            record.redirects.push(target.origin().to_string());
        }
    }

    /// There is an answer.
    pub fn done(mut self, status: u16, body_bytes: u64, body: Digest) -> Arc<Record> {
        if let Some(record) = &mut self.record {
            record.status = status;
            record.response_bytes = body_bytes;
            record.response_digest = Some(body);
        }
        self.close(None)
    }

    /// There is none.
    pub fn deny(mut self, refusal: Refusal) -> Denied {
        let record = self.close(Some(refusal.why));
        Denied { refusal, record }
    }

    fn close(&mut self, why: Option<Why>) -> Arc<Record> {
        let mut record = self.record.take().expect("a trail is closed once");
        record.why = why;
        record.duration = self.started.elapsed();
        self.broker.audit.record(record)
    }
}

impl Drop for Trail<'_> {
    fn drop(&mut self) {
        if self.record.is_some() {
            let record = self.close(Some(Why::CallerGone));
            self.broker.watchers.tell_of_the_lost(&self.watcher, &record);
        }
    }
}
