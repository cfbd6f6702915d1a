//! The guest ABI, rule by rule.

use proto::sandbox::v1::{OutcomeKind, Runtime};

use crate::{
    guests,
    rig::{Rig, assert_failed, assert_output, start},
};

const PURE: Runtime = Runtime::Wasm32Areev;
const IO: Runtime = Runtime::Wasm32AreevIo;

#[tokio::test]
async fn a_guest_is_given_its_input_compact_and_its_output_is_handed_on_as_written() {
    let rig = Rig::new().await;
    let outcome = rig.run(&guests::echo(), PURE, " { \"n\" : 9007199254740993, \"t\" : \"a b\" }\n").await;
    assert_output(&outcome, "{\"n\":9007199254740993,\"t\":\"a b\"}");
    assert!(outcome.fuel_used > 0 && outcome.peak_memory_bytes == 4 * 65536, "{outcome:?}");
    for number in ["18446744073709551615", "-9223372036854775808", "1.10", "-0.0"] {
        assert_output(&rig.run(&guests::echo(), PURE, number).await, number);
    }
    assert_output(&rig.run(&guests::says(" [1,\n 2] "), PURE, "null").await, " [1,\n 2] ");
}

#[tokio::test]
async fn w11_the_last_emit_wins_and_one_outside_memory_is_ignored() {
    let rig = Rig::new().await;
    let twice = guests::guest(
        "",
        r#"(data (i32.const 0) "12")"#,
        "(call $emit (i32.const 0) (i32.const 1)) (call $emit (i32.const 1) (i32.const 1))
         (call $emit (i32.const 262143) (i32.const 2)) (call $emit (i32.const -1) (i32.const 1))",
    );
    assert_output(&rig.run(&twice, PURE, "null").await, "2");
}

#[tokio::test]
async fn w11_an_output_that_is_missing_or_is_not_json_is_said_to_be_so() {
    let rig = Rig::new().await;
    let outcome = rig.run(&guests::pure(""), PURE, "null").await;
    assert_eq!((outcome.kind(), outcome.text.as_str()), (OutcomeKind::BadOutput, "guest never called areev::emit"));
    let outside =
        guests::pure("(call $emit (i32.const 4) (i32.const 262144)) (call $emit (i32.const -16) (i32.const 64))");
    let text = "guest never called areev::emit with a range inside its memory (last: pointer 4294967280, 64 bytes)";
    assert_failed(&rig.run(&outside, PURE, "null").await, OutcomeKind::BadOutput, text);
    let invalid = guests::guest("", r#"(data (i32.const 0) "\22\ff\22")"#, "(call $emit (i32.const 0) (i32.const 3))");
    let bad = [guests::says("NaN"), guests::says("{} {}"), guests::says(""), guests::says("{\"a\":"), invalid];
    for wat in bad {
        assert_failed(&rig.run(&wat, PURE, "null").await, OutcomeKind::BadOutput, "guest output is not JSON");
    }
    // What a tool written with the crate of guests says of its own error.
    let outcome = rig.run(&guests::says("error: market closed"), PURE, "null").await;
    let text = "guest output is not JSON: \"error: market closed\" (expected value at line 1 column 1)";
    assert_eq!((outcome.kind(), outcome.text.as_str()), (OutcomeKind::BadOutput, text));
    assert_output(&rig.run(&guests::says("{\"a\":1,\"a\":2}"), PURE, "null").await, "{\"a\":1,\"a\":2}");
    // Two thousand nested arrays, made by the guest.
    let deep = guests::pure(
        "(memory.fill (i32.const 0) (i32.const 91) (i32.const 2000)) (call $emit (i32.const 0) (i32.const 2000))",
    );
    assert_failed(&rig.run(&deep, PURE, "null").await, OutcomeKind::BadOutput, "nested over 127 deep");
}

#[tokio::test]
async fn w11_an_output_over_its_cap_fails_the_run() {
    let rig = Rig::new().await;
    for length in [8 * 1024 * 1024 + 1, -1_i32] {
        let wat = guests::pure(&format!("(call $emit (i32.const 0) (i32.const {length}))"));
        assert_failed(&rig.run(&wat, PURE, "null").await, OutcomeKind::OutputTooLarge, "8388608");
    }
}

#[tokio::test]
async fn w01_an_import_that_is_not_linked_is_refused_by_name() {
    let rig = Rig::new().await;
    let fetching = guests::fetches(&["{\"url\":\"https://api.example.com\"}"]);
    let outcome = rig.run(&fetching, PURE, "null").await;
    assert_failed(&outcome, OutcomeKind::Abi, "import `areev::fetch` is refused");
    assert_failed(&outcome, OutcomeKind::Abi, "wasm32-areev-io");
    assert_eq!(rig.run(&fetching, IO, "null").await.kind(), OutcomeKind::Completed);
    let others = [
        (
            r#"(import "wasi_snapshot_preview1" "fd_write" (func (param i32 i32 i32 i32) (result i32)))"#,
            "wasi_snapshot_preview1::fd_write",
        ),
        (r#"(import "env" "abort" (func (param i32 i32 i32 i32)))"#, "env::abort"),
        (r#"(import "areev" "emit" (func (param i32)))"#, "areev::emit"),
        (r#"(import "areev" "emit" (global i32))"#, "a global"),
        (r#"(import "areev" "fetch" (func (param i64 i32) (result i32)))"#, "areev::fetch"),
        (r#"(import "areev" "blob_get" (func (param i32 i32) (result i32)))"#, "the definition does not declare it"),
        (r#"(import "areev" "clock\n" (func))"#, "areev::clock\\n"),
    ];
    for (import, name) in others {
        let outcome = rig.run(&guests::guest(import, "", ""), IO, "null").await;
        assert_failed(&outcome, OutcomeKind::Abi, name);
        assert_failed(&outcome, OutcomeKind::Abi, "wasm32-areev-io links only areev::emit");
    }
}

#[tokio::test]
async fn w09_a_module_without_the_exports_of_the_abi_is_refused_by_name() {
    let rig = Rig::new().await;
    let alloc = r#"(func (export "alloc") (param i32) (result i32) i32.const 8)"#;
    let run = r#"(func (export "run") (param i32 i32))"#;
    let memory = r#"(memory (export "memory") 1)"#;
    let cases = [
        (format!("(module {alloc} {run})"), "`memory`"),
        (format!("(module {memory} {run})"), "`alloc`"),
        (format!("(module {memory} {alloc})"), "`run`"),
        (format!(r#"(module {alloc} {run} (func (export "memory")))"#), "`memory` is a function"),
        (format!(r#"(module {memory} {run} (func (export "alloc") (param i64) (result i32) i32.const 8))"#), "`alloc`"),
        (format!(r#"(module {memory} {alloc} (func (export "run")))"#), "`run`"),
    ];
    for (wat, name) in cases {
        assert_failed(&rig.run(&wat, PURE, "null").await, OutcomeKind::Abi, name);
    }
}

#[tokio::test]
async fn w09_an_alloc_whose_answer_does_not_fit_the_memory_breaks_the_abi() {
    let rig = Rig::new().await;
    for answer in ["-1", "65533", "2147483647"] {
        let wat = format!(
            r#"(module (memory (export "memory") 1) (func (export "alloc") (param i32) (result i32) i32.const {answer})
               (func (export "run") (param i32 i32)))"#
        );
        assert_failed(&rig.run(&wat, PURE, "null").await, OutcomeKind::Abi, "alloc(4) answered");
    }
}

#[tokio::test]
async fn w14_a_wrong_request_is_a_status_that_names_the_field() {
    let rig = Rig::new().await;
    let uri = rig.put(&wat::parse_str(guests::echo()).unwrap()).await;
    let good = start(&uri, PURE, "null");
    let upper = uri.replace("cas://sha256:", "").to_uppercase();
    let wrong = [
        ("module_digest", proto::sandbox::v1::Start { module_digest: format!("cas://sha256:{upper}"), ..good.clone() }),
        ("module_digest", proto::sandbox::v1::Start { module_digest: upper.to_lowercase(), ..good.clone() }),
        ("runtime", proto::sandbox::v1::Start { runtime: 0, ..good.clone() }),
        ("input_json", proto::sandbox::v1::Start { input_json: String::new(), ..good.clone() }),
        ("tool_name", proto::sandbox::v1::Start { tool_name: "a\0b".to_owned(), ..good.clone() }),
        ("definition_hash", proto::sandbox::v1::Start { definition_hash: "abc".to_owned(), ..good.clone() }),
    ];
    for (field, message) in wrong {
        let status = rig.execute(message).await.unwrap_err();
        assert_eq!(status.code(), tonic::Code::InvalidArgument, "{field}: {status:?}");
        assert!(status.message().contains(field), "{field}: {}", status.message());
    }
}
