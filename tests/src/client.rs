//! A caller of the runner: one principal, and the few calls that tests make again and again.

use proto::runner::v1::{
    Ask, Budgets, CancelRunRequest, CancelRunResponse, ForkRunRequest, GetManifestRequest, GetRunRequest, JournalEntry,
    ListAsksRequest, ListJournalEntriesRequest, ListStepActionsRequest, Manifest, PauseRunRequest, PutBlobRequest,
    PutDefinitionRequest, PutGrainRequest, PutPlanRequest, RespondToAskRequest, ResumeRunRequest, Run, RunOptions,
    StartRunRequest, StepAction, VerifyRunRequest, VerifyRunResponse, WaitRunRequest,
    catalog_service_client::CatalogServiceClient, put_blob_request, put_definition_request, put_plan_request,
    respond_to_ask_request, runner_service_client::RunnerServiceClient, start_run_request,
};
use serde_json::Value;
use tonic::{
    Request, Status,
    metadata::AsciiMetadataValue,
    service::{Interceptor, interceptor::InterceptedService},
};

use crate::{
    channel::Channel,
    document::{Definition, Plan},
};

/// The namespace of the tests.
pub const NAMESPACE: &str = "ops";
/// Bytes of one upload message.
const CHUNK_BYTES: usize = 1 << 20;
/// Largest message that the harness reads.
const MESSAGE_BYTES_MAX: usize = proto::serve::MESSAGE_BYTES_MAX;
/// Largest page.
const PAGE: u32 = 1000;

/// Shows a bearer token, if there is one.
#[derive(Clone)]
pub struct Bearer(Option<AsciiMetadataValue>);

impl Interceptor for Bearer {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(token) = &self.0 {
            request.metadata_mut().insert("authorization", token.clone());
        }
        Ok(request)
    }
}

/// One principal's view of the runner.
#[derive(Clone)]
pub struct Client {
    channel: Channel,
    bearer: Bearer,
}

impl Client {
    /// A caller with a bearer token, or with none.
    pub fn new(channel: Channel, token: Option<&str>) -> Self {
        let header = token.map(|token| format!("Bearer {token}").parse().expect("a test's token is ASCII"));
        Self { channel, bearer: Bearer(header) }
    }

    /// The catalogue.
    pub fn catalog(&self) -> CatalogServiceClient<InterceptedService<Channel, Bearer>> {
        CatalogServiceClient::with_interceptor(self.channel.clone(), self.bearer.clone())
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(usize::MAX)
    }

    /// The runner.
    pub fn runner(&self) -> RunnerServiceClient<InterceptedService<Channel, Bearer>> {
        RunnerServiceClient::with_interceptor(self.channel.clone(), self.bearer.clone())
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(usize::MAX)
    }

    /// Stores a blob; its `cas://` address.
    pub async fn put_blob(&self, bytes: &[u8]) -> Result<String, Status> {
        let chunks: Vec<_> = bytes
            .chunks(CHUNK_BYTES)
            .map(|chunk| PutBlobRequest { message: Some(put_blob_request::Message::Chunk(chunk.to_vec())) })
            .collect();
        Ok(self.catalog().put_blob(tokio_stream::iter(chunks)).await?.into_inner().digest)
    }

    /// Authors a definition; its hash.
    pub async fn put_definition(&self, definition: &Definition) -> Result<String, Status> {
        self.put_definition_json(&definition.json().to_string()).await
    }

    /// Authors a definition from its text; its hash.
    pub async fn put_definition_json(&self, text: &str) -> Result<String, Status> {
        let document = Some(put_definition_request::Document::DefinitionJson(text.to_owned()));
        let request = PutDefinitionRequest { namespace: NAMESPACE.to_owned(), document };
        Ok(self.catalog().put_definition(request).await?.into_inner().definition_hash)
    }

    /// Stores a definition's grain as if it had come from elsewhere: authoring rules are not checked. Its hash.
    pub async fn import_definition(&self, definition: &Definition) -> Result<String, Status> {
        self.put_grain(definition.grain()).await
    }

    /// Stores a grain's bytes; its hash.
    pub async fn put_grain(&self, grain: Vec<u8>) -> Result<String, Status> {
        Ok(self.catalog().put_grain(PutGrainRequest { grain }).await?.into_inner().grain_hash)
    }

    /// Authors a plan; its hash.
    pub async fn put_plan(&self, plan: &Plan) -> Result<String, Status> {
        self.put_plan_json(&plan.json().to_string()).await
    }

    /// Authors a plan from its text; its hash.
    pub async fn put_plan_json(&self, text: &str) -> Result<String, Status> {
        let document = Some(put_plan_request::Document::PlanJson(text.to_owned()));
        let request = PutPlanRequest { namespace: NAMESPACE.to_owned(), document };
        Ok(self.catalog().put_plan(request).await?.into_inner().plan_hash)
    }

    /// A plan of the one node `work`, bound to a definition that is authored here.
    pub async fn put_work(&self, definition: &Definition) -> Result<String, Status> {
        let hash = self.put_definition(definition).await?;
        self.put_plan(&Plan::work(&hash)).await
    }

    /// A plan of the one node `work`, bound to a definition that came from elsewhere.
    pub async fn import_work(&self, definition: &Definition) -> Result<String, Status> {
        let hash = self.import_definition(definition).await?;
        self.put_plan(&Plan::work(&hash)).await
    }

    /// Starts a run and returns at once.
    pub async fn start(&self, run_id: &str, plan_hash: &str, input: &Value) -> Result<Run, Status> {
        self.start_with(request(run_id, plan_hash, input)).await
    }

    /// Starts a run and returns at its end or its first ask.
    pub async fn run(&self, run_id: &str, plan_hash: &str, input: &Value) -> Result<Run, Status> {
        self.start_with(StartRunRequest { wait: true, ..request(run_id, plan_hash, input) }).await
    }

    /// Starts a run with options, and returns at its end or its first ask.
    pub async fn run_with(
        &self,
        run_id: &str,
        plan_hash: &str,
        input: &Value,
        options: RunOptions,
    ) -> Result<Run, Status> {
        let request = request(run_id, plan_hash, input);
        self.start_with(StartRunRequest { wait: true, options: Some(options), ..request }).await
    }

    /// Starts a run as the request says.
    pub async fn start_with(&self, request: StartRunRequest) -> Result<Run, Status> {
        let answer = self.runner().start_run(request).await?.into_inner();
        answer.run.ok_or_else(|| Status::internal("StartRun answered without a run"))
    }

    /// Waits until a run has ended.
    pub async fn wait(&self, run_id: &str) -> Result<Run, Status> {
        self.wait_until(run_id, false).await
    }

    /// Waits until a run has ended or waits for a person.
    pub async fn wait_ask(&self, run_id: &str) -> Result<Run, Status> {
        self.wait_until(run_id, true).await
    }

    async fn wait_until(&self, run_id: &str, until_ask: bool) -> Result<Run, Status> {
        let request = WaitRunRequest { namespace: NAMESPACE.to_owned(), run_id: run_id.to_owned(), until_ask };
        let answer = self.runner().wait_run(request).await?.into_inner();
        answer.run.ok_or_else(|| Status::internal("WaitRun answered without a run"))
    }

    /// Reads a run as it stands.
    pub async fn get(&self, run_id: &str) -> Result<Run, Status> {
        let request = GetRunRequest { namespace: NAMESPACE.to_owned(), run_id: run_id.to_owned() };
        let answer = self.runner().get_run(request).await?.into_inner();
        answer.run.ok_or_else(|| Status::internal("GetRun answered without a run"))
    }

    /// Reads what a run froze.
    pub async fn manifest(&self, run_id: &str) -> Result<Manifest, Status> {
        let request = GetManifestRequest { namespace: NAMESPACE.to_owned(), run_id: run_id.to_owned() };
        let answer = self.runner().get_manifest(request).await?.into_inner();
        answer.manifest.ok_or_else(|| Status::internal("GetManifest answered without a manifest"))
    }

    /// Lists a run's effects.
    pub async fn entries(&self, run_id: &str) -> Result<Vec<JournalEntry>, Status> {
        let request = ListJournalEntriesRequest {
            namespace: NAMESPACE.to_owned(),
            run_id: run_id.to_owned(),
            page_size: PAGE,
            page_token: String::new(),
        };
        Ok(self.runner().list_journal_entries(request).await?.into_inner().entries)
    }

    /// Lists the effects of a plan's runs.
    pub async fn step_actions(&self, plan_hash: &str) -> Result<Vec<StepAction>, Status> {
        let request = ListStepActionsRequest {
            namespace: NAMESPACE.to_owned(),
            plan_hash: plan_hash.to_owned(),
            run_id: String::new(),
            page_size: PAGE,
            page_token: String::new(),
        };
        Ok(self.catalog().list_step_actions(request).await?.into_inner().step_actions)
    }

    /// Lists a run's pending asks.
    pub async fn asks(&self, run_id: &str) -> Result<Vec<Ask>, Status> {
        let request = ListAsksRequest {
            namespace: NAMESPACE.to_owned(),
            run_id: run_id.to_owned(),
            page_size: PAGE,
            page_token: String::new(),
        };
        Ok(self.runner().list_asks(request).await?.into_inner().asks)
    }

    /// Answers an ask.
    pub async fn respond(&self, ask: &Ask, answer: &Value) -> Result<Run, Status> {
        self.respond_with(ask, answer, false).await
    }

    /// Refuses an ask; the answer is the reason.
    pub async fn reject(&self, ask: &Ask, why: &Value) -> Result<Run, Status> {
        self.respond_with(ask, why, true).await
    }

    async fn respond_with(&self, ask: &Ask, answer: &Value, is_error: bool) -> Result<Run, Status> {
        self.respond_text(ask, &answer.to_string(), is_error).await
    }

    /// Answers an ask with a text that may be no JSON.
    pub async fn respond_text(&self, ask: &Ask, answer: &str, is_error: bool) -> Result<Run, Status> {
        let request = RespondToAskRequest {
            namespace: NAMESPACE.to_owned(),
            run_id: ask.run_id.clone(),
            tool_call_id: ask.tool_call_id.clone(),
            is_error,
            answer_document: Some(respond_to_ask_request::AnswerDocument::AnswerJson(answer.to_owned())),
        };
        let answer = self.runner().respond_to_ask(request).await?.into_inner();
        answer.run.ok_or_else(|| Status::internal("RespondToAsk answered without a run"))
    }

    /// Cancels a run.
    pub async fn cancel(&self, run_id: &str, reason: &str) -> Result<CancelRunResponse, Status> {
        let request =
            CancelRunRequest { namespace: NAMESPACE.to_owned(), run_id: run_id.to_owned(), reason: reason.to_owned() };
        Ok(self.runner().cancel_run(request).await?.into_inner())
    }

    /// Pauses a run.
    pub async fn pause(&self, run_id: &str) -> Result<Run, Status> {
        let request = PauseRunRequest { namespace: NAMESPACE.to_owned(), run_id: run_id.to_owned() };
        let answer = self.runner().pause_run(request).await?.into_inner();
        answer.run.ok_or_else(|| Status::internal("PauseRun answered without a run"))
    }

    /// Resumes a paused run.
    pub async fn resume(&self, run_id: &str) -> Result<Run, Status> {
        let request = ResumeRunRequest { namespace: NAMESPACE.to_owned(), run_id: run_id.to_owned() };
        let answer = self.runner().resume_run(request).await?.into_inner();
        answer.run.ok_or_else(|| Status::internal("ResumeRun answered without a run"))
    }

    /// Forks a run: from a superstep, or with 0 from where it can; with the same plan and the options of before but for budgets.
    pub async fn fork(&self, run_id: &str, new_run_id: &str, superstep: u64, budgets: Budgets) -> Result<Run, Status> {
        let options = RunOptions { budgets: Some(budgets), ..Default::default() };
        self.fork_with(ForkRunRequest {
            namespace: NAMESPACE.to_owned(),
            run_id: run_id.to_owned(),
            new_run_id: new_run_id.to_owned(),
            superstep,
            options: Some(options),
            ..Default::default()
        })
        .await
    }

    /// Forks a run as the request says.
    pub async fn fork_with(&self, request: ForkRunRequest) -> Result<Run, Status> {
        let answer = self.runner().fork_run(request).await?.into_inner();
        answer.run.ok_or_else(|| Status::internal("ForkRun answered without a run"))
    }

    /// Verifies a run.
    pub async fn verify(&self, run_id: &str) -> Result<VerifyRunResponse, Status> {
        let request =
            VerifyRunRequest { namespace: NAMESPACE.to_owned(), run_id: run_id.to_owned(), ..Default::default() };
        Ok(self.runner().verify_run(request).await?.into_inner())
    }
}

/// A start with exact JSON input and no options.
pub fn request(run_id: &str, plan_hash: &str, input: &Value) -> StartRunRequest {
    StartRunRequest {
        namespace: NAMESPACE.to_owned(),
        run_id: run_id.to_owned(),
        plan_hash: plan_hash.to_owned(),
        input_document: Some(start_run_request::InputDocument::InputJson(input.to_string())),
        options: None,
        wait: false,
    }
}
