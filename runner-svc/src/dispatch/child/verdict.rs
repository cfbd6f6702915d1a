//! What a child's end means for its effect.

use std::{os::unix::process::ExitStatusExt as _, process::ExitStatus};

use super::{ChildEnd, captured::Captured};
use crate::dispatch::{
    effect::Ending,
    output::{BadOutput, OUTPUT_BYTES_MAX, output_of_bytes},
    shown_time,
    token::Egress,
    until::Until,
};

/// Bytes of stderr that go into a failure's detail, the last ones.
const SAID_BYTES_MAX: usize = 3 * 1024;

/// A child that is gone.
pub(in crate::dispatch) struct Finished {
    pub(super) end: ChildEnd,
    pub(super) captured: Captured,
}

impl Finished {
    /// How the effect ended. `what` names the child in texts; the effect's token is kept out of them.
    pub(in crate::dispatch) fn ending(&mut self, what: &str, egress: Option<&Egress>, until: &Until<'_>) -> Ending {
        let said = said(self.captured.stderr(), egress);
        match &self.end {
            ChildEnd::Canceled => Ending::Canceled,
            ChildEnd::TimedOut => {
                Ending::timeout(format_args!("{what} was killed after {}{said}", shown_time(until.timeout)))
            }
            ChildEnd::Flooded => Ending::too_large(format_args!(
                "{what} was killed: it never stopped writing its result, the cap is {OUTPUT_BYTES_MAX} bytes{said}"
            )),
            ChildEnd::Exited(status) if !status.success() => {
                Ending::executor_error(format_args!("{what} {}{said}", ended(*status)))
            }
            ChildEnd::Exited(_) => match self.result() {
                Ok(output) => Ending::completed(output),
                Err(bad @ BadOutput::TooLarge { .. }) => Ending::too_large(format_args!("{what}: {bad}{said}")),
                Err(bad) => Ending::executor_error(format_args!("{what}: {bad}{said}")),
            },
        }
    }

    /// The last bytes of stderr.
    pub(in crate::dispatch) fn stderr(&self) -> String {
        self.captured.stderr()
    }

    fn result(&mut self) -> Result<runner_core::payload::Payload, BadOutput> {
        let bytes = self.captured.output().map_err(|found_bytes| BadOutput::TooLarge { found_bytes })?;
        output_of_bytes(bytes)
    }
}

fn ended(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with exit status {code}"),
        (None, Some(signal)) => format!("was killed by signal {signal}"),
        (None, None) => "ended in an unknown way".to_owned(),
    }
}

fn said(stderr: String, egress: Option<&Egress>) -> String {
    let text = match egress {
        Some(egress) => stderr.replace(egress.expose_token(), "[token]"),
        None => stderr,
    };
    let mut start = text.len().saturating_sub(SAID_BYTES_MAX);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    if text.is_empty() { text } else { format!("; stderr: {}", &text[start..]) }
}
