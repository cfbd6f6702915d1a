//! A sandbox that plays a script for each call and remembers what it was told.

use std::{
    collections::VecDeque,
    pin::Pin,
    sync::{Arc, Mutex},
};

use content_digest::Digest;
use futures::StreamExt as _;
use proto::{
    fault::{Domain, Fault, Reason},
    sandbox::v1::{
        DescribeRequest, DescribeResponse, Exchange, ExecuteRequest, ExecuteResponse, ModuleStat, Outcome, OutcomeKind,
        PutModuleRequest, PutModuleResponse, Start, StatModulesRequest, StatModulesResponse, execute_request,
        execute_response, put_module_request,
        sandbox_service_server::{SandboxService, SandboxServiceServer},
    },
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming, service::Routes};

use super::rig::{Log, serve};

/// One step of a call.
#[derive(Clone)]
pub enum Act {
    /// Refuses the call.
    Refuse(Fault),
    /// Refuses the call unless the module was uploaded.
    NeedModule,
    /// Answers a brokered call and waits for its acknowledgement.
    Exchange(u32),
    /// Ends the call.
    Outcome(Outcome),
    /// Waits to be canceled, then says what was used.
    AwaitCancel,
    /// Waits to be canceled, then says something else all the same.
    AwaitCancelAndSay(Outcome),
    /// Breaks the stream without an outcome.
    Vanish,
    /// Never answers.
    Hang,
}

/// The fake and what it saw.
pub struct FakeSandbox {
    pub url: String,
    pub log: Log,
    starts: Arc<Mutex<Vec<Start>>>,
}

#[derive(Clone, Default)]
struct Service {
    scripts: Arc<Mutex<VecDeque<Vec<Act>>>>,
    modules: Arc<Mutex<Vec<Digest>>>,
    starts: Arc<Mutex<Vec<Start>>>,
    log: Log,
    name: &'static str,
}

impl FakeSandbox {
    /// Plays one script after the other, the last one for ever.
    pub async fn playing(scripts: impl IntoIterator<Item = Vec<Act>>) -> Self {
        Self::playing_into(Log::default(), scripts).await
    }

    /// The same, noting into a log that others note into.
    pub async fn playing_into(log: Log, scripts: impl IntoIterator<Item = Vec<Act>>) -> Self {
        let starts = Arc::default();
        let service = Service {
            scripts: Arc::new(Mutex::new(scripts.into_iter().collect())),
            modules: Arc::default(),
            starts: Arc::clone(&starts),
            log: log.clone(),
            name: "",
        };
        Self { url: service.serve().await, log, starts }
    }

    /// Two sandboxes, `a` and `b`: whichever is called first plays the first script.
    pub async fn two_playing(scripts: impl IntoIterator<Item = Vec<Act>>) -> (Log, [String; 2]) {
        let service = |name| Service { name, ..Service::default() };
        let (a, b) = (service(" a"), service(" b"));
        a.scripts.lock().unwrap().extend(scripts);
        let b = Service { scripts: Arc::clone(&a.scripts), log: a.log.clone(), ..b };
        (a.log.clone(), [a.serve().await, b.serve().await])
    }

    /// The first messages of all calls.
    pub fn starts(&self) -> Vec<Start> {
        self.starts.lock().unwrap().clone()
    }
}

/// A result.
pub fn completed(output_json: &str) -> Act {
    let output_json = output_json.to_owned();
    Act::Outcome(Outcome { output_json, fuel_used: 4711, calls: 2, ..ended(OutcomeKind::Completed, "") })
}

/// Another end.
pub fn ended(kind: OutcomeKind, text: &str) -> Outcome {
    Outcome { kind: kind.into(), text: text.to_owned(), peak_memory_bytes: 65536, ..Outcome::default() }
}

/// What the fake answers to a brokered call.
pub fn reply_of(ordinal: u32) -> String {
    format!("{{\"status\":200,\"body\":\"answer {ordinal}\"}}")
}

impl Service {
    async fn serve(self) -> String {
        let limit = proto::serve::MESSAGE_BYTES_MAX;
        serve(Routes::new(SandboxServiceServer::new(self).max_decoding_message_size(limit))).await
    }

    fn next_script(&self) -> Vec<Act> {
        let mut scripts = self.scripts.lock().unwrap();
        if scripts.len() > 1 { scripts.pop_front().unwrap() } else { scripts.front().cloned().unwrap_or_default() }
    }

    fn has_module(&self, uri: &str) -> bool {
        self.modules.lock().unwrap().iter().any(|digest| digest.to_uri() == uri)
    }
}

#[tonic::async_trait]
impl SandboxService for Service {
    type ExecuteStream = Pin<Box<dyn futures::Stream<Item = Result<ExecuteResponse, Status>> + Send>>;

    async fn execute(
        &self,
        request: Request<Streaming<ExecuteRequest>>,
    ) -> Result<Response<Self::ExecuteStream>, Status> {
        let mut inbox = request.into_inner();
        let Some(execute_request::Message::Start(start)) = inbox.message().await?.and_then(|first| first.message)
        else {
            return Err(Status::invalid_argument("the first message is no start"));
        };
        self.log.note(format!("start{}", self.name));
        self.starts.lock().unwrap().push(start.clone());
        let script = self.next_script();
        for act in &script {
            match act {
                Act::Refuse(fault) => return Err(fault.clone().into_status(Domain::Sandbox)),
                Act::NeedModule if !self.has_module(&start.module_digest) => {
                    let fault = Fault::new(Reason::ModuleNotFound, format!("{} is not here", start.module_digest));
                    return Err(fault.into_status(Domain::Sandbox));
                }
                _ => {}
            }
        }
        let (outbox, messages) = mpsc::channel(4);
        tokio::spawn(play(script, inbox, outbox, self.log.clone()));
        Ok(Response::new(ReceiverStream::new(messages).boxed()))
    }

    async fn put_module(
        &self,
        request: Request<Streaming<PutModuleRequest>>,
    ) -> Result<Response<PutModuleResponse>, Status> {
        let (mut inbox, mut named, mut bytes) = (request.into_inner(), String::new(), Vec::new());
        while let Some(message) = inbox.message().await? {
            match message.message {
                Some(put_module_request::Message::Digest(digest)) => named = digest,
                Some(put_module_request::Message::Chunk(chunk)) => bytes.extend(chunk),
                None => {}
            }
        }
        let digest = Digest::of(&bytes);
        assert_eq!(digest.to_uri(), named, "what is uploaded is what was named");
        self.log.note("upload");
        self.modules.lock().unwrap().push(digest);
        Ok(Response::new(PutModuleResponse { digest: named, size_bytes: bytes.len() as u64 }))
    }

    async fn stat_modules(
        &self,
        request: Request<StatModulesRequest>,
    ) -> Result<Response<StatModulesResponse>, Status> {
        let stat = |digest: String| ModuleStat { present: self.has_module(&digest), digest, ..Default::default() };
        let modules = request.into_inner().digests.into_iter().map(stat).collect();
        Ok(Response::new(StatModulesResponse { modules }))
    }

    async fn describe(&self, _: Request<DescribeRequest>) -> Result<Response<DescribeResponse>, Status> {
        Ok(Response::new(DescribeResponse::default()))
    }
}

async fn play(
    script: Vec<Act>,
    mut inbox: Streaming<ExecuteRequest>,
    outbox: mpsc::Sender<Result<ExecuteResponse, Status>>,
    log: Log,
) {
    for act in script {
        let message = match act {
            Act::Refuse(_) | Act::NeedModule => continue,
            Act::Vanish => return,
            Act::Hang => {
                while let Ok(Some(_)) = inbox.message().await {}
                return log.note("stream ended");
            }
            Act::AwaitCancel | Act::AwaitCancelAndSay(_) => {
                let asked = inbox.message().await.ok().flatten().and_then(|message| message.message);
                log.note(if matches!(asked, Some(execute_request::Message::Cancel(_))) {
                    "cancel"
                } else {
                    "no cancel"
                });
                let canceled = || Outcome { fuel_used: 99, ..ended(OutcomeKind::Canceled, "canceled") };
                execute_response::Message::Outcome(match act {
                    Act::AwaitCancelAndSay(outcome) => outcome,
                    _ => canceled(),
                })
            }
            Act::Outcome(outcome) => execute_response::Message::Outcome(outcome),
            Act::Exchange(ordinal) => execute_response::Message::Exchange(Exchange {
                ordinal,
                request_digest: Digest::of(ordinal.to_be_bytes()).to_hex(),
                reply_json: reply_of(ordinal).into(),
                record: Some(proto::broker::v1::CallRecord {
                    host: "api.example.com".to_owned(),
                    status: 200,
                    ..Default::default()
                }),
            }),
        };
        let exchanged = matches!(message, execute_response::Message::Exchange(_));
        if outbox.send(Ok(ExecuteResponse { message: Some(message) })).await.is_err() {
            return;
        }
        if exchanged {
            match inbox.message().await.ok().flatten().and_then(|message| message.message) {
                Some(execute_request::Message::Ack(ack)) => log.note(format!("ack {}", ack.ordinal)),
                Some(execute_request::Message::Cancel(_)) => return log.note("cancel"),
                _ => return log.note("stream ended"),
            }
        }
    }
}
