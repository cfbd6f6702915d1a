//! Sending effects out: to a sandbox, a host tool, and to the broker for the right to call out. Nothing is decided here but
//! where an effect goes.

mod backoff;
mod broker_client;
mod brokers;
mod call_record;
mod child;
mod code;
mod config;
mod effect;
mod model_client;
mod module_files;
mod names;
mod output;
mod ready;
mod rendezvous;
mod sandbox_client;
mod sandbox_command;
mod service_client;
mod slot;
mod token;
mod tool_client;
mod tool_command;
mod until;
mod waits;

use std::{sync::Arc, time::Duration};

use content_digest::Digest;
use futures::FutureExt as _;
use runner_core::{
    outcome::EffectOutcome,
    pinned::{Executor, Runtime},
};
use tokio::{sync::Semaphore, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::{catalogue::Files, families};

pub use call_record::CallRecord;
pub use code::{CodeSource, CodeUnreadable, SharedCode};
pub use config::{DispatchConfig, DispatchConfigError, HostToolAt, PATIENCE_DEFAULT, Profile, SandboxAt};
pub use effect::{Effect, Ending, JournalExchange, NotJournaled, Settled};
pub use names::{Names, SystemNames};
pub use output::OUTPUT_BYTES_MAX;
pub use ready::Unready;
pub use slot::Slot;
pub use waits::{Awaited, Outage, Wait, Waiter, Waits};

use broker_client::{Granted, Spender, artifacts::Artifacts};
use brokers::Brokers;
use child::{Children, Roster};
use code::CodeRef;
use module_files::ModuleFiles;
use sandbox_client::{Delivery, Sandboxes};
use sandbox_command::SandboxCommand;
use tool_client::ToolService;
use tool_command::ToolCommand;
use until::Until;

/// How long a module that is executed again waits for a sandbox while none answers: somebody waits for the verdict.
const PATIENCE_AGAIN: Duration = Duration::from_secs(5);

/// Sends effects out. One for the whole runner; its methods may be called from any number of tasks at once.
pub struct Dispatcher {
    profile: Profile,
    sandbox: Option<Sandbox>,
    host_tool: Option<HostTool>,
    brokers: Option<Brokers>,
    source: SharedCode,
    artifacts: Option<Artifacts>,
    children: Children,
    waits: Waits,
}

enum Sandbox {
    Service(Sandboxes),
    Command(SandboxCommand),
}

enum HostTool {
    Service(Box<ToolService>),
    Command(ToolCommand),
}

impl Dispatcher {
    /// Prepares every way out. Nothing is reached before the first effect.
    ///
    /// # Errors
    /// An address or a command cannot be used.
    pub fn new(config: DispatchConfig, source: SharedCode) -> Result<Self, DispatchConfigError> {
        Self::with_names(config, source, Arc::new(SystemNames))
    }

    /// The same with a resolver of names.
    ///
    /// # Errors
    /// As for [`Self::new`].
    pub fn with_names(
        config: DispatchConfig,
        source: SharedCode,
        names: Arc<dyn Names>,
    ) -> Result<Self, DispatchConfigError> {
        let profile = config.profile();
        if config.children_max == 0 {
            return Err(DispatchConfigError::NoChildren);
        }
        let (tls, patience) = (config.tls.as_ref(), config.patience);
        let sandbox = match config.sandbox {
            Some(SandboxAt::Urls(urls)) => {
                Some(Sandbox::Service(Sandboxes::new((&urls, names), &source, tls, patience)?))
            }
            Some(SandboxAt::Command(command)) => {
                let command = SandboxCommand::new(&command, ModuleFiles::new(config.module_dir), config.blob_dir);
                Some(Sandbox::Command(command.ok_or(DispatchConfigError::Blank("--sandbox-cmd"))?))
            }
            None => None,
        };
        let host_tool = match config.host_tool {
            Some(HostToolAt::Url(url)) => Some(HostTool::Service(Box::new(ToolService::new(&url, tls, patience)?))),
            Some(HostToolAt::Command(command)) if command.trim().is_empty() => {
                return Err(DispatchConfigError::Blank("--tool-cmd"));
            }
            Some(HostToolAt::Command(command)) => Some(HostTool::Command(ToolCommand::new(command))),
            None => None,
        };
        let brokers = Brokers::new(&config.broker_urls, tls, patience)?;
        let children = Children::new(config.children_max, Roster::new(config.children_dir));
        let (artifacts, waits) = (None, Waits::default());
        Ok(Self { profile, sandbox, host_tool, brokers, source, artifacts, children, waits })
    }

    /// The same with a catalogue, whose blobs bodies of calls can be.
    #[must_use]
    pub fn with_blobs(self, blobs: Arc<Files>) -> Self {
        Self { artifacts: Some(Artifacts::new(blobs)), ..self }
    }

    /// What this runner has.
    pub fn profile(&self) -> Profile {
        self.profile
    }

    /// What effects wait for before anybody executes them.
    pub fn waits(&self) -> &Waits {
        &self.waits
    }

    /// Sends one effect out and waits for its end, which comes within seconds of its timeout or of `cancel` at the latest.
    ///
    /// Each brokered exchange of a module is handed to `journal`; its answer is held back until that is durable. The intent
    /// has to be durable before this is called, unless the effect is pure. Dropping the future stops the effect too.
    ///
    /// The slot is taken first, and given back while the effect waits for a service that is full or does not answer.
    pub async fn dispatch(
        &self,
        effect: Effect,
        journal: &JournalExchange<'_>,
        slot: Slot,
        cancel: CancellationToken,
    ) -> Settled {
        let waiter = self.waits.waiter(&effect.run_id, &effect.key, slot);
        if cancel.run_until_cancelled(waiter.takes_slot()).await.is_none() {
            return Ending::Canceled.into();
        }
        let began = Instant::now();
        let until = Until::after(effect.timeout, &cancel);
        let _in_flight = families::InFlight::begin();
        let mut settled = Box::pin(self.send((&effect, &waiter), journal, until)).await;
        settled.usage.duration_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        observe(&effect, &settled);
        settled
    }

    /// Executes a module once more, to see whether it gives the same: no token is minted, its brokered calls are answered from
    /// those that were recorded, and one that was not ends it.
    pub async fn execute_again(&self, effect: Effect) -> Settled {
        let cancel = CancellationToken::new();
        let until = Until::after(effect.timeout, &cancel);
        let waiter = self.waits.waiter("", &effect.key, Slot::of(&Arc::new(Semaphore::new(1))));
        let Some(code) = CodeRef::of(&effect) else { return Ending::executor_error("it is no module").into() };
        match &self.sandbox {
            Some(Sandbox::Service(sandboxes)) => {
                let unrecorded = |_| futures::future::ready(Err(NotJournaled)).boxed();
                let (effect, recorded, waiter) = (&effect, effect.recorded.clone(), &waiter);
                let (egress, artifacts, journal, patience) = (None, None, &unrecorded, Some(PATIENCE_AGAIN));
                let delivery = Delivery { effect, code, egress, journal, until, recorded, waiter, patience, artifacts };
                sandboxes.execute(delivery).await
            }
            Some(Sandbox::Command(command)) => {
                command.execute((&self.children, &self.source), (&effect, code), None, until).await
            }
            None => Ending::executor_error("there is no sandbox").into(),
        }
    }

    /// Ends every token of a run. Answers how many were alive: none without a broker.
    ///
    /// # Errors
    /// The broker does not answer; the tokens end by their deadlines.
    pub async fn revoke_run(&self, run_id: &str) -> Result<u32, Unready> {
        match &self.brokers {
            Some(brokers) => brokers.revoke_run(run_id).await,
            None => Ok(0),
        }
    }

    /// Whether tokens are minted for effects.
    pub fn has_broker(&self) -> bool {
        self.brokers.is_some()
    }

    /// Digest of the broker's policy; none without a broker.
    ///
    /// # Errors
    /// The broker does not answer.
    pub async fn policy_digest(&self) -> Result<Option<Digest>, Unready> {
        match &self.brokers {
            Some(brokers) => brokers.policy_digest().await.map(Some),
            None => Ok(None),
        }
    }

    /// What isolates native blobs, in the sandboxes that answer; empty without one.
    pub async fn native_isolation(&self) -> Vec<String> {
        match &self.sandbox {
            Some(Sandbox::Service(sandboxes)) => sandboxes.native_isolation().await,
            Some(Sandbox::Command(_)) | None => Vec::new(),
        }
    }

    /// Whether at least one sandbox and the broker answer, of those that are configured.
    ///
    /// # Errors
    /// Who does not answer.
    pub async fn ready(&self) -> Result<(), Vec<Unready>> {
        let sandbox = async {
            match &self.sandbox {
                Some(Sandbox::Service(sandboxes)) => sandboxes.ready().await.err().unwrap_or_default(),
                Some(Sandbox::Command(_)) | None => Vec::new(),
            }
        };
        let (mut silent, policy) = tokio::join!(sandbox, self.policy_digest());
        silent.extend(policy.err());
        if silent.is_empty() { Ok(()) } else { Err(silent) }
    }

    async fn send(
        &self,
        (effect, waiter): (&Effect, &Waiter),
        journal: &JournalExchange<'_>,
        until: Until<'_>,
    ) -> Settled {
        if until.cancel.is_cancelled() {
            return Ending::Canceled.into();
        }
        let mut granted = match self.grant(effect, &until, waiter).await {
            Ok(granted) => granted,
            Err(ending) => return ending.into(),
        };
        let records = granted.as_mut().and_then(Granted::records);
        let executing = self.execute((effect, waiter), journal, until, granted.as_ref());
        let Some(mut records) = records else { return executing.await };
        tokio::select! {
            settled = executing => settled,
            () = records.journal(effect.recorded.len(), journal) => Ending::NotJournaled.into(),
        }
    }

    async fn execute(
        &self,
        (effect, waiter): (&Effect, &Waiter),
        journal: &JournalExchange<'_>,
        until: Until<'_>,
        granted: Option<&Granted>,
    ) -> Settled {
        let egress = granted.map(Granted::egress);
        match (&effect.tool.executor, CodeRef::of(effect)) {
            (Executor::ChildRun, _) => Ending::executor_error("a child run is driven, not dispatched").into(),
            (Executor::Model { model }, _) => match (&self.brokers, granted) {
                (Some(_), Some(granted)) => model_client::ask(granted, (effect, model), journal, until).await,
                (Some(_), None) => Ending::executor_error(
                    "the credential broker grants model calls nothing: an operator can add [grants.model]",
                )
                .into(),
                (None, _) => {
                    Ending::executor_error("there is no credential broker: a model is asked through one").into()
                }
            },
            (Executor::Person, _) => Ending::executor_error("an ask is answered by a person, not dispatched").into(),
            (Executor::Code { .. }, Some(code)) => match &self.sandbox {
                Some(Sandbox::Service(sandboxes)) => {
                    let recorded = effect.recorded.clone();
                    let (patience, artifacts) = (None, self.artifacts.as_ref().zip(granted));
                    let delivery =
                        Delivery { effect, code, egress, journal, until, recorded, waiter, patience, artifacts };
                    sandboxes.execute(delivery).await
                }
                Some(Sandbox::Command(command)) => {
                    command.execute((&self.children, &self.source), (effect, code), egress, until).await
                }
                None => Ending::executor_error("there is no sandbox: configure --sandbox-url or --sandbox-cmd").into(),
            },
            (Executor::HostTool | Executor::Code { .. }, _) => match &self.host_tool {
                Some(HostTool::Service(service)) => service.execute((effect, waiter), egress, until).await.into(),
                Some(HostTool::Command(command)) => command.execute(&self.children, effect, egress, until).await.into(),
                None => Ending::executor_error("there is no host tool: configure --tool-cmd or --tool-url").into(),
            },
        }
    }

    /// The right to call out. A pure module has none, and nobody is asked for it.
    async fn grant(&self, effect: &Effect, until: &Until<'_>, waiter: &Waiter) -> Result<Option<Granted>, Ending> {
        let code = CodeRef::of(effect);
        let runtime = code.map(|code| code.runtime);
        match (&self.brokers, runtime) {
            (_, Some(Runtime::Wasm)) => Ok(None),
            (Some(brokers), _) => Box::pin(brokers.mint((effect, waiter), self.spender(effect), until)).await,
            (None, Some(Runtime::WasmIo)) if code.is_some_and(|code| code.reads_blobs_alone()) => Ok(None),
            (None, Some(Runtime::WasmIo)) => Err(Ending::executor_error(
                "there is no credential broker: a module of wasm32-areev-io calls out through one; configure --broker-url",
            )),
            (None, Some(Runtime::Native) | None) => Ok(None),
        }
    }

    /// Who makes an effect's calls: a module in a sandbox's service has the sandbox make them, any other code is a process that makes
    /// its own.
    fn spender(&self, effect: &Effect) -> Spender {
        let module = CodeRef::of(effect).is_some_and(|code| code.runtime == Runtime::WasmIo);
        match (&effect.tool.executor, &self.sandbox) {
            (Executor::Model { .. }, _) => Spender::Runner,
            (_, Some(Sandbox::Service(_))) if module => Spender::Sandbox,
            _ => Spender::Child,
        }
    }
}

/// One line and one count for each effect.
fn observe(effect: &Effect, settled: &Settled) {
    let executor = match &effect.tool.executor {
        Executor::Code { runtime, .. } => runtime.as_str(),
        Executor::HostTool => "host_tool",
        Executor::Person => "person",
        Executor::ChildRun => "child_run",
        Executor::Model { .. } => "model",
    };
    let outcome = match &settled.ending {
        Ending::Outcome(EffectOutcome::Completed { .. }) => "completed",
        Ending::Outcome(EffectOutcome::Failed { failure }) => failure.cause.as_str(),
        Ending::Canceled => "canceled",
        Ending::NotJournaled => "not_journaled",
        Ending::Left => "left",
        Ending::InDoubt { .. } => "in_doubt",
    };
    metrics::counter!("areev_effects_total", "executor" => executor, "outcome" => outcome).increment(1);
    metrics::counter!("areev_effect_fuel_total").increment(settled.usage.fuel);
    tracing::debug!(
        run = effect.run_id,
        node = effect.key.node,
        attempt = effect.key.attempt,
        executor,
        outcome,
        duration_ms = settled.usage.duration_ms,
        fuel = settled.usage.fuel,
        "effect settled"
    );
}

/// A length of time, for texts.
fn shown_time(length: Duration) -> humantime::FormattedDuration {
    humantime::format_duration(Duration::from_millis(u64::try_from(length.as_millis()).unwrap_or(u64::MAX)))
}
