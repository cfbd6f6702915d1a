//! The audit stream: a call through the HTTP door has its answer once its record is acknowledged, or none.

use std::time::Duration;

use proto::{
    broker::v1::{CallRecord, MintTokenRequest, WatchEffectsRequest, WatchEffectsResponse},
    fault::{Reason, reason_of},
};
use tokio::sync::mpsc;
use tonic::{Code, Streaming};

use crate::{
    doors::{Doors, minting},
    rig::{Rig, open},
    upstream::{Upstream, ok},
};

const PATIENCE: Duration = Duration::from_secs(30);

/// A runner's side of the stream.
struct Runner {
    say: mpsc::Sender<WatchEffectsRequest>,
    hear: Streaming<WatchEffectsResponse>,
}

impl Runner {
    async fn open(doors: &Doors, name: &str) -> Result<Self, tonic::Status> {
        let (say, said) = mpsc::channel(16);
        say.send(WatchEffectsRequest { watcher: name.into(), ..Default::default() }).await.unwrap();
        let said = tokio_stream::wrappers::ReceiverStream::new(said);
        let hear = doors.grpc.clone().watch_effects(said).await?.into_inner();
        Ok(Self { say, hear })
    }

    async fn record(&mut self) -> CallRecord {
        let told = tokio::time::timeout(PATIENCE, self.hear.message()).await.unwrap();
        told.unwrap().unwrap().record.unwrap()
    }

    async fn acknowledge(&self, sequence: u64) {
        self.say.send(WatchEffectsRequest { acknowledged: sequence, ..Default::default() }).await.unwrap();
    }

    async fn give_up(&self, sequence: u64) {
        self.say.send(WatchEffectsRequest { not_recorded: sequence, ..Default::default() }).await.unwrap();
    }
}

async fn watched_token(doors: &Doors, node: &str) -> String {
    let mut request = minting(node);
    request.watcher = "runner-0".into();
    doors.grpc.clone().mint_token(request).await.unwrap().into_inner().token
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_waits_for_its_record_and_a_door_without_a_stream_refuses() {
    let upstream = Upstream::plain(|_, out| ok(out, "hi"));
    let rig = Rig::new(&open(&upstream.http()));
    let doors = Doors::open(rig.broker.clone()).await;
    let (token, call) = (watched_token(&doors, "n").await, format!("{{\"url\":\"{}\"}}", upstream.http()));
    // Nobody takes records: nothing is sent.
    let (status, body) = doors.post(&token, &call).await;
    assert_eq!((status, body["code"].as_str()), (502, Some("RUN-E022")), "{body}");
    assert!(body["error"].as_str().unwrap().contains("cannot be recorded"), "{body}");
    assert_eq!(upstream.connections(), 0);

    let mut runner = Runner::open(&doors, "runner-0").await.unwrap();
    {
        let posting = doors.post(&token, &call);
        tokio::pin!(posting);
        let record = tokio::select! {
            answer = &mut posting => panic!("answered without a record: {answer:?}"),
            record = runner.record() => record,
        };
        assert_eq!((record.node.as_str(), record.status, record.door.as_str()), ("n", 200, "http"));
        assert_eq!(upstream.requests().len(), 1);
        runner.acknowledge(record.sequence).await;
        assert_eq!(posting.await.0, 200);
    }
    // Refusals are recorded as well, the same one once.
    let evil = "{\"url\":\"https://evil.com/\"}";
    let (first, record) = tokio::join!(doors.post(&token, evil), async {
        let record = runner.record().await;
        runner.acknowledge(record.sequence).await;
        record
    });
    assert_eq!((first.0, record.reason.as_str()), (403, "host_not_allowed"));
    assert_eq!(doors.post(&token, evil).await.0, 403, "it is acknowledged already");
    // A runner that cannot record, and one that goes away: no answer.
    let (refused, ()) = tokio::join!(doors.post(&token, &call), async {
        let record = runner.record().await;
        runner.give_up(record.sequence).await;
    });
    assert_eq!(refused.0, 502, "{}", refused.1);
    let (refused, ()) = tokio::join!(doors.post(&token, &call), async {
        runner.record().await;
        drop(runner);
    });
    assert_eq!(refused.0, 502, "{}", refused.1);
    assert!(refused.1["error"].as_str().unwrap().contains("cannot be recorded"), "{}", refused.1);
    // Every one of them is in the buffer.
    assert_eq!(rig.broker.audit.list("run-1", u64::MAX, 100).iter().filter(|record| record.status == 200).count(), 3);
    doors.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_was_told_and_not_acknowledged_is_told_again_on_the_next_stream() {
    let upstream = Upstream::plain(|_, out| ok(out, "hi"));
    let rig = Rig::new(&open(&upstream.http()));
    let doors = Doors::open(rig.broker.clone()).await;
    let (token, call) = (watched_token(&doors, "n").await, format!("{{\"url\":\"{}\"}}", upstream.http()));
    let mut runner = Runner::open(&doors, "runner-0").await.unwrap();
    let (answered, records) = tokio::join!(doors.post(&token, &call), async {
        let first = runner.record().await;
        drop(runner);
        let mut again = Runner::open(&doors, "runner-0").await.unwrap();
        let second = again.record().await;
        again.acknowledge(second.sequence).await;
        (first, second, again)
    });
    let (first, second, mut runner) = records;
    assert_eq!((answered.0, &first), (200, &second), "its caller has the answer once it is durable");
    assert_eq!(upstream.requests().len(), 1, "the call itself was made once");

    // Several, of which none was acknowledged, and none twice once it is.
    let evil = |n: usize| format!("{{\"url\":\"https://evil.com/{n}\"}}");
    let tokens = [watched_token(&doors, "a").await, watched_token(&doors, "b").await];
    let calls = [evil(1), evil(2)];
    let (one, other, again) =
        tokio::join!(doors.post(&tokens[0], &calls[0]), doors.post(&tokens[1], &calls[1]), async {
            let told = [runner.record().await.sequence, runner.record().await.sequence];
            drop(runner);
            let mut again = Runner::open(&doors, "runner-0").await.unwrap();
            assert_eq!([again.record().await.sequence, again.record().await.sequence], told);
            for sequence in told {
                again.acknowledge(sequence).await;
            }
            again
        });
    assert_eq!((one.0, other.0), (403, 403), "{} {}", one.1, other.1);
    drop(again);
    let mut last = Runner::open(&doors, "runner-0").await.unwrap();
    let (answered, record) = tokio::join!(doors.post(&token, &call), async {
        let record = last.record().await;
        last.acknowledge(record.sequence).await;
        record
    });
    assert_eq!((answered.0, record.status), (200, 200), "nothing that was settled is told again");
    doors.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_of_the_grpc_door_need_no_stream_and_a_token_without_one_is_not_good_at_the_http_door() {
    let upstream = Upstream::plain(|_, out| ok(out, "hi"));
    let rig = Rig::new(&open(&upstream.http()));
    let mut doors = Doors::open(rig.broker.clone()).await;
    let unwatched = MintTokenRequest { watcher: String::new(), ..minting("u") };
    let unwatched = doors.grpc.mint_token(unwatched).await.unwrap().into_inner().token;
    for token in [watched_token(&doors, "n").await, unwatched.clone()] {
        let fetch = proto::broker::v1::FetchRequest { token, url: upstream.http(), ..Default::default() };
        assert_eq!(doors.grpc.fetch(fetch).await.unwrap().into_inner().status, 200);
    }
    let (sent, call) = (upstream.requests().len(), format!("{{\"url\":\"{}\"}}", upstream.http()));
    let (status, body) = doors.post(&unwatched, &call).await;
    assert_eq!((status, body["code"].as_str()), (502, Some("RUN-E022")), "{body}");
    assert!(body["error"].as_str().unwrap().contains("without a `watcher`"), "{body}");
    assert_eq!(upstream.requests().len(), sent, "nothing was sent");
    let last = rig.broker.audit.list("run-1", u64::MAX, 1);
    assert_eq!(last[0].why.map(|why| why.code()), Some("audit_unavailable"), "the refusal is recorded");
    doors.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_that_goes_away_is_recorded_too_and_a_second_stream_takes_over() {
    let upstream = Upstream::plain(|_, _| true);
    let rig = Rig::new(&open(&upstream.http()));
    let doors = Doors::open(rig.broker.clone()).await;
    let token = watched_token(&doors, "n").await;
    let mut former = Runner::open(&doors, "runner-0").await.unwrap();
    let mut runner = Runner::open(&doors, "runner-0").await.unwrap();
    assert!(tokio::time::timeout(PATIENCE, former.hear.message()).await.unwrap().unwrap().is_none());
    let call = format!("{{\"url\":\"{}\"}}", upstream.http());
    tokio::select! {
        answer = doors.post(&token, &call) => panic!("the upstream never answers: {answer:?}"),
        () = async { while upstream.requests().is_empty() { tokio::task::yield_now().await } } => {}
    }
    assert_eq!(runner.record().await.reason, "caller_gone");
    doors.close().await;
}

#[tokio::test]
async fn a_stream_without_a_name_is_refused_and_one_with_a_name_ends_with_the_drain() {
    let rig = Rig::new("");
    let doors = Doors::open(rig.broker.clone()).await;
    for name in ["", &"x".repeat(129)] {
        let refused = Runner::open(&doors, name).await.err().unwrap();
        assert_eq!((refused.code(), reason_of(&refused)), (Code::InvalidArgument, Some(Reason::InvalidArgument)));
    }
    let mut runner = Runner::open(&doors, "runner-0").await.unwrap();
    let (ended, ()) = tokio::join!(runner.hear.message(), doors.close());
    assert_eq!(reason_of(&ended.unwrap_err()), Some(Reason::Draining));
}
