//! A run that another writer took over: whoever steers it here is told, by the code and status that callers know.

use std::sync::Arc;

use proto::{
    fault::Fault,
    runner::v1::{
        CancelRunRequest, GetRunRequest, PauseRunRequest, ResumeRunRequest, RunStatus,
        runner_service_server::RunnerService as _,
    },
};
use runner_core::manifest::Durability;
use runner_svc::{
    access::{Access, Permission, Principal},
    api::{
        catalog::HostOffer,
        runner::{RunnerApi, RunnerParts},
    },
    catalogue::Catalogue,
    evidence::receipt::ReceiptKey,
    journal::{Append, Claim, Record, Update, Urgency},
    runs::Runs,
};
use tokio_util::sync::CancellationToken;
use tonic::{Code, Extensions, Request, Status, metadata::MetadataMap};
use tonic_types::StatusExt as _;

use crate::recovery::rig::{Host, Plan};

/// Lets everybody do everything.
struct Anyone;

impl Access for Anyone {
    fn principal(&self, _: &Extensions, _: &MetadataMap) -> Result<Principal, Fault> {
        Ok(Principal::new("user:bea"))
    }

    fn allow(&self, _: &Principal, _: &str, _: Permission) -> Result<(), Fault> {
        Ok(())
    }

    fn holders(&self, _: &str, _: Permission) -> Vec<String> {
        Vec::new()
    }

    fn allow_anywhere(&self, _: &Principal, _: Permission) -> Result<(), Fault> {
        Ok(())
    }
}

/// The service on the runs of a host, with a catalogue that has nothing.
fn api(runs: Runs) -> (RunnerApi, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let db = sled::Config::new().temporary(true).open().unwrap();
    let catalogue = Catalogue::open(directory.path(), db.open_tree("catalogue").unwrap()).unwrap();
    let parts = RunnerParts {
        runs,
        catalogue: Arc::new(catalogue),
        access: Arc::new(Anyone),
        host: Box::new(HostOffer::default),
        durability: Durability::ProcessCrash,
        receipts: Arc::new(ReceiptKey::make().unwrap().0),
        drain: CancellationToken::new(),
    };
    (RunnerApi::new(parts), directory)
}

fn lease_lost(status: &Status) {
    assert_eq!(status.code(), Code::Aborted, "{status:?}");
    let details = status.get_error_details();
    let info = details.error_info().unwrap();
    assert_eq!((info.reason.as_str(), info.domain.as_str()), ("LEASE_LOST", "areev.runner"));
    assert_eq!(info.metadata["code"], "RUN-E021");
    assert!(status.message().starts_with("RUN-E021: another writer took run \"r1\" over"), "{}", status.message());
    assert!(status.message().contains("read the run again"), "{}", status.message());
}

/// What another process writes when it takes a run over: one record, by the next fence.
pub fn takeover(run_id: &str, (expected_next, fence): (u64, u64)) -> Append {
    Append {
        run_id: run_id.to_owned(),
        expected_next,
        fence,
        urgency: Urgency::Closing,
        records: vec![Record { bytes: b"{}".to_vec(), payloads: Vec::new() }],
        update: Update::default(),
    }
}

#[tokio::test]
async fn a_former_driver_writes_nothing_and_whoever_steers_the_run_is_told_run_e021() {
    let mut host = Host::new();
    host.start("r1", &Plan::ask(), "{}").await;
    host.start("r2", &Plan::ask(), "{}").await;
    let runs = host.runs();
    let journal = runs.shared().journal.clone();
    let (api, _directory) = api(runs.clone());
    let before = journal.run("r1").unwrap();
    // Long after the lease has ended.
    let claim = Claim { holder: "another".to_owned(), ttl_ms: 15_000, now_ms: u64::MAX / 2 };
    let lease = journal.take_over(claim, takeover("r1", (before.next_sequence, before.fence + 1))).await.unwrap();
    assert_eq!(lease.fence, before.fence + 1);

    let (namespace, run_id) = ("ops".to_owned(), "r1".to_owned());
    let pause = PauseRunRequest { namespace: namespace.clone(), run_id: run_id.clone() };
    lease_lost(&api.pause_run(Request::new(pause)).await.unwrap_err());
    // And so is everybody after that: nobody drives it here any more.
    let resume = ResumeRunRequest { namespace: namespace.clone(), run_id: run_id.clone() };
    lease_lost(&api.resume_run(Request::new(resume)).await.unwrap_err());
    let cancel = CancelRunRequest { namespace: namespace.clone(), run_id: run_id.clone(), reason: String::new() };
    lease_lost(&api.cancel_run(Request::new(cancel)).await.unwrap_err());
    let get = GetRunRequest { namespace: namespace.clone(), run_id };
    let run = api.get_run(Request::new(get)).await.unwrap().into_inner().run.unwrap();
    assert_eq!(run.status(), RunStatus::Quarantined);
    assert!(run.reason.starts_with("RUN-E021: "), "{}", run.reason);
    assert_eq!(journal.run("r1").unwrap().next_sequence, before.next_sequence + 1, "the takeover alone");

    let pause = PauseRunRequest { namespace, run_id: "r2".to_owned() };
    api.pause_run(Request::new(pause)).await.expect("the other run goes on");
}
