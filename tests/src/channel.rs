//! A channel whose every reply is searched for secrets while it is read: headers, messages, trailers.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use http_body::Frame;
use tonic::{body::Body, codegen::Service, transport};

use crate::canary;

/// Bytes of a message's end that are looked at together with the next one's beginning: longer than any spelling.
const OVERLAP_BYTES: usize = 128;

/// A channel to a service. A secret in a reply is a panic in whoever reads it.
#[derive(Clone)]
pub struct Channel(transport::Channel);

struct Searched {
    inner: Body,
    path: String,
    end: Vec<u8>,
}

impl Channel {
    /// Searches what comes back over a channel.
    pub fn new(channel: transport::Channel) -> Self {
        Self(channel)
    }
}

impl Service<http::Request<Body>> for Channel {
    type Response = http::Response<Body>;
    type Error = transport::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let path = request.uri().path().to_owned();
        let reply = self.0.call(request);
        Box::pin(async move {
            let reply = reply.await?;
            search_lines(&path, reply.headers());
            Ok(reply.map(|inner| Body::new(Searched { inner, path, end: Vec::new() })))
        })
    }
}

impl http_body::Body for Searched {
    type Data = bytes::Bytes;
    type Error = tonic::Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let polled = Pin::new(&mut self.inner).poll_frame(context);
        if let Poll::Ready(Some(Ok(frame))) = &polled {
            if let Some(data) = frame.data_ref() {
                let this = &mut *self;
                let begin = &data[..data.len().min(OVERLAP_BYTES)];
                this.end.extend_from_slice(begin);
                assert!(!canary::is_in(data) && !canary::is_in(&this.end), "a secret is in a reply of {}", this.path);
                let kept = if data.len() > OVERLAP_BYTES { data.as_ref() } else { this.end.as_slice() };
                this.end = kept[kept.len().saturating_sub(OVERLAP_BYTES)..].to_vec();
            }
            if let Some(trailers) = frame.trailers_ref() {
                search_lines(&self.path, trailers);
            }
        }
        polled
    }
}

fn search_lines(path: &str, lines: &http::HeaderMap) {
    for (name, value) in lines {
        assert!(!canary::is_in(value.as_bytes()), "a secret is in {name} of a reply of {path}");
    }
}
