//! The rules again when their file changes, or on SIGHUP. A file that cannot be used leaves the last good rules in force.

use std::{path::PathBuf, sync::Arc, time::Duration};

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::{broker::Broker, config::Flags, in_force::InForce, stamp::Stamp, token::Keys};

/// How often the file is looked at.
const LOOK: Duration = Duration::from_secs(1);

/// Watches the file.
pub struct Watch {
    /// What the program was started with, the file not yet read.
    flags: Flags,
    file: Option<PathBuf>,
    seen: Option<Stamp>,
    keys: Option<(PathBuf, Option<Stamp>)>,
}

/// What became of the rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reload {
    /// The file says what it said.
    Same,
    /// Other rules are in force.
    Changed,
    /// The file cannot be used: every mistake, one a line.
    Refused(String),
}

impl Watch {
    /// Watches the file of these flags, which was read a moment ago.
    pub fn new(flags: Flags) -> Self {
        let file = flags.config.clone();
        let seen = file.as_deref().and_then(Stamp::of);
        Self { flags, file, seen, keys: None }
    }

    /// Watches the folder of tokens' keys too.
    pub fn with_keys(self, folder: Option<PathBuf>) -> Self {
        let keys = folder.map(|folder| (folder.clone(), Stamp::of(&folder)));
        Self { keys, ..self }
    }

    /// Reads the keys if their folder is another than it was. Keys that cannot be used leave those in use.
    pub fn look_at_keys(&mut self, broker: &Broker) -> Option<Reload> {
        let (folder, seen) = self.keys.as_mut()?;
        let now = Stamp::of(folder);
        if now == *seen {
            return None;
        }
        *seen = now;
        Some(match Keys::read(folder) {
            Ok(keys) => {
                tracing::info!(signs = keys.signing().0, "other keys of tokens are in use");
                broker.tokens.use_keys(keys);
                Reload::Changed
            }
            Err(cause) => {
                tracing::error!(%cause, "the keys cannot be used: those in use stay");
                Reload::Refused(cause.to_string())
            }
        })
    }

    /// Reads the file if it is another than it was.
    pub fn look(&mut self, broker: &Broker) -> Option<Reload> {
        let now = self.file.as_deref().and_then(Stamp::of);
        if now == self.seen {
            return None;
        }
        self.seen = now;
        Some(self.reload(broker))
    }

    /// Reads the file and puts its rules in force.
    pub fn reload(&self, broker: &Broker) -> Reload {
        let before = broker.in_force();
        let refused = |cause: &dyn std::fmt::Display| Reload::Refused(cause.to_string());
        let outcome = match self.flags.checked() {
            Ok((policy, _)) if policy == before.policy => Reload::Same,
            Ok((policy, _)) => match InForce::open(policy, Some(&before)) {
                Ok(in_force) => {
                    tracing::info!(was = %before.digest, now = %in_force.digest, "other rules are in force");
                    broker.put_in_force(in_force);
                    Reload::Changed
                }
                Err(cause) => refused(&cause),
            },
            Err(cause) => refused(&cause),
        };
        let word = match &outcome {
            Reload::Same => "same",
            Reload::Changed => "changed",
            Reload::Refused(cause) => {
                tracing::error!(cause, in_force = %before.digest, "the file cannot be used: the last good rules stay in force");
                "refused"
            }
        };
        metrics::counter!("areev_broker_reloads_total", "outcome" => word).increment(1);
        outcome
    }

    /// Watches until `drain`.
    pub async fn run(mut self, broker: Arc<Broker>, drain: CancellationToken) -> std::io::Result<()> {
        let mut hangup = signal(SignalKind::hangup())?;
        let mut ticks = tokio::time::interval(LOOK);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = ticks.tick() => {
                    self.look(&broker);
                    self.look_at_keys(&broker);
                }
                _ = hangup.recv() => {
                    tracing::info!("SIGHUP: reading the rules again");
                    self.seen = self.file.as_deref().and_then(Stamp::of);
                    self.reload(&broker);
                }
                () = drain.cancelled() => return Ok(()),
            }
        }
    }
}
