//! What is handed to the committer: an order, and where its answer goes.

use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::{
    error::{AppendError, CreateError, LeaseError, Storage},
    record::{Append, Appended, Claim, Created, Lease, NewRun, Urgency},
    shelf::Shelf,
};

/// One thing to do.
pub(super) enum Order {
    /// Make a run unless its id is taken.
    Create {
        /// The run.
        new: Box<NewRun>,
        /// Its header as it will be stored.
        header: Vec<u8>,
        /// Where the answer goes.
        reply: Reply<Created, CreateError>,
    },
    /// Add records.
    Append {
        /// The records and their conditions.
        append: Box<Append>,
        /// Where the answer goes.
        reply: Reply<Appended, AppendError>,
    },
    /// Take a lease, and add the records that say so.
    Take {
        /// Who wants it.
        claim: Claim,
        /// The records and their conditions.
        with: Box<Append>,
        /// Where the answer goes.
        reply: Reply<Lease, LeaseError>,
    },
    /// Look at the store while nothing is being written.
    Still {
        /// What to do meanwhile.
        act: Act,
        /// Where the answer goes.
        reply: Reply<(), Storage>,
    },
    /// Make a lease last longer.
    Renew {
        /// The run.
        run_id: String,
        /// The lease's fence.
        fence: u64,
        /// The new end, milliseconds since 1970.
        until_ms: u64,
        /// Where the answer goes.
        reply: Reply<Lease, LeaseError>,
    },
}

/// What is done while nothing is written.
pub(super) type Act = Box<dyn FnOnce(&dyn Shelf) -> Result<(), Storage> + Send>;

/// Where an answer goes.
pub(super) type Reply<T, E> = oneshot::Sender<Result<T, E>>;

/// An order in the queue, with the room it takes there.
pub(super) struct Command {
    /// What to do.
    pub order: Order,
    /// Bytes it will write, roughly.
    pub bytes: usize,
    /// Its room in the queue, given back when it is answered.
    pub permit: Option<OwnedSemaphorePermit>,
}

impl Order {
    /// Whether it may use the room that is kept for ending runs. Leases may: without them no run can be ended.
    pub(super) fn urgency(&self) -> Urgency {
        match self {
            Self::Create { .. } => Urgency::Work,
            Self::Append { append, .. } => append.urgency,
            Self::Take { .. } | Self::Renew { .. } | Self::Still { .. } => Urgency::Closing,
        }
    }

    /// Answers that the store does not work.
    pub(super) fn refuse(self, trouble: Storage) {
        Answer::refused(self, trouble).send(Ok(()));
    }
}

/// An answer that waits until what it says is durable.
pub(super) enum Answer {
    /// To a create.
    Create(Reply<Created, CreateError>, Result<Created, CreateError>),
    /// To an append.
    Append(Reply<Appended, AppendError>, Result<Appended, AppendError>),
    /// To a look at the store.
    Still(Reply<(), Storage>, Result<(), Storage>),
    /// To a lease's taking or renewal.
    Lease(Reply<Lease, LeaseError>, Result<Lease, LeaseError>),
}

impl Answer {
    fn refused(order: Order, trouble: Storage) -> Self {
        match order {
            Order::Create { reply, .. } => Self::Create(reply, Err(trouble.into())),
            Order::Append { reply, .. } => Self::Append(reply, Err(trouble.into())),
            Order::Still { reply, .. } => Self::Still(reply, Err(trouble)),
            Order::Take { reply, .. } | Order::Renew { reply, .. } => Self::Lease(reply, Err(trouble.into())),
        }
    }

    /// Sends it, or what went wrong instead. Nobody may be waiting any more; that is fine.
    pub(super) fn send(self, durable: Result<(), Storage>) {
        match self {
            Self::Create(reply, answer) => drop(reply.send(durable.map_err(CreateError::from).and(answer))),
            Self::Append(reply, answer) => drop(reply.send(durable.map_err(AppendError::from).and(answer))),
            Self::Still(reply, answer) => drop(reply.send(durable.and(answer))),
            Self::Lease(reply, answer) => drop(reply.send(durable.map_err(LeaseError::from).and(answer))),
        }
    }
}
