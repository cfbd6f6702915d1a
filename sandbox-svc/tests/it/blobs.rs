//! Blobs for guests that declare to read them, over the stream of the effect.

use content_digest::Digest;
use proto::sandbox::v1::{
    BlobPart, BlobRead, Exchange, ExecuteRequest, Limits, OutcomeKind, Runtime, Start, execute_request::Message,
    execute_response,
};
use tonic::Code;

use crate::{
    caller::Call,
    guests,
    rig::{Rig, assert_failed, assert_output, start, until},
};

const BLOB: &[u8] = b"the blob's \"text\"";

async fn reading(rig: &Rig, digest: &Digest) -> Start {
    let uri = rig.put(&wat::parse_str(guests::reads_blob()).unwrap()).await;
    let input = format!("\"{}\"", digest.to_uri());
    Start { blob_read: true, ..start(&uri, Runtime::Wasm32AreevIo, &input) }
}

async fn read(call: &mut Call) -> BlobRead {
    match call.next().await.unwrap() {
        execute_response::Message::Blob(read) => read,
        other => panic!("no read: {other:?}"),
    }
}

async fn give(call: &Call, ordinal: u32, chunk: &[u8], last: bool) {
    let part = BlobPart { ordinal, chunk: chunk.to_vec(), last, refused_json: String::new() };
    call.requests.send(ExecuteRequest { message: Some(Message::Blob(part)) }).await.unwrap();
}

fn reply() -> String {
    serde_json::json!({"body": std::str::from_utf8(BLOB).unwrap()}).to_string()
}

#[tokio::test]
async fn a_blob_comes_in_parts_from_who_called_and_reaches_the_guest() {
    let rig = Rig::new().await;
    let digest = Digest::of(BLOB);
    let mut message = reading(&rig, &digest).await;
    message.limits = Some(Limits { max_blob_bytes: Some(BLOB.len() as u64), ..Limits::default() });
    let mut call = rig.begin(message).await.unwrap();
    for ordinal in 0..2 {
        let expected = BlobRead { ordinal, digest: digest.to_uri(), max_bytes: BLOB.len() as u64 };
        assert_eq!(read(&mut call).await, expected);
        give(&call, ordinal, &BLOB[..5], false).await;
        give(&call, ordinal, &BLOB[5..], true).await;
    }
    let outcome = call.outcome().await;
    assert_output(&outcome, &reply());
    assert_eq!(outcome.calls, 0, "a read of a blob is no call to the outside");
}

#[tokio::test]
async fn without_the_declaration_a_module_that_reads_blobs_is_refused_by_the_imports_name() {
    let rig = Rig::new().await;
    let mut message = reading(&rig, &Digest::of(BLOB)).await;
    message.blob_read = false;
    let outcome = rig.execute(message.clone()).await.unwrap().0;
    assert_failed(
        &outcome,
        OutcomeKind::Abi,
        "import `areev::blob_get` is refused: the definition does not declare it",
    );
    message.blob_read = true;
    message.runtime = Runtime::Wasm32Areev as i32;
    let outcome = rig.execute(message).await.unwrap().0;
    assert_failed(&outcome, OutcomeKind::Abi, "reading blobs needs runtime wasm32-areev-io");
}

#[tokio::test]
async fn a_refusal_reaches_the_guest_as_it_is_and_a_request_that_is_no_digest_asks_nobody() {
    let rig = Rig::new().await;
    let mut call = rig.begin(reading(&rig, &Digest::of(BLOB)).await).await.unwrap();
    let refused = "{\"error\":\"there is no such blob\",\"code\":\"RUN-E022\"}";
    for ordinal in 0..2 {
        read(&mut call).await;
        let part = BlobPart { ordinal, refused_json: refused.to_owned(), ..BlobPart::default() };
        call.requests.send(ExecuteRequest { message: Some(Message::Blob(part)) }).await.unwrap();
    }
    assert_output(&call.outcome().await, refused);

    let mut message = reading(&rig, &Digest::of(BLOB)).await;
    message.input_json = "\"cas://sha256:00\"".to_owned();
    let outcome = rig.execute(message).await.unwrap().0;
    assert!(outcome.output_json.contains("is no digest: write cas://sha256:"), "{outcome:?}");
}

#[tokio::test]
async fn a_recorded_read_is_asked_for_again_by_its_address_and_answered_alike() {
    let rig = Rig::new().await;
    let digest = Digest::of(BLOB);
    let mut message = reading(&rig, &digest).await;
    let recorded = |ordinal: u32, reply: String| Exchange {
        ordinal,
        request_digest: Digest::of(digest.to_uri()).to_hex(),
        reply_json: reply.into_bytes().into(),
        record: None,
    };
    let reference = serde_json::json!({"blob": digest.to_uri(), "bytes": BLOB.len()}).to_string();
    let refused = "{\"error\":\"not then\",\"code\":\"RUN-E022\"}".to_owned();
    message.recorded = vec![recorded(0, refused), recorded(1, reference)];
    let mut call = rig.begin(message).await.unwrap();
    assert_eq!(read(&mut call).await.ordinal, 1, "a recorded refusal is not asked for");
    give(&call, 1, BLOB, true).await;
    assert_output(&call.outcome().await, &reply());
}

#[tokio::test]
async fn other_bytes_more_bytes_and_parts_that_nobody_asked_for_end_the_effect() {
    let rig = Rig::new().await;
    for (given, text) in [(&b"other bytes"[..], "other bytes than those of"), (&[b'x'; 100], "a longer blob")] {
        let mut message = reading(&rig, &Digest::of(BLOB)).await;
        message.limits = Some(Limits { max_blob_bytes: Some(50), ..Limits::default() });
        let mut call = rig.begin(message).await.unwrap();
        read(&mut call).await;
        give(&call, 0, given, true).await;
        assert_failed(&call.outcome().await, OutcomeKind::Canceled, text);
    }
    let mut call = rig.begin(reading(&rig, &Digest::of(BLOB)).await).await.unwrap();
    read(&mut call).await;
    give(&call, 7, BLOB, true).await;
    let status = call.next().await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
    assert!(status.message().contains("read 7 was not awaiting"), "{status:?}");
    until("the slot is free", || rig.sandbox.admission.running() == 0).await;
}

#[tokio::test]
async fn a_caller_that_goes_away_while_a_guest_reads_frees_the_slot() {
    let rig = Rig::new().await;
    let mut call = rig.begin(reading(&rig, &Digest::of(BLOB)).await).await.unwrap();
    read(&mut call).await;
    drop(call.requests);
    let outcome = match call.replies.message().await.unwrap().unwrap().message.unwrap() {
        execute_response::Message::Outcome(outcome) => outcome,
        other => panic!("{other:?}"),
    };
    assert_failed(&outcome, OutcomeKind::Canceled, "ended its stream while the guest read a blob");
    until("the slot is free", || rig.sandbox.admission.running() == 0).await;
}

#[tokio::test]
async fn past_sixty_four_reads_of_one_effect_nobody_is_asked_and_the_guest_is_told() {
    const READS: u32 = 64;
    let rig = Rig::new().await;
    let digest = Digest::of(BLOB);
    let get = "(call $blob_get (i32.add (local.get $p) (i32.const 1)) (i32.sub (local.get $n) (i32.const 2)))";
    let run = format!(
        "(local $i i32) (local $r i32)
         (loop $again
           (drop {get})
           (br_if $again (i32.lt_s (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const {READS}))))
         (local.set $r {get})
         (call $emit (i32.add (local.get $r) (i32.const 4)) (i32.load (local.get $r)))"
    );
    let import = r#"(import "areev" "blob_get" (func $blob_get (param i32 i32) (result i32)))"#;
    let uri = rig.put(&wat::parse_str(guests::guest(import, "", &run)).unwrap()).await;
    let input = format!("\"{}\"", digest.to_uri());
    let message = Start { blob_read: true, ..start(&uri, Runtime::Wasm32AreevIo, &input) };
    let mut call = rig.begin(message).await.unwrap();
    for ordinal in 0..READS {
        assert_eq!(read(&mut call).await.ordinal, ordinal);
        give(&call, ordinal, BLOB, true).await;
    }
    let outcome = call.outcome().await;
    assert!(outcome.output_json.contains("the 64 reads of blobs of this effect are spent"), "{outcome:?}");
}
