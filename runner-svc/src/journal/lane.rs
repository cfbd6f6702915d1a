//! How orders reach the committer: over a queue to its own thread, or by a call.

use std::{
    sync::{Arc, mpsc},
    thread::{self, JoinHandle},
};

use parking_lot::Mutex;

use super::{
    command::Command,
    committer::Committer,
    shared::{Health, Shared},
};

/// The way to the one writer.
pub(super) enum Lane {
    /// A queue to the committer's thread; its length is bounded by the room that each command holds.
    Thread {
        /// `None` only while it is being dropped.
        queue: Option<mpsc::Sender<Command>>,
        /// `None` only while it is being dropped.
        thread: Option<JoinHandle<()>>,
    },
    /// A call: the twin in memory never waits, so that tests with paused time stay exact.
    Inline(Mutex<Committer>),
}

impl Lane {
    /// Starts the committer's thread.
    pub(super) fn thread(committer: Committer, shared: Arc<Shared>) -> std::io::Result<Self> {
        let (queue, orders) = mpsc::channel();
        let thread = thread::Builder::new().name("journal-committer".to_owned()).spawn(move || {
            let _stopped = Stopped(shared);
            committer.serve(&orders);
        })?;
        Ok(Self::Thread { queue: Some(queue), thread: Some(thread) })
    }

    /// Hands over a command; gives it back when nobody will take it any more.
    pub(super) fn send(&self, command: Command) -> Result<(), Command> {
        match self {
            Self::Thread { queue: Some(queue), .. } => queue.send(command).map_err(|refused| refused.0),
            Self::Thread { queue: None, .. } => Err(command),
            Self::Inline(committer) => {
                committer.lock().commit(vec![command]);
                Ok(())
            }
        }
    }
}

/// Lets the thread finish what is queued and waits for it, so that the store is closed afterwards.
impl Drop for Lane {
    fn drop(&mut self) {
        let Self::Thread { queue, thread } = self else { return };
        drop(queue.take());
        if let Some(Err(_)) = thread.take().map(JoinHandle::join) {
            tracing::error!("the journal's committer panicked");
        }
    }
}

/// Whatever ends the committer, nobody is told that the store works afterwards.
struct Stopped(Arc<Shared>);

impl Drop for Stopped {
    fn drop(&mut self) {
        self.0.set_health(Health::Unavailable { reason: "the journal's committer has stopped".to_owned() });
    }
}
