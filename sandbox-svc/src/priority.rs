//! Low priorities, for the calling thread.
//!
//! For what must delay nobody a low niceness is not enough: the kernel lets such a thread finish its turn, until the next tick of
//! its clock (4 ms on many machines), before one of ordinary priority that woke up gets the processor. An idle thread has to
//! leave at once. But on a machine that is never idle it does not get on at all: work that somebody waits for then needs a share.

use thread_priority::{
    NormalThreadSchedulePolicy, ThreadPriority, ThreadSchedulePolicy, set_thread_priority_and_policy, thread_native_id,
};

/// Offers the processor to whoever else wants it.
///
/// A thread of low priority leaves it by itself when another one wakes. But when others change places there, the kernel (Linux
/// since 6.6) may pick it before one that is ready and has just had its share; and then it stays until the next tick of the clock, many
/// times as long as a short call takes. After this it is not picked before those who are ready. Whoever is to have a share of a busy
/// processor must not call it: since Linux 6.18 it gives up a whole turn, however short it was.
pub fn give_way() {
    rustix::thread::sched_yield();
}

/// The niceness that stands in where the idle policy cannot be had.
const NICE_OF_IDLE: i32 = 19;
/// Beside one busy thread of ordinary priority this has a tenth of the processor.
const NICE_OF_LOW: i32 = 10;

/// How low.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Priority {
    /// Only while nobody else wants the processor.
    Idle,
    /// A small share of it, whatever else the machine does.
    Low,
}

impl Priority {
    /// Lowers the calling thread's priority for good. It needs no right.
    pub fn take(self) {
        match self {
            Self::Idle => take_idle(),
            Self::Low => {
                if let Err(cause) = rustix::process::nice(NICE_OF_LOW) {
                    tracing::warn!(%cause, "no lower priority: work on modules may delay calls");
                }
            }
        }
    }

    /// Its name on a command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Low => "low",
        }
    }
}

fn take_idle() {
    let idle = ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Idle);
    if let Err(cause) = set_thread_priority_and_policy(thread_native_id(), ThreadPriority::Min, idle) {
        let nice = rustix::process::nice(NICE_OF_IDLE);
        tracing::warn!(%cause, ?nice, "no idle scheduling: long-running guests may delay others by a tick of the clock");
    }
}
