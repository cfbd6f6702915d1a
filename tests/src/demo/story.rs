//! What happens in the demo, part by part.

use std::fs;

use anyhow::{Context as _, Result, bail, ensure};
use content_digest::Digest;
use proto::runner::v1::{Ask, Event, RunStatus};
use serde_json::{Value, json};
use tempfile::TempDir;
use tonic::Status;

use super::{
    cast::{self, ALICE, BOB, Code, Person},
    commands, events,
    screen::Screen,
    secret,
};
use crate::{
    client::{Client, NAMESPACE},
    document::{Definition, Plan},
    flags::Flags,
    journal::Watch,
    service::Service,
    upstream::Upstream,
};

/// The run.
const RUN: &str = "invoice-117";
/// The run that the printed lines start.
const NEXT_RUN: &str = "invoice-118";
/// The run that does not start.
const REFUSED: &str = "foreign-1";
const START: &str = "areev.runner.v1.RunnerService/StartRun";

/// The services, and what the demo knows of them.
pub struct Story<'a> {
    screen: &'a Screen,
    directory: TempDir,
    bank: Upstream,
    code: Code,
    broker: Service,
    sandbox: Service,
    runner: Service,
}

impl<'a> Story<'a> {
    /// Starts the bank and the three services, each as a process of its own.
    pub async fn begin(screen: &'a Screen) -> Result<Self> {
        let directory = tempfile::Builder::new().prefix("areev-demo-").tempdir().context("a temporary directory")?;
        let (place, logs) = (directory.path(), directory.path().join("logs"));
        fs::create_dir(&logs).context("the directory of logs")?;
        let temporary = place.join("tmp");
        fs::create_dir(&temporary).context("the directory of temporary files")?;
        // What is logged is searched later: at the loudest.
        let loud = |flags: Flags| flags.variable("RUST_LOG", "trace").variable("TMPDIR", &temporary.to_string_lossy());
        let bank = cast::bank().await?;
        let code = Code::new(&bank.origin());

        let settings = place.join("broker.toml");
        fs::write(&settings, cast::broker_settings(&bank.origin())).context("the broker's settings")?;
        let flags = Flags::broker().config(&settings).variable(cast::SECRET_VARIABLE, cast::SECRET);
        let broker = Service::start(loud(flags), &logs).await?;
        let sandbox = Service::start(loud(Flags::sandbox().broker_url(&broker.url())), &logs).await?;

        let tokens = place.join("tokens.toml");
        fs::write(&tokens, cast::tokens_file()).context("the token file")?;
        let pins = [&code.total, &code.pay].map(|code| Digest::of(code).to_hex()).join(",");
        let flags = Flags::runner(&place.join("data")).allow_executor(&pins).tokens_file(&tokens);
        let flags = flags.sandbox_url(&sandbox.url()).broker_url(&broker.url());
        let runner = Service::start(loud(flags), &logs).await?;

        let mut story = Self { screen, directory, bank, code, broker, sandbox, runner };
        story.introduce();
        Ok(story)
    }

    fn introduce(&mut self) {
        let screen = self.screen;
        let knows = [
            (&mut self.runner, "the journal and the plan; two digests are pinned"),
            (&mut self.sandbox, "code and its input; no plan, no secret, no way out but the broker"),
            (&mut self.broker, "the secret `bank` and who may spend it; no code"),
        ];
        for (service, what) in knows {
            let (name, address, pid) =
                (service.flags.kind.program(), service.address().to_owned(), service.process().pid());
            screen.raw(name, &format!("{address:<16} pid {pid:<7} knows {what}"));
        }
        screen.raw(
            "bank",
            &format!(
                "{:<28} an HTTP service that asks for the secret",
                self.bank.origin().trim_start_matches("http://")
            ),
        );
        screen.raw("directory", &self.directory.path().display().to_string());
    }

    /// Code that nobody pinned does not start.
    pub async fn a_refusal_by_name(&self) -> Result<()> {
        let screen = self.screen;
        screen.part(1, "A refusal by name");
        screen.prose(
            "A plan came from somewhere else, and its tool is a script in a blob. It can be stored by anyone. Running it is \
             for the operator to allow, by digest, and nobody did.",
        );
        let alice = self.client(&ALICE)?;
        let uri = alice.put_blob(&self.code.foreign).await?;
        let plan = alice.put_work(&Definition::code("work", &uri)).await?;
        let Err(refusal) = alice.start(REFUSED, &plan, &json!({})).await else { bail!("unpinned code was started") };
        ensure!(refusal.message().starts_with("RUN-E018") && refusal.message().contains(&uri), "{}", refusal.message());
        screen.line("StartRun", &format!("{} {}", screen.red("refused"), refusal.message()));
        let Err(missing) = alice.get(REFUSED).await else { bail!("the refused run exists") };
        screen.good("GetRun", &format!("{}: there is no trace of a run", grpc_name(&missing)));
        let request = json!({"namespace": NAMESPACE, "run_id": REFUSED, "plan_hash": plan});
        screen.commands(&[commands::as_person(&ALICE, self.runner.address(), START, &request)]);
        Ok(())
    }

    /// A plan of three nodes runs up to its question.
    pub async fn a_run_that_asks(&self) -> Result<Ask> {
        let screen = self.screen;
        screen.part(2, "A plan whose tools are code");
        screen.raw("total", "pure module      adds up the invoice; can reach nothing");
        screen.raw("approve", "a person         must agree");
        screen.raw("pay", "module with fetch pays through the broker; names the credential, never sees the secret");
        screen.blank();
        let alice = self.client(&ALICE)?;
        let plan = self.author(&alice).await?;
        alice.start(RUN, &plan, &cast::invoice()).await?;
        let mut watch = alice.watch(RUN, 0).await?;
        self.show(&mut watch, "AskRaised").await?;
        let asks = alice.asks(RUN).await?;
        let ask = asks.into_iter().next().context("the run asks nobody")?;
        ensure!(ask.tool_call_id == commands::ask_id(RUN, "approve"), "an ask has another address than its names give");
        let input: Value = serde_json::from_str(&ask.input_json).context("the ask's input")?;
        ensure!(input["total_cents"] == json!(cast::TOTAL_CENTS), "the module added up to {}", input["total_cents"]);
        screen.blank();
        screen.good("total", &format!("{} cents, computed by the module", input["total_cents"]));
        let address = self.runner.address();
        let request = json!({"namespace": NAMESPACE, "run_id": NEXT_RUN, "plan_hash": plan, "input": cast::invoice()});
        let watched = json!({"namespace": NAMESPACE, "run_id": RUN});
        screen.commands(&[
            commands::as_person(&ALICE, address, START, &request),
            commands::as_person(&ALICE, address, "areev.runner.v1.RunnerService/WatchRun", &watched),
        ]);
        Ok(ask)
    }

    async fn author(&self, alice: &Client) -> Result<String> {
        let total = alice.put_blob(&self.code.total).await?;
        let pay = alice.put_blob(&self.code.pay).await?;
        let total = alice.put_definition(&Definition::pure("total", &total)).await?;
        let approve = Definition::client("approve").with("tool_description", "Shall this invoice be paid?");
        let approve = alice.put_definition(&approve).await?;
        let pay = Definition::io("pay", &pay, cast::capabilities(&self.bank.origin()));
        let pay = alice.put_definition(&pay).await?;
        let plan = Plan::new().node("total", &total).node("approve", &approve).node("pay", &pay);
        let plan = plan.edge("total", "approve").edge_if("approve", "pay", "approved == true");
        Ok(alice.put_plan(&plan).await?)
    }

    /// Whoever started the run cannot approve it; somebody else can.
    pub async fn an_answer(&self, ask: &Ask) -> Result<()> {
        let screen = self.screen;
        screen.part(3, "A person answers");
        let (alice, bob) = (self.client(&ALICE)?, self.client(&BOB)?);
        let answer = json!({"approved": true});
        let Err(refusal) = alice.respond(ask, &answer).await else { bail!("the starter approved its own run") };
        screen.line(ALICE.name, &format!("{} {}", screen.red("refused"), refusal.message()));
        let before = alice.get(RUN).await?.events;
        let mut watch = alice.watch(RUN, before).await?;
        bob.respond(ask, &answer).await?;
        screen.good(BOB.name, "the answer is durable, and the run goes on");
        screen.blank();
        self.show(&mut watch, "RunFinished").await?;
        let run = alice.wait(RUN).await?;
        ensure!(run.status() == RunStatus::Completed, "the run ended otherwise: {}", run.reason);
        let output: Value = serde_json::from_str(&run.output_json).context("the output")?;
        ensure!(output["status"] == json!(201), "the bank answered {output}");
        screen.blank();
        screen.good("pay", &format!("the bank answered {}", output["status"]));
        let address = self.runner.address();
        let asked = json!({"namespace": NAMESPACE});
        let answered = json!({"namespace": NAMESPACE, "run_id": NEXT_RUN, "tool_call_id": commands::ask_id(NEXT_RUN, "approve"), "answer": answer});
        screen.commands(&[
            commands::as_person(&BOB, address, "areev.runner.v1.RunnerService/ListAsks", &asked),
            commands::as_person(&BOB, address, "areev.runner.v1.RunnerService/RespondToAsk", &answered),
        ]);
        Ok(())
    }

    /// The bank was shown the secret; nothing else holds it.
    pub async fn where_the_secret_is(&self) -> Result<()> {
        let screen = self.screen;
        screen.part(4, "Where the secret is");
        screen.prose(
            "The bank echoes what it is shown, and the services log at their loudest. Everything is searched, for the secret \
             itself and for its base64, hex and percent forms.",
        );
        let received = self.bank.received();
        ensure!(received.len() == 1, "the bank was called {} times", received.len());
        let shown = received[0].header("authorization");
        ensure!(shown == [format!("Bearer {}", cast::SECRET)], "the bank was shown {shown:?}");
        screen.good("bank", &format!("was shown it: authorization: Bearer {}…", &cast::SECRET[..10]));

        let alice = self.client(&ALICE)?;
        let run = alice.get(RUN).await?;
        let output: Value = serde_json::from_str(&run.output_json).context("the output")?;
        let answer = output["body"].as_str().context("the module's output")?;
        secret::absent_in(cast::SECRET, "the output", &run.output_json)?;
        let entries = format!("{:?}", alice.entries(RUN).await?);
        secret::absent_in(cast::SECRET, "the journal's entries", &entries)?;
        screen.good("output", &format!("does not hold it; the module was handed {answer}"));
        for (label, place) in [("journal", "data"), ("logs", "logs")] {
            let searched = secret::absent(cast::SECRET, &self.directory.path().join(place))?;
            let size = searched.bytes / 1024;
            let files = if searched.files == 1 { "file" } else { "files" };
            screen.good(label, &format!("{} {files}, {size} KiB: not in there", searched.files));
        }
        let calls = json!({"run_id": RUN});
        screen.commands(&[commands::local(self.broker.address(), "areev.broker.v1.BrokerService/ListCalls", &calls)]);
        Ok(())
    }

    /// The journal is folded again.
    pub async fn the_evidence(&self) -> Result<()> {
        let screen = self.screen;
        screen.part(5, "The evidence");
        let verified = self.client(&ALICE)?.verify(RUN).await?;
        ensure!(verified.clean, "the journal does not verify: {}", verified.divergence);
        let text = format!(
            "clean: {} events, {} decisions made again, the same each time; nothing dispatched",
            verified.events, verified.decisions
        );
        screen.good("VerifyRun", &text);
        screen.raw("head", &verified.head_hash);
        let request = json!({"namespace": NAMESPACE, "run_id": RUN});
        let address = self.runner.address();
        screen.commands(&[
            commands::as_person(&ALICE, address, "areev.runner.v1.RunnerService/VerifyRun", &request),
            commands::as_person(&ALICE, address, "areev.runner.v1.RunnerService/GetManifest", &request),
        ]);
        Ok(())
    }

    /// Stops everything, or leaves it running until Ctrl-C.
    pub async fn end(mut self, keep: bool) -> Result<()> {
        let screen = self.screen;
        screen.blank();
        if keep {
            screen.note(
                "The services go on: the lines above work as they stand. Ctrl-C ends them and removes the directory.",
            );
            std::future::pending::<()>().await;
        }
        for service in [&mut self.runner, &mut self.sandbox, &mut self.broker] {
            let status = service.process().terminate()?;
            ensure!(status.success(), "{} ended with {status}", service.flags.kind.program());
        }
        screen.note("The services have drained and ended; the directory is removed. `cargo demo -- --keep` leaves them running.");
        screen.blank();
        Ok(())
    }

    /// Prints events up to one of a kind.
    async fn show(&self, watch: &mut Watch, last: &str) -> Result<()> {
        let mut first: Option<Event> = None;
        while let Some(event) = watch.next().await? {
            let started = first.get_or_insert_with(|| event.clone());
            let (time, text) = events::line(&event, started);
            self.screen.raw(&time, &text);
            if event.kind == last {
                return Ok(());
            }
        }
        bail!("the run ended without {last}")
    }

    fn client(&self, person: &Person) -> Result<Client> {
        Ok(Client::new(self.runner.channel()?, Some(person.token)))
    }
}

/// The code as grpcurl prints it.
fn grpc_name(status: &Status) -> String {
    format!("{:?}", status.code())
}
