//! Short turns for a compiler on a machine that has other things to do: a signal makes it offer the processor to others more
//! often than the kernel's clock ticks; see [`give_way`]. Only while there are others, since each signal costs some
//! microseconds: on a machine that is otherwise idle compiling was seen to take a fifth longer with them.

use std::{
    io,
    time::{Duration, Instant},
};

use nix::{
    sys::{
        signal::{SaFlags, SigAction, SigEvent, SigHandler, SigSet, SigevNotify, Signal, sigaction},
        timer::{Expiration, Timer, TimerSetTimeFlags},
    },
    time::ClockId,
};

use crate::priority::give_way;

/// The longest turn while others want the processor: about what a short call takes.
const TURN: Duration = Duration::from_micros(250);
/// How long turns stay short after others were seen to want the processor.
const CROWDED: Duration = Duration::from_millis(100);
const SIGNAL: Signal = Signal::SIGALRM;

/// Ends the turns of this process while others want the processor.
pub struct Turns {
    timer: Timer,
    demand: Demand,
    short: bool,
}

impl Turns {
    /// Long turns, until a look says otherwise.
    ///
    /// # Errors
    /// When the system gives no timer.
    #[expect(unsafe_code, reason = "a handler may interrupt anything; this one makes a single system call")]
    pub fn new() -> io::Result<Self> {
        let action = SigAction::new(SigHandler::Handler(on_signal), SaFlags::SA_RESTART, SigSet::empty());
        // SAFETY: the handler reads and writes no memory and takes no lock; its only call is safe in a handler, and never fails.
        unsafe { sigaction(SIGNAL, &action) }?;
        let event = SigEvent::new(SigevNotify::SigevSignal { signal: SIGNAL, si_value: 0 });
        Ok(Self { timer: Timer::new(ClockId::CLOCK_MONOTONIC, event)?, demand: Demand::default(), short: false })
    }

    /// Looks how much of the processor this process had until now, its CPU time, and sets how long its turns are.
    pub fn look(&mut self, now: Instant, used: Duration) {
        let short = self.demand.of_others(now, used);
        if short != self.short {
            // An interval of zero is none.
            let turn = if short { TURN } else { Duration::ZERO };
            let set = self.timer.set(Expiration::Interval(turn.into()), TimerSetTimeFlags::empty());
            self.short = short && set.is_ok();
        }
    }
}

extern "C" fn on_signal(_: i32) {
    give_way();
}

/// Whether others want the processor, by the part of it that one gets who always wants it.
#[derive(Debug, Default)]
struct Demand {
    /// When the last look was, and the CPU time until then.
    before: Option<(Instant, Duration)>,
    /// When others were last seen to want it.
    seen: Option<Instant>,
}

impl Demand {
    fn of_others(&mut self, now: Instant, used: Duration) -> bool {
        if let Some((then, before)) = self.before.replace((now, used)) {
            let (wanted, had) = (now.saturating_duration_since(then), used.saturating_sub(before));
            // Less than nine tenths.
            if had * 10 < wanted * 9 {
                self.seen = Some(now);
            }
        }
        self.seen.is_some_and(|seen| now.saturating_duration_since(seen) < CROWDED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_gets_less_of_the_processor_than_they_want_shares_it_and_for_a_while_after() {
        let (start, ms) = (Instant::now(), Duration::from_millis);
        let mut demand = Demand::default();
        let mut look = |at: u64, used: u64| demand.of_others(start + ms(at), ms(used));
        assert!(!look(0, 0), "nothing is known at first");
        assert!(!look(10, 10) && !look(20, 19), "a little is always lost");
        assert!(look(30, 27), "eight of ten");
        assert!(look(40, 37) && look(129, 126), "they may come back");
        assert!(!look(130, 127));
    }
}
