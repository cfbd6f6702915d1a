//! The one writer: gathers what is ready from all runs, makes one durable commit of it, and answers.

use std::{
    sync::{Arc, mpsc},
    time::{Duration, Instant},
};

use super::{
    command::{Command, Order},
    error::{Storage, Trouble},
    ledger::{Ledger, Staged},
    record::{APPEND_BYTES_MAX, Urgency},
    shared::{Health, Shared},
    shelf::Room,
};
use crate::families;

/// Orders in one commit.
const GROUP_ORDERS_MAX: usize = 1024;
/// Bytes from which a commit takes no further order.
const GROUP_BYTES_MAX: usize = APPEND_BYTES_MAX;
/// First and longest wait between two tries to get back to a working state.
const PROBE_FIRST: Duration = Duration::from_millis(100);
const PROBE_LONGEST: Duration = Duration::from_secs(5);
/// How often a full disk is looked at when nobody writes.
const ROOM_PERIOD: Duration = Duration::from_secs(1);

/// Owns the right to write.
pub(super) struct Committer {
    shared: Arc<Shared>,
    ledger: Ledger,
    mode: Mode,
}

enum Mode {
    /// Everything is written.
    Working,
    /// The disk is full: only ends of runs are written.
    Scarce,
    /// A write failed; nothing is written until the store has been reopened.
    Broken { trouble: Storage, probe_at: Instant, wait: Duration },
}

impl Committer {
    pub(super) fn open(shared: Arc<Shared>) -> Result<Self, Storage> {
        let ledger = Ledger::open(shared.shelf())?;
        Ok(Self { shared, ledger, mode: Mode::Working })
    }

    /// Serves the queue until all senders are gone.
    pub(super) fn serve(mut self, queue: &mpsc::Receiver<Command>) {
        loop {
            let first = match self.idle() {
                None => queue.recv().map_err(|_| mpsc::RecvTimeoutError::Disconnected),
                Some(wait) => queue.recv_timeout(wait),
            };
            match first {
                Ok(first) => self.commit(gather(first, queue)),
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => return,
            }
            self.recover();
        }
    }

    /// How long to wait for orders before looking after the store.
    fn idle(&self) -> Option<Duration> {
        match &self.mode {
            Mode::Working => None,
            Mode::Scarce => Some(ROOM_PERIOD),
            Mode::Broken { probe_at, .. } => Some(probe_at.saturating_duration_since(Instant::now())),
        }
    }

    /// Makes one durable commit of a group, and answers each.
    pub(super) fn commit(&mut self, group: Vec<Command>) {
        self.look_at_room();
        let mut permits = Vec::with_capacity(group.len());
        let mut orders = Vec::with_capacity(group.len());
        for command in group {
            match self.refusal(&command.order) {
                Some(trouble) => command.order.refuse(trouble),
                None => {
                    permits.push(command.permit);
                    orders.push(command.order);
                }
            }
        }
        let mut staged = self.ledger.stage(self.shared.shelf(), orders);
        let durable = if staged.batch.is_empty() {
            // What a failed commit hid stays hidden: nothing became durable by a group that writes nothing.
            Ok(())
        } else {
            self.write(&mut staged)
        };
        for answer in staged.answers {
            answer.send(durable.clone());
        }
        drop(permits);
    }

    /// Writes and syncs what is staged; nobody sees it before it is durable.
    fn write(&mut self, staged: &mut Staged) -> Result<(), Storage> {
        self.shared.hide(std::mem::take(&mut staged.before));
        let (shelf, began) = (self.shared.shelf(), Instant::now());
        let written = shelf.apply(std::mem::take(&mut staged.batch)).and_then(|()| shelf.sync());
        match written {
            Ok(()) => {
                families::committed(began);
                shelf.note(&staged.noted);
                self.shared.show(&staged.noted.heads);
                Ok(())
            }
            Err(trouble) => {
                let trouble = Storage { in_doubt: true, ..trouble };
                self.fail(trouble.clone());
                Err(trouble)
            }
        }
    }

    fn refusal(&self, order: &Order) -> Option<Storage> {
        match (&self.mode, order.urgency()) {
            (Mode::Working, _) | (Mode::Scarce, Urgency::Closing) => None,
            (Mode::Scarce, Urgency::Work) => Some(Storage::new(
                Trouble::DiskFull,
                "the disk is full, only cancels and ends of runs are written: free space on the data directory's disk",
            )),
            (Mode::Broken { trouble, .. }, _) => Some(trouble.clone()),
        }
    }

    fn look_at_room(&mut self) {
        let room = self.shared.shelf().room();
        match (&self.mode, room) {
            (Mode::Working, Room::Scarce) => {
                self.mode = Mode::Scarce;
                self.shared.set_health(Health::DiskFull);
            }
            (Mode::Scarce, Room::Enough) => {
                self.mode = Mode::Working;
                self.shared.set_health(Health::Ready);
            }
            (Mode::Working, Room::Enough) | (Mode::Scarce, Room::Scarce) | (Mode::Broken { .. }, _) => {}
        }
    }

    fn fail(&mut self, trouble: Storage) {
        self.shared.set_health(Health::Unavailable { reason: trouble.reason.clone() });
        // What is refused from here on is not written.
        let trouble = Storage { in_doubt: false, ..trouble };
        self.mode = Mode::Broken { trouble, probe_at: Instant::now() + PROBE_FIRST, wait: PROBE_FIRST };
    }

    /// Looks after the store between two groups: a full disk may have room again, a broken one may work again.
    fn recover(&mut self) {
        self.look_at_room();
        let Mode::Broken { probe_at, wait, .. } = &self.mode else { return };
        if Instant::now() < *probe_at {
            return;
        }
        let wait = (*wait * 2).min(PROBE_LONGEST);
        let shelf = self.shared.shelf();
        match shelf.reopen().and_then(|()| self.ledger.reload(shelf)) {
            Ok(()) => {
                self.shared.show_all();
                self.mode = Mode::Working;
                self.shared.set_health(Health::Ready);
                self.look_at_room();
            }
            Err(trouble) => {
                self.shared.set_health(Health::Unavailable { reason: trouble.reason.clone() });
                self.mode = Mode::Broken { trouble, probe_at: Instant::now() + wait, wait };
            }
        }
    }
}

fn gather(first: Command, queue: &mpsc::Receiver<Command>) -> Vec<Command> {
    let mut bytes = first.bytes;
    let mut group = vec![first];
    while group.len() < GROUP_ORDERS_MAX && bytes < GROUP_BYTES_MAX {
        let Ok(next) = queue.try_recv() else { break };
        bytes += next.bytes;
        group.push(next);
    }
    group
}
