//! The lowest priority that the kernel has, for the calling thread.
//!
//! A low niceness is not enough: the kernel lets such a thread finish its turn, until the next tick of its clock (4 ms on many
//! machines), before one of ordinary priority that woke up gets the processor. An idle thread has to leave at once.

use thread_priority::{
    NormalThreadSchedulePolicy, ThreadPriority, ThreadSchedulePolicy, set_thread_priority_and_policy, thread_native_id,
};

/// The niceness that stands in where the policy cannot be had.
const NICE: i32 = 19;

/// Lowers the calling thread's priority for good. It needs no right.
pub fn lower_to_lowest() {
    let idle = ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Idle);
    if let Err(cause) = set_thread_priority_and_policy(thread_native_id(), ThreadPriority::Min, idle) {
        let nice = rustix::process::nice(NICE);
        tracing::warn!(%cause, ?nice, "no idle scheduling: long-running guests may delay others by a tick of the clock");
    }
}
