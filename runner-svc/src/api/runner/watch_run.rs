//! `WatchRun`: past events from the disk, then live ones, from the disk too: a slow watcher slows nobody.

use std::collections::VecDeque;

use futures::stream;
use proto::{
    fault::{Domain, Fault},
    runner::v1::{WatchRunRequest, WatchRunResponse},
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Status};

use super::{Answers, RunnerApi, draining, load_fault, read_fault, wire};
use crate::{
    access::Permission,
    journal::{Journal, ReadError},
    runs::{load, opened},
};

/// Events read at once.
const PAGE_EVENTS: usize = 64;

struct Watch {
    journal: Journal,
    run_id: String,
    next: u64,
    head: watch::Receiver<u64>,
    ready: VecDeque<WatchRunResponse>,
    over: bool,
    drain: CancellationToken,
}

/// A stream that ends with the run.
pub async fn handle(api: &RunnerApi, request: Request<WatchRunRequest>) -> Result<Answers<WatchRunResponse>, Fault> {
    let asked = request.get_ref();
    api.allowed(&request, &asked.namespace, Permission::RunRead)?;
    api.header(&asked.namespace, &asked.run_id)?;
    let journal = api.parts.runs.shared().journal.clone();
    let head = journal.watch(&asked.run_id).map_err(read_fault)?;
    let watch = Watch {
        journal,
        run_id: asked.run_id.clone(),
        next: asked.from_sequence,
        head,
        ready: VecDeque::new(),
        over: false,
        drain: api.parts.drain.clone(),
    };
    Ok(Box::pin(stream::try_unfold(watch, step)))
}

async fn step(mut watch: Watch) -> Result<Option<(WatchRunResponse, Watch)>, Status> {
    loop {
        if let Some(event) = watch.ready.pop_front() {
            return Ok(Some((event, watch)));
        }
        if watch.over {
            return Ok(None);
        }
        let durable = *watch.head.borrow_and_update();
        if watch.next < durable {
            watch = fill(watch).await.map_err(|fault| fault.into_status(Domain::Runner))?;
        } else if watch.journal.run(&watch.run_id).is_ok_and(|run| run.finished && run.next_sequence <= watch.next) {
            // Also a watcher that begins beyond the end has seen all there is.
            return Ok(None);
        } else {
            match watch.drain.run_until_cancelled(watch.head.changed()).await {
                Some(Ok(())) => {}
                // The store is closed, or is about to be: the run has not ended, and the watcher has not seen its end.
                Some(Err(_)) | None => return Err(draining().into_status(Domain::Runner)),
            }
        }
    }
}

async fn fill(mut watch: Watch) -> Result<Watch, Fault> {
    let reading = tokio::task::spawn_blocking(move || read(&mut watch).map(|()| watch));
    reading.await.map_err(|panic| Fault::internal(&panic))?.map_err(load_fault)
}

fn read(watch: &mut Watch) -> Result<(), load::LoadError> {
    let page = watch.journal.read(&watch.run_id, watch.next, PAGE_EVENTS)?;
    if page.records.is_empty() {
        return Err(ReadError::NotFound(watch.run_id.clone()).into());
    }
    let durable_events = (*watch.head.borrow()).max(page.next);
    for stored in page.records {
        let sequence = stored.sequence;
        let entry = opened(stored).map_err(|cause| load::LoadError::Entry {
            run_id: watch.run_id.clone(),
            sequence,
            problem: cause.to_string(),
        })?;
        watch.over = matches!(entry.event(), runner_core::event::Event::RunFinished { .. });
        watch.ready.push_back(WatchRunResponse { event: Some(wire::event(&entry)), durable_events });
    }
    watch.next = page.next;
    Ok(())
}
