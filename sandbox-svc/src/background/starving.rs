//! A guest on a thread that gets the processor only while nobody else wants it, on a machine where somebody always does.

use std::{
    future::{Future, poll_fn},
    pin::Pin,
    task::Poll,
    time::{Duration, Instant},
};

use rustix::time::{ClockId, clock_gettime};

use crate::priority::give_way;

/// How long a guest wants to run before it is asked whether it does.
const WATCHED: Duration = Duration::from_millis(500);
/// The part of the time in which a guest wants to run that it has to have the processor: one of so many.
const SHARE: u32 = 20;

/// Runs a guest to its end, giving way to others at each of its yields; or hands it back, as far as it is, once it was seen not to
/// get on. What it waits for in a call to the host does not count, nor its turn after others on the same thread.
pub async fn unless_it_starves<F: Future>(guest: Pin<Box<F>>) -> Result<F::Output, Pin<Box<F>>> {
    let (mut guest, mut wanted, mut had) = (Some(guest), Duration::ZERO, Duration::ZERO);
    poll_fn(move |context| {
        let Some(running) = &mut guest else { return Poll::Pending };
        let (began, before) = (Instant::now(), thread_time());
        if let Poll::Ready(ended) = running.as_mut().poll(context) {
            return Poll::Ready(Ok(ended));
        }
        give_way();
        wanted += began.elapsed();
        had += thread_time().saturating_sub(before);
        guest.take_if(|_| starves(wanted, had)).map_or(Poll::Pending, |guest| Poll::Ready(Err(guest)))
    })
    .await
}

/// Whether a guest does not get on that wanted to run for so long, and had the processor for so long.
fn starves(wanted: Duration, had: Duration) -> bool {
    wanted >= WATCHED && had * SHARE < wanted
}

/// CPU time of the calling thread.
fn thread_time() -> Duration {
    let used = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(used.tv_sec.unsigned_abs(), u32::try_from(used.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicU32, Ordering},
        thread,
    };

    use super::*;

    const TURNS: u32 = 6;

    #[tokio::test]
    async fn a_guest_whose_thread_does_not_run_is_handed_back_and_goes_on_where_it_was() {
        let turns = AtomicU32::new(0);
        // Asleep, a thread has as little of the processor as one that others keep from it.
        let guest = async {
            for _ in 0..TURNS {
                turns.fetch_add(1, Ordering::Relaxed);
                thread::sleep(WATCHED / 4);
                tokio::task::yield_now().await;
            }
        };
        let Err(rest) = unless_it_starves(Box::pin(guest)).await else { panic!("it was not seen") };
        assert!(turns.load(Ordering::Relaxed) < TURNS);
        rest.await;
        assert_eq!(turns.load(Ordering::Relaxed), TURNS, "it went on and did not begin anew");
    }

    #[tokio::test]
    async fn a_guest_that_waits_for_the_host_is_left_where_it_is() {
        let waiting = async {
            for _ in 0..3 {
                tokio::time::sleep(WATCHED / 2).await;
            }
        };
        assert!(unless_it_starves(Box::pin(waiting)).await.is_ok());
    }

    #[test]
    fn a_twentieth_of_the_time_is_enough_to_get_on() {
        assert!(!starves(WATCHED / 2, Duration::ZERO), "it has only just begun");
        assert!(starves(WATCHED, WATCHED / 21));
        assert!(!starves(WATCHED, WATCHED / 20) && !starves(WATCHED * 9, WATCHED));
    }
}
