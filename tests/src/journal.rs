//! A run's events, read to a point of interest.

use proto::runner::v1::{Event, ListEventsRequest, WatchRunRequest};
use tonic::{Status, Streaming};

use crate::client::{Client, NAMESPACE};

impl Client {
    /// Every event of a run so far.
    pub async fn events(&self, run_id: &str) -> Result<Vec<Event>, Status> {
        let mut events = Vec::new();
        let mut page_token = String::new();
        loop {
            let request = ListEventsRequest {
                namespace: NAMESPACE.to_owned(),
                run_id: run_id.to_owned(),
                page_size: 1000,
                page_token,
            };
            let page = self.runner().list_events(request).await?.into_inner();
            events.extend(page.events);
            if page.next_page_token.is_empty() {
                return Ok(events);
            }
            page_token = page.next_page_token;
        }
    }

    /// A run's events from a sequence number on, live.
    pub async fn watch(&self, run_id: &str, from_sequence: u64) -> Result<Watch, Status> {
        let request = WatchRunRequest { namespace: NAMESPACE.to_owned(), run_id: run_id.to_owned(), from_sequence };
        Ok(Watch(self.runner().watch_run(request).await?.into_inner()))
    }
}

/// A live view of a run.
pub struct Watch(Streaming<proto::runner::v1::WatchRunResponse>);

impl Watch {
    /// The next event; `None` after the run's last.
    pub async fn next(&mut self) -> Result<Option<Event>, Status> {
        Ok(self.next_with_lag().await?.map(|(event, _)| event))
    }

    /// The next event, and how many more were durable when it was read.
    pub async fn next_with_lag(&mut self) -> Result<Option<(Event, u64)>, Status> {
        let Some(message) = self.0.message().await? else { return Ok(None) };
        let event = message.event.ok_or_else(|| Status::internal("WatchRun sent no event"))?;
        let lag = message.durable_events.checked_sub(event.sequence + 1);
        let lag = lag.ok_or_else(|| Status::internal("WatchRun sent an event that is not durable"))?;
        Ok(Some((event, lag)))
    }

    /// Reads on to the next event of a kind.
    pub async fn until(&mut self, kind: &str) -> Result<Event, Status> {
        while let Some(event) = self.next().await? {
            if event.kind == kind {
                return Ok(event);
            }
        }
        Err(Status::not_found(format!("the run ended without {kind}")))
    }

    /// Reads on to the end.
    pub async fn rest(&mut self) -> Result<Vec<Event>, Status> {
        let mut events = Vec::new();
        while let Some(event) = self.next().await? {
            events.push(event);
        }
        Ok(events)
    }
}
