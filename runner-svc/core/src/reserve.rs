//! Reservation: what effects side by side may use at most, so that together they never pass a budget.
//!
//! Effects are dispatched in waves. Each takes a share of what the budgets have left when its wave begins; what it did not use
//! is given back when the whole wave has settled. So neither the shares nor what follows from them depend on which effect
//! settles first.

use crate::{
    budget::{Axis, Budgets, Spent},
    input::DOCUMENT_BYTES_MAX,
    outcome::Usage,
    pinned::{Executor, PinnedTool, Runtime},
};

/// wasmtime fuel of one effect whose definition names no limit: what a sandbox allows then.
pub const FUEL_DEFAULT: u64 = 200_000_000;
/// Brokered calls of one effect whose definition names no limit: what a sandbox allows then.
pub const EGRESS_CALLS_DEFAULT: u64 = 64;

/// Bytes of a brokered answer whose definition names no limit: what a sandbox allows then.
pub const RESPONSE_BYTES_DEFAULT: u64 = 1024 * 1024;
/// Journal bytes of an event beside the texts that it names: key, hash, audit record.
const EVENT_BYTES: u64 = 4 * 1024;
/// How much longer a text may be as a part of a JSON text.
const ESCAPE_FACTOR: u64 = 2;

/// What one effect may use at most; 0 where it uses none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Wants {
    /// wasmtime fuel.
    pub fuel: u64,
    /// Brokered calls.
    pub egress_calls: u64,
    /// Model tokens.
    pub tokens: u64,
    /// Model cost in millionths of a US dollar.
    pub usd_micros: u64,
    /// Journal bytes: its intent, its calls, its result. A child run writes a journal of its own.
    pub storage_bytes: u64,
}

/// What one effect may use of each budget; none where the run has no such budget or the effect uses none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reserved {
    /// wasmtime fuel.
    pub fuel: Option<Share>,
    /// Brokered calls.
    pub egress_calls: Option<Share>,
    /// Model tokens.
    pub tokens: Option<Share>,
    /// Model cost in millionths of a US dollar.
    pub usd_micros: Option<Share>,
    /// Journal bytes. What happened is recorded, also what is longer than a share that was cut: nothing runs short of them.
    pub storage_bytes: Option<Share>,
}

impl Reserved {
    /// Whether an effect that used this much and called out so often ran out of what the run's budget had left, not of its own
    /// limit.
    pub(crate) fn used_up_short(&self, usage: &Usage, egress_calls: u64) -> bool {
        let short = |share: Option<Share>, used: u64| share.is_some_and(|share| share.cut && used >= share.units);
        short(self.fuel, usage.fuel)
            || short(self.egress_calls, egress_calls)
            || short(self.tokens, usage.tokens)
            || short(self.usd_micros, usage.usd_micros)
    }
}

/// A part of what a budget has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// How much.
    pub units: u64,
    /// Whether the effect would take more if the budget had more.
    pub cut: bool,
}

/// Effects that are dispatched together, and what was reserved for them.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Wave {
    effects: u32,
    taken: Wants,
    /// What the run had spent when the wave began.
    base: Spent,
}

/// Whether an effect may join the wave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Room {
    /// With these shares.
    Now(Reserved),
    /// In the next one, once this one has settled.
    NextWave,
    /// Never: a budget is spent.
    Spent,
}

impl PinnedTool {
    /// What one effect of it may use at most.
    pub fn wants(&self) -> Wants {
        let (runtime, limits) = match &self.executor {
            Executor::Code { runtime, limits, .. } => (runtime, limits.unwrap_or_default()),
            Executor::HostTool => return Wants::writing(0, 0),
            Executor::Model { .. } => return Wants::writing(1, DOCUMENT_BYTES_MAX as u64),
            Executor::Person | Executor::ChildRun => return Wants::default(),
        };
        let fuel = limits.fuel.unwrap_or(FUEL_DEFAULT);
        match runtime {
            Runtime::Native => Wants::writing(0, 0),
            Runtime::Wasm => Wants { fuel, ..Wants::writing(0, 0) },
            Runtime::WasmIo => {
                let egress_calls = limits.max_calls.unwrap_or(EGRESS_CALLS_DEFAULT);
                let response_bytes = limits.max_response_bytes.unwrap_or(RESPONSE_BYTES_DEFAULT);
                Wants { fuel, egress_calls, ..Wants::writing(egress_calls, response_bytes) }
            }
        }
    }
}

impl Wants {
    /// The journal's part of an effect with one result and so many brokered answers, each no longer than the journal takes.
    fn writing(calls: u64, response_bytes: u64) -> Self {
        let longest = DOCUMENT_BYTES_MAX as u64;
        let call_bytes = response_bytes.saturating_mul(ESCAPE_FACTOR).min(longest) + EVENT_BYTES;
        let storage_bytes = calls.saturating_mul(call_bytes).saturating_add(longest + 2 * EVENT_BYTES);
        Self { storage_bytes, ..Self::default() }
    }
}

impl Wave {
    /// A wave without effects.
    pub(crate) fn after(spent: &Spent) -> Self {
        Self { base: *spent, ..Self::default() }
    }

    /// Whether an effect may join, of `effects_max` at most.
    pub(crate) fn room(&self, budgets: &Budgets, wants: &Wants, effects_max: u32) -> Room {
        if self.effects >= effects_max {
            return Room::NextWave;
        }
        let (base, taken) = (&self.base, &self.taken);
        let shares = [
            share(budgets.max_fuel, base.fuel, taken.fuel, wants.fuel),
            share(budgets.max_egress_calls, base.egress_calls, taken.egress_calls, wants.egress_calls),
            share(budgets.max_tokens, base.tokens, taken.tokens, wants.tokens),
            share(budgets.max_usd_micros, base.usd_micros, taken.usd_micros, wants.usd_micros),
            share(budgets.max_storage_bytes, base.storage_bytes, taken.storage_bytes, wants.storage_bytes),
        ];
        if shares.contains(&Err(Full::Budget)) {
            return Room::Spent;
        }
        match shares {
            [Ok(fuel), Ok(egress_calls), Ok(tokens), Ok(usd_micros), Ok(storage_bytes)] => {
                Room::Now(Reserved { fuel, egress_calls, tokens, usd_micros, storage_bytes })
            }
            _ => Room::NextWave,
        }
    }

    /// An effect joins.
    pub(crate) fn join(&mut self, reserved: &Reserved) {
        let units = |share: Option<Share>| share.map_or(0, |share| share.units);
        self.effects += 1;
        self.taken.fuel += units(reserved.fuel);
        self.taken.egress_calls += units(reserved.egress_calls);
        self.taken.tokens += units(reserved.tokens);
        self.taken.usd_micros += units(reserved.usd_micros);
        self.taken.storage_bytes += units(reserved.storage_bytes);
    }

    /// What an axis has left beside what is reserved; none where it is unbounded.
    pub(crate) fn left(&self, budgets: &Budgets, axis: Axis) -> Option<u64> {
        let taken = match axis {
            Axis::Fuel => self.taken.fuel,
            Axis::EgressCalls => self.taken.egress_calls,
            Axis::Tokens => self.taken.tokens,
            Axis::UsdMicros => self.taken.usd_micros,
            Axis::StorageBytes => self.taken.storage_bytes,
            Axis::Supersteps | Axis::Effects | Axis::ToolCalls | Axis::WallMs => 0,
        };
        budgets.left(axis, &self.base).map(|left| left.saturating_sub(taken))
    }

    /// A child run that has joined takes its share.
    pub(crate) fn give(&mut self, share: &Budgets) {
        self.taken.fuel += share.max_fuel.unwrap_or_default();
        self.taken.egress_calls += share.max_egress_calls.unwrap_or_default();
        self.taken.tokens += share.max_tokens.unwrap_or_default();
        self.taken.usd_micros += share.max_usd_micros.unwrap_or_default();
        self.taken.storage_bytes += share.max_storage_bytes.unwrap_or_default();
    }

    /// So many bytes are in the journal: what was written since the last wave settled is spent before the next one shares.
    pub(crate) fn stored(&mut self, bytes: u64) {
        if self.is_empty() {
            self.base.storage_bytes = bytes;
        }
    }

    /// Whether nothing has joined yet.
    pub(crate) fn is_empty(&self) -> bool {
        self.effects == 0
    }
}

/// Why there is no share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Full {
    /// Others of the wave have what is left.
    Wave,
    /// Nothing is left.
    Budget,
}

/// The whole of what is wanted, or all that is left for the first one that wants any.
fn share(limit: Option<u64>, spent: u64, taken: u64, want: u64) -> Result<Option<Share>, Full> {
    let Some(limit) = limit.filter(|_| want > 0) else { return Ok(None) };
    let left = limit.saturating_sub(spent).saturating_sub(taken);
    if want <= left {
        return Ok(Some(Share { units: want, cut: false }));
    }
    match (taken, left) {
        (0, 0) => Err(Full::Budget),
        (0, left) => Ok(Some(Share { units: left, cut: true })),
        _ => Err(Full::Wave),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fuel(want: u64) -> Wants {
        Wants { fuel: want, ..Wants::default() }
    }

    fn given(room: Room) -> Share {
        match room {
            Room::Now(Reserved { fuel: Some(share), .. }) => share,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_wave_never_reserves_more_than_is_left() {
        let budgets = Budgets { max_fuel: Some(100), ..Budgets::default() };
        let mut wave = Wave::after(&Spent { fuel: 20, ..Spent::default() });
        for want in [50, 30] {
            let Room::Now(reserved) = wave.room(&budgets, &fuel(want), 9) else { panic!("{want}") };
            assert_eq!(reserved.fuel, Some(Share { units: want, cut: false }));
            wave.join(&reserved);
        }
        assert_eq!(wave.room(&budgets, &fuel(1), 9), Room::NextWave);
        assert_eq!(wave.room(&budgets, &fuel(0), 9), Room::Now(Reserved::default()), "it burns none");
    }

    #[test]
    fn the_first_one_gets_what_is_left_and_nothing_comes_of_nothing() {
        let budgets = Budgets { max_fuel: Some(100), ..Budgets::default() };
        let wave = Wave::after(&Spent { fuel: 70, ..Spent::default() });
        assert_eq!(given(wave.room(&budgets, &fuel(u64::MAX), 9)), Share { units: 30, cut: true });
        let wave = Wave::after(&Spent { fuel: 100, ..Spent::default() });
        assert_eq!(wave.room(&budgets, &fuel(1), 9), Room::Spent);
    }

    #[test]
    fn a_wave_is_as_wide_as_it_may_be() {
        let mut wave = Wave::default();
        assert!(wave.is_empty());
        for _ in 0..2 {
            assert_eq!(wave.room(&Budgets::default(), &fuel(7), 2), Room::Now(Reserved::default()));
            wave.join(&Reserved::default());
        }
        assert_eq!(wave.room(&Budgets::default(), &fuel(7), 2), Room::NextWave);
    }
}
