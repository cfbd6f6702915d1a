//! A runner without its API: journal, dispatcher and drivers, stopped and started again on the same directory.

use std::{
    collections::BTreeMap,
    io,
    path::PathBuf,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use content_digest::Digest;
use runner_core::{
    budget::Budgets,
    manifest::{Durability, ENGINE_EPOCH, Manifest, OnDangling},
    payload::Payload,
    pinned::{Executor, PinnedNode, PinnedTool},
    plan::Plan as CorePlan,
    read_input,
    run_id::RunId,
};
use runner_svc::{
    dispatch::{CodeSource, CodeUnreadable, DispatchConfig, Dispatcher, HostToolAt},
    journal::{self, Journal, Options, PayloadFiles, RealDisk},
    runs::{Attempts, Clock, Runs, Shared},
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// Longest wait for something that must happen.
const DEADLINE: Duration = Duration::from_secs(60);
/// Length of a lease, as a service has it that is not told another one.
const LEASE: Duration = Duration::from_secs(15);
/// Kind byte of stored records, as on the disk.
const RECORD: u8 = 0x20;

/// A plan and who executes its nodes.
pub struct Plan {
    fields: Value,
    executor: fn(&str) -> Executor,
}

impl Plan {
    /// One question.
    pub fn ask() -> Self {
        Self { fields: json!({"nodes": ["ask"]}), executor: |_| Executor::Person }
    }

    /// Two host tools in a row.
    pub fn tools() -> Self {
        let fields = json!({"nodes": ["a", "b"], "edges": [{"src": "a", "dst": "b"}]});
        Self { fields, executor: |_| Executor::HostTool }
    }

    /// A host tool, then people side by side.
    pub fn tool_then_people(asks: impl Iterator<Item = String>) -> Self {
        let nodes: Vec<String> = std::iter::once("first".to_owned()).chain(asks).collect();
        let edges: Vec<Value> = nodes[1..].iter().map(|ask| json!({"src": "first", "dst": ask})).collect();
        let executor = |node: &str| if node == "first" { Executor::HostTool } else { Executor::Person };
        Self { fields: json!({"nodes": nodes, "edges": edges}), executor }
    }
}

/// What a start froze of a plan.
pub fn manifest(run_id: &str, plan: &Plan, input: &str) -> (Manifest, Payload) {
    let input = read_input(input).unwrap();
    let core = CorePlan::from_fields(&plan.fields).unwrap();
    let node = |node: &String| {
        let executor = (plan.executor)(node);
        let tool = PinnedTool {
            definition: Digest::of(serde_json::to_string(&executor).unwrap()),
            tool_name: "work".to_owned(),
            description: String::new(),
            executor,
            input_schema: None,
            output_schema: None,
            strict: false,
            locked_params: serde_json::Map::new(),
        };
        PinnedNode { node: node.clone(), tool: Arc::new(tool) }
    };
    let manifest = Manifest {
        run_id: RunId::parse(run_id).unwrap(),
        namespace: "ops".to_owned(),
        plan_hash: Digest::of("plan"),
        plan: core.document().clone(),
        nodes: core.nodes().iter().map(node).collect(),
        plans: BTreeMap::new(),
        parent: None,
        lineage: None,
        principal: "user:runner".to_owned(),
        initiator: None,
        budgets: Budgets::default(),
        on_dangling: OnDangling::Redispatch,
        node_policies: BTreeMap::new(),
        ask_ttl_ms: None,
        wave_effects_max: None,
        reserves_storage: false,
        durability: Durability::ProcessCrash,
        policy_digest: None,
        native_isolation: Vec::new(),
        input_digest: input.digest(),
        engine_epoch: ENGINE_EPOCH,
        engine_version: "0.1.0".to_owned(),
        started_at_ms: 1_755_000_000_000,
    };
    (manifest, input)
}

/// A data directory, and the runner on it while there is one.
pub struct Host {
    pub dir: tempfile::TempDir,
    pub files: Arc<Files>,
    tool: HostToolAt,
    lease: Duration,
    life: Option<(Runs, CancellationToken)>,
}

impl Host {
    pub fn new() -> Self {
        Self::with_tool(HostToolAt::Command("cat > /dev/null; echo '{}'".to_owned()))
    }

    pub fn with_tool(tool: HostToolAt) -> Self {
        Self::with_lease(tool, LEASE)
    }

    pub fn with_lease(tool: HostToolAt, lease: Duration) -> Self {
        let mut host = Self { dir: tempfile::tempdir().unwrap(), files: Arc::default(), tool, lease, life: None };
        host.open();
        host
    }

    pub fn runs(&self) -> Runs {
        self.life.as_ref().unwrap().0.clone()
    }

    pub async fn start(&mut self, run_id: &str, plan: &Plan, input: &str) {
        let (manifest, input) = manifest(run_id, plan, input);
        self.runs().start(&manifest, input).await.unwrap();
    }

    /// Ends the process, as far as the runs are concerned.
    pub async fn stop(&mut self) {
        let (runs, drain) = self.life.take().unwrap();
        drain.cancel();
        runs.drained().await;
    }

    /// Starts again; the number of runs that are driven.
    pub async fn restart(&mut self) -> usize {
        if self.life.is_some() {
            self.stop().await;
        }
        self.open();
        self.runs().recover().await.unwrap()
    }

    fn open(&mut self) {
        let options = || Options {
            durability: journal::Durability::ProcessCrash,
            files: Arc::clone(&self.files) as Arc<dyn PayloadFiles>,
            disk: Arc::new(RealDisk),
            cache_bytes: 16 * 1024 * 1024,
        };
        let (journal, _mended) = patiently(|| Journal::open_mending(self.dir.path(), options(), false));
        let drain = CancellationToken::new();
        let shared = Shared {
            journal,
            dispatcher: Dispatcher::new(dispatch(self.tool.clone()), Arc::new(NoCode)).unwrap(),
            workers: Arc::new(tokio::sync::Semaphore::new(8)),
            effect_timeout: Duration::from_secs(60),
            clock: Clock::start(),
            lease: self.lease,
            model: None,
            node_id: "node-1".to_owned(),
            instance: uuid::Uuid::new_v4().to_string(),
            attempts: Attempts::in_dir(self.dir.path()),
        };
        self.life = Some((Runs::new(Arc::new(shared), 1000, drain.clone()), drain));
    }

    /// Flips a bit in the first record of the run that was started as the n-th, from 0.
    pub fn tamper(&self, run: u64) {
        let store = patiently(|| sled::Config::new().path(self.dir.path().join("journal")).flush_every_ms(None).open());
        let key = [&[RECORD][..], &run.to_be_bytes(), &[0; 8], &[0, 0]].concat();
        let mut value = store.get(&key).unwrap().unwrap().to_vec();
        *value.last_mut().unwrap() ^= 1;
        store.insert(key, value).unwrap();
        store.flush().unwrap();
    }
}

fn dispatch(tool: HostToolAt) -> DispatchConfig {
    DispatchConfig {
        sandbox: None,
        host_tool: Some(tool),
        broker_urls: Vec::new(),
        module_dir: PathBuf::from("/nonexistent"),
        blob_dir: PathBuf::from("/nonexistent"),
        children_max: 8,
        children_dir: std::env::temp_dir().join(format!("areev-children-{}", uuid::Uuid::new_v4())),
        patience: Duration::from_secs(1),
        tls: None,
    }
}

struct NoCode;

impl CodeSource for NoCode {
    fn read(&self, digest: &Digest) -> Result<Vec<u8>, CodeUnreadable> {
        Err(CodeUnreadable(format!("{} is not stored", digest.to_uri())))
    }

    fn size(&self, _: &Digest) -> Result<Option<u64>, CodeUnreadable> {
        Ok(None)
    }
}

/// Large texts in memory, kept over restarts; some are lost, some cannot be read for a while.
#[derive(Default)]
pub struct Files {
    texts: Mutex<BTreeMap<Digest, Vec<u8>>>,
    failing: Mutex<BTreeMap<Digest, u32>>,
}

impl Files {
    pub fn lose(&self, digest: &Digest) {
        self.texts.lock().unwrap().remove(digest).unwrap();
    }

    /// The next reads of a text fail.
    pub fn fail(&self, digest: &Digest, times: u32) {
        self.failing.lock().unwrap().insert(*digest, times);
    }
}

impl PayloadFiles for Files {
    fn put(&self, digest: &Digest, bytes: &[u8]) -> io::Result<()> {
        self.texts.lock().unwrap().insert(*digest, bytes.to_vec());
        Ok(())
    }

    fn get(&self, digest: &Digest) -> io::Result<Vec<u8>> {
        if let Some(times) = self.failing.lock().unwrap().get_mut(digest).filter(|times| **times > 0) {
            *times -= 1;
            return Err(io::Error::from_raw_os_error(5));
        }
        self.texts.lock().unwrap().get(digest).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

/// Another test may just be starting a process, which holds a copy of a closed lock until it runs its own program.
fn patiently<T, E: std::fmt::Display>(mut open: impl FnMut() -> Result<T, E>) -> T {
    let started = Instant::now();
    loop {
        match open() {
            Ok(opened) => return opened,
            Err(refused) => assert!(started.elapsed() < DEADLINE, "{refused}"),
        }
        std::thread::yield_now();
    }
}

/// Polls until a condition holds.
pub async fn eventually(what: &str, holds: impl Fn() -> bool) {
    let deadline = tokio::time::Instant::now() + DEADLINE;
    while !holds() {
        assert!(tokio::time::Instant::now() < deadline, "never came: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
