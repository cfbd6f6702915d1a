//! A run that is being canceled: what was in flight, what is settled of it, and the receipt.

use super::{Flight, State, apply::Applied};
use crate::{child, entry::Entry, key::EffectKind, run_id::RunId};

/// Who canceled the run, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cancel {
    pub(crate) by: String,
    pub(crate) reason: String,
    pub(crate) at_ms: u64,
    /// Whether every effect gets its result, and the tokens their end, before the run ends.
    pub(crate) settles: bool,
    pub(crate) receipt: Receipt,
    /// Child runs that were in flight.
    pub(crate) children: Vec<RunId>,
    /// Whether the tokens were revoked.
    pub(crate) tokens_ended: bool,
}

/// What a cancel did: the same however often it is asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Receipt {
    /// Sequence number of the cancel's event: nothing was dispatched after it.
    pub sequence: u64,
    /// Effects that were in flight then, questions to people not counted.
    pub effects_stopped: u32,
    /// Egress tokens that were revoked.
    pub tokens_revoked: u32,
}

impl State {
    pub(super) fn cancel_requested(&mut self, entry: &Entry, by: &str, reason: &str) -> Applied {
        if self.cancel.is_some() {
            return Err("the run was canceled before".to_owned());
        }
        let in_flight = self.flights.values().filter(|flight| !self.is_ask(flight)).count();
        let receipt = Receipt {
            sequence: entry.sequence(),
            effects_stopped: u32::try_from(in_flight).unwrap_or(u32::MAX),
            tokens_revoked: 0,
        };
        let run_id = &self.manifest.run_id;
        let children = self.flights.values().filter_map(|flight| child::run_id_of(run_id, &flight.key)).collect();
        let settles = self.manifest.settles_cancels();
        self.to_dispatch.clear();
        self.in_doubt.clear();
        if !settles {
            self.flights.retain(|_, flight| flight.key.kind != EffectKind::Ask);
        }
        let (by, reason) = (by.to_owned(), reason.to_owned());
        self.cancel =
            Some(Cancel { by, reason, at_ms: entry.at_ms(), settles, receipt, children, tokens_ended: false });
        Ok(())
    }

    pub(super) fn tokens_revoked(&mut self, tokens: u32) -> Applied {
        match &mut self.cancel {
            Some(cancel) if cancel.settles && !cancel.tokens_ended => {
                cancel.tokens_ended = true;
                cancel.receipt.tokens_revoked = tokens;
                Ok(())
            }
            Some(_) | None => Err("no cancel waits for its tokens to be revoked".to_owned()),
        }
    }

    /// Who canceled it, if someone did.
    pub fn canceled_by(&self) -> Option<&str> {
        self.cancel.as_ref().map(|cancel| cancel.by.as_str())
    }

    /// What the cancel did; none if nobody canceled the run.
    pub fn cancel_receipt(&self) -> Option<Receipt> {
        self.cancel.as_ref().map(|cancel| cancel.receipt)
    }

    /// Child runs that were in flight when it was canceled.
    pub fn canceled_children(&self) -> &[RunId] {
        self.cancel.as_ref().map_or(&[], |cancel| &cancel.children)
    }

    /// Whether the run's egress tokens have to be revoked now, before its end.
    pub fn owes_revocation(&self) -> bool {
        self.outcome.is_none() && self.cancel.as_ref().is_some_and(|cancel| cancel.settles && !cancel.tokens_ended)
    }

    pub(crate) fn cancel(&self) -> Option<&Cancel> {
        self.cancel.as_ref()
    }

    /// A question to a person that a cancel leaves without an answer.
    pub(crate) fn next_ask_to_close(&self) -> Option<&Flight> {
        let about_effects = self.doubts.values().filter(|doubt| doubt.verdict.is_none()).map(|doubt| &doubt.ask);
        self.flights.values().filter(|flight| self.is_ask(flight)).chain(about_effects).next()
    }
}
