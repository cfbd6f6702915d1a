//! A stack of real services with temporary state: what a test asks for, and no more.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Instant,
};

use anyhow::{Context as _, Result, ensure};
use content_digest::Digest;
use proto::{
    broker::v1::broker_service_client::BrokerServiceClient,
    sandbox::v1::{DescribeRequest, sandbox_service_client::SandboxServiceClient},
};

use crate::{
    canary,
    channel::Channel,
    client::Client,
    flags::Flags,
    process::{PATIENCE, POLL},
    service::{Kind, Service},
};

/// A principal of the tests' token file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    /// `user:runner`: may do everything in every namespace.
    Runner,
    /// `user:approver`: reads and answers.
    Approver,
    /// `user:reader`: reads.
    Reader,
}

impl Who {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Runner, Self::Approver, Self::Reader];

    /// The principal's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Runner => "user:runner",
            Self::Approver => "user:approver",
            Self::Reader => "user:reader",
        }
    }

    /// The principal's bearer token.
    pub const fn token(self) -> &'static str {
        match self {
            Self::Runner => "token-of-the-runner-0001",
            Self::Approver => "token-of-the-approver-02",
            Self::Reader => "token-of-the-reader-0003",
        }
    }

    const fn permissions(self) -> &'static [&'static str] {
        match self {
            Self::Runner => &["run.execute", "run.respond", "run.cancel", "run.read", "catalog.write"],
            Self::Approver => &["run.respond", "run.read"],
            Self::Reader => &["run.read"],
        }
    }
}

/// The tests' token file.
pub fn tokens_file() -> String {
    let mut text = String::new();
    for who in Who::ALL {
        let (name, token, permissions) = (who.name(), who.token(), who.permissions());
        text.push_str(&format!(
            "[[principal]]\nname = {name:?}\ntoken = {token:?}\npermissions = {{ \"*\" = {permissions:?} }}\n\n"
        ));
    }
    text
}

/// What a stack is made of.
pub struct Builder {
    directory: canary::Folder,
    sandbox: Option<Flags>,
    broker: Option<Flags>,
    runner: Flags,
    tokens: bool,
    runner_knows_broker: bool,
    wrapper: Vec<String>,
}

/// Services that are up, and the folder that holds their state and logs.
pub struct Stack {
    /// The sandbox, if the stack has one.
    pub sandbox: Option<Service>,
    /// The broker, if the stack has one.
    pub broker: Option<Service>,
    /// The runner.
    pub runner: Service,
    tokens: bool,
    // Last: once the services have ended, all that they wrote is searched for secrets.
    directory: canary::Folder,
}

impl Stack {
    /// Begins with a runner alone that knows the tests' principals.
    pub fn builder() -> Result<Builder> {
        let directory = canary::Folder::new()?;
        let runner = Flags::runner(&directory.path().join("data"));
        Ok(Builder {
            directory,
            sandbox: None,
            broker: None,
            runner,
            tokens: true,
            runner_knows_broker: true,
            wrapper: Vec::new(),
        })
    }

    /// The folder of everything that the stack writes.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// The runner's data directory.
    pub fn data(&self) -> PathBuf {
        self.directory().join("data")
    }

    /// The caller that starts runs: `user:runner`, or `user:local` in a stack without a token file.
    pub fn client(&self) -> Client {
        self.client_of(Who::Runner)
    }

    /// A caller.
    pub fn client_of(&self, who: Who) -> Client {
        Client::new(self.channel(), self.tokens.then(|| who.token()))
    }

    /// A caller without a token.
    pub fn stranger(&self) -> Client {
        Client::new(self.channel(), None)
    }

    /// The sandbox's own service.
    pub fn sandbox_client(&self) -> SandboxServiceClient<Channel> {
        let sandbox = self.sandbox.as_ref().expect("the stack was built with a sandbox");
        SandboxServiceClient::new(sandbox.channel().expect("a service's own URL is dialed"))
            .max_decoding_message_size(proto::serve::MESSAGE_BYTES_MAX)
    }

    /// The broker's own service.
    pub fn broker_client(&self) -> BrokerServiceClient<Channel> {
        let broker = self.broker.as_ref().expect("the stack was built with a broker");
        BrokerServiceClient::new(broker.channel().expect("a service's own URL is dialed"))
            .max_decoding_message_size(proto::serve::MESSAGE_BYTES_MAX)
    }

    /// Waits until the sandbox runs so many guests.
    pub async fn running_guests(&self, wanted: u32) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        let mut sandbox = self.sandbox_client();
        while sandbox.describe(DescribeRequest {}).await?.into_inner().running != wanted {
            ensure!(Instant::now() < deadline, "the sandbox never ran {wanted} guests");
            tokio::time::sleep(POLL).await;
        }
        Ok(())
    }

    fn channel(&self) -> Channel {
        self.runner.channel().expect("a service's own URL is dialed")
    }
}

impl Builder {
    /// The folder that the stack will live in.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Pins some code.
    #[must_use]
    pub fn pin(self, code: &[u8]) -> Self {
        self.runner(|flags| flags.allow_executor(&Digest::of(code).to_hex()))
    }

    /// Adds a sandbox.
    #[must_use]
    pub fn sandbox(mut self) -> Self {
        self.sandbox = Some(Flags::sandbox());
        self
    }

    /// Adds a sandbox that executes native blobs.
    #[must_use]
    pub fn native_sandbox(mut self) -> Self {
        self.sandbox = Some(Flags::sandbox().allow_native());
        self
    }

    /// Adds a broker with a settings file and its secrets, each of which has the canary's word in it.
    pub fn broker(mut self, settings: &str, secrets: &[(&str, &str)]) -> Result<Self> {
        secrets.iter().try_for_each(|(name, secret)| canary::require(name, secret))?;
        let file = self.directory.path().join("broker.toml");
        fs::write(&file, settings).context("the broker's settings")?;
        let flags = Flags::broker().config(&file);
        self.broker = Some(secrets.iter().fold(flags, |flags, (name, value)| flags.variable(name, value)));
        Ok(self)
    }

    /// The runner does not know the broker, though the sandbox does.
    #[must_use]
    pub fn broker_unknown_to_runner(mut self) -> Self {
        self.runner_knows_broker = false;
        self
    }

    /// No token file: a caller on this host is `user:local`.
    #[must_use]
    pub fn without_tokens(mut self) -> Self {
        self.tokens = false;
        self
    }

    /// Changes the runner's flags.
    #[must_use]
    pub fn runner(mut self, change: impl FnOnce(Flags) -> Flags) -> Self {
        self.runner = change(self.runner);
        self
    }

    /// Changes the sandbox's flags, if the stack has one.
    #[must_use]
    pub fn sandbox_flags(mut self, change: impl FnOnce(Flags) -> Flags) -> Self {
        self.sandbox = self.sandbox.map(change);
        self
    }

    /// Changes the broker's flags, if the stack has one.
    #[must_use]
    pub fn broker_flags(mut self, change: impl FnOnce(Flags) -> Flags) -> Self {
        self.broker = self.broker.map(change);
        self
    }

    /// Changes every service's flags.
    #[must_use]
    pub fn all(mut self, change: impl Fn(Flags) -> Flags) -> Self {
        self.runner = change(self.runner);
        self.sandbox = self.sandbox.map(&change);
        self.broker = self.broker.map(&change);
        self
    }

    /// Starts the runner behind another program, such as `strace`.
    #[must_use]
    pub fn runner_under(mut self, wrapper: Vec<String>) -> Self {
        self.wrapper = wrapper;
        self
    }

    /// Starts the services, each after those it calls.
    pub async fn start(mut self) -> Result<Stack> {
        let logs = self.directory.path().join("logs");
        fs::create_dir_all(&logs).context("the folder of logs")?;
        // What a killed service leaves in its temporary folder goes with the stack's.
        let temporary = self.directory.path().join("tmp");
        fs::create_dir_all(&temporary).context("the folder of temporary files")?;
        self = self.all(|flags| flags.variable("TMPDIR", &temporary.to_string_lossy()));
        let broker = match self.broker {
            Some(flags) => Some(Service::start(flags, &logs).await?),
            None => None,
        };
        let sandbox = match self.sandbox {
            Some(mut flags) => {
                if let Some(broker) = &broker {
                    flags = flags.broker_url(&broker.url());
                }
                Some(Service::start(flags, &logs).await?)
            }
            None => None,
        };
        if let Some(sandbox) = &sandbox {
            self.runner = self.runner.sandbox_url(&sandbox.url());
        }
        if let Some(broker) = broker.as_ref().filter(|_| self.runner_knows_broker) {
            self.runner = self.runner.broker_url(&broker.url());
        }
        if self.tokens {
            let file = self.directory.path().join("tokens.toml");
            fs::write(&file, tokens_file()).context("the token file")?;
            self.runner = self.runner.tokens_file(&file);
        }
        let runner = Service::start_under(self.runner, &logs, self.wrapper).await?;
        debug_assert_eq!(runner.flags.kind, Kind::Runner);
        Ok(Stack { sandbox, broker, runner, tokens: self.tokens, directory: self.directory })
    }
}
