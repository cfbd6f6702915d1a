//! Modules: uploaded, verified, compiled once, counted.

use content_digest::Digest;
use proto::{
    fault::{Reason, reason_of},
    sandbox::v1::{
        DescribeRequest, EffectKey, Limits, OutcomeKind, PutModuleRequest, Runtime, Start, StatModulesRequest,
        put_module_request::Message,
    },
};

use crate::{
    guests,
    rig::{Rig, assert_failed, assert_output, start, until},
};

const PURE: Runtime = Runtime::Wasm32Areev;

#[tokio::test]
async fn an_unknown_module_is_asked_for_and_runs_once_it_is_here() {
    let rig = Rig::new().await;
    let bytes = wat::parse_str(guests::echo()).unwrap();
    let uri = Digest::of(&bytes).to_uri();
    let status = rig.execute(start(&uri, PURE, "1")).await.unwrap_err();
    assert_eq!((status.code(), reason_of(&status)), (tonic::Code::FailedPrecondition, Some(Reason::ModuleNotFound)));
    assert!(status.message().starts_with("MODULE_NOT_FOUND: ") && status.message().contains(&uri), "{status:?}");
    rig.put(&bytes).await;
    assert_output(&rig.execute(start(&uri, PURE, "1")).await.unwrap().0, "1");
}

#[tokio::test]
async fn w14_bytes_that_are_not_what_they_are_called_are_refused_before_anything_reads_them() {
    let rig = Rig::new().await;
    let (one, two) = (b"one".as_slice(), Digest::of("two").to_uri());
    let status = rig.put_as(&two, one).await.unwrap_err();
    assert_eq!(reason_of(&status), Some(Reason::DigestMismatch));
    assert!(status.message().contains(&Digest::of(one).to_uri()), "{status:?}");
    let hex = Digest::of(one).to_hex();
    for name in [hex.clone(), format!("cas://sha256:{}", hex.to_uppercase()), format!("sha256:{hex}"), String::new()] {
        let status = rig.put_as(&name, one).await.unwrap_err();
        assert_eq!(reason_of(&status), Some(Reason::InvalidArgument), "{name}");
    }
    assert!(!rig.stat(&two).await.present);
}

#[tokio::test]
async fn an_upload_over_the_cap_or_out_of_order_is_refused() {
    let rig = Rig::with(|config| config.bounds.module_bytes_max = 10).await;
    let status = rig.put_as(&Digest::of([0; 11]).to_uri(), &[0; 11]).await.unwrap_err();
    assert_eq!(reason_of(&status), Some(Reason::ModuleRefused));
    assert!(status.message().contains("the 10 bytes"), "{status:?}");
    let chunk = || PutModuleRequest { message: Some(Message::Chunk(vec![0])) };
    let named = || PutModuleRequest { message: Some(Message::Digest(Digest::of([0]).to_uri())) };
    let orders = [vec![chunk()], vec![], vec![named(), named()], vec![PutModuleRequest { message: None }]];
    for messages in orders {
        let status = rig.client.clone().put_module(tokio_stream::iter(messages)).await.unwrap_err();
        assert_eq!(reason_of(&status), Some(Reason::InvalidArgument), "{status:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn o01_two_hundred_callers_of_one_uncached_module_cause_one_compilation() {
    let rig = Rig::with(|config| config.capacity.queue = 400).await;
    let mut many: String =
        (0..2000).map(|n| format!("(func (result i32) (i32.mul (i32.const {n}) (i32.const 3)))")).collect();
    many += &format!("(@custom \"padding\" \"{}\")", "x".repeat(5 << 20));
    let module = wat::parse_str(guests::guest("", &many, "(call $emit (local.get $p) (local.get $n))")).unwrap();
    assert!(module.len() > 5 << 20);
    let uri = rig.put(&module).await;
    let calls = (0..200).map(|_| rig.execute(start(&uri, PURE, "5")));
    for ended in futures::future::join_all(calls).await {
        assert_output(&ended.unwrap().0, "5");
    }
    assert_eq!(rig.sandbox.modules.compilations(), 1);
    assert_eq!(rig.stat(&uri).await.executions, 200);
}

#[tokio::test]
async fn a_refused_module_is_refused_again_from_memory() {
    let rig = Rig::new().await;
    let outcome = rig.run("(module)", PURE, "null").await;
    assert_failed(&outcome, OutcomeKind::Abi, "memory");
    let uri = Digest::of(wat::parse_str("(module)").unwrap()).to_uri();
    let again = rig.execute(start(&uri, PURE, "null")).await.unwrap().0;
    assert_eq!((again.kind(), &again.text), (outcome.kind(), &outcome.text));
    let stat = rig.stat(&uri).await;
    assert!(stat.present && !stat.compiled && stat.executions == 2, "{stat:?}");
    assert_eq!((stat.size_bytes, rig.sandbox.modules.held().1), (0, 0), "its bytes have gone");
}

#[tokio::test]
async fn native_code_that_was_taken_for_a_module_keeps_its_bytes() {
    let rig = Rig::new().await;
    let blob = b"#!/bin/sh\necho 1\n";
    let uri = rig.put(blob).await;
    let (outcome, _) = rig.execute(start(&uri, PURE, "null")).await.unwrap();
    assert_failed(&outcome, OutcomeKind::ModuleRefused, "");
    assert_eq!(rig.stat(&uri).await.size_bytes, blob.len() as u64);
}

#[tokio::test]
async fn the_record_of_the_last_execution_has_runtime_limits_and_effect() {
    let rig = Rig::new().await;
    let uri = rig.put(&wat::parse_str(guests::echo()).unwrap()).await;
    assert!(rig.stat(&uri).await.last_execution.is_none());
    let effect = EffectKey { run_id: "r1".to_owned(), node: "work".to_owned(), attempt: 1, ..EffectKey::default() };
    let limits = Limits { fuel: Some(5000), max_pages: Some(64), ..Limits::default() };
    let message = Start { limits: Some(limits), effect: Some(effect.clone()), ..start(&uri, PURE, "1") };
    assert_output(&rig.execute(message).await.unwrap().0, "1");
    let last = rig.stat(&uri).await.last_execution.unwrap();
    assert_eq!((last.runtime(), last.kind(), last.fetch_linked), (PURE, OutcomeKind::Completed, false));
    let limits = last.limits.unwrap();
    assert_eq!((limits.fuel, limits.max_pages, limits.max_calls), (Some(5000), Some(64), Some(64)));
    assert_eq!(last.effect, Some(effect));
}

#[tokio::test]
async fn the_least_recently_used_module_makes_room() {
    let modules: Vec<_> = (0..3).map(|n| wat::parse_str(guests::says(&n.to_string())).unwrap()).collect();
    let two = (modules[0].len() * 2) as u64;
    let rig = Rig::with(|config| config.cache.uploaded_bytes = two).await;
    let mut uris = Vec::new();
    for bytes in &modules {
        uris.push(rig.put(bytes).await);
    }
    assert!(!rig.stat(&uris[0]).await.present);
    assert!(rig.stat(&uris[1]).await.present && rig.stat(&uris[2]).await.present);
}

#[tokio::test]
async fn compiled_code_over_its_bound_makes_room_and_is_compiled_again_when_needed() {
    let rig = Rig::with(|config| config.cache.compiled_bytes = 1).await;
    for n in ["1", "2", "1"] {
        assert_output(&rig.run(&guests::says(n), PURE, "null").await, n);
    }
    assert_eq!(rig.sandbox.modules.compilations(), 3);
}

#[tokio::test]
async fn describe_says_what_this_sandbox_is() {
    let rig = Rig::new().await;
    rig.run(&guests::echo(), PURE, "1").await;
    let described = rig.client.clone().describe(DescribeRequest {}).await.unwrap().into_inner();
    assert_eq!(described.engine, "wasmtime 48.0.8");
    assert_eq!(described.runtimes, [Runtime::Wasm32Areev as i32, Runtime::Wasm32AreevIo as i32]);
    assert!(described.native_isolation.is_empty());
    assert_eq!((described.max_concurrent, described.modules, described.compilations), (8, 1, 1));
    assert_eq!(described.default_limits.unwrap().fuel, Some(200_000_000));
    let native = Rig::native().await.client.clone().describe(DescribeRequest {}).await.unwrap().into_inner();
    assert!(native.native_isolation.contains(&"no_new_privs".to_owned()), "{native:?}");
}

#[tokio::test]
async fn too_many_digests_in_one_question_are_refused() {
    let rig = Rig::new().await;
    let request = StatModulesRequest { digests: vec![Digest::of("").to_uri(); 257] };
    let status = rig.client.clone().stat_modules(request).await.unwrap_err();
    assert!(status.message().contains("257"), "{status:?}");
}

#[tokio::test]
async fn a_seventeenth_upload_at_once_is_told_to_come_again_and_has_a_place_when_one_ends() {
    let rig = Rig::new().await;
    let bytes = wat::parse_str(guests::echo()).unwrap();
    let named = PutModuleRequest { message: Some(Message::Digest(Digest::of(&bytes).to_uri())) };
    let mut uploads = Vec::new();
    for _ in 0..16 {
        let (messages, waiting) = tokio::sync::mpsc::channel(1);
        messages.send(named.clone()).await.unwrap();
        let mut client = rig.client.clone();
        let answered =
            tokio::spawn(async move { client.put_module(tokio_stream::wrappers::ReceiverStream::new(waiting)).await });
        uploads.push((messages, answered));
    }
    until("all sixteen are being received", || rig.sandbox.uploads.available_permits() == 0).await;
    let status = rig.put_as(&Digest::of(&bytes).to_uri(), &bytes).await.unwrap_err();
    assert_eq!((status.code(), reason_of(&status)), (tonic::Code::ResourceExhausted, Some(Reason::Busy)));
    let (messages, answered) = uploads.pop().unwrap();
    messages.send(PutModuleRequest { message: Some(Message::Chunk(bytes.clone())) }).await.unwrap();
    drop(messages);
    answered.await.unwrap().unwrap();
    rig.put(&bytes).await;
}
