//! A second accountant, written from the rules alone: small, slow, obvious. It plays a case on plain numbers and names, with a
//! clock of its own, and shares no code with the core. What the journal's bytes are it is told, event by event.

mod shares;

use std::collections::{BTreeMap, BTreeSet};

use runner_core::{budget::Budgets, outcome::FailureCause};
use serde_json::{Map, Value, json};

use self::shares::Shares;
use super::case::{Act, Case, DELAY_MS, Kind, Level, Node};

/// What was spent.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Spent {
    pub supersteps: u64,
    pub effects: u64,
    pub tool_calls: u64,
    pub wall: u64,
    pub fuel: u64,
    pub storage: u64,
    pub calls: u64,
}

/// How a run ends.
#[derive(Debug, Clone, PartialEq)]
pub enum End {
    Completed(String),
    /// The node, the cause, and whether it may be tried again by whoever asked for the run.
    Failed(String, FailureCause, bool),
    Exhausted(&'static str),
}

/// The bytes of a run's journal, and of its child runs' in the order in which they ended.
#[derive(Debug, Default)]
pub struct Bytes {
    /// After so many events.
    pub after: Vec<u64>,
    pub children: Vec<Bytes>,
}

impl Bytes {
    /// All of it, with that of the child runs.
    fn total(&self) -> u64 {
        self.after.last().copied().unwrap_or(0) + self.children.iter().map(Self::total).sum::<u64>()
    }
}

/// One dispatch: the node, its attempt, and the state that it got.
pub type Dispatch = (String, u32, String);

/// What came of a run.
pub struct Played {
    /// Dispatches of each superstep.
    pub steps: Vec<Vec<Dispatch>>,
    pub end: End,
    pub spent: Spent,
    /// When it ended.
    pub now: u64,
    /// Those of its child runs, in the order in which they ended.
    pub children: Vec<Played>,
}

/// A run of a plan.
struct Run<'a> {
    case: &'a Case,
    level: &'a Level,
    run_id: String,
    budgets: Budgets,
    bytes: &'a Bytes,
    state: Map<String, Value>,
    now: u64,
    /// When the last event was.
    last: u64,
    /// Events so far.
    events: usize,
    spent: Spent,
    /// Storage of child runs.
    below: u64,
    wall_at_open: u64,
    attempts: BTreeMap<usize, u32>,
    failures: BTreeMap<usize, u64>,
    /// Nodes that may be dispatched, from when on.
    ready: BTreeMap<usize, u64>,
    done: BTreeSet<usize>,
    failed: BTreeMap<usize, (FailureCause, bool)>,
    steps: Vec<Vec<Dispatch>>,
    children: Vec<Played>,
}

/// What an effect in flight may use.
struct Flight {
    shares: Shares,
    /// Of a child run: its budgets.
    share: Option<Budgets>,
    attempt: u32,
    input: Map<String, Value>,
}

/// Plays a run from a moment on.
pub fn play<'a>(
    case: &'a Case,
    level: &'a Level,
    begin: (&str, Budgets, Map<String, Value>, u64),
    bytes: &'a Bytes,
) -> Played {
    let (run_id, budgets, state, now) = begin;
    let mut run = Run {
        case,
        level,
        run_id: run_id.to_owned(),
        budgets,
        bytes,
        state,
        now,
        last: now,
        events: 1,
        spent: Spent::default(),
        below: 0,
        wall_at_open: 0,
        attempts: BTreeMap::new(),
        failures: BTreeMap::new(),
        ready: BTreeMap::from([(0, 0)]),
        done: BTreeSet::new(),
        failed: BTreeMap::new(),
        steps: Vec::new(),
        children: Vec::new(),
    };
    let end = run.played();
    run.spent.storage = run.storage();
    Played { steps: run.steps, end, spent: run.spent, now: run.now, children: run.children }
}

impl Run<'_> {
    fn storage(&self) -> u64 {
        self.bytes.after.get(self.events).copied().unwrap_or(u64::MAX).saturating_add(self.below)
    }

    fn played(&mut self) -> End {
        loop {
            if let Some((node, (cause, again))) = self.failed.first_key_value() {
                let time_is_over = self.budgets.max_wall_ms.is_some_and(|max| self.spent.wall >= max);
                if time_is_over && *cause == FailureCause::Timeout {
                    return End::Exhausted("max_wall_ms");
                }
                return End::Failed(self.level.nodes[*node].name.clone(), *cause, *again);
            }
            let due: Vec<usize> =
                self.ready.iter().filter(|(_, due)| **due <= self.now).map(|(node, _)| *node).collect();
            if due.is_empty() {
                match self.ready.values().min() {
                    // Nothing to do but to wait for a delay to end.
                    Some(due) => self.now = *due,
                    None => return End::Completed(Value::Object(self.state.clone()).to_string()),
                }
                continue;
            }
            if let Some(budget) = self.exhausted(&due) {
                return End::Exhausted(budget);
            }
            self.superstep(due);
        }
    }

    /// The first budget, in their order, that forbids to dispatch these.
    fn exhausted(&self, due: &[usize]) -> Option<&'static str> {
        let kind = |node: &&usize| &self.level.nodes[**node].kind;
        let tools = due.iter().filter(|node| !matches!(kind(node), Kind::Sub(_))).count() as u64;
        let burns = due.iter().any(|node| matches!(kind(&node), Kind::Pure(_) | Kind::Io(..)));
        let calls = due.iter().any(|node| matches!(kind(&node), Kind::Io(..)));
        let (spent, budgets) = (&self.spent, &self.budgets);
        let used_up = |max: Option<u64>, used: u64| max.is_some_and(|max| used >= max);
        let over = |max: Option<u64>, used: u64, more: u64| more > 0 && max.is_some_and(|max| used + more > max);
        let all = [
            ("max_supersteps", spent.supersteps >= budgets.max_supersteps),
            ("max_effects", over(budgets.max_effects, spent.effects, due.len() as u64)),
            ("max_tool_calls", over(budgets.max_tool_calls, spent.tool_calls, tools)),
            ("max_wall_ms", used_up(budgets.max_wall_ms, spent.wall)),
            ("max_fuel", burns && used_up(budgets.max_fuel, spent.fuel)),
            ("max_storage_bytes", used_up(budgets.max_storage_bytes, self.storage())),
            ("max_egress_calls", calls && used_up(budgets.max_egress_calls, spent.calls)),
        ];
        all.into_iter().find(|(_, over)| *over).map(|(name, _)| name)
    }

    fn superstep(&mut self, due: Vec<usize>) {
        let mut waiting: BTreeSet<usize> = due.into_iter().collect();
        self.ready.retain(|node, _| !waiting.contains(node));
        self.event(self.now);
        self.spent.supersteps += 1;
        self.wall_at_open = self.spent.wall;
        let (mut flights, mut results) = (BTreeMap::<usize, Flight>::new(), BTreeMap::new());
        let (mut retrying, mut dispatches) = (BTreeSet::new(), Vec::new());
        // What is left of fuel and calls is shared by a wave; it knows what had been spent when it began.
        let (mut base, mut taken, mut joined) = (self.spent, Spent::default(), 0);
        loop {
            while let Some(node) = waiting.first().copied() {
                if !self.failed.is_empty() || joined >= self.case.wave {
                    break;
                }
                let stop = |max: Option<u64>, used: u64| max.is_some_and(|max| used >= max);
                let over = stop(self.budgets.max_wall_ms, self.spent.wall);
                if joined == 0 && (over || stop(self.budgets.max_storage_bytes, self.storage())) {
                    break;
                }
                if joined == 0 {
                    // What was written between two waves is spent before the next one shares.
                    base.storage = self.storage();
                }
                let Some(shares) = self.shares(node, &base, &taken) else { break };
                waiting.remove(&node);
                joined += 1;
                taken.fuel += shares.fuel.map_or(0, |(units, _)| units);
                taken.calls += shares.calls.map_or(0, |(units, _)| units);
                taken.storage += shares.storage.map_or(0, |(units, _)| units);
                let is_child = matches!(self.level.nodes[node].kind, Kind::Sub(_));
                self.spent.effects += 1;
                self.spent.tool_calls += u64::from(!is_child);
                let attempt = *self.attempts.entry(node).and_modify(|attempt| *attempt += 1).or_insert(1);
                let share = is_child.then(|| self.share(&waiting, &flights, &base, &taken));
                if let Some(share) = &share {
                    taken.fuel += share.max_fuel.unwrap_or(0);
                    taken.calls += share.max_egress_calls.unwrap_or(0);
                    taken.storage += share.max_storage_bytes.unwrap_or(0);
                }
                self.event(self.now);
                let (name, input) = (self.level.nodes[node].name.clone(), self.state.clone());
                dispatches.push((name, attempt, Value::Object(input.clone()).to_string()));
                flights.insert(node, Flight { shares, share, attempt, input });
            }
            let Some(node) = flights.keys().next().copied() else { break };
            match self.settle(node, &mut flights) {
                Settled::Gave(output) => drop(results.insert(node, output)),
                Settled::RanShort => drop(waiting.insert(node)),
                Settled::Failed(cause, again) => {
                    let failures = self.failures.entry(node).or_default();
                    *failures += 1;
                    let retryable = matches!(cause, FailureCause::Timeout | FailureCause::ExecutorError);
                    if again && retryable && *failures <= self.level.nodes[node].retries {
                        retrying.insert(node);
                    } else {
                        self.failed.insert(node, (cause, again));
                    }
                }
            }
            if flights.is_empty() {
                (base, taken, joined) = (self.spent, Spent::default(), 0);
            }
        }
        self.steps.push(dispatches);
        self.close(retrying, waiting, results);
    }

    /// Another attempt of what failed, unless something failed for good; then the results are merged.
    fn close(
        &mut self,
        retrying: BTreeSet<usize>,
        waiting: BTreeSet<usize>,
        results: BTreeMap<usize, Map<String, Value>>,
    ) {
        let retrying = if self.failed.is_empty() { retrying } else { BTreeSet::new() };
        for node in retrying {
            let failures = usize::try_from(self.failures[&node]).unwrap();
            let delay = if self.level.nodes[node].delays { DELAY_MS[failures.min(DELAY_MS.len()) - 1] } else { 0 };
            self.event(self.now);
            self.ready.insert(node, self.now + delay);
        }
        self.event(self.now);
        for node in waiting {
            self.ready.insert(node, 0);
        }
        for (node, output) in results {
            self.state.extend(output);
            self.done.insert(node);
        }
        for node in 0..self.level.nodes.len() {
            let mut before = self.level.edges.iter().filter(|(_, to)| *to == node).map(|(from, _)| from).peekable();
            let reached = before.peek().is_some() && before.all(|from| self.done.contains(from));
            let begun = self.done.contains(&node) || self.failed.contains_key(&node) || self.ready.contains_key(&node);
            if reached && !begun && !self.attempts.contains_key(&node) {
                self.ready.insert(node, 0);
            }
        }
    }

    /// The effect settles a millisecond later, or as much later as its child run takes.
    fn settle(&mut self, node: usize, flights: &mut BTreeMap<usize, Flight>) -> Settled {
        let Node { name, kind, .. } = &self.level.nodes[node];
        let flight = &flights[&node];
        if let Kind::Sub(inner) = kind {
            let run_id = format!("{}/{name}/{}", self.run_id, flight.attempt);
            let bytes = self.bytes.children.get(self.children.len());
            let nothing = Bytes::default();
            let begin = (run_id.as_str(), flight.share.unwrap(), flight.input.clone(), self.now);
            let child = play(self.case, inner, begin, bytes.unwrap_or(&nothing));
            self.now = child.now + 1;
            return self.child_ended(node, child, flights);
        }
        let act: Act = self.case.act(&self.run_id, name, flight.attempt);
        let (limit, calls_max) = match kind {
            Kind::Pure(fuel) => (*fuel, 0),
            Kind::Io(fuel, calls) => (*fuel, *calls),
            Kind::Tool | Kind::Sub(_) => (0, 0),
        };
        let fuel = act.fuel.min(flight.shares.fuel.map_or(limit, |(units, _)| units));
        let calls = act.calls.min(flight.shares.calls.map_or(calls_max, |(units, _)| units));
        let wants_more = limit > 0 && act.fuel > fuel || calls_max > 0 && act.calls > calls;
        for _ in 0..calls {
            self.now += 1;
            self.time_passes(flights);
            self.spent.calls += 1;
        }
        self.now += 1;
        self.time_passes(flights);
        self.spent.fuel += fuel;
        let flight = flights.remove(&node).unwrap();
        let cause = act.fails.or(wants_more.then_some(FailureCause::ExecutorError));
        let used_up = |share: Option<(u64, bool)>, used: u64| share.is_some_and(|(units, cut)| cut && used >= units);
        match cause {
            None => Settled::Gave(Map::from_iter([(name.clone(), json!(flight.attempt))])),
            Some(_) if used_up(flight.shares.fuel, fuel) || used_up(flight.shares.calls, calls) => Settled::RanShort,
            Some(cause) => Settled::Failed(cause, true),
        }
    }

    fn child_ended(&mut self, node: usize, child: Played, flights: &mut BTreeMap<usize, Flight>) -> Settled {
        self.time_passes(flights);
        flights.remove(&node);
        let spent = child.spent;
        self.spent.supersteps += spent.supersteps;
        self.spent.effects += spent.effects;
        self.spent.tool_calls += spent.tool_calls;
        self.spent.fuel += spent.fuel;
        self.spent.calls += spent.calls;
        self.below += self.bytes.children.get(self.children.len()).map_or(0, Bytes::total);
        self.spent.wall = self.spent.wall.max(self.wall_at_open + spent.wall);
        let settled = match &child.end {
            End::Completed(state) => Settled::Gave(serde_json::from_str(state).unwrap()),
            End::Failed(_, cause, again) => Settled::Failed(*cause, *again),
            End::Exhausted(_) => Settled::Failed(FailureCause::ExecutorError, false),
        };
        self.children.push(child);
        settled
    }

    /// An event now; time counts while an effect is in flight that is no child run, which counts its own.
    fn time_passes(&mut self, flights: &BTreeMap<usize, Flight>) {
        if flights.keys().any(|node| !matches!(self.level.nodes[*node].kind, Kind::Sub(_))) {
            self.spent.wall += self.now - self.last;
        }
        self.event(self.now);
    }

    fn event(&mut self, at: u64) {
        self.events += 1;
        self.last = at;
    }
}

enum Settled {
    Gave(Map<String, Value>),
    /// The budget had less than it needed: it is due again.
    RanShort,
    Failed(FailureCause, bool),
}
